"""Plans in rounds and simple baselines: no budget is exceeded by anybody's count, rules are those of the papers."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from inosgm import Owners
from inosgm.accounting import PLD, RDP, Segment, composed_epsilon
from inosgm.methods.adapdp import member_weights
from inosgm.methods.baselines import plan_in_turn, plan_left_out, plan_lowered, plan_undersampled
from inosgm.methods.pdp_sgd import (
    adaptive_loss,
    fixed_loss,
    harmonic_loss,
    plan_thresholds,
    sampling_probabilities,
    threshold,
    wastes,
)
from inosgm.planning.planners import plan_blend, plan_sample, plan_scale, plan_uniform
from inosgm.planning.sequence import PlanSequence

ASKED = {"steps": 60, "expected_batch": 40, "clip_norm": 0.5}


def grants(epsilons, sizes, delta=1e-5):
    return Owners(of_record=np.repeat(np.arange(len(sizes)), sizes), epsilon=list(epsilons), delta=delta)


def independently(plans, owner, accountant):
    """The epsilon of an owner's records after all plans, by dp_accounting."""
    for plan in plans:
        if plan.sample_rates[owner]:
            step = dp_accounting.GaussianDpEvent(plan.noise_scale / plan.sensitivities[owner])
            accountant.compose(dp_accounting.PoissonSampledDpEvent(plan.sample_rates[owner], step), plan.steps)
    return accountant.get_epsilon(float(plans[0].delta[owner]))


budgets = st.lists(st.tuples(st.floats(0.3, 6), st.integers(1, 300)), min_size=1, max_size=5)


class TestThresholds:
    @given(budgets, st.sampled_from(["fixed", "adaptive"]), st.floats(0, 1))
    def test_the_threshold_is_among_the_budgets_and_has_the_least_loss(self, pairs, waste, weight):
        epsilons, sizes = np.array(pairs).T
        found = threshold(epsilons, sizes, waste, weight)
        assert epsilons.min() <= found <= epsilons.max()
        here = np.linspace(epsilons.min(), epsilons.max(), 301)
        plain = np.minimum(1, np.expm1(epsilons) / np.expm1(here[:, None]))
        unused, above = (
            (sizes * epsilons * (1 - plain)).sum(axis=1),
            (sizes * np.maximum(epsilons - here[:, None], 0)).sum(1),
        )
        np.testing.assert_allclose(wastes(epsilons, sizes, here), (unused, above), atol=1e-9 * (sizes @ epsilons))

        def loss(u, s):
            return fixed_loss(u, s, weight) if waste == "fixed" else adaptive_loss(u, s)

        at = loss(*wastes(epsilons, sizes, [found]))[0]
        assert at <= loss(unused, above).min() + 1e-4 * (sizes @ epsilons)

    @given(st.lists(st.floats(0, 900), min_size=2), st.floats(1e-3, 900))
    def test_probabilities_rise_with_the_budget_and_keep_it(self, epsilons, tau):
        epsilons = np.sort(epsilons)
        drawn = sampling_probabilities(epsilons, tau)
        assert (np.diff(drawn) >= 0).all()
        assert ((drawn >= 0) & (drawn <= 1)).all()
        assert (drawn[epsilons >= tau] == 1).all()
        below = epsilons[epsilons < min(tau, 600)]  # the cost of a threshold's worth of loss, amplified, is the budget
        if tau < 600:
            np.testing.assert_allclose(np.log1p(drawn[: below.size] * np.expm1(tau)), below, rtol=1e-9, atol=1e-12)

    def test_equation_7_as_printed_is_least_at_both_ends_whatever_the_budgets(self):
        epsilons, sizes = np.linspace(0.5, 1, 20), np.full(20, 3000)
        unused, above = wastes(epsilons, sizes, np.linspace(0.5, 1, 101))
        printed = harmonic_loss(unused, above)
        assert printed[0] == printed[-1] == 0 < printed[1:-1].min()
        # its formula is Eq. 6 with the named weights exchanged; with the weights as named there is a minimum inside
        total = unused + above
        np.testing.assert_allclose(printed, above / total * unused + unused / total * above, atol=1e-9)
        np.testing.assert_allclose(adaptive_loss(unused, above), unused / total * unused + above / total * above)
        best = minimize_scalar(
            lambda tau: adaptive_loss(*wastes(epsilons, sizes, [tau]))[0], bounds=(0.7, 0.8), method="bounded"
        )
        assert threshold(epsilons, sizes, "adaptive") == pytest.approx(best.x, abs=5e-3)
        assert harmonic_loss([0.0], [0.0]) == adaptive_loss([0.0], [0.0]) == 0

    def test_one_budget_is_its_own_threshold_and_nobody_has_none(self):
        assert threshold([2.0, 2.0], [3, 4], "adaptive") == threshold([2.0, 0.0], [3, 4]) == 2.0
        with pytest.raises(ValueError, match="no owner has anything left"):
            threshold([0.0], [3])


