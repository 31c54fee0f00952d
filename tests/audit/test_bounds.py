import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from inosgm import Plan
from inosgm.accounting import Segment, epsilon
from inosgm.accounting.gaussian import gaussian_delta
from inosgm.accounting.tradeoff import _composed, gaussian_power, plain_power, sampled_gaussian_power
from inosgm.audit.bounds import (
    Counts,
    Refutation,
    bound_by_counts,
    clopper_pearson,
    epsilon_of_scale,
    refuted_scale,
)
from inosgm.audit.claims import Claim, claims_of
from inosgm.audit.many_runs import choose_test, many_run_bound
from inosgm.audit.one_run import chance_of_guesses, guessed_epsilon, one_run_bound
from inosgm.audit.owner_bounds import bounds_of
from inosgm.audit.pool import Shadows

LEVELS = np.array([1e-5, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99])


def claim_of(rate=1.0, multiplier=1.0, steps=1, delta=1e-5, owner=0, **changed):
    fields = dict(
        owner=owner,
        granted=None,
        spent=float(epsilon(rate, multiplier, steps, delta)),
        delta=delta,
        sample_rate=rate,
        noise_multiplier=multiplier,
        steps=steps,
    )
    return Claim(**{**fields, **changed})


def counts_of(generator, level, power, runs):
    return Counts(
        true_positives=int(generator.binomial(runs, power)),
        members=runs,
        false_positives=int(generator.binomial(runs, level)),
        others=runs,
    )


class TestClaims:
    def test_what_a_plan_with_budgets_claims(self):
        plan = Plan(
            sample_rates=[0.1, 0.2],
            sensitivities=[1, 2],
            sizes=[100, 50],
            noise_scale=4,
            steps=10,
            epsilon=[1.0, 5.0],
            delta=[1e-5, 1e-6],
            accountant="rdp",
            labels=["a", "b"],
        )
        first, second = claims_of(plan)
        assert (first.owner, first.granted, first.delta, first.sample_rate) == ("a", 1.0, 1e-5, 0.1)
        assert (second.noise_multiplier, second.steps) == (2.0, 10)
        assert [first.spent, second.spent] == plan.spent().tolist()
        elsewhere = claims_of(plan, 1e-3)[0]
        assert elsewhere.granted is None
        assert elsewhere.spent < first.spent

    def test_the_past_counts_as_spent(self):
        numbers = dict(sample_rates=[0.1], sensitivities=[1], sizes=[100], noise_scale=4, steps=10)
        (plain,) = claims_of(Plan(**numbers))
        (later,) = claims_of(Plan(**numbers, past=[Segment(0.1, 4.0, 10)]))
        assert plain.spent == pytest.approx(epsilon(0.1, 4.0, 10, 1e-5))
        assert later.spent == pytest.approx(epsilon(0.1, 4.0, 20, 1e-5), rel=1e-3)

    def test_hardly_any_noise_claims_nothing(self):
        plan = Plan(sample_rates=[0.1, 0.1], sensitivities=[1e30, 1e-30], sizes=[9, 9], noise_scale=1e-30, steps=3)
        assert [claim.spent for claim in claims_of(plan)] == [math.inf, pytest.approx(epsilon(0.1, 1.0, 3, 1e-5))]


