"""RMIA, BaVarIA and quantile regression against their formulas, written out record by record."""

import io
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from inosgm.audit import bavaria
from inosgm.audit.attack_power import power
from inosgm.audit.attacks import ATTACKS
from inosgm.audit.bavaria import Bavaria
from inosgm.audit.gaussian_attacks import Online
from inosgm.audit.pool import Shadows
from inosgm.audit.quantile_attack import FEWEST, Quantile, standardised_residuals
from inosgm.audit.rmia import Rmia
from inosgm.audit.roc import success
from inosgm.reports.attack_power import draw_power


def made(scores, members, owners=None):
    scores = np.asarray(scores, np.float32)
    owners = np.zeros(scores.shape[1], np.int64) if owners is None else owners
    return Shadows(scores=scores, members=np.asarray(members), owners=owners, labels=("a", "b"), asked=len(scores))


def drawn(seed, count, records, shift=1.0, owners=None):
    generator = np.random.default_rng(seed)
    members = generator.random((count, records)) < 0.5
    noise = generator.normal(size=(count, records))
    return made(noise + 3 * generator.normal(size=records) + shift * members, members, owners)


def means(shadows, others, record, values):
    """Return the means of values of a record over the other models without it and with it; NaN if there is none."""
    return [
        np.mean(group)
        if (group := [values[s, record] for s in others if shadows.members[s, record] == member])
        else math.nan
        for member in (False, True)
    ]


@pytest.mark.parametrize("count", [2, 3, 12])
@pytest.mark.parametrize("gamma", [1.0, 1.5])
@pytest.mark.parametrize(("offline", "coefficient"), [(False, None), (True, None), (True, 0.4), (False, 0.4)])
def test_rmia_is_its_formula(count, gamma, offline, coefficient):
    shadows = drawn(count, count, 30)
    p = 1 / (1 + np.exp(-shadows.scores.astype(np.float64)))
    found = Rmia(offline=offline, gamma=gamma, coefficient=coefficient).statistics(shadows)
    for target in range(count):
        others = [s for s in range(count) if s != target]
        inside = np.mean([1 - p[s, x] for s in others for x in range(30) if shadows.members[s, x]])
        without = np.mean([1 - p[s, x] for s in others for x in range(30) if not shadows.members[s, x]])
        a = min(inside / without, 1.0) if coefficient is None else coefficient
        ratios = []
        for record in range(30):
            out, with_record = means(shadows, others, record, p)
            if offline:
                usual = ((1 + a) * out + 1 - a) / 2
            else:
                known = out if not math.isnan(out) else max(1 - (1 - with_record) / a, 0)
                with_record = with_record if not math.isnan(with_record) else 1 - a * (1 - out)
                usual = (known + with_record) / 2
            ratios.append(p[target, record] / usual)
        known = [ratio for ratio in ratios if not math.isnan(ratio)]
        expected = [
            math.nan if math.isnan(ratio) else np.mean([ratio / z >= gamma * (1 - 1e-6) for z in known])
            for ratio in ratios
        ]
        np.testing.assert_allclose(found[target], expected, rtol=1e-6)


def test_rmia_with_one_reference_beats_guessing_where_lira_has_nothing_to_say():
    """0.6 is below what the seed gives by four standard errors, and above guessing by ten."""
    shadows = drawn(1, 2, 3000)
    found = success(Rmia().statistics(shadows, [0]), shadows.members[:1])
    assert found.unknown == 0
    assert found.auc > 0.6
    assert np.isnan(Online().statistics(shadows)).all()


