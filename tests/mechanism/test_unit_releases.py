"""Mechanisms whose units of privacy hold several records."""

import numpy as np
import pytest
import torch

from inosgm import (
    INOSGM,
    Concatenated,
    Dense,
    HardTail,
    Ledger,
    LinearTail,
    Owners,
    Plan,
    RandomOrder,
    Streaming,
    UnitMean,
    UnitSum,
    certify,
    importance_weights,
    plan_individual,
    plan_scale,
)
from inosgm.mechanism.inspection import Inspection
from inosgm.mechanism.units import UnitIndex, lowest_of_each

RECORDS = 90
UNIT = np.sort(np.random.default_rng(3).integers(0, 24, RECORDS))
UNIT = np.unique(UNIT, return_inverse=True)[1][np.random.default_rng(4).permutation(RECORDS)]  # a unit lies anywhere
UNITS = int(UNIT.max()) + 1
OWNER = UNIT % 2
DATA = np.random.default_rng(5).normal(size=(RECORDS, 3)) * np.exp(np.random.default_rng(6).normal(size=(RECORDS, 1)))


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


class StreamedRows(Streaming):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


def persons(**change):
    given = {"of_record": OWNER, "epsilon": {0: 1.0, 1: 3.0}, "delta": 1e-5, "unit_of_record": UNIT}
    return Owners(**{**given, "unit_name": "person", **change})


def plan_of(owners, *, rate=1.0, steps=3, noise=1e-9):
    return Plan(
        sample_rates=[rate, rate],
        sensitivities=[1.0, 2.0],
        sizes=owners.sizes,
        noise_scale=noise,
        steps=steps,
        unit_name=owners.unit_name,
    )


def naive(positions, rule, tail, chosen=lambda unit: np.flatnonzero(unit == UNIT)):
    """The sum of a batch of units, one unit after another."""
    rows, scores, bounds = [], [], []
    for unit in positions:
        mine = DATA[chosen(unit)]
        rows.append(mine.mean(axis=0) if isinstance(rule, UnitMean) else mine.sum(axis=0))
        scores.append(rule.score(mine[:, 0]))
        bounds.append((1.0, 2.0)[unit % 2])
    rows, bounds = np.array(rows), np.array(bounds)
    weights = importance_weights(np.array(scores), bounds, tail) * np.minimum(1, bounds / np.linalg.norm(rows, axis=1))
    return weights @ rows


@pytest.mark.parametrize(
    ("kind", "form"),
    [(Rows, np.asarray), (Rows, torch.from_numpy), (StreamedRows, np.asarray)],
    ids=["numpy", "torch", "streamed"],
)
@pytest.mark.parametrize(
    "rule", [UnitMean(), UnitSum(score=np.max), UnitMean(score=np.median), UnitSum(score=np.min)], ids=str
)
def test_a_unit_is_clipped_ordered_and_weighted_as_one(rule, kind, form):
    tail = LinearTail(9.0)
    mechanism = kind(plan_of(persons()), persons(), tail=tail, unit_rule=rule)
    batches = [np.arange(UNITS), np.array([1, 4, 6, 7, 11]), np.array([2])]
    data = form(DATA)
    for positions, total in zip(batches, Inspection(mechanism).sums(data, batches), strict=True):
        np.testing.assert_allclose(np.asarray(total), naive(positions, rule, tail), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.asarray(mechanism.release(data).value), naive(range(UNITS), rule, tail), atol=1e-5)


def test_units_of_one_record_have_the_bits_of_records():
    how = {"tail": LinearTail(9.0), "key": 7, "order": RandomOrder(1)}
    alone = Owners(of_record=OWNER, epsilon={0: 1.0, 1: 3.0}, delta=1e-5)
    single = persons(unit_of_record=np.arange(RECORDS))
    sums = [released(Rows(plan_of(who, rate=0.5), who, **how)) for who in (alone, single)]
    for one, other in zip(*sums, strict=True):
        assert (one == other).all()


def released(mechanism):
    return [mechanism.release(DATA).value for _ in range(mechanism.plan.steps)]