class TestTradeoff:
    @pytest.mark.parametrize(("rate", "multiplier"), [(0.1, 1.0), (0.01, 0.5), (0.5, 3.0)])
    def test_composing_one_step_gives_its_closed_form_from_above(self, rate, multiplier):
        exact = sampled_gaussian_power(rate, multiplier, 1)(LEVELS)
        composed = np.interp(LEVELS, *_composed(((((rate, multiplier),), 1),)))
        assert (composed >= exact).all()
        np.testing.assert_allclose(composed, exact, rtol=1e-4, atol=5e-8)

    def test_composed_steps_agree_with_dp_accounting(self):
        made = privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=0.1, value_discretization_interval=1e-3
        )
        epsilons = np.linspace(-12, 12, 24001)
        deltas = np.asarray(made.self_compose(30)._pmf_remove.get_delta_for_epsilon(epsilons))
        expected = np.minimum((np.exp(epsilons)[:, None] * LEVELS + deltas[:, None]).min(axis=0), 1.0)
        np.testing.assert_allclose(sampled_gaussian_power(0.1, 1.0, 30)(LEVELS), expected, rtol=5e-4)

    def test_sure_to_be_drawn_is_one_gaussian(self):
        np.testing.assert_allclose(sampled_gaussian_power(1.0, 3.0, 9)(LEVELS), gaussian_power(1.0)(LEVELS))

    def test_delta_of_the_gaussian_curve_is_its_greatest_distance(self):
        levels = np.linspace(1e-6, 1 - 1e-6, 200_001)
        distance = (gaussian_power(1.0)(levels) - math.exp(0.7) * levels).max()
        assert distance == pytest.approx(float(gaussian_delta(np.array(1.0), np.array(0.7))), abs=1e-8)

    @given(st.floats(0.01, 1), st.floats(0.3, 5), st.sampled_from([1, 2, 17]), st.floats(1.01, 2))
    @settings(max_examples=25)
    def test_more_leak_more_power(self, rate, multiplier, steps, factor):
        base = sampled_gaussian_power(rate, multiplier, steps)(LEVELS)
        assert (base >= LEVELS - 1e-12).all()
        assert (np.diff(base) >= 0).all()
        for worse in ((min(rate * factor, 1.0), multiplier, steps), (rate, multiplier / factor, steps)):
            assert (sampled_gaussian_power(*worse)(LEVELS) >= base - 1e-5).all()

    def test_plain_power(self):
        allowed = plain_power(math.log(3), 0.01)
        np.testing.assert_allclose(allowed(np.array([0.0, 0.1, 0.5, 1.0])), [0.01, 0.31, 1 - 0.49 / 3, 1.0])


