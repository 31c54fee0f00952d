"""One record replaced by another, in batches of a fixed size without replacement."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import integrate, optimize

from inosgm.accounting import (
    ACCOUNTANTS,
    PLD,
    PLDReplaceOne,
    RDPReplaceOne,
    Segment,
    composed_epsilon,
    epsilon,
    noise_multiplier,
    sample_rate,
    steps,
)
from inosgm.accounting.gaussian import gaussian_delta, gaussian_epsilon
from inosgm.accounting.pld import pld_epsilon
from inosgm.accounting.replacement import _log_moments, replaced_gaussian_rdp

TIGHT, RENYI = PLDReplaceOne(), RDPReplaceOne()


def delta_of(fraction, multiplier, eps):
    """Return delta' of one step: delta'(log(1 + g (e^x - 1))) = g delta(x), delta(-x) = 1 - e^-x + e^-x delta(x)."""
    away = np.abs(eps)
    found = fraction * gaussian_delta(np.asarray(2 / multiplier), np.log1p(np.expm1(away) / fraction))
    return np.where(eps >= 0, found, -np.expm1(eps) + np.exp(eps) * found)


def test_units_are_told_apart():
    assert {name: accountant.unit for name, accountant in ACCOUNTANTS.items()} == {
        "pld": "add/remove",
        "rdp": "add/remove",
        "pld-replace-one": "replace-one",
        "rdp-replace-one": "replace-one",
    }
    assert all(accountant.name == name for name, accountant in ACCOUNTANTS.items())


@pytest.mark.parametrize(("fraction", "multiplier"), [(1e-4, 1.5), (0.005, 3.0), (0.02, 9.22), (0.3, 20.0), (0.9, 3.0)])
def test_divergences_are_those_of_dp_accounting(fraction, multiplier):
    """Never above those without sampling, which theirs may be; with much noise their differences are rounding alone
    at high orders.
    """
    orders = np.concatenate([np.arange(2, 50), [80, 128, 200]])
    with np.errstate(divide="ignore"):
        theirs = rdp_privacy_accountant._compute_rdp_sample_wor_gaussian(fraction, multiplier / 2, orders)
    theirs = np.minimum(theirs, orders * 2 / multiplier**2)
    row = np.array([fraction]), np.array([multiplier / 2])
    ours = np.array([replaced_gaussian_rdp(*row, float(order))[0] for order in orders])
    assert (ours <= theirs * (1 + 1e-6)).all()
    stable = orders < (50 if multiplier > 10 else 201)
    np.testing.assert_allclose(ours[stable], theirs[stable], rtol=1e-6)


def test_moments_lose_no_digits():
    for multiplier in (1.1, 4.0, 60.0):
        ours = _log_moments(multiplier, 64)
        for k in (2, 6, 20, 64):
            with mpmath.workdps(120):
                inverse = 1 / mpmath.mpf(multiplier) ** 2
                terms = (
                    mpmath.binomial(k, j) * (-1) ** (k - j) * mpmath.e ** (inverse * j * (j - 1) / 2)
                    for j in range(k + 1)
                )
                exact = float(mpmath.log(mpmath.fsum(terms)))
            assert ours[k // 2] == pytest.approx(exact, abs=1e-10)


def test_renyi_epsilons_are_those_of_dp_accounting():
    theirs = rdp_privacy_accountant.RdpAccountant(
        orders=range(2, 40), neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    gaussian = dp_accounting.GaussianDpEvent(3.0)  # over the distance of 2 C
    theirs.compose(dp_accounting.SampledWithoutReplacementDpEvent(10_000, 50, gaussian), 2000)
    theirs.compose(dp_accounting.GaussianDpEvent(40.0), 5)
    ours = composed_epsilon([Segment(50 / 10_000, 6.0, 2000), Segment(1.0, 80.0, 5)], 1e-6, RENYI)
    assert ours == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-6)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
def test_one_step_has_a_closed_form(delta):
    for fraction, multiplier in [(1e-3, 1.0), (0.02, 2.0), (0.5, 4.0), (0.99, 0.8)]:
        ours = epsilon(fraction, multiplier, 1, delta, TIGHT)
        if delta_of(fraction, multiplier, 0.0) <= delta:
            assert ours < 1e-4
            continue
        exact = optimize.brentq(lambda e, g=fraction, m=multiplier: delta_of(g, m, e) - delta, 0, 60, xtol=1e-13)
        assert exact * (1 - 1e-9) <= ours <= exact * (1 + 5e-4)


@pytest.mark.parametrize("fraction", [0.5, 0.2])
def test_no_other_records_help_to_tell_which_one_was_replaced(fraction):
    """A batch holds the record (+C or -C), or another one in its place: whichever that is, ours is not exceeded."""

    def normal(z, mean):
        return np.exp(-((z - mean) ** 2) / 2 / 1.5**2) / (1.5 * math.sqrt(2 * math.pi))

    reached = []
    for eps in (-0.3, 0.0, 0.2, 0.6):
        for others in (-1.0, -0.4, 0.0, 0.7, 1.0):

            def above(z, others=others, eps=eps):
                rest = (1 - fraction) * normal(z, others)
                return max(rest + fraction * normal(z, 1) - math.exp(eps) * (rest + fraction * normal(z, -1)), 0.0)

            found = integrate.quad(above, -16, 20, limit=400, points=[0.0])[0]
            bound = float(delta_of(fraction, 1.5, eps))
            assert found <= bound * (1 + 1e-6)
            reached.append((eps, found / bound))
    for eps in (-0.3, 0.0, 0.2, 0.6):
        assert max(part for at, part in reached if at == eps) == pytest.approx(1, abs=1e-6)


def test_at_fraction_one_it_is_the_gaussian_with_twice_the_bound():
    for multiplier, count in ((5.0, 1), (50.0, 300)):
        exact = float(gaussian_epsilon(2 * math.sqrt(count) / multiplier, 1e-5))
        assert epsilon(1.0, multiplier, count, 1e-5, TIGHT) == pytest.approx(exact, rel=1e-9)
        assert exact * (1 - 1e-6) <= epsilon(1 - 1e-9, multiplier, count, 1e-5, TIGHT) <= exact * (1 + 5e-4)


def test_compositions_agree_with_dp_accounting_on_the_same_curve():
    fraction, multiplier, count, grid = 0.02, 3.0, 500, 1e-4
    points = np.arange(-6000, 6001)
    deltas = delta_of(fraction, multiplier, points * grid)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(grid, points, deltas)
    theirs = pmf.self_compose(count).get_epsilon_for_delta(1e-5)
    assert epsilon(fraction, multiplier, count, 1e-5, TIGHT) == pytest.approx(theirs, rel=5e-4)


def test_tiny_fractions_and_many_steps_stay_tight():
    """In the limit of many small steps it is Gaussian; the losses' variance is that of sum of both directions."""
    fraction, multiplier, count = 1e-4, 100.0, 10_000
    mu = fraction * math.sqrt(count * math.expm1(4 / multiplier**2))
    ours = epsilon(fraction, multiplier, count, 1e-9, TIGHT)
    exact = float(gaussian_epsilon(mu, 1e-9))
    assert exact < ours < 2 * exact


