"""Epsilons against dp_accounting, Opacus, closed forms and the numbers of the papers."""

import itertools
import math
import tracemalloc
import warnings

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy import optimize, stats

from inosgm.accounting import PLD, RDP, Segment, composed_epsilon, epsilon, noise_multiplier, sample_rate
from inosgm.accounting.pld import _epsilon, pld_epsilon
from inosgm.accounting.rdp import sampled_gaussian_rdp

GRID = list(
    itertools.product([1e-6, 1e-4, 1e-2, 0.2, 1.0], [0.5, 1.0, 5.0, 50.0], [1, 100, 20000], [1e-10, 1e-5, 1e-3])
)  # 180 points
ORDERS = [*range(2, 64), 80, 128, 256, 512, 1024]


def test_the_grid_is_large_enough():
    assert len(GRID) >= 100


@pytest.mark.parametrize("rate", [1e-6, 1e-4, 1e-2, 0.2, 1.0])
def test_renyi_divergences_agree_with_dp_accounting_at_whole_orders(rate):
    for multiplier in (0.5, 1.0, 5.0, 50.0):
        theirs = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(rate, multiplier, ORDERS)
        ours = [sampled_gaussian_rdp(np.array([rate]), np.array([multiplier]), order)[0] for order in ORDERS]
        # Theirs is a difference of numbers near 1: an absolute error of about 1e-15 per step.
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-13)


def test_renyi_epsilons_are_those_of_opacus_or_below_where_its_orders_end():
    deltas = np.array([delta for *_, delta in GRID])
    ours = epsilon(*np.array([point[:3] for point in GRID]).T, deltas, RDP())
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 1025))
    theirs = np.empty(len(GRID))
    for (rate, multiplier), points in itertools.groupby(range(len(GRID)), lambda i: GRID[i][:2]):
        one = np.array(opacus_rdp.compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=[2.5, 3, 16]))
        mine = [sampled_gaussian_rdp(np.array([rate]), np.array([multiplier]), order)[0] for order in (2.5, 3, 16)]
        np.testing.assert_allclose(mine, one, rtol=1e-6, atol=1e-13)
        curve = np.array([sampled_gaussian_rdp(np.array([rate]), np.array([multiplier]), order)[0] for order in orders])
        for i in points:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the best order is at an end of their list
                theirs[i] = opacus_rdp.get_privacy_spent(orders=orders, rdp=GRID[i][2] * curve, delta=deltas[i])[0]
    np.testing.assert_array_less(ours, np.maximum(theirs, 0) * np.where(theirs < 0.05, 1.01, 1.001) + 1e-9)
    inside = (theirs > 0.05) & (theirs < 15)  # elsewhere their orders end too early, above or below
    assert inside.sum() > 80
    np.testing.assert_array_less(theirs[inside] * (1 - 5e-3), ours[inside])


def test_opacus_orders_end_too_early_for_small_epsilons_and_ours_do_not():
    with pytest.warns(UserWarning, match="largest alpha"):
        theirs = opacus_rdp.get_privacy_spent(orders=[62, 63], rdp=[0.0, 0.0], delta=1e-5)[0]
    assert theirs > 0.1
    assert epsilon(1e-4, 20.0, 1, 1e-5, RDP()) < 0.005


PLD_POINTS = [
    (rate, multiplier, steps, delta)
    for (rate, multiplier, steps, delta) in GRID
    if rate < 1 and (steps, delta) in {(1, 1e-5), (100, 1e-3), (100, 1e-10), (20000, 1e-5)}
]  # 64 points