class TestRounds:
    @settings(max_examples=8)
    @given(budgets, st.integers(1, 3), st.sampled_from(["fixed", "adaptive"]), st.floats(0.05, 0.95))
    def test_no_budget_is_exceeded_after_any_round(self, pairs, rounds, waste, weight):
        epsilons, sizes = zip(*pairs, strict=True)
        owners = grants(epsilons, sizes)
        batch = 0.01 * owners.n_records
        plans = plan_thresholds(
            owners, rounds=rounds, steps=40, expected_batch=batch, clip_norm=0.5, waste=waste, weight=weight,
            accountant=RDP(),
        )  # fmt: skip
        assert PlanSequence(plans).steps == 40
        order = np.argsort(owners.epsilon)
        for number, plan in enumerate(plans, start=1):
            assert (plan.spent() <= owners.epsilon * number / rounds).all()
            assert plan.sample_rates @ owners.sizes == pytest.approx(batch)
        assert (np.diff(plans[0].sample_rates[order]) >= 0).all()
        bound = int(np.argmax(plans[-1].spent() / owners.epsilon))
        rough = PLDAccountant(value_discretization_interval=1e-3)  # from above, and yet below what Renyi orders say
        assert independently(plans, bound, rough) <= owners.epsilon[bound]

    @pytest.mark.parametrize("rounds", [1, 2])
    def test_the_exact_count_is_within_the_budget_and_who_binds_spends_it(self, rounds):
        owners = grants([0.5, 1.0, 2.0], [300, 400, 300])
        plans = plan_thresholds(owners, rounds=rounds, **ASKED, weight=0.3)
        found = [independently(plans, owner, PLDAccountant()) for owner in range(3)]
        assert (found <= owners.epsilon * (1 + 1e-3)).all()
        assert max(found / owners.epsilon) >= 0.99
        assert plans[-1].spent() == pytest.approx(found, rel=2e-3)

    def test_one_round_has_the_rates_of_equation_4_and_its_subset_is_cheaper_drawn_anew(self):
        owners = grants([0.5, 1.0], [500, 500])
        (plan,) = plan_thresholds(owners, rounds=1, **ASKED, weight=0.1)
        assert plan.sample_rates[0] / plan.sample_rates[1] == pytest.approx(np.expm1(0.5) / np.expm1(1.0))
        # drawn once for all steps, Theorem 4.2 promises it 0.5 where the other spends 1
        assert plan.spent()[1] == pytest.approx(1.0, rel=1e-3)
        assert plan.spent()[0] < 0.5

    def test_what_was_spent_before_is_shared_out_no_more(self):
        owners = grants([0.5, 1.0], [500, 500])
        past = [Segment([0.01, 0.02], 4.0, 50)]
        plans = plan_thresholds(owners, rounds=2, **ASKED, past=past, accountant=RDP())
        before = composed_epsilon(past, 1e-5, RDP())
        assert plans[1].past[0] == past[0].rows_of(2)
        for plan, most in zip(plans, ((before + owners.epsilon) / 2, owners.epsilon), strict=True):
            assert (plan.spent() <= most).all()
            assert max(plan.spent() / most) > 0.99
        with pytest.raises(ValueError, match=r"owner 0 \(epsilon 0.5, .* nothing left"):
            plan_thresholds(owners, rounds=2, **ASKED, past=[Segment(0.5, 1.0, 50)])

    def test_very_many_budgets_are_kept_as_a_plan_counts_them(self):
        owners = grants(np.linspace(0.5, 2, 100), [20] * 100)
        for plan in plan_thresholds(owners, rounds=2, **ASKED, accountant=RDP()):
            assert (plan.spent() <= owners.epsilon).all()

    def test_what_does_not_fit_is_refused(self):
        owners = grants([0.5, 2.0], [500, 10])
        with pytest.raises(ValueError, match="rounds must be at most the 60 steps, got 61"):
            plan_thresholds(owners, rounds=61, **ASKED)
        with pytest.raises(ValueError, match=r"expected_batch must be at most 60\.\d+, the records"):
            plan_thresholds(owners, rounds=1, steps=10, expected_batch=200, clip_norm=1, weight=0.0)

    def test_members_count_by_threshold_and_expected_size(self):
        owners = grants([0.5, 1.0], [500, 500])
        plans = plan_thresholds(owners, rounds=2, **ASKED, weight=0.1)
        # in the first round 0.25 and 0.5 are left; the second owner binds, and has 0.5 left again
        left = 0.5 - plans[0].spent()[0], 1.0 - plans[0].spent()[1]
        second = left[1] * (500 + 500 * np.expm1(left[0]) / np.expm1(left[1]))
        first = 0.5 * (500 + 500 * np.expm1(0.25) / np.expm1(0.5))
        assert member_weights(plans, weight=0.1) == pytest.approx([first / (first + second), second / (first + second)])


