"""How exposed owners are: closed forms, dp_accounting, attacks by simulation, and Delta by its definition."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from inosgm import Owners, Plan, plan_blend, plan_sample, plan_scale, plan_uniform
from inosgm.accounting import Segment
from inosgm.accounting.tradeoff import composed_power, gaussian_power, sampled_gaussian_power
from inosgm.planning.exposure import FALSE_POSITIVE_RATES, LEVELS, MAX_KINDS

OWNERS = Owners(of_record=["strict"] * 300 + ["loose"] * 700, epsilon={"strict": 1, "loose": 8}, delta=1e-5)
SIZE = {"steps": 100, "expected_batch": 100, "clip_norm": 1.0}


def plan(rate, multiplier, steps, **more):
    return Plan(sample_rates=[rate], sensitivities=[1], sizes=[100], noise_scale=multiplier, steps=steps, **more)


def test_full_batches_are_one_gaussian():
    exposure = plan(1.0, 3.0, 9).exposure()
    assert exposure.mu[0] == pytest.approx(1.0, abs=1e-9)
    assert exposure.advantage[0] == pytest.approx(2 * special.ndtr(0.5) - 1, abs=1e-6)
    np.testing.assert_allclose(
        exposure.true_positive_rate[0], special.ndtr(special.ndtri(FALSE_POSITIVE_RATES) + 1), rtol=1e-9
    )
    assert np.isnan(exposure.excess[0])  # without budgets nobody can say what another plan would give


def test_one_sampled_step_has_a_closed_form():
    exposure = plan(0.25, 0.5, 1).exposure()
    assert exposure.advantage[0] == pytest.approx(0.25 * (2 * special.ndtr(1.0) - 1), abs=1e-6)


def test_a_past_is_part_of_the_curve():
    """dp_accounting composes the past with the steps of the plan."""
    exposure = plan(0.1, 1.0, 30, past=[Segment([0.3], [4.0], [20])]).exposure()

    def composed(multiplier, rate, steps):
        made = privacy_loss_distribution.from_gaussian_mechanism(
            multiplier, sampling_prob=rate, value_discretization_interval=1e-3
        )
        return made.self_compose(steps)

    both = composed(1.0, 0.1, 30).compose(composed(4.0, 0.3, 20))
    epsilons = np.linspace(-12, 12, 24001)
    deltas = np.asarray(both._pmf_remove.get_delta_for_epsilon(epsilons))
    levels = np.array(FALSE_POSITIVE_RATES)
    expected = np.minimum((np.exp(epsilons)[:, None] * levels + deltas[:, None]).min(axis=0), 1.0)
    np.testing.assert_allclose(exposure.true_positive_rate[0], expected, rtol=1e-3)
    assert exposure.advantage[0] == pytest.approx(deltas[12000], rel=1e-3)


def test_the_best_attack_reaches_the_bound_and_not_more():
    """The likelihood-ratio test of simulated releases; the chance that a correct bound fails is below 1e-5."""
    rate, multiplier, steps, runs = 0.3, 0.8, 5, 40_000
    generator = np.random.default_rng(0)
    noise = generator.normal(0, multiplier, (2, runs, steps))
    noise[1] += generator.random((runs, steps)) < rate
    ratios = np.log1p(rate * np.expm1((noise - 0.5) / multiplier**2)).sum(axis=-1)
    exposure = plan(rate, multiplier, steps).exposure()
    for level, bound in zip(FALSE_POSITIVE_RATES, exposure.true_positive_rate[0], strict=True):
        reached = (ratios[1] > np.quantile(ratios[0], 1 - level)).mean()
        # of the power, and of the threshold, which is a quantile of as many runs
        error = np.sqrt(bound * (1 - bound) / runs) + np.sqrt(level / runs) * bound / level
        assert reached == pytest.approx(bound, abs=4.5 * error)


def test_choices_count_as_the_pair_that_dominates_them():
    menu = (((0.1, 1.0), (0.2, 1.6)), 20)
    chosen = composed_power([menu])(LEVELS)
    for rate, multiplier in menu[0]:
        assert (chosen >= sampled_gaussian_power(rate, multiplier, 20)(LEVELS) - 1e-5).all()


def test_a_record_that_takes_no_part_is_not_exposed():
    np.testing.assert_allclose(composed_power([(((0.0, 1.0),), 10)])(LEVELS), LEVELS)
    assert gaussian_power(0.0)(np.array([0.3])) == pytest.approx(0.3)


def test_delta_is_what_sampling_adds_and_scaling_does_not():
    assert plan_scale(OWNERS, **SIZE).exposure().excess.max() <= 1e-3
    assert plan_uniform(OWNERS, **SIZE).exposure().excess.max() <= 1e-3
    sampled = plan_sample(OWNERS, **SIZE).exposure()
    assert dict(zip(sampled.labels, sampled.excess > 0.01, strict=True)) == {"strict": False, "loose": True}


def test_delta_by_its_definition():
    """No attack has k true positives more than under the budget for all, at k false positives more; k is the least."""
    made = plan_sample(OWNERS, **SIZE)
    row = made.labels.index("loose")
    excess = made.exposure(["loose"]).excess[0]
    alone = plan_uniform(Owners(of_record=["loose"] * 1000, epsilon=8, delta=1e-5), **SIZE)
    here = sampled_gaussian_power(made.sample_rates[row], made.noise_multipliers[row], made.steps)(LEVELS)
    there = sampled_gaussian_power(alone.sample_rates[0], alone.noise_multipliers[0], alone.steps)
    assert (here <= there(LEVELS + excess * 1.01) + excess * 1.01 + 1e-9).all()
    assert not (here <= there(LEVELS + excess * 0.98) + excess * 0.98).all()


@settings(max_examples=3)
@given(st.floats(0.2, 3), st.floats(1.5, 6), st.integers(5, 60))
def test_a_blend_keeps_the_limit(strict, factor, steps):
    owners = Owners(
        of_record=["strict"] * 300 + ["loose"] * 700, epsilon={"strict": strict, "loose": strict * factor}, delta=1e-5
    )
    size = {**SIZE, "steps": steps}
    made = plan_blend(owners, most_exposure=0.004, **size)
    assert made.exposure().excess.max() <= 0.004
    if made.weight < 1:
        beyond = plan_blend(owners, weight=made.weight + 1 / 64, **size)
        assert beyond.exposure().excess.max() > 0.004


def test_a_report_shows_it_and_many_budgets_do_without():
    assert "advantage  Delta" in plan_scale(OWNERS, **SIZE).report().splitlines()[1]
    owners = Owners(of_record=range(2000), epsilon=np.linspace(0.5, 2, 2000), delta=1e-5)
    many = plan_scale(owners, steps=2, expected_batch=100, clip_norm=1.0)
    assert "advantage" not in many.report()
    with pytest.raises(ValueError, match=f"at most {MAX_KINDS} kinds, got 2000: choose some of them"):
        many.exposure()
    assert many.exposure([7]).labels == (7,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_scale(OWNERS, **SIZE).exposure(["Strict"]), "labels must be owners of the plan, got 'Strict'"),
        (lambda: plan_blend(OWNERS, **SIZE), "one of weight and most_exposure must be given"),
        (lambda: plan_blend(OWNERS, weight=0.5, most_exposure=0.1, **SIZE), "one of weight and most_exposure"),
        (lambda: plan_blend(OWNERS, most_exposure=-1, **SIZE), "most_exposure must be finite and >= 0 and <= 1"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