@pytest.mark.parametrize("point", PLD_POINTS, ids=str)
def test_distributions_agree_with_dp_accounting(point):
    rate, multiplier, steps, delta = point
    ours = epsilon(rate, multiplier, steps, delta)
    width = 8 / multiplier + 1 / multiplier**2 + 0.01 if rate > 1e-3 else min(8 / multiplier, 5)
    interval = max(0.01 * ours / math.sqrt(steps), width / 40000, 1e-7)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier,
        sampling_prob=rate,
        value_discretization_interval=interval,
        log_mass_truncation_bound=math.log(1e-4 * delta / steps),
    )
    theirs = theirs.self_compose(steps, 1e-5 * delta).get_epsilon_for_delta(delta)
    assert ours <= theirs * (1 + 5e-4) + 1e-12  # both are upper bounds, so the smaller is the better one
    loss = rate * math.sqrt(math.expm1(min(1 / multiplier**2, 50)))
    if interval < 0.02 * loss:  # their grid is fine: it cannot be below by more than the noise either
        assert ours >= theirs * (1 - 1e-4) - 1e-9


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-3])
def test_one_step_has_a_closed_form(delta):
    def gap(eps, rate, multiplier):
        """Delta of one step in both directions, from the definition."""
        cut = multiplier**2 * math.log1p(math.expm1(eps) / rate) + 0.5
        present = (1 - rate) * stats.norm.sf(cut / multiplier) + rate * stats.norm.sf((cut - 1) / multiplier)
        removed = present - math.exp(eps) * stats.norm.sf(cut / multiplier)
        added = 0.0
        if math.expm1(-eps) / rate > -1:
            cut = multiplier**2 * math.log1p(math.expm1(-eps) / rate) + 0.5
            present = (1 - rate) * stats.norm.cdf(cut / multiplier) + rate * stats.norm.cdf((cut - 1) / multiplier)
            added = stats.norm.cdf(cut / multiplier) - math.exp(eps) * present
        return max(removed, added)

    for rate, multiplier in itertools.product([1e-3, 0.05, 0.5, 0.95], [0.5, 1, 5]):
        ours = epsilon(rate, multiplier, 1, delta)
        if gap(0.0, rate, multiplier) <= delta:
            assert ours < 1e-4
            continue
        exact = optimize.brentq(lambda e, q=rate, m=multiplier: gap(e, q, m) - delta, 0, 100, xtol=1e-13)
        assert exact * (1 - 1e-9) <= ours <= exact * (1 + 5e-4)


@pytest.mark.parametrize(("multiplier", "steps"), [(0.5, 1), (5.0, 1), (50.0, 20000), (5.0, 100), (1.0, 7)])
def test_at_rate_one_the_gaussian_has_a_closed_form(multiplier, steps):
    mu = math.sqrt(steps) / multiplier
    for delta in (1e-10, 1e-5, 1e-3):
        ours = epsilon(1.0, multiplier, steps, delta)
        back = stats.norm.cdf(mu / 2 - ours / mu) - math.exp(ours) * stats.norm.cdf(-mu / 2 - ours / mu)
        assert back == pytest.approx(delta, rel=1e-5)
        near = epsilon(1 - 1e-9, multiplier, steps, delta)  # the same by distributions
        assert ours * (1 - 1e-6) <= near <= ours * (1 + 5e-4)


def test_small_epsilons_and_tiny_rates_stay_tight_and_small():
    # 1000 steps at rate 1e-6: dp_accounting's default grid says 1.3e-4.
    assert epsilon(1e-6, 10.0, 1000, 1e-10) == pytest.approx(1.1651e-5, rel=1e-3)
    assert epsilon(1e-6, 10.0, 1000, 1e-2) == 0  # the record is hardly ever drawn
    # In the limit of many small steps the composition is Gaussian, with mu = q sqrt(T (exp(1/m^2) - 1)).
    mu = 1e-5 * math.sqrt(20000 * math.expm1(1 / 50**2))
    gaussian = optimize.brentq(
        lambda e: stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu) - 1e-8,
        1e-9,
        1,
    )
    assert epsilon(1e-5, 50.0, 20000, 1e-8) == pytest.approx(gaussian, rel=2e-3)


@pytest.mark.parametrize("point", [(1e-6, 0.5, 1000, 1e-5), (1e-6, 10.0, 1000, 1e-9), (1e-4, 50.0, 20000, 1e-5)])
def test_tiny_costs_do_not_take_gigabytes(point):
    pld_epsilon.cache_clear()
    tracemalloc.start()
    try:
        found = epsilon(*point)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < found < 0.01
    assert peak < 400e6


def test_zero_rates_and_zero_steps_cost_nothing():
    for accountant in (PLD(), RDP()):
        with_nothing = composed_epsilon(
            [Segment(0.01, 1.0, 100), Segment(0.0, 1.0, 100), Segment(0.5, 1.0, 0)], 1e-5, accountant
        )
        assert with_nothing == pytest.approx(epsilon(0.01, 1.0, 100, 1e-5, accountant), rel=1e-9)
    assert composed_epsilon([], 1e-5) == 0
    assert epsilon(0.0, 1.0, 100, 1e-5) == 0