class TestBaselines:
    owners = grants([1.0, 1.0, 2.0, 3.0], [100, 200, 400, 300])

    @pytest.mark.parametrize("method", ["uniform", "sample", "scale", "blend"])
    def test_who_is_left_out_pays_nothing_and_the_rest_are_planned_for_alone(self, method):
        weight = 0.5 if method == "blend" else None
        plan = plan_left_out(self.owners, strictest=1, method=method, weight=weight, **ASKED, accountant=RDP())
        rest = grants([2.0, 3.0], [400, 300])
        planner = {"uniform": plan_uniform, "sample": plan_sample, "scale": plan_scale, "blend": plan_blend}[method]
        alone = planner(rest, **ASKED, accountant=RDP(), **({"weight": 0.5} if weight else {}))
        assert plan.sample_rates.tolist() == [0, 0, *alone.sample_rates]
        assert plan.sensitivities[2:].tolist() == alone.sensitivities.tolist()
        assert plan.noise_scale == alone.noise_scale
        assert plan.spent().tolist() == [0, 0, *alone.spent()]
        assert plan.epsilon.tolist() == [1, 1, 2, 3]
        assert plan.owners is self.owners

    def test_nobody_left_out_is_the_method_itself_and_everybody_is_refused(self):
        plan = plan_left_out(self.owners, strictest=0, **ASKED, accountant=RDP())
        assert plan.noise_scale == plan_uniform(self.owners, **ASKED, accountant=RDP()).noise_scale
        with pytest.raises(ValueError, match="strictest must be below the number of distinct epsilons, 3"):
            plan_left_out(self.owners, strictest=3, **ASKED)

    def test_owners_one_after_another_spend_all_in_their_own_stage(self):
        plans = plan_in_turn(self.owners, steps=50, expected_batch=350, clip_norm=0.5)
        PlanSequence(plans)
        assert [plan.steps for plan in plans] == [15, 20, 15]
        assert [plan.expected_batch for plan in plans] == [300, 350, 300]
        assert [np.flatnonzero(plan.sample_rates).tolist() for plan in plans] == [[0, 1], [2], [3]]
        found = np.array([independently(plans, owner, PLDAccountant()) for owner in range(4)])
        assert (found <= self.owners.epsilon * (1 + 1e-3)).all()
        assert (found >= self.owners.epsilon * 0.99).all()
        with pytest.raises(ValueError, match="at least one for each of 3 budgets, got 2"):
            plan_in_turn(self.owners, steps=2, expected_batch=350, clip_norm=0.5)

    @given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(0, 100))
    def test_all_steps_are_shared_out(self, sizes, more):
        from inosgm.methods.baselines import _in_proportion

        counts = _in_proportion(len(sizes) + more, np.array(sizes))
        assert counts.sum() == len(sizes) + more
        assert (counts >= 1).all()

    def test_budgets_are_lowered_towards_the_strictest(self):
        none, half, all_of_it = (
            plan_lowered(self.owners, share=share, **ASKED, accountant=RDP()) for share in (0, 0.5, 1)
        )
        assert none.sample_rates.tolist() == plan_sample(self.owners, **ASKED, accountant=RDP()).sample_rates.tolist()
        assert half.spent() == pytest.approx([1, 1, 1.5, 2], rel=5e-3)
        assert half.epsilon.tolist() == [1, 1, 2, 3]
        assert np.ptp(all_of_it.sample_rates) == 0
        with pytest.raises(ValueError, match=r"share must be finite and >= 0 and <= 1, got 1\.5"):
            plan_lowered(self.owners, share=1.5, **ASKED)

    def test_who_grants_more_than_the_mean_is_drawn_less_often_and_pays_less(self):
        owners = grants([1.0, 1.0, 2.0, 3.0], [1000, 2000, 4000, 3000])  # more than the mean, 1.75, grant the last two
        whole = plan_sample(owners, **ASKED, accountant=RDP())
        part = plan_undersampled(owners, share=0.3, **ASKED, accountant=RDP())
        assert part.sample_rates == pytest.approx(whole.sample_rates * [1, 1, 0.7, 0.7])
        assert part.noise_scale == whole.noise_scale
        assert (part.spent()[:2] == whole.spent()[:2]).all()
        assert (part.spent()[2:] < 0.95 * whole.spent()[2:]).all()
        with pytest.raises(ValueError, match="share must be below 1"):
            plan_undersampled(owners, share=1.0, **ASKED)


def test_a_plan_by_pld_is_never_stricter_than_one_by_renyi():
    owners = grants([0.5, 1.0], [500, 500])
    by = [plan_thresholds(owners, rounds=2, **ASKED, accountant=accountant) for accountant in (PLD(), RDP())]
    assert by[0][0].noise_scale < by[1][0].noise_scale
