"""Attacks on stored scores, ROC curves with intervals, t-tests: against brute force, closed forms and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from inosgm.audit import curve as curves
from inosgm.audit import fits
from inosgm.audit.attack import LossThreshold
from inosgm.audit.attack_names import ATTACK_NAMES
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.bavaria import Bavaria
from inosgm.audit.clusters import Clusters
from inosgm.audit.curve import Curve
from inosgm.audit.differences import differences
from inosgm.audit.gaussian_attacks import Offline, Online
from inosgm.audit.pool import Shadows
from inosgm.audit.quantile_attack import Quantile
from inosgm.audit.rmia import Rmia
from inosgm.audit.roc import GRID, success, successes

FITTED = [Online(), Online("global"), *(Offline(f, v) for f in ("density", "tail") for v in ("record", "global"))]
EVERY = [*FITTED, Rmia(), Rmia(offline=True), Bavaria(), Quantile(), LossThreshold()]


def named(attack):
    return attack.name


def made(scores, members, owners=None, labels=("a", "b")):
    scores = np.asarray(scores, np.float32)
    owners = np.zeros(scores.shape[1], np.int64) if owners is None else np.asarray(owners)
    return Shadows(scores=scores, members=np.asarray(members), owners=owners, labels=labels, asked=len(scores))


def gaussian(seed, count, records, shift=1.0, **more):
    generator = np.random.default_rng(seed)
    members = generator.random((count, records)) < 0.5
    scores = generator.normal(size=(count, records)) + 3 * generator.normal(size=records) + shift * members
    return made(scores, members, **more)


# Fits from scratch, in plain words


def group_of(shadows, target, record, member):
    """Return the finite scores of a record by all shadow models but the target that had it, or had it not."""
    scores, members = shadows.scores[:, record].astype(np.float64), shadows.members[:, record]
    return [
        scores[s] for s in range(shadows.count) if s != target and members[s] == member and math.isfinite(scores[s])
    ]


def pooled(shadows, target, member):
    groups = [group_of(shadows, target, record, member) for record in range(shadows.records)]
    freedom = sum(len(group) - 1 for group in groups if len(group) > 1)
    return sum(np.var(group) * len(group) for group in groups if len(group) > 1) / freedom if freedom else math.nan


def gauss(shadows, target, record, member, variance):
    group = group_of(shadows, target, record, member)
    if not group:
        return math.nan, math.nan
    own = len(group) > 1 and variance == "record"
    spread = np.var(group, ddof=1) if own else pooled(shadows, target, member)
    mean = np.mean(group)
    return mean, max(math.sqrt(spread), 2.0**-23 * (1 + abs(mean))) if spread == spread else math.nan


def brute(attack, shadows, target, scores):
    """Return an attack's statistics of one target (a shadow model that is left out; None: of its own), and their size.

    The size is that of the numbers that a statistic is the difference of.
    """
    found, sizes = [], []
    for record, score in enumerate(scores.astype(np.float64)):
        score = score if math.isfinite(score) else math.nan
        mean, deviation = gauss(shadows, target, record, False, attack._variance)
        outside, inside = -stats.norm.logpdf(score, mean, deviation) - math.log(2 * math.pi) / 2, 0.0
        if attack.name.startswith("online"):
            inside = -stats.norm.logpdf(score, *gauss(shadows, target, record, True, attack._variance))
            inside -= math.log(2 * math.pi) / 2
        tail = attack.name.startswith("offline-tail")
        found.append((score - mean) / deviation if tail else outside - inside)
        sizes.append(0.0 if tail else abs(outside) + abs(inside))
    return np.array(found), np.array(sizes)


def agree(found, expected, sizes):
    assert found.dtype == np.float32
    assert (np.isnan(found) == np.isnan(expected)).all()
    known = ~np.isnan(expected)
    error = np.abs(found - np.clip(expected, -3.4e38, 3.4e38))[known]
    assert (error <= 2e-5 * (1 + np.abs(expected)[known]) + 1e-12 * sizes[known]).all()


plain = st.floats(-20, 20, width=32)
odd = st.sampled_from([0.0, 0.1, 1.0, 1e6, -1e6, 1e6 + 1, 1e12, math.nan, math.inf, -math.inf])


@st.composite
def pools(draw):
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 5)))
    scores = draw(arrays(np.float32, shape, elements=st.one_of(plain, plain, odd)))
    return made(scores, draw(arrays(bool, shape)))


@pytest.mark.parametrize("attack", FITTED, ids=named)
@settings(max_examples=40, deadline=None)
@given(shadows=pools())
def test_leaving_one_out_in_closed_form_is_fitting_again(attack, shadows):
    found = attack.statistics(shadows)
    for target in range(shadows.count):
        agree(found[target], *brute(attack, shadows, target, shadows.scores[target]))


@pytest.mark.parametrize("attack", FITTED, ids=named)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_many_shadows_far_from_zero(attack, offset, monkeypatch):
    shadows = gaussian(1, 60, 13)
    shadows = made(shadows.scores + np.float32(offset), shadows.members)
    expected = [brute(attack, shadows, target, shadows.scores[target]) for target in range(4)]
    for chunk in (1, 200, 1 << 19):  # however the records are cut
        monkeypatch.setattr(fits, "CHUNK", chunk)
        found = attack.statistics(shadows)
        assert (attack.statistics(shadows, [2, 0]) == found[[2, 0]]).all()
        for target in range(4):
            agree(found[target], *expected[target])


@pytest.mark.parametrize("attack", EVERY, ids=named)
def test_a_model_outside_is_met_like_a_shadow_that_is_left_out(attack):
    shadows = gaussian(2, 12, 40)
    others = np.arange(12) != 5
    rest = made(shadows.scores[others], shadows.members[others])
    found = attack.against(rest, shadows.scores[5])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, attack.statistics(shadows, [5])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attack", EVERY, ids=named)
def test_whether_the_target_had_a_record_changes_nothing_about_it(attack):
    """The one thing that a leave-one-out attack must not know."""
    shadows = gaussian(3, 9, 50)
    members = shadows.members.copy()
    members[4] = ~members[4]
    found = attack.statistics(made(shadows.scores, members))
    np.testing.assert_allclose(found[4], attack.statistics(shadows)[4], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attack", EVERY, ids=named)
def test_a_diverged_model_is_as_good_as_not_there(attack):
    shadows = gaussian(4, 20, 30)
    scores = shadows.scores.copy()
    scores[7, ::3], scores[7, 1::3], scores[7, 2::3] = np.nan, np.inf, -np.inf
    found = attack.statistics(made(scores, shadows.members))
    others = np.arange(20) != 7
    assert np.isnan(found[7]).all()
    rest = attack.statistics(made(shadows.scores[others], shadows.members[others]))
    np.testing.assert_allclose(found[others], rest, rtol=1e-5, atol=1e-5)
    counted = success(found, shadows.members)
    assert counted.unknown == 30
    assert counted.members + counted.others == 600


@pytest.mark.parametrize("attack", [Online(), Offline("tail"), Offline("density")], ids=named)
def test_units_of_a_record_do_not_matter(attack):
    shadows = gaussian(5, 30, 20)
    generator = np.random.default_rng(0)
    shift, scale = generator.normal(size=20), np.exp(generator.normal(size=20))
    before, after = (
        attack.statistics(made(x, shadows.members)) for x in (shadows.scores, shadows.scores * scale + shift)
    )
    unit = np.log(scale) if attack.name == "offline-density" else 0  # a density has a unit
    np.testing.assert_allclose(after, before + unit, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("attack", EVERY, ids=named)
def test_order_of_shadows_and_records_does_not_matter(attack):
    shadows = gaussian(6, 15, 25)
    rows, records = (np.random.default_rng(0).permutation(count) for count in (15, 25))
    moved = made(shadows.scores[rows][:, records], shadows.members[rows][:, records])
    np.testing.assert_allclose(
        attack.statistics(moved), attack.statistics(shadows)[rows][:, records], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("attack", EVERY, ids=named)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_few_shadows_are_no_error(attack, count):
    shadows = gaussian(7, count, 40, owners=np.arange(40) % 2)
    for _, found in successes(shadows, attack):
        nothing = found.unknown == found.members + found.others
        assert np.isnan(found.auc) if nothing else 0 <= found.auc_low <= found.auc <= found.auc_high <= 1
        assert found.unknown < 20 * count or count < 3
    if count == 4:
        assert np.isfinite(attack.statistics(shadows)).mean() > 0.6


def test_constant_scores_say_nothing_and_a_saturated_record_is_no_error():
    members = np.arange(40).reshape(8, 5) % 3 > 0
    assert (Online().statistics(made(np.full((8, 5), 7.3), members)) == 0).all()
    scores = np.full((8, 5), 100.0)
    scores[0] = np.float32(3e38)
    assert np.isfinite(Online().statistics(made(scores, members))).all()


def test_names_and_refusals():
    assert list(ATTACKS) == list(ATTACK_NAMES)
    assert next(iter(ATTACKS)) == "online"  # the reference, which tables show in full
    assert all(name == attack.name for name, attack in ATTACKS.items())
    shadows = gaussian(8, 3, 4)
    for targets in ([], [3], [-1], [0, 0], [0.5]):
        with pytest.raises(ValueError, match="targets must be different numbers of shadow models"):
            Online().statistics(shadows, targets)
    with pytest.raises(ValueError, match="one per record, 4: got shape"):
        Online().against(shadows, np.zeros(3))
    with pytest.raises(ValueError, match="variance"):
        Online("pooled")
    with pytest.raises(ValueError, match="form"):
        Offline("both")
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="confidence must be"):
            success(np.zeros((1, 2)), np.array([[True, False]]), confidence=confidence)
    with pytest.raises(ValueError, match="true or false, got uint8"):
        success(np.zeros((1, 2)), np.zeros((1, 2), np.uint8))
    for wrong in (np.zeros(2), np.zeros((1, 3)), np.zeros((0, 2))):
        with pytest.raises(ValueError, match="a row per target"):
            success(wrong, np.zeros((1, 2), bool))


# The curve


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_curve_is_that_of_sklearn_also_with_ties(data):
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(2, 30)))
    values = data.draw(arrays(np.float32, shape, elements=st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, 1e30])))
    members = data.draw(arrays(bool, shape))
    if members.all() or not members.any():
        return
    found = success(values, members)
    finite = np.maximum(values.ravel(), -1e35)
    assert found.auc == pytest.approx(roc_auc_score(members.ravel(), finite), abs=1e-12)
    fpr, tpr, _ = roc_curve(members.ravel(), finite, drop_intermediate=False)
    clear = np.abs(GRID[:, None] - fpr).min(axis=1) > 1e-9  # on a vertical piece both ends are right
    np.testing.assert_allclose(found.tpr[clear], np.interp(GRID[clear], fpr, tpr), atol=1e-12)
    assert found.auc_low <= found.auc <= found.auc_high
    assert (found.tpr_low <= found.tpr).all()
    assert (found.tpr <= found.tpr_high).all()


def test_curve_of_very_many_points_is_exact(monkeypatch):
    shadows = gaussian(9, 8, 500)
    whole = success(shadows.scores, shadows.members)
    monkeypatch.setattr(curves, "BLOCK", 37)
    monkeypatch.setattr(curves, "CLUSTERS", 11)
    cut = success(shadows.scores, shadows.members)
    assert (
        cut.auc == whole.auc == pytest.approx(roc_auc_score(shadows.members.ravel(), shadows.scores.ravel()), abs=1e-12)
    )
    assert cut.auc_low == pytest.approx(whole.auc_low)
    np.testing.assert_allclose(cut.tpr_low, whole.tpr_low)


@settings(max_examples=50, deadline=None)
@given(arrays(np.float32, (3, 8), elements=plain, unique=True), st.integers(0, 2**24 - 1))
def test_only_the_order_of_statistics_counts(values, coins):
    members = (coins >> np.arange(24).reshape(3, 8)) % 2 > 0
    one, other = (
        success(values, members),
        success(np.argsort(np.argsort(values, axis=None)).reshape(3, 8) / 7.0, members),
    )
    for name in ("auc", "auc_low", "auc_high", "tpr", "tpr_low", "tpr_high"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_influences_are_those_of_single_points():
    """Placement by placement: the variance that cluster sums come to, with ties."""
    generator = np.random.default_rng(10)
    members = generator.random((4, 12)) < 0.5
    values = (generator.normal(size=(4, 12)) + members).round(1)
    curve = Curve(values, members)
    at = curve.thresholds(np.array([0.1, 0.37]))
    first, second, mixed = curve.products(at)
    inside, outside = values[members], values[~members]
    for place in range(3):
        if place < 2:
            weight = np.where(values > at.value[place], 1.0, np.where(values == at.value[place], at.share[place], 0.0))
            assert weight[~members].mean() == pytest.approx([0.1, 0.37][place])
            assert weight[members].mean() == pytest.approx(at.tpr[place])
        else:
            below = [(np.mean(outside < v) + np.mean(outside <= v)) / 2 for v in values.ravel()]
            above = [(np.mean(inside > v) + np.mean(inside >= v)) / 2 for v in values.ravel()]
            weight = np.where(members, np.reshape(below, (4, 12)), np.reshape(above, (4, 12)))
        one = np.where(members, weight - weight[members].mean(), 0) / inside.size
        other = np.where(members, 0, weight - weight[~members].mean()) / outside.size
        for axis, kind in ((1, 0), (0, 1)):
            assert first[kind][place] == pytest.approx((one.sum(axis=axis) ** 2).sum())
            assert second[kind][place] == pytest.approx((other.sum(axis=axis) ** 2).sum())
            assert mixed[kind][place] == pytest.approx((one.sum(axis=axis) * other.sum(axis=axis)).sum())
        assert first.by_point[place] == pytest.approx((one**2).sum())
        assert second.by_point[place] == pytest.approx((other**2).sum())


def test_one_target_has_the_interval_of_delong():
    """A single model: points are independent, and the variance of the area is that of DeLong et al. (1988)."""
    generator = np.random.default_rng(11)
    members = np.arange(600)[None] < 300
    values = (generator.normal(size=(1, 600)) + 0.7 * members).astype(np.float32)
    inside, outside = values[members], values[~members]
    wins = (inside[:, None] > outside).astype(float)
    variance = wins.mean(axis=1).var(ddof=1) / 300 + wins.mean(axis=0).var(ddof=1) / 300
    found = success(values, members)
    assert found.auc_high - found.auc_low == pytest.approx(
        2 * 1.96 * math.sqrt(variance), rel=0.04
    )  # a little wider: exact


def test_exact_intervals():
    clusters = Clusters(targets=1, records=40, confidence=0.95)
    for hits in (0, 1, 7, 39, 40):
        low, high = clusters.interval(np.array(hits / 40), np.array(40.0))
        exact = stats.binomtest(hits, 40).proportion_ci(0.95, method="exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert clusters.effective(np.array(0.0), np.array(0.0)) == pytest.approx(40, rel=0.1)  # Student's t: a little fewer
    low, high = clusters.beyond(np.array([0.001, 0.1]), np.array([40.0, 1000.0]))
    assert low[0] == 0  # it may be that nobody is beyond
    assert low[1] * 1000 == pytest.approx(stats.binom.ppf(0.025, 1000, 0.1), abs=1)
    assert high[1] * 1000 == pytest.approx(stats.binom.ppf(0.975, 1000, 0.1) + 1, abs=1)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, 2.0])
def test_closed_form_of_gaussian_scores(shift):
    """N(shift, 1) against N(0, 1), confidence 1 - 1e-6: false alarms are rarer than 2e-5 in all 16 intervals."""
    generator = np.random.default_rng(12)
    members = np.arange(40_000)[None] % 2 == 0
    values = (generator.normal(size=members.shape) + shift * members).astype(np.float32)
    found = success(values, members, confidence=1 - 1e-6)
    assert found.auc_low <= stats.norm.cdf(shift / math.sqrt(2)) <= found.auc_high
    assert found.auc_high - found.auc_low < 0.03
    for rate, (tpr, low, high) in found.at.items():
        expected = stats.norm.cdf(shift + stats.norm.ppf(rate))
        assert low <= expected <= high
        assert tpr == pytest.approx(expected, abs=4 * math.sqrt(expected / 20_000 + expected**2 / (rate * 20_000)))


def test_online_lira_comes_to_the_best_test():
    """With many shadows the fitted ratio is the true one: AUC = Phi(d / sqrt 2), TPR = Phi(d + z(FPR)), any unit."""
    generator = np.random.default_rng(13)
    members = generator.random((300, 400)) < 0.5
    unit, place = np.exp(generator.normal(size=400)), 5 * generator.normal(size=400)
    shadows = made(place + unit * (generator.normal(size=(300, 400)) + 1.0 * members), members)
    for attack, loss in ((Online(), 0.01), (Offline("tail"), 0.01)):
        found = success(attack.statistics(shadows), members)
        assert found.auc == pytest.approx(stats.norm.cdf(1 / math.sqrt(2)), abs=loss)
        for rate, (tpr, _, _) in found.at.items():
            assert tpr == pytest.approx(stats.norm.cdf(1 + stats.norm.ppf(rate)), rel=0.25 if rate < 0.01 else 0.1)
    assert success(LossThreshold().statistics(shadows), members).auc < 0.6


COVERED = [
    # targets, records, spread of targets, spread of records, shift
    (1, 40, 0.0, 0.0, 0.5),
    (4, 40, 0.5, 0.5, 0.0),
    (16, 60, 0.5, 0.5, 0.5),
    (60, 12, 0.5, 0.5, 0.0),
    (40, 100, 0.7, 0.3, 1.0),
]


@pytest.mark.parametrize("case", COVERED, ids=str)
def test_intervals_hold_the_truth_although_points_share_targets_and_records(case):
    """150 simulations: if 93 % of all intervals hold the truth, a false alarm has probability below 1e-5 per case."""
    targets, records, of_targets, of_records, shift = case
    generator = np.random.default_rng(14)
    spread = math.sqrt(1 + of_targets**2 + of_records**2)
    rates = np.array([0.01, 0.1])
    truth = [stats.norm.cdf(shift / spread / math.sqrt(2)), *stats.norm.cdf(shift / spread + stats.norm.ppf(rates))]
    held = np.zeros(3)
    for _ in range(150):
        members = generator.random((targets, records)) < 0.5
        values = generator.normal(size=members.shape) + of_targets * generator.normal(size=(targets, 1))
        found = success(values + of_records * generator.normal(size=records) + shift * members, members)
        low = [found.auc_low, *(found.at[rate].low for rate in rates)]
        high = [found.auc_high, *(found.at[rate].high for rate in rates)]
        held += (np.array(low) <= truth) & (truth <= np.array(high))
    assert (held >= stats.binom.ppf(1e-5 / 3, 150, 0.93)).all()


def test_as_if_points_were_independent_would_not_hold_it():
    """What the clusters are for: with records that differ, the plain interval of DeLong is far too narrow."""
    generator = np.random.default_rng(15)
    members = generator.random((60, 20)) < 0.5
    values = generator.normal(size=members.shape) + members * 2 * generator.exponential(size=20)
    apart, pooled_ = success(values, members), success(values.reshape(1, -1), members.reshape(1, -1))
    assert apart.auc == pooled_.auc
    assert apart.auc_high - apart.auc_low > 2 * (pooled_.auc_high - pooled_.auc_low)


# By owner


def test_successes_by_owner():
    shadows = gaussian(16, 10, 31, shift=1.0, owners=[0] * 20 + [2] * 10 + [3], labels=("all", "nobody", 7, "one"))
    found = successes(shadows, Online("global"), confidence=0.9)
    assert [label for label, _ in found] == ["all", 7, "one", None]
    statistics = Online("global").statistics(shadows)
    own = success(statistics[:, :20], shadows.members[:, :20], confidence=0.9)
    assert (found[0][1].auc, found[0][1].auc_low) == (own.auc, own.auc_low)
    everyone = found[-1][1]
    assert (everyone.records, everyone.targets, everyone.members + everyone.others) == (31, 10, 310)
    assert [each.records for _, each in found] == [20, 10, 1, 31]


def test_one_record_and_one_target_has_no_curve():
    (_, lone), _, (_, everyone) = successes(gaussian(17, 8, 9, owners=[0] + [1] * 8), Online("global"), targets=[3])
    assert math.isnan(lone.auc)
    assert (lone.auc_low, lone.auc_high) == (0, 1)
    assert np.isnan(lone.tpr).all()
    assert lone.at[0.1][1:] == (0, 1)
    assert everyone.members + everyone.others == 9
    alone = success(np.arange(8.0)[:, None], np.arange(8)[:, None] % 2 > 0)  # one record, many targets
    assert 0 <= alone.auc_low < alone.auc < alone.auc_high <= 1


def test_perfect_attack_is_not_surer_than_its_points():
    members = np.arange(20)[None] < 10
    found = success(np.where(members, 1.0, 0.0) + np.arange(20) / 100, members)
    assert (found.auc, found.auc_high) == (1, 1)
    assert 0.6 < found.auc_low < 0.9
    assert found.at[0.001].tpr == 1
    assert found.at[0.001].low == 0  # of ten others none says much about one in a thousand


# Between owners


def test_t_test_is_that_of_scipy():
    shadows = gaussian(18, 12, 60, owners=np.repeat([0, 2, 3], 20), labels=("a", "unused", "b", "c"))
    scores = shadows.scores.copy()
    scores[5, 3] = np.nan
    shadows = made(scores, shadows.members, shadows.owners, shadows.labels)
    statistics = Online("global").statistics(shadows)
    found = differences(shadows, Online("global"), targets=[5, 1])
    assert [(each.first, each.second) for each in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    for each, (one, other) in zip(found, [(0, 2), (0, 3), (2, 3)], strict=True):
        assert each.targets.tolist() == [5, 1]
        for place, target in enumerate([5, 1]):
            known = shadows.members[target] & ~np.isnan(statistics[target])
            samples = [statistics[target, known & (shadows.owners == owner)].astype(float) for owner in (one, other)]
            expected = stats.ttest_ind(*samples)
            assert each.t[place] == pytest.approx(expected.statistic, rel=1e-6)
            assert each.p[place] == pytest.approx(expected.pvalue, rel=1e-6)
            assert each.degrees[place] == expected.df


def test_t_test_of_owners_without_members():
    shadows = made(np.arange(12.0).reshape(4, 3), [[True, False, False]] * 4, owners=[0, 0, 1])
    (found,) = differences(shadows, LossThreshold())
    assert np.isnan(found.t).all()
    assert np.isnan(found.p).all()
