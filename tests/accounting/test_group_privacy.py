"""Epsilons of groups of records, against dp_accounting, closed forms and simulated steps."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from inosgm import Owners, Plan, compare_sampling, plan_asc, plan_sample
from inosgm.accounting import epsilon
from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.accounting.group import group_epsilon


def mixture_epsilon(rate, multiplier, steps, delta, size):
    """dp_accounting's epsilon of the mixture of Gaussians, which rounds up to a grid of its own."""
    drawn = np.arange(size + 1)
    odds = stats.binom.pmf(drawn, size, rate)
    step = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        multiplier, drawn.astype(float).tolist(), (odds / odds.sum()).tolist(), value_discretization_interval=1e-3
    )
    return step.self_compose(steps).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(
    ("rate", "multiplier", "steps", "size"),
    [(0.01, 1.0, 300, 4), (0.1, 4.0, 50, 8), (0.5, 3.0, 3, 2), (0.02, 0.7, 9, 3)],
)
def test_dp_accounting_agrees(rate, multiplier, steps, size):
    found = group_epsilon(((rate, multiplier, steps),), 1e-5, size)
    assert found == pytest.approx(mixture_epsilon(rate, multiplier, steps, 1e-5, size), rel=3e-3)


@pytest.mark.parametrize(("rate", "multiplier", "steps"), [(0.01, 1.0, 1000), (0.3, 5.0, 20), (0.9, 2.0, 2)])
def test_a_group_of_one_is_a_record(rate, multiplier, steps):
    assert group_epsilon(((rate, multiplier, steps),), 1e-6, 1) == pytest.approx(
        epsilon(rate, multiplier, steps, 1e-6), rel=1e-3
    )


def test_without_sampling_a_group_is_one_record_of_a_larger_sensitivity():
    cases = ((1.0, 4.0, 9), (1.0, 8.0, 4))
    assert group_epsilon(cases, 1e-5, 3) == float(gaussian_epsilon(3 * np.sqrt(9 / 16 + 4 / 64), 1e-5))
    assert group_epsilon((), 1e-5, 3) == 0.0


def test_no_simulated_group_reveals_more():
    """The best test of a step for 3 records, in 400,000 runs: 5 standard errors, a false alarm in 1e5 seeds."""
    rng = np.random.default_rng(0)
    size, runs, delta = 3, 400_000, 1e-2
    claimed = group_epsilon(((0.3, 2.0, 1),), delta, size)
    inside = rng.binomial(size, 0.3, runs) + 2.0 * rng.standard_normal(runs)
    outside = 2.0 * rng.standard_normal(runs)
    for threshold in np.linspace(-2, 8, 21):
        for one, other in ((inside > threshold, outside > threshold), (outside < threshold, inside < threshold)):
            excess = one.mean() - np.exp(claimed) * other.mean()
            error = np.sqrt((one.var() + np.exp(2 * claimed) * other.var()) / runs)
            assert excess <= delta + 5 * error


def test_groups_compose_over_several_plans():
    first, second = (0.05, 2.0, 20), (0.2, 6.0, 10)
    both = group_epsilon((first, second), 1e-5, 2)
    assert max(group_epsilon((case,), 1e-5, 2) for case in (first, second)) < both
    assert both < sum(group_epsilon((case,), 5e-6, 2) for case in (first, second))
    assert group_epsilon((first, first), 1e-5, 2) == pytest.approx(group_epsilon(((0.05, 2.0, 40),), 1e-5, 2), rel=1e-3)


OWNERS = Owners(of_record=["a"] * 300 + ["b"] * 700, epsilon={"a": 1.0, "b": 4.0}, delta=1e-5)


def test_a_plan_has_a_table_of_groups():
    plan = plan_sample(OWNERS, steps=50, expected_batch=50, clip_norm=1.0)
    found = plan.group_privacy([1, 2, 4])
    np.testing.assert_allclose(found.epsilon[:, 0], plan.spent(), rtol=1e-3)
    assert (np.diff(found.epsilon, axis=1) > 0).all()
    assert (found.epsilon[:, 1] > 2 * 0.99 * found.epsilon[:, 0]).all()
    assert "epsilon of 4" in found.table()
    assert found.table().count("\n") == 2


def test_what_has_no_table_is_refused():
    plan = plan_sample(OWNERS, steps=5, expected_batch=50, clip_norm=1.0)
    with pytest.raises(ValueError, match="sizes must be a whole number >= 1"):
        plan.group_privacy([0])
    with pytest.raises(ValueError, match="sizes must hold at least one"):
        plan.group_privacy([])
    bare = Plan(sample_rates=[0.1], sensitivities=[1], sizes=[10], noise_scale=1, steps=1)
    with pytest.raises(ValueError, match="knows no budgets"):
        bare.group_privacy()
    chosen = plan_asc(OWNERS, steps=20, expected_batch=50, clip_norm=1.0, every=10, loss_bound=5.0)
    with pytest.raises(ValueError, match="a plan with choices has no table of groups"):
        chosen.group_privacy()
    with pytest.raises(ValueError, match="a delta of at least"):
        group_epsilon(((0.5, 1.0, 1),), 1e-15, 2)


def test_advice_for_units_of_one_record_is_a_tie_and_larger_groups_cost_more():
    one = compare_sampling(OWNERS, records_per_unit=1, steps=20, expected_records=100)
    np.testing.assert_allclose(one.of_records, one.of_units[1], rtol=3e-3)
    eight = compare_sampling(OWNERS, records_per_unit=8, steps=20, expected_records=800)
    assert (eight.of_units[0] < eight.of_units[1]).all()
    # at the budget of a group, records that are sampled need the noise that `group_epsilon` demands
    rate, needed = 0.1, eight.of_records * 800
    assert group_epsilon(((rate, needed[0], 20),), 1e-5, 8) <= 1.0
    assert group_epsilon(((rate, 0.99 * needed[0], 20),), 1e-5, 8) > 1.0
    assert eight.report().splitlines()[0] == "units of 8 records"
    assert set(eight.better) <= {"units", "records", "unclear"}
    with pytest.raises(ValueError, match="expected_records must be at most the 8000 records"):
        compare_sampling(OWNERS, records_per_unit=8, steps=20, expected_records=9000)