class TestCounts:
    @pytest.mark.parametrize(("successes", "trials"), [(0, 20), (20, 20), (7, 50), (1, 1000)])
    def test_clopper_pearson_agrees_with_scipy(self, successes, trials):
        expected = stats.binomtest(successes, trials).proportion_ci(0.9, method="exact")
        assert clopper_pearson(successes, trials, 0.05) == pytest.approx((expected.low, expected.high))

    @pytest.mark.parametrize(
        ("rate", "multiplier", "steps", "level", "runs"),
        [(1.0, 1.0, 1, 0.3, 2000), (1.0, 1.0, 1, 0.01, 100), (0.1, 1.0, 1, 0.01, 2000), (0.1, 1.0, 50, 0.05, 300)],
    )
    def test_a_claim_that_just_holds_is_refuted_no_more_often_than_stated(self, rate, multiplier, steps, level, runs):
        """At an error of 5 %, more than 48 of 600 has a probability of 0.1 % at most."""
        generator = np.random.default_rng(7)
        power = sampled_gaussian_power(rate, multiplier, steps)
        best = float(power(np.array(level)))
        refuted = sum(Refutation(counts_of(generator, level, best, runs), 500).refutes(power, 0.05) for _ in range(600))
        assert refuted <= 48

    def test_very_many_counts_give_the_closed_form(self):
        runs, level = 10**10, float(stats.norm.sf(0.5))
        counts = Counts(
            true_positives=round(runs * (1 - level)), members=runs, false_positives=round(runs * level), others=runs
        )
        bound = bound_by_counts(counts, claim_of(), 0.95)
        assert 0.998 < bound.scale <= 1
        assert bound.epsilon == pytest.approx(4.377, rel=0.003)
        assert bound.plain == pytest.approx(math.log((1 - level) / level), abs=0.002)
        assert not bound.contradicts

    def test_twice_the_sensitivity_is_refuted_with_its_size(self):
        generator = np.random.default_rng(0)
        level = 0.1
        power = float(sampled_gaussian_power(0.2, 1.0, 20)(np.array(level)))
        bound = bound_by_counts(counts_of(generator, level, power, 20_000), claim_of(0.2, 2.0, 20), 0.95)
        assert bound.contradicts
        assert 1.85 < bound.scale < 2
        assert claim_of(0.2, 2.0, 20).spent < bound.epsilon < claim_of(0.2, 1.0, 20).spent

    def test_a_wrong_rate_gives_the_epsilon_of_a_rate(self):
        generator = np.random.default_rng(0)
        power = float(sampled_gaussian_power(0.4, 1.0, 1)(np.array(0.3)))
        bound = bound_by_counts(counts_of(generator, 0.3, power, 200_000), claim_of(0.2, 1.0, 1), 0.95)
        assert bound.contradicts
        assert bound.scale > 900  # no sensitivity explains it
        assert 0.95 * claim_of(0.4).spent < bound.epsilon < claim_of(0.4).spent

    def test_a_claim_of_nothing_is_never_contradicted(self):
        bound = bound_by_counts(
            Counts(true_positives=999, members=1000, false_positives=1, others=1000), claim_of(spent=math.inf), 0.95
        )
        assert not bound.contradicts
        assert bound.scale is None
        assert bound.epsilon == bound.plain < math.log(1000)  # nothing is taken for granted

    @given(st.integers(1, 400), st.integers(1, 400), st.data())
    @settings(max_examples=30)
    def test_worse_counts_and_more_confidence_say_less(self, members, others, data):
        right = data.draw(st.integers(0, members))
        wrong = data.draw(st.integers(0, others))
        here = Counts(true_positives=right, members=members, false_positives=wrong, others=others)
        worse = Counts(
            true_positives=max(right - 1, 0),
            members=members,
            false_positives=min(wrong + 1, others),
            others=others,
        )
        scale = refuted_scale(here, claim_of(), 0.05, roughly=True)
        assert refuted_scale(worse, claim_of(), 0.05, roughly=True) <= scale
        assert refuted_scale(here, claim_of(), 0.01, roughly=True) <= scale

    def test_epsilon_of_scale_is_from_below(self):
        assert epsilon_of_scale(claim_of(0.1, 1.0, 30), 1.0) < claim_of(0.1, 1.0, 30).spent
        assert epsilon_of_scale(claim_of(), 2.0) == pytest.approx(float(epsilon(1.0, 0.5, 1, 1e-5)))
        assert epsilon_of_scale(claim_of(), 0.0) == 0