def test_coins_are_tossed_once_per_unit():
    """All records of a unit are in a batch, or none: 200 batches of 24 units."""
    seen = []

    class Watched(Rows):
        def measure_units(self, data, units, owners, step):
            seen.append(units)
            assert (self.plan.sample_rates[owners] > 0).all()
            return super().measure_units(data, units, owners, step)

    owners = persons()
    mechanism = Watched(plan_of(owners, rate=0.4, steps=200), owners, key=1)
    released(mechanism)
    drawn = np.zeros(UNITS)
    for units in seen[1:]:  # the first is the empty one that data are tried with
        for unit in np.unique(UNIT[units.positions]):
            assert np.isin(np.flatnonzero(unit == UNIT), units.positions).all()
            drawn[unit] += 1
    assert stats_of(drawn.sum(), UNITS * 200, 0.4) < 4.5  # standard errors: a false alarm in 1e5 seeds


def stats_of(count, trials, rate):
    return abs(count - trials * rate) / np.sqrt(trials * rate * (1 - rate))


@pytest.mark.parametrize("rule", [UnitMean(), UnitSum(), UnitMean(records_per_unit=2), UnitSum(score=np.max)], ids=str)
@pytest.mark.parametrize("kind", [Rows, StreamedRows])
def test_no_unit_moves_the_sum_by_more_than_its_sensitivity(rule, kind):
    mechanism = kind(plan_of(persons()), persons(), tail=HardTail(6.0), unit_rule=rule)
    found = certify(mechanism, DATA, evaluations=300)
    assert found.holds(1e-5)
    assert found.ratio > 0.5
    assert len(found.with_record["records"]) > len(found.with_record["positions"])  # whole units are shown


def test_records_of_a_unit_are_drawn_per_step_by_its_own_coins():
    owners, rule = persons(), UnitMean(records_per_unit=2)
    index = UnitIndex(owners.unit_of_record, rule)
    everyone = np.arange(UNITS)
    drawn = index.drawn(everyone, step=0, secret=5)
    assert (drawn.counts == np.minimum(np.bincount(UNIT), 2)).all()
    assert (UNIT[drawn.positions] == drawn.groups).all()
    again = index.drawn(everyone, step=0, secret=5)
    assert (drawn.positions == again.positions).all()
    assert (drawn.positions != index.drawn(everyone, step=1, secret=5).positions).any()
    assert (drawn.positions != index.drawn(everyone, step=0, secret=6).positions).any()
    for some in (everyone[::3], everyone[5:9]):  # who else is in the batch does not matter
        expected = drawn.positions[np.isin(UNIT[drawn.positions], some)]
        assert (index.drawn(some, step=0, secret=5).positions == expected).all()


def test_every_record_of_a_unit_is_as_likely():
    """2,000 draws of 3 of 10 records: chi square with 9 degrees of freedom above 39.3 in 1 of 1e5 seeds."""
    index = UnitIndex(np.zeros(10, dtype=np.int64), UnitMean(records_per_unit=3))
    counts = np.zeros(10)
    for step in range(2000):
        counts[index.drawn(np.array([0]), step=step, secret=11).positions] += 1
    expected = 600 * 0.7  # without replacement, the variance of each count is that of a coin
    assert ((counts - 600) ** 2).sum() / expected * 0.9 < 39.3


def test_a_step_uses_the_drawn_records_only():
    owners, rule = persons(), UnitMean(records_per_unit=1)
    mechanism = Rows(plan_of(owners, steps=4), owners, unit_rule=rule, key=9)
    index = UnitIndex(owners.unit_of_record, rule)
    for step in range(4):
        drawn = index.drawn(np.arange(UNITS), step, secret=9)
        expected = naive(range(UNITS), rule, LinearTail(0.0), lambda unit, drawn=drawn: drawn.positions[[unit]])
        np.testing.assert_allclose(mechanism.release(DATA).value, expected, atol=1e-6)


def test_lowest_of_each_breaks_ties_by_place():
    kept = lowest_of_each(np.array([1, 0, 1, 1, 0]), np.array([2, 2, 2, 2, 1]), 2)
    assert kept.tolist() == [True, True, True, False, True]
    assert lowest_of_each(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64), 1).size == 0


