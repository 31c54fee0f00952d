"""Statistics of a column: what they estimate, how precisely, at which cost, and that nothing breaks their promise.

Statistical tests state how often they would raise a false alarm; seeds are fixed, so they raise it never or always.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import inosgm.statistics as statistics
from inosgm import BudgetExceeded, Ledger, Owners, Plan, audit_mechanism, certify, plan_scale, plan_uniform
from inosgm.audit import canaries
from inosgm.statistics import (
    PROCEDURES,
    Count,
    Estimate,
    GroupCounts,
    Histogram,
    Mean,
    Quantile,
    RobustMean,
    Statistic,
    Sum,
    TopHeavySum,
    TrimmedMean,
    UpperTailMean,
    Variance,
)
from inosgm.statistics.answering import run_stages
from inosgm.statistics.queries import Stage, single

BOUNDS = (-2.0, 8.0)
EDGES = [-2.0, 0.0, 0.5, 2.0, 8.0]
GROUPS = ["rent", "own", "lent"]
PLACES = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [13, 30, 17]))
SENSITIVITIES = np.array([0.4, 1.0, 2.5])
SIZES = np.bincount(PLACES)
N = PLACES.size
WEIGHTS = SENSITIVITIES[PLACES]
VALUES = np.random.default_rng(1).gamma(0.7, 1.0 + PLACES) - 1.0
VALUES[:2] = -7.0, 30.0
CLIPPED = np.clip(VALUES, *BOUNDS)
LABELS = np.array([*GROUPS, "free", "else"])[np.random.default_rng(2).integers(0, 5, N)]
ONES = VALUES > 0.3


def plan_of(noise: float, steps: int = 1, rates: Any = (1.0, 1.0, 1.0)) -> Plan:
    return Plan(
        sample_rates=rates,
        sensitivities=SENSITIVITIES,
        sizes=SIZES,
        noise_scale=noise,
        steps=steps,
        labels=["a", "b", "c"],
    )


WHO = np.array(["a", "b", "c"])[PLACES]


def expected_shortfall(values, weights, level):
    """By Rockafellar and Uryasev: the least of t + E max(x - t, 0) / (1 - level) over t."""
    shares = weights / weights.sum()
    return min(t + shares @ np.maximum(values - t, 0) / (1 - level) for t in values)


def soft_weights(importance, weights, fraction):
    """The definition of a linear tail, record by record from the least important up."""
    rho, below, length = np.empty(weights.size), 0.0, fraction * weights.sum()
    for k in np.argsort(importance):
        inside = np.clip([below, below + weights[k]], 0, length)
        rho[k] = (np.diff(inside**2)[0] / (2 * length) + weights[k] - np.diff(inside)[0]) / weights[k]
        below += weights[k]
    return rho


def hard_mean(values, importance, weights, fraction):
    """The mean of the most important records, of which those with a fraction of all weight are left out."""
    left, total, kept = (1 - fraction) * weights.sum(), 0.0, 0.0
    for k in np.argsort(-importance):
        part = min(weights[k], left - kept)
        total, kept = total + part * values[k], kept + part
    return total / kept


def weighted_quantile(values, weights, level):
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    return values[order][np.flatnonzero(shares >= level)[0]]


def robust(values, weights):
    rho = soft_weights(-np.abs(values - 0.4), weights, 0.3)
    return np.average(np.clip(values, 0.4 - 1.5, 0.4 + 1.5), weights=rho * weights)


def variance(values, weights):
    return np.cov(values, aweights=weights, ddof=0)


def group_counts(labels, weights):
    found = [weights[labels == group].sum() for group in GROUPS]
    return N / weights.sum() * np.array([*found, weights.sum() - sum(found)])


@dataclass(frozen=True)
class Case:
    """A statistic, its data, and what it estimates where records have weights, by the definition."""

    statistic: type[Statistic]
    parameters: dict[str, Any]
    data: Any
    truth: Callable[[np.ndarray], Any]
    by_owner: Callable[[np.ndarray], Any] | None = None
    steps: int = 1

    def made(self, noise: float, **options: Any) -> Statistic:
        """Return the statistic, weighted by budgets unless it is by owner; test_estimates.py tests the default."""
        if self.by_owner is None:
            options.setdefault("assume_alike", True)
        plan = options.pop("plan", None) or plan_of(noise, self.steps)
        return self.statistic(plan, options.pop("owners", WHO), **self.parameters, **options)


def per_bin(places):
    return np.histogram(CLIPPED[places], EDGES)[0]


def per_group(places):
    found = np.array([(LABELS[places] == group).sum() for group in GROUPS])
    return np.append(found, places.size - found.sum())


CASES = {
    "mean": Case(Mean, dict(bounds=BOUNDS), VALUES, lambda w: np.average(CLIPPED, weights=w)),
    "mean by owner": Case(
        Mean,
        dict(bounds=BOUNDS, stratified=True),
        VALUES,
        lambda w: CLIPPED.mean(),
        lambda places: CLIPPED[places].mean(),
    ),
    "sum": Case(Sum, dict(bounds=BOUNDS), VALUES, lambda w: N * np.average(CLIPPED, weights=w)),
    "sum by owner": Case(
        Sum,
        dict(bounds=BOUNDS, stratified=True),
        VALUES,
        lambda w: CLIPPED.sum(),
        lambda places: CLIPPED[places].sum(),
    ),
    "count": Case(Count, {}, ONES, lambda w: N * np.average(ONES, weights=w)),
    "count by owner": Case(Count, dict(stratified=True), ONES, lambda w: ONES.sum(), lambda places: ONES[places].sum()),
    "variance": Case(Variance, dict(bounds=BOUNDS), VALUES, lambda w: variance(CLIPPED, w)),
    "variance by owner": Case(
        Variance,
        dict(bounds=BOUNDS, stratified=True),
        VALUES,
        lambda w: CLIPPED.var(),
        lambda places: CLIPPED[places].var(),
    ),
    "upper-tail-mean": Case(
        UpperTailMean, dict(bounds=BOUNDS, level=0.7), VALUES, lambda w: expected_shortfall(CLIPPED, w, 0.7)
    ),
    "top-heavy-sum": Case(
        TopHeavySum,
        dict(bounds=BOUNDS, fraction=0.6),
        VALUES,
        lambda w: (soft_weights(CLIPPED, w, 0.6) * CLIPPED) @ w / w.mean(),
    ),
    "trimmed-mean": Case(
        TrimmedMean,
        dict(bounds=BOUNDS, centre=0.4, fraction=0.3),
        VALUES,
        lambda w: hard_mean(CLIPPED, -np.abs(CLIPPED - 0.4), w, 0.3),
    ),
    "robust-mean": Case(RobustMean, dict(centre=0.4, radius=1.5, fraction=0.3), VALUES, lambda w: robust(VALUES, w)),
    "quantile": Case(
        Quantile,
        dict(bounds=BOUNDS, level=0.61, rounds=24),
        VALUES,
        lambda w: weighted_quantile(CLIPPED, w, 0.61),
        steps=24,
    ),
    "histogram": Case(
        Histogram,
        dict(edges=EDGES),
        VALUES,
        lambda w: N / w.sum() * np.histogram(CLIPPED, EDGES, weights=w)[0],
    ),
    "histogram by owner": Case(
        Histogram,
        dict(edges=EDGES, stratified=True),
        VALUES,
        lambda w: per_bin(np.arange(N)),
        per_bin,
    ),
    "group-counts": Case(GroupCounts, dict(categories=GROUPS), LABELS, lambda w: group_counts(LABELS, w)),
    "group-counts by owner": Case(
        GroupCounts,
        dict(categories=GROUPS, stratified=True),
        LABELS,
        lambda w: per_group(np.arange(N)),
        per_group,
    ),
}
each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_without_noise_it_is_the_definition(name):
    case = CASES[name]
    estimate = case.made(1e-9, key=1).run(case.data)
    assert estimate.value == pytest.approx(case.truth(WEIGHTS), abs=2e-6 if name == "quantile" else 1e-7)
    assert np.shape(estimate.value) == np.shape(estimate.standard_error)
    assert np.all(np.asarray(estimate.standard_error) < 2e-6)
    assert estimate.cost is None  # the plan knows no budgets
    if case.by_owner is None:
        assert estimate.by_owner is None
    else:
        for place, (label, row) in enumerate(estimate.by_owner.items()):
            assert label == "abc"[place]
            assert row.value == pytest.approx(case.by_owner(np.flatnonzero(place == PLACES)), abs=1e-6)


@each_case
def test_with_one_sensitivity_for_all_every_record_counts_the_same(name):
    case = CASES[name]
    plan = Plan(
        sample_rates=[1] * 3, sensitivities=[1] * 3, sizes=SIZES, noise_scale=1e-9, steps=case.steps, labels="abc"
    )
    estimate = case.made(0, plan=plan, key=1).run(case.data)
    assert estimate.value == pytest.approx(case.truth(np.ones(N)), abs=2e-6 if name == "quantile" else 1e-7)


RELEASES = 200
NOISE = 4.0


def released(case: Case, noise: float, releases: int = RELEASES, **options: Any) -> list[Estimate]:
    return [case.made(noise, key=key, **options).run(case.data) for key in range(releases)]


@pytest.mark.parametrize("name", [name for name in CASES if name != "quantile"])
def test_over_many_releases_it_is_unbiased_and_errs_as_it_says(name):
    """False alarms: below 1e-4 for all statistics together (two tests of 1e-6 for each of about 50 numbers)."""
    case = CASES[name]
    noise = NOISE / 40 if case.statistic is Variance else NOISE  # so that it is never moved to 0
    found = released(case, noise)
    columns = {"overall": ([e.value for e in found], [e.standard_error for e in found], case.truth(WEIGHTS))}
    for place, label in enumerate("abc" if case.by_owner else ""):
        rows = [estimate.by_owner[label] for estimate in found]
        truth = case.by_owner(np.flatnonzero(place == PLACES))
        columns[label] = [row.value for row in rows], [row.standard_error for row in rows], truth
    for values, errors, truth in columns.values():
        values, errors = np.array(values), np.array(errors)
        standard = np.sqrt((errors**2).mean(axis=0))
        z = (values.mean(axis=0) - truth) / standard * np.sqrt(RELEASES)
        assert np.all(np.abs(z) < stats.norm.isf(5e-7))
        chi = (((values - truth) / standard) ** 2).sum(axis=0)
        low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], RELEASES)
        assert np.all((low < chi) & (chi < high))


def test_what_noise_adds_to_a_variance_is_taken_off_and_it_is_never_negative():
    """False alarms: 1e-6. Without the correction it would be off by the variance of the mean."""
    spread = np.where(np.arange(N) % 2, 6.5, -0.5)
    case = Case(Variance, dict(bounds=BOUNDS), spread, lambda w: variance(spread, w))
    noise = 0.1 * WEIGHTS.sum() / np.sqrt(2)
    values = np.array([estimate.value for estimate in released(case, noise, 800)])
    assert abs(values.mean() - case.truth(WEIGHTS)) < stats.norm.isf(5e-7) * values.std() / np.sqrt(800) < 25 * 0.1**2
    constant = Case(Variance, dict(bounds=BOUNDS), np.full(N, 3.0), lambda w: 0.0)
    values = [estimate.value for estimate in released(constant, noise, 50)]
    assert min(values) == 0 < max(values) <= 25


@each_case
def test_the_weighted_estimate_leans_to_owners_with_large_budgets_and_the_stratified_does_not(name):
    case = CASES[name]
    weighted, even = case.truth(WEIGHTS), case.truth(np.ones(N))
    assert np.allclose(weighted, even) == (case.by_owner is not None)


def test_a_quantile_lies_in_its_interval_and_errs_about_as_it_says():
    """False alarms: 1e-6 each, but for how the standard error compares with errors: that is what seeds show."""
    case = Case(Quantile, dict(bounds=BOUNDS, level=0.5, rounds=10), VALUES, lambda w: 0.0, steps=10)
    truth = weighted_quantile(CLIPPED, WEIGHTS, 0.5)
    found = released(case, 4.0)
    errors = np.array([e.value - truth for e in found])
    said = np.array([e.standard_error for e in found])
    assert np.sum(np.abs(errors) <= 2 * said) > stats.binom.ppf(1e-6, RELEASES, 0.95)
    assert 0.5 < said.mean() / np.sqrt((errors**2).mean()) < 15  # it knows the values around only where it has tested
    far = Case(Quantile, dict(bounds=BOUNDS, level=0.995, rounds=10), VALUES, lambda w: 0.0, steps=10)
    extreme = weighted_quantile(CLIPPED, WEIGHTS, 0.995)
    off = [abs(e.value - extreme) / e.standard_error for e in released(far, 4.0)]
    assert np.mean(np.array(off) <= 2) > 0.95  # hardly any record lies beyond it, and it says so
    shares = np.array([[e.tested.shares[0], e.tested.error] for e in found])
    share = WEIGHTS[CLIPPED <= 3.0].sum() / WEIGHTS.sum()
    z = (shares[:, 0] - share) / shares[:, 1]
    assert abs(z.mean()) * np.sqrt(RELEASES) < stats.norm.isf(5e-7)
    assert np.all(np.array(stats.chi2.ppf([5e-7, 1 - 5e-7], RELEASES)) * [1, -1] < (z @ z) * np.array([1, -1]))
    assert all(e.tested.tested[0] == 3.0 for e in found)


def test_counts_of_cells_add_up_to_the_number_of_records():
    for name in ("histogram", "histogram by owner", "group-counts", "group-counts by owner"):
        estimate = CASES[name].made(50.0, key=3).run(CASES[name].data)
        assert estimate.value.sum() == pytest.approx(N)
        assert estimate.details["shares"] == pytest.approx(estimate.value / N)
        for label, row in (estimate.by_owner or {}).items():
            assert row.value.sum() == pytest.approx(SIZES["abc".index(label)])


@each_case
def test_nothing_breaks_its_promise_on_data_or_made_up(name):
    case = CASES[name]
    assert certify(case.made(1.0), case.data, evaluations=200).holds()
    assert certify(case.made(1.0), evaluations=50).holds()


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].by_owner is None or name == "mean by owner"])
def test_the_audit_does_not_contradict(name, monkeypatch):
    """False alarms: at most 1e-3 for each of 12 statistics."""
    monkeypatch.setattr(canaries, "EVALUATIONS", 100)
    case, rounds = CASES[name], min(CASES[name].steps, 2)
    parameters = {**case.parameters, **({"rounds": rounds} if case.steps > 1 else {})}
    few = np.concatenate([np.flatnonzero(place == PLACES)[:6] for place in range(3)])
    plan = Plan(
        sample_rates=[1, 0.8, 1],
        sensitivities=SENSITIVITIES,
        sizes=[6, 6, 6],
        noise_scale=2.0,
        steps=rounds,
        labels=["a", "b", "c"],
    )
    statistic = case.statistic(plan, WHO[few], **parameters)
    audit = audit_mechanism(statistic, "c", runs=2000, data=case.data[few], confidence=0.999)
    assert not audit.contradicts
    assert audit.epsilon > 0.5 * audit.claim.spent  # it sees something


class CentredOnTheBatch(RobustMean):
    """Takes the mean of the batch for its centre, which nobody released."""

    def contributions(self, batch):
        return super().contributions(batch - (batch.mean() if batch.size else 0.0))

    def scores(self, batch):
        return super().scores(batch - (batch.mean() if batch.size else 0.0))


def test_a_statistic_that_looks_at_the_batch_is_caught(monkeypatch):
    monkeypatch.setattr(canaries, "EVALUATIONS", 100)
    values = np.concatenate([np.linspace(-1, 1, 19), [30.0]])
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[20], noise_scale=1.0, steps=1)
    statistic = CentredOnTheBatch(plan, [0] * 20, centre=0.0, radius=1.5, fraction=0.3)
    assert certify(statistic, values, evaluations=200).ratio > 3
    assert audit_mechanism(statistic, 0, runs=2000, data=values, confidence=0.999).contradicts
    assert certify(RobustMean(plan, [0] * 20, **statistic.parameters), values, evaluations=200).holds()


@each_case
def test_in_parts_and_from_its_parameters_it_is_the_same_in_bits(name):
    case = CASES[name]
    whole = case.made(1.0, key=5)
    estimate = whole.run(case.data)
    parameters = json.loads(json.dumps(whole.parameters))
    parts = case.statistic(whole.plan, key=5, **parameters)
    cuts = [0, 1, 20, 20, N]
    for _ in range(case.steps):
        total = parts.partial()
        for begin, end in pairwise(cuts):
            total.merge(parts.part(case.data[begin:end], PLACES[begin:end], begin))
        parts.observe(parts.release(total).value)
    assert json.dumps(parts.estimate().to_dict()) == json.dumps(estimate.to_dict())
    again = case.statistic(whole.plan, key=5, **parameters).after(whole.observed)
    assert again.estimate().to_dict() == estimate.to_dict()
    assert Estimate.from_dict(json.loads(json.dumps(estimate.to_dict()))).to_dict() == estimate.to_dict()
    assert str(estimate)


@each_case
def test_lists_numpy_and_pandas_give_the_same_bits(name):
    case = CASES[name]
    found = [json.dumps(case.made(1.0, key=7).run(data).to_dict()) for data in forms_of(case.data)]
    assert len(set(found)) == 1


def forms_of(data: np.ndarray) -> list[Any]:
    series = pd.Series(data, index=np.arange(data.size)[::-1])
    common = [data, data.tolist(), series]
    if data.dtype.kind == "U":
        return [*common, series.astype("category"), series.astype(object), data.astype(object)]
    return [*common, series.astype("boolean" if data.dtype.kind == "b" else "Float64"), data.astype(float)]


def test_whole_numbers_are_names_too():
    codes = np.array([7, 3, 7, 5, 9] * 4)
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[20], noise_scale=1e-9, steps=1)
    for data in (codes, codes.tolist(), pd.Series(codes), pd.Series(codes, dtype="Int64"), codes.astype(np.uint8)):
        estimate = GroupCounts(plan, [0] * 20, categories=[7, 3], key=1).run(data)
        assert estimate.value == pytest.approx([8, 4, 8])
        assert estimate.details["categories"].tolist() == ["7", "3", "other"]


def test_bins_are_those_of_numpy():
    values = np.array([-2.0, 0.0, 0.5, 0.49, 2.0, 8.0, 7.9, -1e-300])
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[8], noise_scale=1e-9, steps=1)
    estimate = Histogram(plan, [0] * 8, edges=EDGES, key=1).run(values)
    assert estimate.value == pytest.approx(np.histogram(values, EDGES)[0])
    single = Histogram(plan, [0] * 8, edges=[0, 1], stratified=True, key=1).run(values)
    assert single.value == pytest.approx([8])


@pytest.mark.parametrize("name", ["mean", "sum", "count", "variance", "histogram", "group-counts", "mean by owner"])
def test_with_sample_rates_below_one_it_is_unbiased(name):
    """False alarms: below 1e-4. Records weigh rate times sensitivity."""
    case, rates = CASES[name], np.array([0.9, 0.6, 0.8])
    plan = plan_of(0.3, rates=rates)
    found = np.array([estimate.value for estimate in released(case, 0, 100, plan=plan)])
    truth = case.truth(WEIGHTS * rates[PLACES])
    if name == "variance":  # the square of a sampled mean is larger on average, by its variance: known to be small
        assert found.mean() == pytest.approx(truth, abs=0.5)
    else:
        z = (found.mean(axis=0) - truth) / found.std(axis=0) * np.sqrt(100)
        assert np.all(np.abs(z) < stats.norm.isf(5e-7))


@pytest.mark.parametrize("name", ["upper-tail-mean", "top-heavy-sum", "trimmed-mean", "robust-mean", "quantile"])
def test_ordered_ones_take_sample_rates_below_one(name):
    case = CASES[name]
    found = released(case, 0, 50, plan=plan_of(0.3, case.steps, rates=(0.9, 0.9, 0.9)))
    truth = case.truth(WEIGHTS)
    assert np.mean([e.value for e in found]) == pytest.approx(truth, rel=0.1, abs=0.1)


def owners_of(epsilon=(1.0, 2.0, 6.0)) -> Owners:
    return Owners(of_record=WHO, epsilon=dict(zip("abc", epsilon, strict=True)), delta=1e-5)


ASKED: dict[str, tuple[Callable[..., Estimate], dict[str, Any], Any]] = {
    "sum": (statistics.private_sum, dict(bounds=BOUNDS), VALUES),
    "count": (statistics.private_count, {}, ONES),
    "mean": (statistics.private_mean, dict(bounds=BOUNDS), VALUES),
    "variance": (statistics.private_variance, dict(bounds=BOUNDS), VALUES),
    "upper-tail-mean": (statistics.private_upper_tail_mean, dict(bounds=BOUNDS, level=0.9), VALUES),
    "top-heavy-sum": (statistics.private_top_heavy_sum, dict(bounds=BOUNDS), VALUES),
    "trimmed-mean": (statistics.private_trimmed_mean, dict(bounds=BOUNDS, rounds=3), VALUES),
    "robust-mean": (statistics.private_robust_mean, dict(bounds=BOUNDS, rounds=3), VALUES),
    "quantile": (statistics.private_quantile, dict(bounds=BOUNDS, level=0.5, rounds=3), VALUES),
    "histogram": (statistics.private_histogram, dict(edges=EDGES), VALUES),
    "group-counts": (statistics.private_group_counts, dict(categories=GROUPS), LABELS),
}
each_question = pytest.mark.parametrize("name", ASKED)


@each_question
def test_a_line_costs_its_share_and_says_so(name):
    private, parameters, data = ASKED[name]
    owners, ledger = owners_of(), Ledger(owners=owners_of())
    parameters = {**parameters, "assume_alike": True}
    estimate = private(data, owners, ledger=ledger, share=0.5, key=11, **parameters)
    spent = ledger.spent()
    for label, granted in zip("abc", (1.0, 2.0, 6.0), strict=True):
        assert 0.99 * granted / 2 < estimate.cost[label] <= granted / 2
        assert estimate.cost[label] == pytest.approx(spent[label], abs=1e-3)
    assert {charge.note for charge in ledger.history()} <= set(PROCEDURES)
    assert estimate.estimand
    again = statistics.ask(PROCEDURES[name], data, owners, share=0.5, key=11, **parameters)
    assert json.dumps(again.to_dict()) == json.dumps(estimate.to_dict())


def test_costs_are_those_of_dp_accounting():
    plan = plan_scale(owners_of(), steps=1, expected_batch=N, clip_norm=1.0)
    estimate = statistics.private_mean(VALUES, owners_of(), bounds=BOUNDS, plan=plan, assume_alike=True)
    for place, label in enumerate(plan.labels):
        mu, epsilon = 1 / plan.noise_multipliers[place], estimate.cost[label]
        delta = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        assert delta == pytest.approx(1e-5, rel=5e-3)
    rows = []
    estimate = run_stages(
        PROCEDURES["trimmed-mean"],
        dict(bounds=BOUNDS, rounds=4, assume_alike=True),
        [plan_scale(owners_of((0.5, 1, 2)), steps=4, expected_batch=N, clip_norm=1.0), plan],
        lambda number, stage, plan: rows.append(plan) or answered(stage, plan),
    )
    for place, label in enumerate(plan.labels):
        accountant = pld.PLDAccountant()
        for made in rows:
            accountant.compose(dp_accounting.GaussianDpEvent(made.noise_multipliers[place]), made.steps)
        assert estimate.cost[label] == pytest.approx(accountant.get_epsilon(1e-5), abs=2e-3)


def answered(stage: Stage, plan: Plan) -> Estimate:
    return stage.statistic(plan, WHO, key=1, **stage.parameters).run(VALUES)


def rich(*counts: int) -> Owners:
    """Owners who grant so much that noise hardly matters."""
    who = np.repeat(["a", "b"], counts)
    return Owners(of_record=who, epsilon={"a": 200.0, "b": 400.0}, delta=1e-5)


def test_trimmed_and_robust_means_find_their_centre_and_withstand_outliers():
    generator = np.random.default_rng(5)
    values = np.concatenate([generator.normal(50, 5, 950), np.full(50, 9_000.0)])[generator.permutation(1000)]
    owners = rich(400, 600)
    trimmed = statistics.private_trimmed_mean(values, owners, bounds=(0, 10_000), fraction=0.06, rounds=20, key=1)
    assert trimmed.details["centre"] == pytest.approx(np.median(values), abs=1)
    assert trimmed.value == pytest.approx(50, abs=5 + 4 * trimmed.standard_error)
    robust_mean = statistics.private_robust_mean(values, owners, bounds=(0, 10_000), rounds=20, key=1)
    lower, upper = np.quantile(values, [0.25, 0.75])
    assert robust_mean.details["centre"] == pytest.approx((lower + upper) / 2, abs=1)
    assert robust_mean.details["radius"] == pytest.approx(2 * (upper - lower), abs=2)
    assert robust_mean.value == pytest.approx(50, abs=1)
    plain = statistics.private_mean(values, owners, bounds=(0, 10_000), key=1)
    assert robust_mean.standard_error < plain.standard_error / 50


def test_a_robust_mean_of_one_value_has_a_radius():
    estimate = statistics.private_robust_mean(np.full(100, 3.0), rich(50, 50), bounds=(0, 8), rounds=10, key=1)
    assert 0 < estimate.details["radius"] < 0.1
    assert estimate.value == pytest.approx(3.0, abs=0.05)


def test_individual_budgets_have_less_noise_than_the_strictest_and_stratified_ones_more():
    asked = dict(bounds=BOUNDS, key=1)
    individual = statistics.private_mean(VALUES, owners_of(), assume_alike=True, **asked)
    strictest = statistics.private_mean(VALUES, owners_of(), planner=plan_uniform, **asked)
    stratified = statistics.private_mean(VALUES, owners_of(), stratified=True, **asked)
    assert individual.standard_error < strictest.standard_error < stratified.standard_error


def keyed(kind: type[Statistic]) -> float:
    """Return the answer of a kind of mean with a key."""
    return float(statistics.ask(single(kind), VALUES, owners_of(), bounds=BOUNDS, key=1).value)


def mean_at(module: str, name: str, base: type[Statistic] = Mean, **named: Any) -> type[Statistic]:
    """Return a statistic of a user's own, which is a mean, at a place of the user's choice."""
    return type(name, (base,), {"__module__": module, **named})


def test_a_statistic_with_a_name_for_its_keys_keeps_its_answers_when_it_is_moved_and_renamed():
    here = mean_at("ours.first", "Typical", key_name="ours.typical")
    there = mean_at("ours.later.place", "Usual", key_name="ours.typical")
    assert keyed(here) == keyed(there)
    assert keyed(mean_at("ours.first", "Typical")) != keyed(mean_at("ours.later.place", "Typical"))
    assert mean_at("ours.first", "Typical").key_name == "ours.first.Typical"


def test_a_subclass_has_noise_of_its_own():
    """With the noise of its base, the difference of two answers would be the exact difference of two sums."""
    named = mean_at("ours", "Typical", key_name="ours.typical")
    below = [mean_at("ours", "Below", base) for base in (Mean, named)]
    assert [kind.key_name for kind in below] == ["ours.Below"] * 2
    assert keyed(below[0]) not in (keyed(Mean), keyed(named))


@pytest.mark.parametrize("name", ["", 7])
def test_a_name_for_keys_is_text(name):
    with pytest.raises(TypeError, match=r"key_name must be text such as \"package.statistic\", got"):
        mean_at("ours", "Typical", key_name=name)


MISSING = np.where(np.arange(N) == 4, np.nan, VALUES)
BAD: list[tuple[str, dict[str, Any], Any, str]] = [
    *((name, {}, MISSING, "position 4") for name in ASKED if name not in ("count", "group-counts")),
    ("mean", {}, np.where(np.arange(N) == 9, np.inf, VALUES), "position 9"),
    ("mean", {}, VALUES.astype(str), "must be numbers"),
    ("mean", {}, [None, *VALUES[1:].tolist()], "must be numbers"),
    ("robust-mean", {}, VALUES.astype(str), "must be numbers"),
    ("mean", {}, VALUES[:, None], "one number per record"),
    ("histogram", {}, VALUES[:-1], "one record per owner entry"),
    ("trimmed-mean", {}, VALUES[:-1], "one record per owner entry"),
    ("sum", {"bounds": (8, -2)}, VALUES, "bounds must be the smaller number first"),
    ("sum", {"bounds": (1, 1)}, VALUES, "bounds must be the smaller number first"),
    ("sum", {"bounds": 5}, VALUES, "bounds must be two numbers"),
    ("trimmed-mean", {"bounds": (8, -2)}, VALUES, "bounds"),
    ("robust-mean", {"bounds": (0, np.inf)}, VALUES, "bounds"),
    ("upper-tail-mean", {"level": 1.0}, VALUES, "level must be below 1"),
    ("upper-tail-mean", {"level": 0.0}, VALUES, "level must be finite and > 0"),
    ("quantile", {"level": 90}, VALUES, "level must be below 1"),
    ("quantile", {"level": -0.1}, VALUES, "level"),
    ("quantile", {"rounds": 0}, VALUES, "rounds must be a whole number >= 1"),
    ("trimmed-mean", {"fraction": 1.0}, VALUES, "fraction must be below 1"),
    ("robust-mean", {"fraction": 1.5}, VALUES, "fraction"),
    ("robust-mean", {"reach": 0}, VALUES, "reach"),
    ("robust-mean", {"rounds": 2.5}, VALUES, "rounds"),
    ("top-heavy-sum", {"fraction": 0}, VALUES, "fraction"),
    ("count", {}, VALUES, "values must be 0 or 1"),
    ("count", {}, MISSING, "position 4"),
    ("histogram", {"edges": [0.0]}, VALUES, "edges must be two or more"),
    ("histogram", {"edges": [0.0, 2.0, 1.0]}, VALUES, "edges must be two or more"),
    ("histogram", {"edges": [0.0, np.nan]}, VALUES, "edges must be finite"),
    ("group-counts", {"categories": []}, LABELS, "categories"),
    ("group-counts", {"categories": "rent"}, LABELS, "categories"),
    ("group-counts", {"categories": ["rent", "rent"]}, LABELS, "categories must differ"),
    ("group-counts", {"categories": ["rent", 3]}, LABELS, "categories must be all text"),
    ("group-counts", {"categories": ["other"]}, LABELS, "other"),
    ("group-counts", {"other": None}, LABELS, "name all categories"),
    ("group-counts", {}, pd.Series(LABELS).where(np.arange(N) != 6), "position 6"),
    ("group-counts", {}, np.arange(N), "values must be text"),
    ("group-counts", {}, VALUES, "values must be text"),
    ("group-counts", {"categories": [1, 2]}, LABELS, "values must be whole numbers"),
]


@pytest.mark.parametrize(("name", "changed", "data", "words"), BAD)
def test_what_cannot_be_is_refused_and_nothing_is_charged(name, changed, data, words):
    private, parameters, _ = ASKED[name]
    ledger = Ledger(owners=owners_of())
    with pytest.raises((ValueError, TypeError), match=words):
        private(data, owners_of(), ledger=ledger, **{**parameters, **changed})
    assert not ledger.history()
    assert all(spent == 0 for spent in ledger.spent().values())


def test_a_value_is_never_shown():
    for data, private in ((np.where(np.arange(N) == 4, np.inf, 123.456), "123.456"), (["secret"] * N, "secret")):
        with pytest.raises((ValueError, TypeError)) as error:
            statistics.private_mean(data, owners_of(), bounds=BOUNDS)
        assert private not in str(error.value)
    with pytest.raises(ValueError, match="position 0") as error:
        statistics.private_group_counts(["secret"] * N, owners_of(), categories=GROUPS, other=None)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["quantile", "trimmed-mean", "robust-mean"])
def test_all_releases_are_affordable_or_none_is_charged_and_a_retry_is_free(name):
    private, parameters, data = ASKED[name]
    ledger = Ledger(owners=owners_of((0.7, 2.0, 6.0)))
    with pytest.raises(BudgetExceeded, match="'a'"):
        private(data, owners_of(), ledger=ledger, **parameters)
    assert not ledger.history()
    ledger = Ledger(owners=owners_of())
    first, again = (private(data, owners_of(), ledger=ledger, key=4, **parameters) for _ in range(2))
    assert again.to_dict() == first.to_dict()
    with pytest.raises(BudgetExceeded):
        private(data, owners_of(), ledger=ledger, key=5, **parameters)
    assert ledger.spent() == pytest.approx(first.cost, abs=1e-3)


numbers = st.lists(st.floats(-1.0, 1.0), min_size=N, max_size=N).map(np.array)


@settings(max_examples=20)
@given(values=numbers, scale=st.floats(0.01, 100.0), shift=st.floats(-50.0, 50.0))
def test_what_is_shifted_and_scaled_comes_out_shifted_and_scaled(values, scale, shift):
    for statistic, more in ((Mean, {}), (UpperTailMean, {"level": 0.8})):
        here = statistic(plan_of(1.0), WHO, bounds=(-1, 1), key=1, **more).run(values)
        bounds = (shift - scale, shift + scale)
        there = statistic(plan_of(1.0), WHO, bounds=bounds, key=1, **more).run(shift + scale * values)
        assert there.value == pytest.approx(shift + scale * here.value, abs=1e-7 * (1 + scale))
        assert there.standard_error == pytest.approx(scale * here.standard_error)


@settings(max_examples=20)
@given(values=numbers, more=numbers)
def test_larger_values_never_make_less_of_them(values, more):
    larger = np.minimum(values + np.abs(more), 1.0)
    for statistic, parameters in ((Mean, {}), (Sum, {}), (UpperTailMean, {"level": 0.8}), (TopHeavySum, {})):
        one, other = (
            statistic(plan_of(1.0), WHO, bounds=(-1, 1), key=1, **parameters).run(data).value
            for data in (values, larger)
        )
        assert one <= other + 1e-8


@settings(max_examples=20)
@given(values=numbers, seed=st.integers(0, 2**32 - 1))
def test_records_of_an_owner_may_change_places(values, seed):
    generator, swapped = np.random.default_rng(seed), np.arange(N)
    for place in range(3):
        own = np.flatnonzero(place == PLACES)
        swapped[own] = generator.permutation(own)
    for statistic, parameters in (
        (Sum, dict(bounds=(-1, 1))),
        (Variance, dict(bounds=(-1, 1), stratified=True)),
        (Histogram, dict(edges=[-1, 0, 0.3, 1])),
    ):
        made = [statistic(plan_of(1.0), WHO, key=1, **parameters).run(data) for data in (values, values[swapped])]
        assert made[0].to_dict() == made[1].to_dict()