class TestOneRun:
    @pytest.mark.parametrize(("guesses", "right"), [(60, 33), (60, 60), (250, 200), (4000, 2300)])
    def test_the_theorem_written_out(self, guesses, right):
        for value in (0.0, 0.4, 2.0):
            probability = 1 / (1 + math.exp(-value))
            steps = np.arange(1, right + 1)
            cumulative = stats.binom.cdf(right - 1, guesses, probability)
            most = ((cumulative - stats.binom.cdf(right - 1 - steps, guesses, probability)) / steps).max()
            expected = min(1, stats.binom.sf(right - 1, guesses, probability) + 2 * 5000 * 1e-5 * most)
            assert chance_of_guesses(5000, guesses, right, value, 1e-5) == pytest.approx(expected, rel=1e-7)

    def test_all_right_without_delta_is_the_closed_form(self):
        probability = 0.05 ** (1 / 100)
        assert guessed_epsilon(100, 100, 100, 0.0, 0.05) == pytest.approx(
            math.log(probability / (1 - probability)), abs=2e-4
        )

    def test_a_thousand_canaries_at_the_level_of_the_noise(self):
        """PRIVACY.md: about 1.72 for mu = 1. One try makes 1.69 here, trying two numbers of guesses 1.6."""
        generator = np.random.default_rng(0)
        one_try, tried = [], []
        for _ in range(40):
            members = generator.random(1000) < 0.5
            statistics = generator.normal(size=1000) + members
            order = np.argsort(statistics)
            right = int(members[order[-31:]].sum() + (~members[order[:31]]).sum())
            one_try.append(guessed_epsilon(1000, 62, right, 1e-5, 0.05))
            tried.append(one_run_bound(statistics, members, claim_of()).epsilon)
        assert 1.55 < np.mean(one_try) < 1.85
        assert 1.45 < np.mean(tried) < 1.75
        assert max(tried) < claim_of().spent

    def test_randomized_response_is_refuted_no_more_often_than_stated(self):
        """Nothing tells more than randomized response. More than 24 of 250 at 5 %: a probability of 0.1 % at most."""
        generator = np.random.default_rng(3)
        truth = generator.random((250, 800)) < 0.5
        told = truth ^ (generator.random(truth.shape) > 1 / (1 + math.exp(-1.0)))
        noisy = told + 1e-3 * generator.random(truth.shape)
        claim = claim_of(spent=1.0)
        assert sum(one_run_bound(s, m, claim).contradicts for s, m in zip(noisy, truth, strict=True)) <= 24

    def test_leaks_are_contradicted(self):
        generator = np.random.default_rng(0)
        members = generator.random((3, 1000)) < 0.5
        bound = one_run_bound(members + 0.1 * generator.normal(size=members.shape), members, claim_of(spent=2.0))
        assert bound.contradicts
        assert bound.epsilon > 4
        assert "of 750 guesses right, about 3000 records" in bound.evidence

    def test_what_is_not_a_number_is_not_guessed_about(self):
        generator = np.random.default_rng(0)
        members = generator.random(2000) < 0.5
        statistics = members + generator.normal(size=2000)
        whole = one_run_bound(statistics, members, claim_of())
        assert one_run_bound(np.exp(statistics), members, claim_of()) == whole
        statistics[1000:] = np.nan
        assert one_run_bound(statistics, members, claim_of()).epsilon > 0
        few = one_run_bound(statistics, members, claim_of(), canaries=np.arange(990, 2000))
        assert few.epsilon == 0
        assert "too few" in few.evidence

    def test_shapes_must_agree(self):
        with pytest.raises(ValueError, match="pair up"):
            one_run_bound(np.zeros(3), np.zeros(4, dtype=bool), claim_of())


def gaussian_runs(generator, runs, mu):
    members = generator.random((runs, len(mu))) < 0.5
    return (generator.normal(size=members.shape) + mu * members).astype(np.float32), members