def test_rmia_refuses_what_makes_no_sense():
    for wrong in ({"gamma": 0}, {"gamma": math.nan}, {"coefficient": -0.1}, {"coefficient": 1.1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            Rmia(**wrong)


def test_saturated_probabilities_are_told_apart():
    """p rounds to 1 in float32 for scores beyond 17; the order of ratios is still that of the doubts."""
    scores = np.array([[20.0, 21.0, 22.0, 23.0]] * 4)
    members = np.array([[True, False, True, False], [False, True, False, True]] * 2)
    found = Rmia().against(made(scores, members), np.array([22.0, 22.0, 22.0, 22.0]))
    assert (np.diff(found) < 0).all()


def predictive(score, own, other, shift, spread, variance):
    """Return the log density of the posterior predictive, from the textbook's four numbers (Murphy 2007, sec. 3)."""
    kappa = 1 / (1 / len(other) + spread) if other else 0.0
    mean = np.mean(other) + shift if other else 0.0
    alpha, beta = bavaria.FREEDOM / 2, bavaria.FREEDOM * variance / 2
    n, average = len(own), np.mean(own) if own else 0.0
    kappa_n, alpha_n = kappa + n, alpha + n / 2
    mean_n = (kappa * mean + n * average) / kappa_n
    beta_n = beta + np.sum((np.array(own) - average) ** 2) / 2 + kappa * n * (average - mean) ** 2 / (2 * kappa_n)
    return stats.t.logpdf(score, 2 * alpha_n, mean_n, math.sqrt(beta_n * (kappa_n + 1) / (alpha_n * kappa_n)))


@pytest.mark.parametrize("count", [4, 5, 20])
def test_bavaria_is_the_ratio_of_predictive_densities(count):
    shadows = drawn(count, count, 25)
    scores = shadows.scores.astype(np.float64)
    found = Bavaria().statistics(shadows)
    for target in range(count):
        others = [s for s in range(count) if s != target]
        groups = [
            [[scores[s, x] for s in others if shadows.members[s, x] == member] for member in (True, False)]
            for x in range(25)
        ]
        squares = [sum(np.var(pair[side]) * len(pair[side]) for pair in groups if pair[side]) for side in (0, 1)]
        freedom = [sum(max(len(pair[side]) - 1, 0) for pair in groups) for side in (0, 1)]
        joint = sum(squares) / sum(freedom)
        variances = [square / free if free else joint for square, free in zip(squares, freedom, strict=True)]
        both = [pair for pair in groups if pair[0] and pair[1]]
        weights = np.array([1 / (1 / len(pair[0]) + 1 / len(pair[1])) for pair in both])
        gaps = np.array([np.mean(pair[0]) - np.mean(pair[1]) for pair in both])
        shift = weights @ gaps / weights.sum()
        excess = weights @ (gaps - shift) ** 2 - (len(both) - 1) * joint
        between = max(excess, 0) / (weights.sum() - (weights**2).sum() / weights.sum())
        expected = [
            predictive(scores[target, x], inside, out, shift, between / joint, variances[0])
            - predictive(scores[target, x], out, inside, -shift, between / joint, variances[1])
            for x, (inside, out) in enumerate(groups)
        ]
        np.testing.assert_allclose(found[target], expected, rtol=1e-4, atol=1e-5)


def test_bavaria_with_many_shadows_is_lira():
    """4,000 shadow models of 5 records whose shifts differ: the prior counts for little, and both agree."""
    shadows = drawn(3, 4000, 5, shift=np.array([0.0, 0.5, 1.0, 2.0, 3.0]))
    one, other = (attack.statistics(shadows, range(50)) for attack in (Bavaria(), Online()))
    np.testing.assert_allclose(one, other, rtol=0.02, atol=0.02)


def test_bavaria_with_one_reference_says_something_about_every_record():
    shadows = drawn(5, 2, 3000)
    found = success(Bavaria().statistics(shadows, [0]), shadows.members[:1])
    assert found.unknown == 0
    assert found.auc > 0.57  # above guessing by seven standard errors


def test_residuals_are_those_of_straight_lines():
    generator = np.random.default_rng(0)
    hardness = generator.normal(size=3 * FEWEST + 5)
    scores = np.sin(hardness) + 0.1 * generator.normal(size=hardness.size)
    hardness[0], scores[1] = np.nan, np.nan
    found = standardised_residuals(hardness, scores)
    assert np.isnan(found[:2]).all()
    order = 2 + np.argsort(hardness[2:])
    starts = np.linspace(0, order.size, 3 + 1).astype(int)
    for start, end in pairwise(starts):
        piece = order[start:end]
        line = np.polyfit(hardness[piece], scores[piece], 1)
        away = scores[piece] - np.polyval(line, hardness[piece])
        np.testing.assert_allclose(found[piece], away / math.sqrt((away**2).sum() / (piece.size - 2)), rtol=1e-6)


def test_residuals_of_too_few_and_of_constant_scores():
    assert np.isnan(standardised_residuals(np.arange(2.0), np.arange(2.0))).all()
    assert (standardised_residuals(np.zeros(10), np.full(10, 5.0)) == 0).all()


def test_quantile_takes_hardness_out_of_the_loss():
    """Records differ by 3, members by 1: with one reference the loss has an AUC of Phi(1 / sqrt(20)) = 0.588."""
    shadows = drawn(7, 2, 4000)
    loss, quantile = (
        success(attack.statistics(shadows, [0]), shadows.members[:1]) for attack in (ATTACKS["loss"], Quantile())
    )
    assert loss.auc == pytest.approx(stats.norm.cdf(1 / math.sqrt(20)), abs=0.03)  # 3 standard errors
    assert quantile.auc_low > loss.auc_high


def test_power_uses_the_models_that_follow_a_target():
    shadows = drawn(9, 10, 40, owners=np.arange(40) % 2)
    rows = power(shadows, ["rmia", "loss"], (1, 3, 512), targets=5)
    assert [(row.attack, row.owner, row.references) for row in rows] == [
        (attack, owner, size) for size in (1, 3, 9) for attack in ("rmia", "loss") for owner in ("a", "b", None)
    ]
    loss = [row.success.auc for row in rows if row.attack == "loss" and row.owner is None]
    assert loss[0] == loss[1] == loss[2]  # needs no references
    others = made(shadows.scores[[3, 4, 5]], shadows.members[[3, 4, 5]])
    row = next(row for row in rows if (row.attack, row.owner, row.references) == ("rmia", None, 3))
    statistics = [
        Rmia().against(made(shadows.scores[ring], shadows.members[ring]), shadows.scores[target])
        for target in (0, 2, 4, 6, 8)
        for ring in [[(target + 1 + i) % 10 for i in range(3)]]
    ]
    assert (statistics[1] == Rmia().against(others, shadows.scores[2])).all()
    assert row.success.auc == success(np.array(statistics), shadows.members[::2]).auc


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attacks": ["clever"]}, "attacks must be some of online"),
        ({"attacks": []}, "got none"),
        ({"counts": [0]}, "counts must be"),
        ({"targets": 0}, "targets must be"),
    ],
)
def test_power_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        power(drawn(1, 3, 4), **options)
    with pytest.raises(ValueError, match="two models at least"):
        power(drawn(1, 1, 4))


def test_the_figure_of_power_has_a_panel_for_each_owner_and_a_line_for_each_attack():
    stream = io.BytesIO()
    rows = power(drawn(9, 4, 40, owners=np.arange(40) % 2), counts=(1, 3), targets=2)
    draw_power(rows, stream)
    text = stream.getvalue().decode()
    assert all(f">{name}</text>" in text for name in ("a", "b", "everyone", *ATTACKS))
    assert "NOT PRIVATE" in text
    with pytest.raises(ValueError, match="rows must be of 1 to 10 attacks, got 0"):
        draw_power([], stream)


def test_the_guide_has_a_row_for_each_attack():
    guide = (Path(__file__).parents[2] / "docs/guides/audit.md").read_text()
    rows = [line.split("`")[1] for line in guide.splitlines() if line.startswith("| `") and " | " in line]
    assert [name for name in rows if name in ATTACKS] == list(ATTACKS)
