import numpy as np
import pytest
import torch

from inosgm import (
    INOSGM,
    BetaTail,
    HardTail,
    LinearTail,
    NoTail,
    Plan,
    StepTail,
    TableTail,
    certify,
    importance_weights,
    ordered_sum,
)
from inosgm.audit.certifier import built_in_mechanisms


def keep_top(k):
    return lambda g, s, c: g[np.argsort(-s, kind="stable")[:k]].sum(axis=0)


def drop_lowest(k):
    return lambda g, s, c: g[np.argsort(-s, kind="stable")[: max(len(s) - k, 0)]].sum(axis=0)


def unstable_ties(tail):
    def total(g, s, c):
        ranking = torch.argsort(torch.from_numpy(s), descending=True).numpy()
        return importance_weights(-np.arange(len(s)), c[ranking], tail) @ g[ranking].astype(float)

    return total


def micro_batches(size, tail):
    def total(g, s, c):
        parts = (slice(i, i + size) for i in range(0, len(s), size))
        return sum((ordered_sum(g[p], s[p], c[p], tail) for p in parts), np.zeros(g.shape[1]))

    return total


def rounded_thresholds(tail, grid):
    def total(g, s, c):
        lowest_first = np.argsort(-s, kind="stable")[::-1]
        c = c[lowest_first].astype(float)
        above = np.cumsum(c)
        upper, lower = (np.round(x / grid) * grid for x in (above, above - c))
        return (tail.W(upper) - tail.W(np.maximum(lower, 0))) / c @ g[lowest_first].astype(float)

    return total


def realised_tail(fraction):
    return lambda g, s, c: ordered_sum(g, s, c, HardTail(fraction * float(np.sum(c, dtype=float))))


BROKEN = {
    "keep the top 3": (keep_top(3), 1.9),
    "keep the top 32": (keep_top(32), 1.9),
    "drop the lowest 2": (drop_lowest(2), 100),
    "drop the lowest 32": (drop_lowest(32), 100),
    "unstable ties, linear": (unstable_ties(LinearTail(10.0)), 2),
    "unstable ties, hard": (unstable_ties(HardTail(3.0)), 2),
    "micro-batches of 8": (micro_batches(8, LinearTail(4.0)), 1.5),
    "micro-batches of 32": (micro_batches(32, HardTail(10.0)), 1.5),
    "grid of 1/10": (rounded_thresholds(LinearTail(1.0), 0.1), 2),
    "grid of 1/10 of ten": (rounded_thresholds(LinearTail(10.0), 1.0), 2),
    "tail of the realised batch": (realised_tail(0.4), 1.3),
    "a sum in float32": (lambda g, s, c: g.sum(axis=0), 2),
}


@pytest.mark.parametrize("name", BROKEN)
def test_finds_the_violation(name):
    total, at_least = BROKEN[name]
    found = certify(total, evaluations=600)
    assert found.ratio > at_least
    assert not found.holds()
    replayed = [
        np.asarray(total(*(batch[part] for part in ("contributions", "scores", "sensitivities"))))
        for batch in (found.with_record, found.without_record)
    ]
    bound = found.with_record["sensitivities"][found.added]
    np.testing.assert_allclose(np.linalg.norm(replayed[0] - replayed[1]) / bound, found.ratio, rtol=1e-3)
    norms = np.linalg.norm(found.with_record["contributions"], axis=1)
    assert np.all(norms <= found.with_record["sensitivities"] * (1 + 1e-6))


@pytest.mark.parametrize(
    "tail",
    [
        NoTail(),
        HardTail(5.0),
        LinearTail(30.0),
        BetaTail(2, 3, 10.0),
        BetaTail(0.3, 50, 1.0),
        StepTail([0.5, 0.0], 2.0),
        TableTail.of(lambda c: 1 - c / 8, length=8.0),
    ],
)
def test_finds_nothing_in_the_real_sum(tail):
    found = certify(lambda g, s, c: ordered_sum(g, s, c, tail), evaluations=600, seed=1)
    assert found.holds(1e-6), found
    assert found.ratio > 0.99  # the search does reach the bound


def test_finds_nothing_in_the_built_in_mechanisms():
    for tail, choices in built_in_mechanisms().items():
        for name, mechanism in choices.items():
            found = certify(mechanism, evaluations=60, seed=2)
            assert found.holds(1e-6), (tail, name, found)


class Mean(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


class Standardised(Mean):
    """Breaks the rule that a score is a function of its record alone."""

    def scores(self, batch):
        return np.abs(batch[:, 0] - batch[:, 0].mean()) if len(batch) else batch[:, 0]


class Centred(Mean):
    """Breaks the rule for contributions."""

    def contributions(self, batch):
        return batch - batch.mean(axis=0) if len(batch) else batch


def test_real_data_shows_scores_and_contributions_that_look_at_the_batch():
    generator = np.random.default_rng(0)
    data, owners = generator.normal(size=(200, 2)), np.arange(200) % 2
    plan = Plan(sample_rates=[0.1, 0.1], sensitivities=[0.5, 2.0], sizes=[100, 100], noise_scale=1.0, steps=1)
    made = [kind(plan, owners, tail=HardTail(10.0)) for kind in (Mean, Standardised, Centred)]
    sound, standardised, centred = (certify(mechanism, data, evaluations=600) for mechanism in made)
    assert sound.holds()
    assert standardised.ratio > 1.2
    assert centred.ratio > 1.2
    assert len(centred.with_record["positions"]) == len(centred.without_record["positions"]) + 1
    assert made[0].released == 0


def test_functions_may_write_into_what_they_get():
    def in_place(g, s, c):
        g *= importance_weights(s, c, HardTail(5.0))[:, None].astype(g.dtype)
        return g.sum(axis=0, dtype=float)

    found = certify(in_place, evaluations=300)
    assert found.ratio < 1.01  # float32 products round, nothing worse


def test_a_nan_is_a_violation():
    assert certify(lambda g, s, c: g.sum(axis=0) * np.nan, evaluations=5).ratio == np.inf
    with pytest.raises(TypeError, match="is a `return` missing"):
        certify(lambda g, s, c: None, evaluations=5)


def test_bad_input():
    with pytest.raises(TypeError, match="mechanism must be"):
        certify(3)
    with pytest.raises(ValueError, match="data goes with a mechanism"):
        certify(keep_top(1), np.zeros(3))
    with pytest.raises(ValueError, match="evaluations must be"):
        certify(keep_top(1), evaluations=0)
    with pytest.raises(ValueError, match="one record per owner entry"):
        certify(
            Mean(Plan(sample_rates=[1], sensitivities=[1], sizes=[1], noise_scale=1, steps=1), [0]), np.zeros((2, 1))
        )