def test_a_broken_record_leaves_its_unit_out_and_nobody_else():
    data = DATA.copy()
    data[np.flatnonzero(UNIT == 3)[0]] = np.nan
    data[np.flatnonzero(UNIT == 4)[0]] = np.inf
    mechanism = Rows(plan_of(persons()), persons())
    others = np.array([unit for unit in range(UNITS) if unit not in (3, 4)])
    total = Inspection(mechanism).sums(data, [np.arange(UNITS)])[0]
    np.testing.assert_allclose(total, naive(others, UnitMean(), LinearTail(0.0)), rtol=1e-9)


def test_a_score_of_the_user_sees_one_unit_at_a_time():
    seen = []

    def score(scores):
        seen.append(len(scores))
        scores[:] = 0  # a copy: nobody else's order changes
        return float(len(scores))

    mechanism = Rows(plan_of(persons()), persons(), tail=HardTail(5.0), unit_rule=UnitMean(score=score))
    Inspection(mechanism).sums(DATA, [np.arange(UNITS)])
    assert seen == np.bincount(UNIT).tolist()
    wrong = Rows(plan_of(persons()), persons(), unit_rule=UnitMean(score=lambda scores: scores[:1]))
    with pytest.raises(ValueError, match="score must give one number for the records of a unit"):
        Inspection(wrong).sums(DATA, [np.arange(UNITS)])


def test_records_that_pay_for_themselves_are_units():
    owners = persons()
    plan = plan_individual(owners, steps=20, clip_norm=1.0)
    mechanism = Rows(plan, owners, tail=HardTail(3.0))
    assert Inspection(mechanism).filter().spent.shape == (UNITS,)
    assert certify(mechanism, DATA, evaluations=200).holds(1e-5)
    released(mechanism)
    assert (mechanism._filter.spent <= plan.squared_norm_budget[owners.owner_of_unit]).all()


def test_a_release_is_charged_in_the_unit():
    owners = persons()
    plan = plan_scale(owners, steps=2, expected_batch=owners.n_units, clip_norm=1.0)
    ledger = Ledger(owners=owners)
    mechanism = Rows(plan, owners, ledger=ledger, key=3)
    assert mechanism.release(DATA).cost.unit == ledger.unit == "add/remove of person"
    assert 0 < ledger.spent()[0] <= 1.0
    plain = Ledger(owners=Owners(of_record=OWNER, epsilon={0: 1.0, 1: 3.0}, delta=1e-5))
    refused = Rows(plan, owners, ledger=plain)
    with pytest.raises(ValueError, match="costs must be in the unit of the ledger"):
        refused.release(DATA)
    assert refused.released == 0


def test_units_that_do_not_fit_are_refused_before_anything_is_drawn():
    owners = persons()
    plan, plain = plan_of(owners), Owners(of_record=OWNER, epsilon=1.0, delta=1e-5)
    for wrong in (plain, OWNER, persons(unit_name="household")):
        with pytest.raises(ValueError, match="owners must have the unit of the plan, one person"):
            Rows(plan, wrong)
    with pytest.raises(ValueError, match="owners must have the unit of the plan, one record"):
        Rows(plan_of(plain), owners)
    with pytest.raises(ValueError, match="unit_rule must be left out without units"):
        Rows(plan_of(plain), plain, unit_rule=UnitMean())
    with pytest.raises(TypeError, match="unit_rule must be of type UnitRule"):
        Rows(plan, owners, unit_rule="mean")
    with pytest.raises(ValueError, match="records_per_unit must be a whole number >= 1"):
        UnitMean(records_per_unit=0)
    with pytest.raises(TypeError, match="score must be a function"):
        UnitSum(score="max")
    with pytest.raises(ValueError, match="got 89 for 90"):
        Rows(plan, owners).release(DATA[1:])
    short = persons(of_record=OWNER[UNIT > 2], unit_of_record=UNIT[UNIT > 2])
    with pytest.raises(ValueError, match="it has 12 persons of 0"):
        Rows(plan, short)

    class Parts(Rows):
        def contributions(self, batch):
            return Concatenated([Dense(batch)])

    with pytest.raises(TypeError, match="contributions must be an array or have `combined`"):
        Parts(plan, owners).release(DATA)


def test_neighbouring_data_have_one_unit_less_and_follow_the_same_plan():
    stay = UNIT != 7
    fewer = persons(of_record=OWNER[stay], unit_of_record=UNIT[stay])
    assert np.count_nonzero(~stay) > 1
    Rows(plan_of(persons()), fewer).release(DATA[stay])
