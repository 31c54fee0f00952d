"""Mistakes in mechanisms with units: found by adding and removing whole units."""

import numpy as np
import pytest

from inosgm import INOSGM, Dense, HardTail, Owners, Plan, UnitSum, audit_mechanism, certify

UNIT = np.repeat(np.arange(60), 3)
DATA = np.random.default_rng(0).normal(size=(180, 2)) + 1
DATA[:3] *= 50  # one unit is far from the others


class Rows(INOSGM):
    def contributions(self, batch):
        return batch

    def scores(self, batch):
        return batch[:, 0]


class Doubled(Dense):
    """Norms of one contribution, and a sum in which it appears twice."""

    def weighted_sum(self, weights):
        return 2 * super().weighted_sum(weights)


class ContributesTwice(Rows):
    def measure_units(self, data, units, owners, step):
        contributions, scores = super().measure_units(data, units, owners, step)
        return Doubled(contributions.array), scores


class ScoreSeesOthers(Rows):
    def measure_units(self, data, units, owners, step):
        contributions, scores = super().measure_units(data, units, owners, step)
        return contributions, np.abs(scores - scores.mean()) if len(scores) else scores


class BoundFollowsTheData(Rows):
    def measure_units(self, data, units, owners, step):
        contributions, scores = super().measure_units(data, units, owners, step)
        norms = contributions.norms()
        return Dense(contributions.array / max(norms.max(initial=0), 1e-9)), scores


class DrawsForTheBatch(Rows):
    """Which records of a unit take part depends on how many units there are."""

    def measure_units(self, data, units, owners, step):
        contributions, scores = self.measure(data, units.positions, owners, step)
        place = units.starts + units.starts.size % units.counts
        return Dense(contributions.array[place]), scores[place]


def of(kind, **change):
    owners = Owners(of_record=UNIT % 2, epsilon=1.0, delta=1e-5, unit_of_record=UNIT, unit_name="person")
    given = {"sample_rates": [0.9, 0.9], "sensitivities": [1.0, 1.0], "noise_scale": 1.0, "steps": 1, **change}
    plan = Plan(**given, sizes=owners.sizes, unit_name="person")
    return kind(plan, owners, tail=HardTail(10.0), unit_rule=UnitSum())


@pytest.mark.parametrize("kind", [ContributesTwice, ScoreSeesOthers, BoundFollowsTheData, DrawsForTheBatch])
def test_the_certifier_finds_what_units_must_not_do(kind):
    assert certify(of(kind), DATA, evaluations=300).exceeds(0.05)


def test_the_certifier_finds_nothing_in_what_is_right():
    assert certify(of(Rows), DATA, evaluations=300).holds(1e-6)


def test_the_audit_refutes_a_unit_that_contributes_twice_and_not_one_that_does_so_once():
    """The audit's own confidence is 0.95 by default; both have fixed seeds."""
    wrong = audit_mechanism(of(ContributesTwice), owner=1, data=DATA, runs=4000)
    assert wrong.contradicts
    assert "one person with all its records" in wrong.table()
    assert not audit_mechanism(of(Rows), owner=1, data=DATA, runs=4000).contradicts