class TestManyRuns:
    def test_the_choice_is_that_of_brute_force(self):
        generator = np.random.default_rng(0)
        scores, members = gaussian_runs(generator, 60, np.array([0.0, 0.5, 2.0, 0.0]))
        record, threshold = choose_test(scores, members)

        def merit(column, level):
            said, inside = scores[:, column] > level, members[:, column]
            rates = (
                ((said & inside).sum() + 0.5) / (inside.sum() + 1),
                ((said & ~inside).sum() + 0.5) / ((~inside).sum() + 1),
            )
            z = stats.norm.ppf(rates)
            trials = np.array([inside.sum(), (~inside).sum()]) + 1
            errors = np.sqrt(np.array(rates) * (1 - np.array(rates)) / trials) / stats.norm.pdf(z)
            return z[0] - z[1] - errors.sum()

        best = max(merit(column, level) for column in range(4) for level in np.sort(scores[:, column])[:-1])
        assert record == 2
        assert merit(record, threshold) == pytest.approx(best, rel=1e-6)

    def test_bounds_of_gaussian_scores(self):
        generator = np.random.default_rng(1)
        found = [many_run_bound(*gaussian_runs(generator, 2000, np.full(5, 1.0)), claim_of()) for _ in range(5)]
        assert 2.7 < np.mean([bound.epsilon for bound in found]) < 4.377
        assert all(bound.plain < bound.epsilon for bound in found)

    def test_a_claim_that_just_holds_is_refuted_no_more_often_than_stated(self):
        """More than 9 of 60 at 5 % has a probability of 0.1 % at most."""
        generator = np.random.default_rng(2)
        mu = np.full(30, 1.0)
        found = [many_run_bound(*gaussian_runs(generator, 256, mu), claim_of()).contradicts for _ in range(60)]
        assert sum(found) <= 9

    def test_half_the_noise_is_contradicted(self):
        scores, members = gaussian_runs(np.random.default_rng(3), 512, np.full(20, 2.0))
        bound = many_run_bound(scores, members, claim_of(multiplier=1.0))
        assert bound.contradicts
        assert 4.377 < bound.epsilon < claim_of(multiplier=0.5).spent

    def test_odd_scores(self):
        scores, members = gaussian_runs(np.random.default_rng(3), 64, np.full(3, 3.0))
        scores[:, 0], scores[::5, 1], scores[1::7, 2] = np.nan, np.inf, -np.inf
        assert not many_run_bound(scores, members, claim_of(multiplier=1 / 3)).contradicts
        assert many_run_bound(np.zeros((8, 2)), members[:8, :2], claim_of()).epsilon == 0
        assert many_run_bound(scores[:1], members[:1], claim_of()).epsilon == 0
        with pytest.raises(ValueError, match="one form"):
            many_run_bound(scores, members[:, :2], claim_of())


class TestOwners:
    claims = (claim_of(multiplier=10.0, owner="a"), claim_of(multiplier=1.0, owner="b"))

    def shadows(self, mu, runs=256, records=400, seed=0):
        generator = np.random.default_rng(seed)
        owners = np.arange(records) % 2
        scores, members = gaussian_runs(generator, runs, np.where(owners, mu[1], mu[0]))
        scores += 3 * generator.normal(size=records).astype(np.float32)
        return Shadows(scores=scores, members=members, owners=owners, labels=("a", "b"), asked=512)

    def test_promises_that_are_kept(self):
        first, second = bounds_of(self.shadows((0.1, 1.0)), self.claims)
        assert (first.owner, first.records, second.owner) == ("a", 200, "b")
        assert first.one_run.confidence == pytest.approx(1 - 0.05 / 4)
        assert not first.contradicts
        assert not second.contradicts
        assert 1.5 < second.one_run.epsilon < 4.377
        assert second.one_run.evidence.endswith("about 20000 records")

    def test_the_owner_whose_promise_is_broken_is_named(self):
        first, second = bounds_of(self.shadows((1.0, 1.0)), self.claims)
        assert first.contradicts
        assert not second.contradicts

    def test_a_single_run_goes_by_its_scores(self):
        generator = np.random.default_rng(0)
        members = generator.random((1, 1000)) < 0.5
        scores = (members + 0.2 * generator.normal(size=members.shape)).astype(np.float32)
        shadows = Shadows(
            scores=scores, members=members, owners=np.zeros(1000, dtype=np.int64), labels=("a", "b"), asked=1
        )
        (only,) = bounds_of(shadows, self.claims)
        assert only.one_run.contradicts
        assert only.many_runs.epsilon == 0

    def test_a_diverged_model_says_nothing(self):
        shadows = self.shadows((0.1, 1.0))
        shadows.scores[3], shadows.scores[4, :50] = np.nan, np.inf
        assert 1 < bounds_of(shadows, self.claims)[1].one_run.epsilon < 4.377

    def test_every_owner_needs_a_claim(self):
        with pytest.raises(ValueError, match="none about 'a'"):
            bounds_of(self.shadows((0.1, 1.0), runs=8), self.claims[1:])