@pytest.mark.parametrize("accountant", [PLD(), RDP()])
def test_histories_compose(accountant):
    split = composed_epsilon([Segment(0.01, 1.5, 400), Segment(0.01, 1.5, 600)], 1e-5, accountant)
    assert split == pytest.approx(epsilon(0.01, 1.5, 1000, 1e-5, accountant), rel=3e-4)
    parts = [Segment(0.01, 1.0, 200), Segment(0.1, 6.0, 50), Segment(1.0, 20.0, 3)]
    mixed = composed_epsilon(parts, 1e-5, accountant)
    assert mixed == pytest.approx(composed_epsilon(parts[::-1], 1e-5, accountant), rel=3e-4)
    assert mixed > max(composed_epsilon([part], 1e-5, accountant) for part in parts)


def test_histories_agree_with_dp_accounting():
    parts = [(0.01, 1.0, 200), (0.1, 6.0, 50), (1.0, 20.0, 3)]
    whole = privacy_loss_distribution.identity(2e-5)
    for rate, multiplier, steps in parts:
        step = privacy_loss_distribution.from_gaussian_mechanism(
            multiplier, sampling_prob=rate, value_discretization_interval=2e-5
        )
        whole = whole.compose(step.self_compose(steps))
    ours = composed_epsilon([Segment(*part) for part in parts], 1e-5)
    assert ours == pytest.approx(whole.get_epsilon_for_delta(1e-5), rel=2e-4)
    exact = rdp_privacy_accountant.RdpAccountant(orders=[1 + x / 20 for x in range(1, 200)] + list(range(11, 200)))
    for rate, multiplier, steps in parts:
        exact.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier)), steps)
    assert composed_epsilon([Segment(*part) for part in parts], 1e-5, RDP()) == pytest.approx(
        exact.get_epsilon(1e-5), rel=1e-3
    )


def test_arguments_are_broadcast_and_each_case_is_worked_out_once():
    pld_epsilon.cache_clear()
    table = epsilon(np.array([[0.01], [0.02]]), np.array([2.0, 3.0, 2.0]), 50, 1e-5)
    assert table.shape == (2, 3)
    assert pld_epsilon.cache_info().misses == 4
    np.testing.assert_array_equal(table[:, 0], table[:, 2])
    epsilon(0.01, 2.0, 50, 1e-5)
    assert pld_epsilon.cache_info().misses == 4
    assert np.ndim(epsilon(0.01, 2.0, 50, 1e-5)) == 0


def test_the_papers_closed_form_is_unsafe():
    orders = np.arange(1.1, 64, 0.1)
    claimed = (100 * 2 * orders * 0.01**2 / 0.6**2 + math.log(1e5) / (orders - 1)).min()
    assert claimed == pytest.approx(1.6, abs=0.3)
    assert epsilon(0.01, 0.6, 100, 1e-5) > 2 * claimed


@pytest.mark.parametrize(
    ("batch", "records", "steps", "sigmas"),
    [
        (1024, 73257, 2146, {1: 2.747, 2: 1.589, 3: 1.214}),  # SVHN
        (1024, 50000, 1465, {1: 3.294, 2: 1.868, 3: 1.399}),  # CIFAR10
        (
            512,
            60000,
            9375,
            {1: 3.436, 2: 1.925, 3: 1.428},
        ),  # MNIST with the steps it states, not what Table 7 prints
        (512, 60000, 3495, {1: 2.189, 2: 1.310, 3: 1.032}),  # MNIST, what it prints
    ],
)
def test_table_7_of_idp_sgd(batch, records, steps, sigmas):
    found = noise_multiplier(list(sigmas), 1e-5, batch / records, steps, RDP())
    np.testing.assert_allclose(found, list(sigmas.values()), rtol=0.01)


def test_figure_10_of_ino_sgd():
    rates = sample_rate([8.0, 0.6], 1e-5, 4.0, 1000, RDP())
    np.testing.assert_allclose(rates, [0.19, 0.019], rtol=0.05)
    clip = 4.0 / noise_multiplier(3.0, 1e-5, [0.02, 0.05], 1000, RDP())
    np.testing.assert_allclose(clip, [3.29, 1.59], rtol=0.02)  # the text says 3.29 at 0.05, which is the 0.02 curve


