"""Inverses stay on the safe side, for one budget and for thousands."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants.utils import get_noise_multiplier

from inosgm.accounting import (
    PLD,
    RDP,
    Segment,
    composed_epsilon,
    epsilon,
    noise_multiplier,
    sample_rate,
    steps,
)
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.curves import MIDPOINT_TOLERANCE, Curve, solve
from inosgm.accounting.pld import pld_epsilon

ACCOUNTANTS = [PLD(), RDP()]
budgets = st.floats(0.05, 20)
deltas = st.sampled_from([1e-9, 1e-6, 1e-5, 1e-3])
rates = st.floats(-3, -0.3).map(lambda power: 10**power)
multipliers = st.floats(0.7, 20)
counts = st.integers(1, 5000)
accountants = st.sampled_from(ACCOUNTANTS)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(budgets, deltas, rates, counts, accountants)
def test_a_multiplier_keeps_the_budget_and_spends_it(budget, delta, rate, count, accountant):
    found = noise_multiplier(budget, delta, rate, count, accountant)
    spent = epsilon(rate, found, count, delta, accountant)
    assert spent <= budget
    assert spent >= 0.995 * budget or found == pytest.approx(0.02)  # the least there is


@settings(max_examples=40, deadline=None, derandomize=True)
@given(budgets, deltas, multipliers, counts)
def test_a_rate_keeps_the_budget_and_spends_it(budget, delta, multiplier, count):
    found = sample_rate(budget, delta, multiplier, count)
    spent = epsilon(found, multiplier, count, delta)
    assert spent <= budget
    assert spent >= 0.995 * budget or found == 1


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.floats(0.1, 5), deltas, st.floats(0.01, 0.3), st.floats(0.7, 4), accountants)
def test_steps_keep_the_budget_and_one_more_would_not(budget, delta, rate, multiplier, accountant):
    found = int(steps(budget, delta, rate, multiplier, accountant))
    assert epsilon(rate, multiplier, found, delta, accountant) <= budget
    more = found + max(1, int(2e-4 * found))
    assert epsilon(rate, multiplier, more, delta, accountant) > budget * (1 - 1e-4)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_thousands_of_budgets_are_kept_one_by_one(accountant, seed):
    random = np.random.default_rng(seed)
    budget = np.exp(random.uniform(np.log(0.3), np.log(10), 5000))
    for found, back in (
        (
            noise_multiplier(budget, 1e-5, 0.01, 1000, accountant),
            lambda m: epsilon(0.01, m, 1000, 1e-5, accountant),
        ),
        (sample_rate(budget, 1e-6, 2.5, 1000, accountant), lambda q: epsilon(q, 2.5, 1000, 1e-6, accountant)),
    ):
        some = random.integers(0, budget.size, 25)
        spent = back(found[some])
        assert (spent <= budget[some]).all()
        assert (spent >= 0.995 * budget[some]).all()
        order = np.argsort(budget)
        assert (np.abs(np.diff(np.log(found[order]))) < 0.05).all()


def test_thousands_of_budgets_cost_a_few_distributions():
    pld_epsilon.cache_clear()
    noise_multiplier(np.linspace(1, 3, 20000), 1e-5, 512 / 60000, 9375)
    assert pld_epsilon.cache_info().misses < 60


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_many_rows_come_out_as_one_by_one(accountant):
    rate = np.geomspace(0.001, 0.05, 400)
    multiplier = np.geomspace(3, 1, 400)
    segment = Segment(rate, multiplier, np.full(400, 500.0))
    together = epsilon_of_rows([segment], np.full(400, 1e-5), accountant)
    some = np.arange(0, 400, 21)
    alone = epsilon(rate[some], multiplier[some], 500, 1e-5, accountant)
    assert (together[some] >= alone * (1 - 1e-12)).all()
    assert (together[some] <= alone * (1 + 1e-3)).all()


def test_rows_that_form_no_chain_are_worked_out_one_by_one():
    random = np.random.default_rng(3)
    rate, multiplier = random.uniform(0.01, 0.1, 70), random.uniform(2, 9, 70)
    together = epsilon_of_rows([Segment(rate, multiplier, np.full(70, 10.0))], np.full(70, 1e-5), PLD())
    np.testing.assert_array_equal(together, epsilon(rate, multiplier, 10, 1e-5))


def test_a_curve_that_jumps_is_read_on_the_safe_side():
    def jump(s):
        return np.exp(1.5 * s + 0.4 * (s > 0.123)), np.zeros(s.size)

    curve = Curve(jump, -5.0, 5.0)
    curve.add(np.linspace(-1, 1, 5))
    goal = np.random.default_rng(0).uniform(-1, 1, 2000)
    assert (np.log(jump(curve.inverse(goal))[0]) <= goal + MIDPOINT_TOLERANCE).all()
    at = np.random.default_rng(1).uniform(-0.9, 0.9, 2000)
    assert (curve.upper(at) >= np.log(jump(at)[0])).all()


def test_solve_says_when_there_is_nothing_to_find():
    def question(s, rows):
        return np.exp(s)

    found = solve(question, np.array([1e-9, 1.0, 1e9]), np.zeros(3), -5.0, 5.0, 1e-6)
    assert np.isnan(found[0])
    assert -1e-6 <= found[1] <= 0
    assert found[2] == 5


@pytest.mark.parametrize("target", [1.0, 3.0])
def test_multipliers_agree_with_opacus(target):
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # on its way it meets multipliers for which its orders end too early
        theirs = get_noise_multiplier(
            target_epsilon=target,
            target_delta=1e-5,
            sample_rate=0.01,
            steps=1000,
            accountant="rdp",
            epsilon_tolerance=1e-3,
        )
    assert noise_multiplier(target, 1e-5, 0.01, 1000, RDP()) == pytest.approx(theirs, rel=2e-3)


def test_inverses_broadcast():
    assert noise_multiplier([[1.0], [2.0]], 1e-5, [0.01, 0.02, 0.03], 10).shape == (2, 3)
    assert sample_rate([[1.0], [2.0]], 1e-5, [5.0, 6.0, 7.0], 10).shape == (2, 3)
    assert steps([[1.0], [2.0]], 1e-5, [0.01, 0.02, 0.03], 2.0).shape == (2, 3)


def test_budgets_that_nothing_keeps_are_refused():
    with pytest.raises(ValueError, match=r"epsilon 0.01 at position 1 .* no sample rate"):
        sample_rate([3.0, 0.01], 1e-5, 1.0, 10, RDP())
    with pytest.raises(ValueError, match=r"epsilon 1e-09 at position 0 .* no noise multiplier"):
        noise_multiplier(1e-9, 1e-300, 1.0, 10**6)
    assert steps(1e-6, 1e-9, 0.5, 1.0) == 0
    assert sample_rate(100.0, 1e-5, 5.0, 3) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1e-5, 0.1, 10), "epsilon must be > 0"),
        ((np.inf, 1e-5, 0.1, 10), "epsilon must be > 0"),
        ((1.0, 0.0, 0.1, 10), "delta must lie in"),
        ((1.0, 1e-5, 0.0, 10), "sample_rate must lie in"),
        ((1.0, 1e-5, 0.1, 0), "steps must be whole"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        noise_multiplier(*arguments)


def test_what_is_no_number_is_a_type_error():
    with pytest.raises(TypeError, match="sample_rate must be numbers"):
        epsilon("often", 1.0, 10, 1e-5)


def test_a_past_is_part_of_the_whole():
    past = Segment(0.01, 1.0, 100)
    whole = composed_epsilon([past, Segment(0.02, 2.0, np.arange(3) * 50)], 1e-5)
    assert whole.shape == (3,)
    assert (np.diff(whole) > 0).all()
