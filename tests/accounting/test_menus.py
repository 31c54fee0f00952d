"""Steps that are chosen by what was released: whatever is chosen, the menu has paid for it."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from inosgm.accounting import (
    ACCOUNTANTS,
    PLD,
    RDP,
    PLDReplaceOne,
    RDPReplaceOne,
    Segment,
    composed_epsilon,
    epsilon,
)
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.discrete import _leaders, _log_excess, discretise, ends
from inosgm.accounting.inverses import multipliers
from inosgm.accounting.pld import pld_epsilon
from inosgm.accounting.rdp import POISSON
from inosgm.accounting.segments import undominated

GRID = 1e-3  # of dp_accounting


def equal_cost_multipliers(rates, rate, multiplier):
    """Return multipliers with which many steps at each rate cost about the same: q^2 (exp(1 / m^2) - 1) = const."""
    return np.log1p((rate / np.asarray(rates)) ** 2 * np.expm1(multiplier**-2.0)) ** -0.5


def adaptive(lowest=0.004, highest=0.08, choices=12, reference=(0.02, 1.2)):
    """A menu like that of ASC: rates that follow the losses, multipliers that make them cost about the same."""
    rates = np.geomspace(lowest, highest, choices)
    return rates, equal_cost_multipliers(rates, *reference)


def curve(rate, multiplier, x):
    """Return H(x) of a sampled Gaussian, the record removed, from its definition."""
    with np.errstate(divide="ignore"):
        t, mu = np.log1p(np.maximum((x - 1) / rate, -1.0)), 1 / multiplier
    absent = special.ndtr(-mu / 2 - t / mu)
    return rate * special.ndtr(mu / 2 - t / mu) + (1 - rate) * absent - x * absent


def theirs(rates, multipliers, counts):
    """Compose a fixed sequence of choices by dp_accounting."""
    whole = privacy_loss_distribution.identity(GRID)
    for rate, multiplier, count in zip(rates, multipliers, counts, strict=True):
        if count:
            step = privacy_loss_distribution.from_gaussian_mechanism(
                multiplier, sampling_prob=rate, value_discretization_interval=GRID
            )
            whole = whole.compose(step.self_compose(int(count)))
    return whole.get_epsilon_for_delta(1e-5)


def test_a_menu_costs_at_least_every_fixed_sequence_of_its_choices():
    rates, multipliers = adaptive(choices=3)
    steps, generator = 200, np.random.default_rng(5)
    menu = composed_epsilon([Segment(rates[None], multipliers[None], steps)], 1e-5)[0]
    constant = [theirs([q], [m], [steps]) for q, m in zip(rates, multipliers, strict=True)]
    mixed = [
        theirs(rates, multipliers, generator.multinomial(steps, generator.dirichlet(np.ones(3)))) for _ in range(2)
    ]
    assert menu >= max(constant + mixed) * (1 - 3e-3)  # theirs are above the truth by their grid
    assert menu <= max(constant) * 1.25
    print(f"the menu costs {menu:.4f}, its dearest choice {max(constant):.4f}, its cheapest {min(constant):.4f}")


def test_a_menu_is_composed_as_dp_accounting_composes_its_curve():
    """An independent way: their connected dots on the deltas of the greatest curve, their convolution."""
    rates, multipliers = adaptive(choices=4)
    menu, steps, grid = list(zip(rates, multipliers, strict=True)), 150, 1e-3
    points = np.arange(-1000, 6001)
    x = np.exp(points * grid)
    removed = np.max([curve(*entry, x) for entry in menu], axis=0)
    added = 1 - x + x * np.max([curve(*entry, 1 / x) for entry in menu], axis=0)
    found = []
    for deltas in (removed, np.maximum(added, 0)):
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(grid, points, np.minimum.accumulate(deltas))
        found.append(pmf.self_compose(steps).get_epsilon_for_delta(1e-5))
    ours = composed_epsilon([Segment([rates], [multipliers], steps)], 1e-5)[0]
    assert ours == pytest.approx(max(found), rel=3e-3)
    assert ours <= max(found) * (1 + 1e-4)


def test_an_adaptive_adversary_pays_no_more_than_the_menu_but_more_than_any_fixed_sequence():
    """Two steps; the second choice is the worst one for what the first released, which is exact by quadrature."""
    menu = [(0.02, 0.7), (0.1, 1.2), (0.6, 4.0)]

    def normal(z, scale):
        return math.exp(-((z / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))

    def density(rate, multiplier, z):
        return (1 - rate) * normal(z, multiplier) + rate * normal(z - 1, multiplier)

    def delta(first, x, choose):
        def inside(z):
            ratio = density(*first, z) / normal(z, first[1])
            return density(*first, z) * choose(curve(*entry, x / ratio) for entry in menu)

        return integrate.quad_vec(inside, -9 * first[1], 1 + 9 * first[1], epsabs=1e-12)[0]

    budget = 0.9
    x = math.exp(budget)
    worst = max(delta(first, x, max) for first in menu)
    fixed = max(
        delta(first, x, lambda curves, k=k: list(curves)[k]) for first, k in itertools.product(menu, range(len(menu)))
    )
    assert worst > 1.02 * fixed
    rates, multipliers = np.array(menu).T
    ours = composed_epsilon([Segment([rates], [multipliers], 2)], worst)[0]
    assert ours >= budget * (1 - 1e-9)
    assert ours <= budget * 1.1


@pytest.mark.parametrize("change", ["removed", "added", "replaced"])
@pytest.mark.parametrize("lowest", [1e-5, 1e-2])
def test_the_dots_of_the_greatest_curve_are_connected(change, lowest):
    rates = lowest * np.array([1.0, 3.0, 10.0, 40.0])
    menu = list(zip(rates, equal_cost_multipliers(rates, rates[1], 1.5), strict=True))
    low, high = ends(menu, 1e-9, change)
    for points in (500, 20000):
        step = discretise(menu, (low, high), (high - low) / points, change)
        losses = (step.first + np.arange(step.mass.size)) * (high - low) / points
        assert step.mass.min() >= 0
        assert step.mass.sum() + step.infinite == pytest.approx(1, abs=1e-11)
        for index in np.linspace(1, losses.size - 2, 9).astype(int):
            above = losses[index:] - losses[index]
            found = step.infinite + step.mass[index:] @ -np.expm1(-above)
            x = mpmath.e ** mpmath.mpf(losses[index])
            exact = max(_exact(rate, multiplier, x, change) for rate, multiplier in menu)
            assert found >= exact * (1 - 1e-10) - 1e-18
            assert found <= exact * (1 + 1e-7) + 1e-12


def _exact(rate, multiplier, x, change):
    """The curve of one entry to fifty digits."""
    with mpmath.workdps(50):
        x = 1 / x if (flip := change == "added" or (change == "replaced" and x < 1)) else x
        y, mu = 1 + (x - 1) / mpmath.mpf(rate), 1 / mpmath.mpf(multiplier)
        h = 1 - x
        if y > 0:
            t = mpmath.log(y)
            h = rate * (mpmath.ncdf(mu / 2 - t / mu) - y * mpmath.ncdf(-mu / 2 - t / mu))
        return float(1 - 1 / x + h / x if flip else h)


def test_no_digits_cancel_in_curves():
    for rate, multiplier, loss in itertools.product(
        [1e-6, 1e-3, 0.3, 1.0], [0.4, 3.0, 80.0], [-0.2, -1e-7, 1e-8, 1e-3, 2.0]
    ):
        with mpmath.workdps(80):
            x, mu = mpmath.e ** mpmath.mpf(loss), 1 / mpmath.mpf(multiplier)
            y = 1 + (x - 1) / mpmath.mpf(rate)
            if y <= 0:
                assert _log_excess(rate, multiplier, np.array(loss)) == -np.inf
                continue
            t = mpmath.log(y)
            h = rate * (mpmath.ncdf(mu / 2 - t / mu) - y * mpmath.ncdf(-mu / 2 - t / mu))
            exact = h - max(1 - x, 0)
            if exact < mpmath.mpf(10) ** -250:
                continue
            exact = float(mpmath.log(exact))
        assert _log_excess(rate, multiplier, np.array(loss)) == pytest.approx(exact, abs=1e-8)


def test_leaders_are_those_of_a_look_at_everything():
    rates, multipliers = adaptive(1e-4, 0.3, 40, (0.01, 1.0))
    losses = np.arange(-8000, 40000) * 1e-4
    leader = _leaders(list(zip(rates, multipliers, strict=True)), losses)
    logs = _log_excess(rates[:, None], multipliers[:, None], losses)
    np.testing.assert_array_equal(leader, logs.argmax(axis=0))
    assert np.unique(leader).size > 5


def test_renyi_takes_the_greatest_divergence_at_every_order():
    rates, multipliers = adaptive(choices=6)
    segment = Segment([rates], [multipliers], 1)
    orders = [2, 3, 8, 20, 64]
    each = [
        rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(q, m, orders)
        for q, m in zip(rates, multipliers, strict=True)
    ]
    ours = [POISSON.of(segment, order)[0] for order in orders]
    np.testing.assert_allclose(ours, np.max(each, axis=0), rtol=1e-9)
    assert np.unique(np.argmax(each, axis=0)).size > 1
    menu = composed_epsilon([Segment([rates], [multipliers], 300)], 1e-5, RDP())[0]
    assert menu >= epsilon(rates, multipliers, 300, 1e-5, RDP()).max() * (1 - 1e-12)
    assert menu >= composed_epsilon([Segment([rates], [multipliers], 300)], 1e-5, PLD())[0]


@pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_choices_that_another_exceeds_cost_nothing(accountant):
    def cost(rates, multipliers, steps=100):
        return composed_epsilon([Segment([rates], [multipliers], steps)], 1e-5, accountant)[0]

    one = epsilon(0.05, 2.0, 100, 1e-5, accountant)
    assert cost([0.05], [2.0]) == one
    assert cost([0.05, 0.05], [2.0, 2.0]) == one
    assert cost([0.05, 0.01, 0.03], [2.0, 2.0, 2.0]) == one
    assert cost([0.05, 0.05, 0.05], [3.0, 2.0, 8.0]) == one
    assert cost([0.0, 0.05, 0.02], [0.1, 2.0, 2.5]) == one
    assert cost([0.0, 0.0], [0.1, 2.0]) == 0
    assert cost([0.05, 0.5], [2.0, 9.0], 0) == 0
    assert cost([0.05, 1.0], [2.0, 9.0]) > one


menus = st.lists(
    st.tuples(st.floats(-3, -0.3).map(lambda power: 10**power), st.floats(0.7, 10)), min_size=1, max_size=5
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    menus, menus, st.integers(1, 1000), st.randoms(use_true_random=False), st.sampled_from(list(ACCOUNTANTS.values()))
)
def test_more_choices_cost_more_and_their_order_nothing(menu, more, steps, random, accountant):
    def cost(entries):
        rates, multipliers = np.array(entries).T
        return composed_epsilon([Segment([rates], [multipliers], steps), Segment(0.01, 3.0, 50)], 1e-5, accountant)[0]

    found = cost(menu)
    again = menu + menu[:1]
    random.shuffle(again)
    assert cost(again) == found
    assert cost(menu + more) >= found * (1 - 3e-4)


@pytest.mark.parametrize("steps", [1, 10_000])
def test_a_menu_of_nearly_one_choice_costs_what_the_choice_costs(steps):
    """Also the path that menus take, which one choice does not."""
    rates, multipliers = 1e-3 * (1 + np.arange(5) * 1e-9), 1.0 * (1 + np.arange(5) * 1e-9)
    one = epsilon(1e-3, 1.0, steps, 1e-5)
    assert undominated(rates, multipliers)[0].size == 5
    assert composed_epsilon([Segment([rates], [multipliers], steps)], 1e-5)[0] == pytest.approx(one, rel=1e-4)


def test_segments_hold_menus_by_rows():
    menu = Segment([[0.1, 0.2], [0.3, 0.4]], [2.0, 3.0], 10)
    np.testing.assert_array_equal(menu.noise_multiplier, [[2, 2], [3, 3]])
    assert menu.is_menu
    assert menu.rows_of(2).rows(np.array([1])) == Segment([[0.3, 0.4]], 3.0, 10).rows_of(1)
    assert Segment([[0.3, 0.4]], 3.0, 10).rows_of(3).sample_rate.shape == (3, 2)
    assert menu == Segment([[0.1, 0.2], [0.3, 0.4]], [[2.0, 2.0], [3.0, 3.0]], 10)
    assert hash(menu) == hash(Segment([[0.1, 0.2], [0.3, 0.4]], [[2.0, 2.0], [3.0, 3.0]], 10))
    assert menu != Segment([0.1, 0.2], [2.0, 3.0], 10)
    with pytest.raises(ValueError, match="a row per owner"):
        Segment(np.ones((1, 1, 1)), 1.0, 1)
    with pytest.raises(ValueError, match="a column per choice"):
        Segment([[0.1, 0.2]], [[1.0, 2.0, 3.0]], 1)
    with pytest.raises(ValueError, match="a choice at least"):
        Segment(np.ones((2, 0)), 1.0, 1)


@pytest.mark.parametrize("accountant", [PLD(), RDP(), PLDReplaceOne(), RDPReplaceOne()])
def test_histories_may_hold_menus_of_different_lengths(accountant):
    histories = [
        [(0.01, 1.5, 100)],
        [((0.01, 0.02), (1.5, 2.5), 100), (0.02, 3.0, 10)],
        [(0.05, 5.0, 20), ((0.01, 0.02, 0.03), (1.5, 2.5, 3.5), 40), ((0.1, 0.1), (4.0, 9.0), 5)],
        [((0.05,), 5.0, 20)],
    ]
    found = accountant.epsilons_of(histories, [1e-5] * 4)
    for history, value in zip(histories, found, strict=True):
        assert value == pytest.approx(accountant.epsilon_of(history, 1e-5), rel=1e-12)
    assert found[0] < found[1]
    assert found[3] == pytest.approx(epsilon(0.05, 5.0, 20, 1e-5, accountant), rel=1e-12)
    dearer = np.arange(90) // 30 * 0.01
    rows = Segment(np.stack([np.full(90, 0.01), 0.05 + dearer], axis=1), [[1.5, 1.6]], np.full(90, 100))
    assert np.unique(epsilon_of_rows([rows], np.full(90, 1e-5), accountant)).size == 3


@pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
def test_what_is_left_after_a_menu_can_be_spent(accountant):
    past = Segment([[0.01, 0.02], [0.01, 0.01]], [[4.0, 6.0], [5.0, 9.0]], 100).rows_of(2)
    two, rate, count = np.full(2, 2.0), np.full(2, 0.02), np.full(2, 300.0)
    found = multipliers(two, np.full(2, 1e-5), rate, count, [past], accountant)
    spent = accountant.epsilon([past, Segment(rate, found, count)], np.full(2, 1e-5))[0]
    assert (spent <= 2).all()
    np.testing.assert_allclose(spent, 2, rtol=1e-3)
    assert found[0] > found[1]


def test_equal_menus_are_worked_out_once():
    pld_epsilon.cache_clear()
    rates, multipliers = adaptive(choices=3)
    composed_epsilon([Segment([rates, rates[::-1]], [multipliers, multipliers[::-1]], 50)], 1e-5)
    assert pld_epsilon.cache_info().misses == 1