def test_the_accountant_decides_how_unequal_rates_are():
    for accountant, ratio in ((RDP(), 50.6), (PLD(), 8.2)):
        high, low = sample_rate([1.0, 0.1], 1e-5, 2.0, 1000, accountant)
        assert high / low == pytest.approx(ratio, rel=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.2, 1.0, 10, 1e-5), "sample_rate must lie in"),
        ((-0.1, 1.0, 10, 1e-5), "sample_rate must lie in"),
        ((math.nan, 1.0, 10, 1e-5), "sample_rate must lie in"),
        ((0.1, 0.0, 10, 1e-5), "noise_multiplier must be > 0"),
        ((0.1, math.inf, 10, 1e-5), "noise_multiplier must be > 0"),
        ((0.1, 1.0, 1.5, 1e-5), "steps must be whole"),
        ((0.1, 1.0, -1, 1e-5), "steps must be whole"),
        ((0.1, 1.0, 10, 0.0), "delta must lie in"),
        ((0.1, 1.0, 10, 1.0), "delta must lie in"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        epsilon(*arguments)


def test_an_added_record_is_accounted_where_weights_overflow():
    """At the bottom of this window the weights exceed float64; the tail that decides is at the top."""
    case = (0.8937769437754639, 0.27755989349301424, 43)
    ours = _epsilon((case,), 1.8458959983469504e-10, "added", least=0.0)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        case[1], sampling_prob=case[0], value_discretization_interval=1e-3, use_connect_dots=True
    ).self_compose(case[2])
    theirs = theirs._pmf_add.get_epsilon_for_delta(1.8458959983469504e-10)
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    ("rare", "often"),
    [((1e-6, 0.3, 1), (1e-5, 5, 10**6)), ((1e-6, 0.05, 1), (1e-3, 5, 10**5)), ((1e-6, 0.02, 1), (1e-3, 2, 10**5))],
)
def test_a_rare_great_loss_does_not_spoil_a_long_run(rare, often):
    """A record is drawn in the rare segment with probability q: the truth lies between two epsilons of the rest."""
    found = composed_epsilon([Segment(*rare), Segment(*often)], 1e-5)
    assert epsilon(*often, 1e-5) * (1 - 1e-3) <= found <= epsilon(*often, 1e-5 - rare[0]) * (1 + 1e-3)


def test_deltas_below_what_floats_can_tell_are_refused():
    """One step at (1e-9, 1, 1e-50) has epsilon 9.7e-4; a distribution in float64 would say 1e-6."""
    with pytest.raises(ValueError, match="at least 1e-13, got 1e-50: take RDP"):
        epsilon(1e-9, 1.0, 1, 1e-50)
    assert epsilon(1e-9, 1.0, 1, 1e-50, accountant=RDP()) >= 9.68e-4


def test_a_rare_segment_at_the_least_delta_is_no_error():
    rare, often = Segment(1e-15, 1.0, 1), Segment(0.01, 1.0, 100)
    assert composed_epsilon([often, rare], 1e-13) >= composed_epsilon([often], 1e-13) * (1 - 1e-6)


@pytest.mark.parametrize("accountant", ["pld", PLD, "exact"])
def test_accountants_are_objects(accountant):
    with pytest.raises(TypeError, match=r"accountant must be PLD\(\) or RDP\(\)"):
        epsilon(0.1, 1.0, 1, 1e-5, accountant=accountant)


def test_many_owners_of_full_batches_cost_what_each_costs_alone():
    """The closed form for many rows at once, beside rows that are sampled, not taken, or of no steps."""
    rng = np.random.default_rng(0)
    rates = np.where(np.arange(200) % 40 == 0, 0.3, 1.0)
    rates[7] = 0.0
    steps = rng.integers(0, 4, 200)
    first = Segment(rates, rng.uniform(0.5, 50, 200), steps)
    second = Segment(np.ones(200), rng.uniform(0.5, 50, 200), np.where(np.arange(200) % 9 == 0, 0, 1))
    delta = rng.choice([1e-5, 1e-6], 200)
    together = PLD().epsilon([first, second], delta)[0]
    one_by_one = [PLD().epsilon([s.rows(np.array([k])) for s in (first, second)], delta[[k]])[0][0] for k in range(200)]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-9)
