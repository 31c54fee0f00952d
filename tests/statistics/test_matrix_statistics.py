"""Covariance, components, regressions, federated averages: values, errors, guarantees, lies, chunks, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.decomposition import PCA as SklearnPCA

from inosgm import BetaTail, BudgetExceeded, Ledger, LinearTail, Owners, Plan, certify
from inosgm.audit import audit_mechanism
from inosgm.mechanism.inspection import Inspection
from inosgm.statistics import (
    PCA,
    PROCEDURES,
    Covariance,
    Estimate,
    FederatedAverage,
    LeastTrimmedSquares,
    LinearRegression,
    private_covariance,
    private_pca,
    private_regression,
    private_trimmed_regression,
)
from inosgm.statistics.answering import ask
from inosgm.statistics.moments import Box

BOUNDS = [(-4.0, 6.0), (10.0, 30.0)]
TARGET = (-20.0, 20.0)
MATRICES = {
    Covariance: dict(bounds=[*BOUNDS, TARGET]),
    PCA: dict(bounds=[*BOUNDS, TARGET], components=2),
    LinearRegression: dict(bounds=BOUNDS, target_bounds=TARGET),
    LeastTrimmedSquares: dict(bounds=BOUNDS, target_bounds=TARGET, fraction=0.3, rounds=3),
}
ALL = {**MATRICES, FederatedAverage: dict(clip_norm=2.0, fraction=0.5, rounds=2)}


def table(n: int = 400, seed: int = 0) -> np.ndarray:
    """Return two correlated features, and a target that depends on both, with some noise."""
    generator = np.random.default_rng(seed)
    first = generator.uniform(-3, 5, n)
    second = np.clip(20 + first + generator.normal(0, 2, n), 10, 30)
    return np.column_stack([first, second, 5 + 2 * first - 0.5 * second + generator.normal(0, 0.5, n)])


def owners_of(n: int) -> np.ndarray:
    return np.arange(n) % 2


def plan_of(n: int, noise: float = 1e-6, steps: int = 1, rate: float = 1.0) -> Plan:
    return Plan(
        sample_rates=[rate, 1.0],
        sensitivities=[1.0, 0.3],
        sizes=np.bincount(owners_of(n), minlength=2),
        noise_scale=noise,
        steps=steps,
    )


def weights_of(n: int) -> np.ndarray:
    return np.array([1.0, 0.3])[owners_of(n)]


def made(kind, n: int, noise: float = 1e-6, *, rate: float = 1.0, known: bool = True, **options):
    """Make a statistic of n records; its owners may be left out, for one that is given parts."""
    plan = plan_of(n, noise, kind.rounds_of(**ALL[kind]), rate)
    return kind(plan, owners_of(n) if known else None, **ALL[kind], assume_alike=True, **options)


def data_of(kind, n: int, seed: int = 0):
    """Return records that a statistic takes, for clients with odd reports among them."""
    if kind is not FederatedAverage:
        return table(n, seed)
    generator = np.random.default_rng(seed)
    updates, losses = generator.normal(size=(n, 4)), generator.exponential(size=n)
    updates[3], losses[5], losses[6] = np.nan, np.nan, np.inf
    return updates, losses


def least_squares(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    root = np.sqrt(weights)
    design = np.column_stack([np.ones(len(values)), values[:, :-1]])
    return np.linalg.lstsq(design * root[:, None], values[:, -1] * root)[0]


def test_covariance_is_that_of_numpy_with_weights():
    values = table()
    estimate = made(Covariance, 400, key=1).run(values)
    np.testing.assert_allclose(estimate.value, np.cov(values.T, aweights=weights_of(400), ddof=0), rtol=1e-5)
    np.testing.assert_allclose(estimate.details["mean"], np.average(values, axis=0, weights=weights_of(400)), rtol=1e-6)
    assert estimate.value.shape == estimate.standard_error.shape == (3, 3)
    assert not estimate.details["projected"]


def test_components_are_those_of_sklearn_with_a_fixed_sign():
    values = table()
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[400], noise_scale=1e-6, steps=1)
    estimate = PCA(plan, np.zeros(400, dtype=int), **MATRICES[PCA], key=1).run(values)
    truth = SklearnPCA(2).fit(values)
    np.testing.assert_allclose(estimate.value, truth.explained_variance_ * 399 / 400, rtol=1e-5)
    np.testing.assert_allclose(estimate.details["explained"], truth.explained_variance_ratio_, rtol=1e-5)
    components = estimate.details["components"]
    np.testing.assert_allclose(np.abs(components), np.abs(truth.components_), atol=1e-5)
    np.testing.assert_allclose(np.abs((components * truth.components_).sum(axis=1)), 1.0)
    assert (components[np.arange(2), np.abs(components).argmax(axis=1)] > 0).all()


def test_one_column_has_a_variance_and_one_component():
    plan = plan_of(400)
    estimate = PCA(plan, owners_of(400), bounds=[(-4, 6)], assume_alike=True, key=1).run(table()[:, :1])
    np.testing.assert_allclose(estimate.value, np.cov(table()[:, 0], aweights=weights_of(400), ddof=0), rtol=1e-5)
    np.testing.assert_allclose(estimate.details["components"], [[1.0]])


def test_regression_is_weighted_least_squares_in_original_units():
    values = table()
    estimate = made(LinearRegression, 400, key=1).run(values)
    np.testing.assert_allclose(estimate.value, least_squares(values, weights_of(400)), rtol=1e-5)
    assert estimate.details["shrunk"] == 0
    residuals = values[:, 2] - estimate.value[0] - values[:, :2] @ estimate.value[1:]
    np.testing.assert_allclose(
        estimate.details["residual_variance"], np.average(residuals**2, weights=weights_of(400)), rtol=1e-4
    )


def test_without_trimming_least_trimmed_squares_is_least_squares():
    plan = plan_of(400, steps=2)
    statistic = LeastTrimmedSquares(
        plan, owners_of(400), bounds=BOUNDS, target_bounds=TARGET, fraction=0.0, rounds=2, assume_alike=True, key=1
    )
    np.testing.assert_allclose(statistic.run(table()).value, least_squares(table(), weights_of(400)), rtol=1e-5)


def test_least_trimmed_squares_are_least_squares_of_the_records_that_fitted_best_in_the_round_before():
    values = table(100)
    plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[100], noise_scale=1e-8, steps=5)
    statistic = LeastTrimmedSquares(
        plan, np.zeros(100, dtype=int), bounds=BOUNDS, target_bounds=TARGET, fraction=0.2, rounds=5, key=1
    )
    found, expected = statistic.run(values).value, np.array([0.0, 0.0, 0.0])  # the middle of the target
    for _ in range(5):
        residuals = np.abs(values[:, 2] - expected[0] - values[:, :2] @ expected[1:])
        expected = least_squares(values[np.argsort(residuals)[:80]], np.ones(80))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_least_trimmed_squares_resist_outliers_where_least_squares_do_not():
    values = table(2000)
    honest = values[:, 2].copy()
    bad = np.arange(2000) % 8 == 0
    values[bad] = [6.0, 30.0, -20.0]
    truth = least_squares(np.column_stack([values[~bad, :2], honest[~bad]]), np.ones((~bad).sum()))
    owners = np.zeros(2000, dtype=int)
    moved = {}
    for kind, rounds in ((LinearRegression, 1), (LeastTrimmedSquares, 4)):
        plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[2000], noise_scale=0.1, steps=rounds)
        found = kind(plan, owners, bounds=BOUNDS, target_bounds=TARGET, key=1).run(values).value
        moved[kind] = np.abs(found - truth)[1:].max()
    assert moved[LeastTrimmedSquares] < 0.1
    assert moved[LinearRegression] > 0.5


def test_federated_average_is_the_weighted_mean_of_clipped_updates():
    generator = np.random.default_rng(0)
    updates, losses = 3 * generator.normal(size=(50, 4)), generator.exponential(size=50)
    plan = plan_of(50)
    server = FederatedAverage(plan, owners_of(50), clip_norm=5.0, fraction=0.0, key=1)
    clipped = updates * np.minimum(1, 5 / np.linalg.norm(updates, axis=1))[:, None]
    np.testing.assert_allclose(
        server.round(updates, losses), np.average(clipped, axis=0, weights=weights_of(50)), atol=1e-5
    )
    for shape in (None, (2.0, 3.0)):
        ordered = FederatedAverage(plan, owners_of(50), clip_norm=5.0, fraction=0.6, shape=shape, key=1)
        length = 0.6 * weights_of(50).sum()
        tail = LinearTail(length) if shape is None else BetaTail(*shape, length)
        least_first = np.argsort(losses)
        below = np.concatenate([[0.0], np.cumsum(weights_of(50)[least_first])])
        expected = np.diff(tail.W(below)) @ clipped[least_first] / tail.W(below[-1])
        np.testing.assert_allclose(ordered.round(updates, losses), expected, atol=1e-5)


ALARM = 1e-4
"""The false-alarm rate of every test of a standard error below, all entries together, by chi-squared."""


@pytest.mark.parametrize(("kind", "noise"), [(Covariance, 0.1), (PCA, 0.05), (LinearRegression, 0.05)])
def test_standard_errors_are_those_of_releases(kind, noise):
    values, releases = table(200), 300
    estimates = [made(kind, 200, noise, key=key).run(values) for key in range(releases)]
    exact = made(kind, 200, 1e-9, key=0).run(values)
    pairs = [(np.array([e.value for e in estimates]), exact.standard_error / 1e-9 * noise, exact.value)]
    if kind is PCA:
        found = np.array([e.details["components"] for e in estimates])
        error = exact.details["components_standard_error"] / 1e-9 * noise
        pairs.append((found, error, exact.details["components"]))
    for found, error, truth in pairs:
        scaled = (((found - truth) / error) ** 2).sum(axis=0)
        low, high = stats.chi2.ppf([ALARM / 2 / error.size, 1 - ALARM / 2 / error.size], releases)
        assert (scaled > low).all()
        assert (scaled < high).all()
    shown = np.mean([e.standard_error for e in estimates], axis=0)
    np.testing.assert_allclose(shown, pairs[0][1], rtol=0.05)


def test_standard_errors_of_trimmed_squares_include_earlier_rounds():
    """They take errors for normal, and are of first order: right within a fifth, at 200 releases."""
    values, plan = table(500), plan_of(500, 0.1, 4)
    runs = [
        LeastTrimmedSquares(plan, owners_of(500), bounds=BOUNDS, target_bounds=TARGET, key=key).run(values)
        for key in range(200)
    ]
    spread = np.std([run.value for run in runs], axis=0)
    np.testing.assert_allclose(np.mean([run.standard_error for run in runs], axis=0), spread, rtol=0.2)


def test_noise_of_federated_average():
    """The mean square of 4,000 standard normal numbers: off by a tenth less than once in 100,000 times."""
    server = FederatedAverage(plan_of(10, 2.0), owners_of(10), clip_norm=3.0, fraction=0.5, key=4)
    estimate = server.run((np.zeros((10, 4000)), np.arange(10.0)))
    assert 0.9 < ((estimate.value / estimate.standard_error) ** 2).mean() < 1.1


def test_a_covariance_drowned_in_noise_is_made_one_and_says_so():
    values = np.repeat([[1.0, 20.0, 0.0]], 20, axis=0)
    estimate = made(Covariance, 20, 5.0, key=3).run(values)
    assert estimate.details["projected"]
    assert np.linalg.eigvalsh(estimate.value)[0] >= -1e-9 * np.abs(estimate.value).max()
    np.testing.assert_array_equal(estimate.value, estimate.value.T)
    assert (made(PCA, 20, 5.0, key=3).run(values).value >= 0).all()


@pytest.mark.parametrize("kind", [LinearRegression, LeastTrimmedSquares])
def test_a_regression_drowned_in_noise_is_shrunk_by_a_ridge_of_the_plan_alone(kind):
    constant, various = np.repeat([[1.0, 20.0, 0.0]], 20, axis=0), table(20)
    drowned = [made(kind, 20, 5.0, key=key).run(constant) for key in range(30)]
    assert {e.details["ridge"] for e in drowned} == {made(kind, 20, 5.0, key=99).run(various).details["ridge"]}
    assert max(e.details["shrunk"] for e in drowned) == 2
    for estimate in drowned:
        assert np.isfinite(estimate.value).all()
        assert np.isfinite(estimate.standard_error).all()
        assert (estimate.standard_error > 0).all()


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=1, max_size=20),
    st.integers(1, 4),
)
@settings(deadline=None, max_examples=150)
def test_rows_of_moments_are_never_longer_than_one(values, columns):
    box = Box.of([(-3, 5), (0, 1e-3), (-1e5, 0), (1, 2)][:columns])
    assert (np.linalg.norm(box.rows(np.array(values)[:, :columns]), axis=1) <= 1 + 1e-12).all()


def test_corners_and_the_middle_of_a_box_use_the_whole_sensitivity_or_less():
    for m in (1, 2, 5):
        box = Box.of([(-1, 1)] * m)
        assert np.linalg.norm(box.rows(np.ones((1, m)))) == pytest.approx(1.0)
        assert np.linalg.norm(box.rows(np.zeros((1, m)))) == pytest.approx(m**-0.5)


@pytest.mark.parametrize("kind", ALL)
def test_certifier_finds_nothing(kind):
    statistic, data = made(kind, 40, 0.5), data_of(kind, 40)
    assert certify(statistic, evaluations=150).holds()
    assert certify(statistic, data, evaluations=150).holds()
    if kind is LeastTrimmedSquares:  # with coefficients of a round before, too
        statistic.observe(statistic.release(data).value)
        assert certify(statistic, data, evaluations=150).holds()


@pytest.mark.parametrize("kind", ALL)
def test_audit_contradicts_nothing(kind):
    """Each is contradicted falsely with probability 0.001 at most."""
    audit = audit_mechanism(made(kind, 24, 1.0), 0, runs=400, data=data_of(kind, 24), confidence=0.999)
    assert not audit.contradicts
    assert audit.rows[-1].moves > 0.5


LIES = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e150]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liar", [0, 1])
@pytest.mark.parametrize("shape", [None, (2.0, 3.0)])
def test_a_lying_client_stays_within_its_sensitivity(lie, liar, shape):
    generator = np.random.default_rng(0)
    updates, losses = generator.normal(size=(30, 3)), generator.exponential(size=30)

    def average(updates, losses) -> np.ndarray:
        server = FederatedAverage(plan_of(30), owners_of(30), clip_norm=2.0, fraction=0.6, shape=shape, key=1)
        moves.append(2.0 * server.sensitivities[owners_of(30)[liar]] / server.total)
        return server.round(updates, losses)

    moves: list[float] = []
    honest = average(updates, losses)
    for changed in ("update", "one entry", "loss", "both"):
        told, claimed = updates.copy(), losses.copy()
        if changed in ("update", "both"):
            told[liar] = lie
        if changed == "one entry":
            told[liar, 0] = lie
        if changed in ("loss", "both"):
            claimed[liar] = lie
        found = average(told, claimed)
        assert np.isfinite(found).all()
        assert np.linalg.norm(found - honest) <= 2 * moves[0] * (1 + 1e-6)


@pytest.mark.parametrize("lie", [*LIES, 0.0, 0.5])
def test_a_lie_about_the_loss_cannot_move_others_beyond_the_sensitivity(lie):
    """Against the round without the client: its own part is zero, and all that moves are the weights of others."""
    updates = np.repeat([[1.0, 0.0]], 30, axis=0)
    losses = np.random.default_rng(1).exponential(size=30)
    updates[0], losses[0] = 0.0, lie
    server = FederatedAverage(plan_of(30), owners_of(30), clip_norm=1.0, fraction=0.6)
    with_client, without = (Inspection(server).sums((updates, losses), [np.arange(first, 30)])[0] for first in (0, 1))
    assert np.linalg.norm(with_client - without) <= 1.0 + 1e-9


def test_a_round_of_federated_averaging_is_charged_and_ends():
    owners = Owners(of_record=["a", "b"] * 10, epsilon={"a": 1.0, "b": 4.0}, delta=1e-3)
    plan = Plan(
        sample_rates=[1, 1], sensitivities=[1, 2], sizes=[10, 10], noise_scale=30, steps=2, labels=owners.labels
    )
    ledger = Ledger(owners=owners)
    server = FederatedAverage(plan, owners, clip_norm=1.0, rounds=2, ledger=ledger)
    for done in (1, 2):
        assert server.round(np.ones((20, 3)), np.arange(20)).shape == (3,)
        assert sum(charge.steps for charge in ledger.history()) == done
    with pytest.raises(RuntimeError, match="all 2 steps"):
        server.round(np.ones((20, 3)), np.arange(20))
    assert server.estimate().value.shape == (3,)


@pytest.mark.parametrize("rate", [1.0, 0.6])
@pytest.mark.parametrize("kind", ALL)
def test_parts_give_the_bits_of_records_in_memory(kind, rate):
    n = 301
    data = data_of(kind, n)
    whole = made(kind, n, 0.5, rate=rate, key=7)
    expected = whole.run(data)
    released = []
    for _ in range(whole.plan.steps):  # every round by a statistic of its own, as on other machines
        statistic = made(kind, n, 0.5, rate=rate, key=7, known=False).after(released)
        parts = []
        for chunk in np.array_split(np.arange(n), [1, 2, 90, 97, 250]):
            batch = tuple(column[chunk] for column in data) if isinstance(data, tuple) else data[chunk]
            parts.append(statistic.part(batch, owners_of(n)[chunk], int(chunk[0])))
        total = statistic.partial()
        for part in reversed(parts):
            total.merge(type(part).from_bytes(part.to_bytes()))
        released.append(statistic.release(total).value)
    assert [value.tobytes() for value in released] == [value.tobytes() for value in whole.observed]
    estimate = made(kind, n, 0.5, rate=rate, key=7, known=False).after(released).estimate()
    assert estimate.value.tobytes() == expected.value.tobytes()
    assert estimate.standard_error.tobytes() == expected.standard_error.tobytes()


def granting(n: int) -> Owners:
    return Owners(of_record=["a", "b"] * (n // 2), epsilon={"a": 2.0, "b": 6.0}, delta=1e-5)


QUESTIONS = {
    private_covariance: ("covariance", dict(bounds=[*BOUNDS, TARGET])),
    private_pca: ("pca", dict(bounds=[*BOUNDS, TARGET], components=1)),
    private_regression: ("regression", dict(bounds=BOUNDS, target_bounds=TARGET)),
    private_trimmed_regression: (
        "trimmed-regression",
        dict(bounds=BOUNDS, target_bounds=TARGET, fraction=0.1, rounds=2),
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_line_each_costs_what_was_shared(question):
    owners, (name, parameters) = granting(200), QUESTIONS[question]
    ledger = Ledger(owners=owners)
    parameters = {**parameters, "assume_alike": True}
    estimate = question(table(200), owners, share=0.5, ledger=ledger, key=3, **parameters)
    assert {label: round(epsilon, 1) for label, epsilon in estimate.cost.items()} == {"a": 1.0, "b": 3.0}
    assert ledger.spent() == pytest.approx(estimate.cost, rel=1e-3)
    assert "alike across owners, which is assumed" in str(estimate)
    again = ask(PROCEDURES[name], table(200).tolist(), owners, share=0.5, key=3, **parameters)
    assert again.value.tobytes() == estimate.value.tobytes()
    read = Estimate.from_dict(estimate.to_dict())
    np.testing.assert_array_equal(read.value, estimate.value)


def test_a_question_of_several_rounds_is_refused_before_the_first_and_may_be_asked_again():
    owners = granting(200)
    ledger = Ledger(owners=owners)
    private_regression(table(200), owners, bounds=BOUNDS, target_bounds=TARGET, share=0.6, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        private_trimmed_regression(table(200), owners, bounds=BOUNDS, target_bounds=TARGET, ledger=ledger)
    assert len(ledger.history()) == 1
    fresh = Ledger(owners=owners)
    first, again = (
        private_trimmed_regression(table(200), owners, bounds=BOUNDS, target_bounds=TARGET, ledger=fresh, key=5)
        for _ in range(2)
    )
    assert first.value.tobytes() == again.value.tobytes()
    assert sum(charge.steps for charge in fresh.history()) == 4


def spoiled(value: object) -> object:
    values = table(200).astype(object)
    values[17, 1] = value
    return values if isinstance(value, str) else values.astype(float)


BAD = {
    "missing": (spoiled(np.nan), {}, ValueError, "position 17"),
    "infinite": (spoiled(np.inf), {}, ValueError, "position 17"),
    "text": (spoiled("secret"), {}, TypeError, "numbers"),
    "a column too few": (table(200)[:, :2], {}, ValueError, "3 numbers per record"),
    "one column": (table(200)[:, 0], {}, ValueError, "3 numbers per record"),
    "bounds reversed": (table(200), {"bounds": [(-4, 6), (30, 10), (0, 1)]}, ValueError, "smaller number first"),
    "bounds of one column": (table(200), {"bounds": (-4, 6)}, ValueError, "a pair of numbers for each column"),
    "no bounds": (table(200), {"bounds": []}, ValueError, "each column"),
    "bounds in words": (table(200), {"bounds": "low"}, ValueError, "each column"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("question", QUESTIONS)
def test_bad_input_is_refused_with_nothing_charged(question, bad):
    values, changed, error, words = BAD[bad]
    owners = granting(200)
    ledger = Ledger(owners=owners)
    with pytest.raises(error, match=words) as refused:
        question(values, owners, ledger=ledger, **QUESTIONS[question][1] | changed)
    assert "secret" not in str(refused.value)
    assert ledger.history() == ()


@pytest.mark.parametrize(
    ("question", "changed"),
    [
        (private_pca, {"components": 4}),
        (private_pca, {"components": 0}),
        (private_regression, {"target_bounds": (1, 1)}),
        (private_regression, {"target_bounds": None}),
        (private_trimmed_regression, {"fraction": 0.6}),
        (private_trimmed_regression, {"fraction": -0.1}),
        (private_trimmed_regression, {"rounds": 0}),
    ],
)
def test_bad_parameters_are_refused_with_nothing_charged(question, changed):
    owners = granting(200)
    ledger = Ledger(owners=owners)
    with pytest.raises(ValueError, match="must be"):
        question(table(200), owners, ledger=ledger, **QUESTIONS[question][1] | changed)
    assert ledger.history() == ()


@pytest.mark.parametrize(
    ("updates", "losses", "error"),
    [
        (np.ones(20), np.ones(20), ValueError),
        (np.ones((20, 2)), np.ones((20, 1)), ValueError),
        (np.ones((20, 2)), np.ones(19), ValueError),
        (np.ones((19, 2)), np.ones(19), ValueError),
        (np.full((20, 2), "a"), np.ones(20), TypeError),
    ],
)
def test_reports_that_do_not_pair_up_are_refused_with_nothing_charged(updates, losses, error):
    owners = granting(20)
    ledger = Ledger(owners=owners)
    plan = Plan(
        sample_rates=[1, 1], sensitivities=[1, 2], sizes=[10, 10], noise_scale=30, steps=1, labels=owners.labels
    )
    with pytest.raises(error):
        FederatedAverage(plan, owners, clip_norm=1.0, ledger=ledger).round(updates, losses)
    assert ledger.history() == ()
    with pytest.raises(ValueError, match="two parameters"):
        FederatedAverage(plan, owners, clip_norm=1.0, shape=(1.0,))