@pytest.mark.parametrize("accountant", [TIGHT, RENYI])
def test_inverses_keep_the_budget(accountant):
    found = noise_multiplier([0.5, 4.0], 1e-5, 0.01, 1000, accountant)
    back = epsilon(0.01, found, 1000, 1e-5, accountant)
    assert (back <= [0.5, 4.0]).all()
    np.testing.assert_allclose(back, [0.5, 4.0], rtol=1e-3)
    rates = sample_rate([0.5, 4.0], 1e-5, 8.0, 100, accountant)
    back = epsilon(rates, 8.0, 100, 1e-5, accountant)
    assert (back <= [0.5, 4.0]).all()
    assert ((back >= np.array([0.5, 4.0]) * 0.998) | (rates == 1)).all()
    count = steps(1.0, 1e-5, 0.01, 4.0, accountant)
    assert epsilon(0.01, 4.0, count, 1e-5, accountant) <= 1 < epsilon(0.01, 4.0, count + 1, 1e-5, accountant)


def test_deltas_below_what_floats_can_tell_are_refused():
    with pytest.raises(ValueError, match="at least 1e-13, got 1e-50: take RDPReplaceOne"):
        epsilon(0.01, 1.0, 1, 1e-50, TIGHT)
    assert epsilon(1e-9, 2.0, 1, 1e-50, RENYI) > epsilon(1e-9, 2.0, 1, 1e-40, RENYI) > 0


def test_many_budgets_share_a_curve():
    pld_epsilon.cache_clear()
    budgets = np.geomspace(0.5, 5, 300)
    found = noise_multiplier(budgets, 1e-5, 0.01, 300, TIGHT)
    assert pld_epsilon.cache_info().misses < 60
    some = slice(None, None, 60)
    back = epsilon(0.01, found[some], 300, 1e-5, TIGHT)
    assert (back <= budgets[some]).all()
    np.testing.assert_allclose(back, budgets[some], rtol=5e-3)


def test_it_is_a_weaker_unit_and_epsilons_rise_with_the_fraction():
    rates = np.array([1e-3, 0.01, 0.1, 0.5, 0.99, 1.0])
    for accountant in (TIGHT, RENYI):
        assert (np.diff(epsilon(rates, 6.0, 200, 1e-5, accountant)) > -1e-9).all()
    assert (epsilon(rates, 6.0, 200, 1e-5, TIGHT) > epsilon(rates, 6.0, 200, 1e-5, PLD())).all()
    assert (epsilon(rates, 6.0, 200, 1e-5, TIGHT) < epsilon(rates, 6.0, 200, 1e-5, RENYI)).all()


UM = 1.02e-5, 11_580, 60  # Unbalanced MNIST, batches of 256: delta, steps, loss releases
UM_SMALL = 1.02e-5, 118_140, 60  # batches of 25
CELEBA, CELEBA_SMALL = (3.07e-6, 31_800, 50), (3.07e-6, 226_100, 50)
BANK = 7.40e-7, 16_900, 25


@pytest.mark.parametrize(
    ("run", "batch", "records", "multiplier", "releases", "stated"),
    [
        (UM, 256, 49_212, 9.21875, False, 1.00),  # DP-SGD
        (UM, 256, 49_212, 9.609375, True, 0.99),  # ASC
        (UM_SMALL, 25, 474, 295.0, True, 0.99),  # aZB
        (UM_SMALL, 25, 4_879, 28.75, True, 1.00),  # aZB-weak, for the groups it keeps
        (UM_SMALL, 25, 474, 28.75, True, 14.38),  # aZB-weak, for the smallest
        (UM, 256, 474, 950.0, True, 0.91),  # aZB
        (UM, 256, 4_879, 92.5, True, 0.99),
        (CELEBA, 256, 162_770, 5.078125, False, 0.99),
        (CELEBA, 256, 162_770, 5.5859375, True, 0.99),
        (CELEBA, 256, 1_387, 570.0, True, 1.00),
        (CELEBA, 256, 22_880, 34.6875, True, 1.00),
        (CELEBA, 256, 1_387, 34.6875, True, 25.73),
        (CELEBA_SMALL, 36, 1_387, 213.75, True, 0.99),
        (CELEBA_SMALL, 36, 22_880, 13.28125, True, 0.99),
        (CELEBA_SMALL, 36, 1_387, 13.28125, True, 25.28),
        (BANK, 1_000, 675_500, 3.828125, False, 1.00),
        (BANK, 1_000, 675_500, 4.21875, True, 0.99),
    ],
)
def test_the_noise_multipliers_of_asc_appendix_e4(run, batch, records, multiplier, releases, stated):
    """What reproduces, and by which reading.

    All of them are Wang et al.'s bound in the form of Theorem 27, which dp_accounting implements (not Theorem 9, which
    App. A prints: 9.22 would be epsilon 1.14), at HALF the stated multiplier, since a replaced record moves the sum by
    2 C, with the improved conversion (not Prop. 2: 1.22), losses released at fraction 1 with 25 times the multiplier
    and the sensitivity 2 zeta, which is twice what it needs to be. Multipliers are dyadic numbers from a search that
    stops once epsilon is within about 0.01 of 1, and were printed rounded: 9.61 is 615 / 64.

    Sizes: 49,212 of Unbalanced MNIST follows from delta = 1 / (2 n) and the steps per epoch at both batch sizes; the
    smallest group has 474 records (Fig. 3 uses that batch size), which gives 295, 950, and 14.33 and 14.38 for
    aZB-weak; aZB-weak is accounted for the SECOND smallest group there (digit 5, 0.9 * 5421 = 4,879 records), not for
    the largest, and for the largest that the paper names, 22,880, on CelebA.

    What does not: the 0.21 printed for DP-SGD on CelebA is 0.99 (0.217 would be Poisson sampling, add/remove, by RDP),
    the 1.02 of aZB-prop on Bank Fraud is 0.99, and the sizes of the groups of Bank Fraud are not given (850 and 19.38
    with its 103.16 fit groups of about 2,825 and 124,800 records). 950 for aZB with batches of 256 is below: 0.91 here,
    since no more is charged than without sampling, and 0.99 by dp_accounting, which charges more.
    """
    delta, count, losses = run
    segments = [Segment(batch / records, multiplier, count), *([Segment(1.0, 25 * multiplier, losses)] * releases)]
    found = composed_epsilon(segments, delta, RENYI)
    assert found == pytest.approx(stated, abs=0.006 if stated < 2 else 0.03)


def test_a_tight_accountant_needs_half_the_noise_of_asc():
    def excess(multiplier):
        parts = [Segment(256 / 49_212, multiplier, 11_580), Segment(1.0, 25 * multiplier, 60)]
        return composed_epsilon(parts, 1.02e-5, TIGHT) - 1

    assert optimize.brentq(excess, 4, 8, xtol=1e-3) == pytest.approx(5.42, abs=0.01)
    assert excess(9.61) < -0.4
