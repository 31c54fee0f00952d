"""Tails of more records than 2^60 units of the usual size hold: the unit grows with the number of records."""

import numpy as np
import pytest

from inosgm import HardTail, OrderedSum, Plan
from inosgm.mechanism.fixed_point import BITS, Grid
from inosgm.statistics import UpperTailMean


def plan_of(size, sensitivities=(1.0, 3.0)):
    sizes = [size // 2, size - size // 2]
    return Plan(sample_rates=[1, 1], sensitivities=sensitivities, sizes=sizes, noise_scale=1.0, steps=1)


@pytest.mark.parametrize("size", [10_000_000, 2_000_000_000])
def test_cvar_of_any_number_of_rows_can_be_asked(size):
    UpperTailMean(plan_of(size), bounds=(0, 1), level=0.9)


def test_the_unit_is_the_usual_one_up_to_two_million_records():
    for size, factor in ((1000, 1), (1_000_000, 1), (100_000_000, 256)):
        plan = plan_of(size)
        unit = Grid.of(plan.sensitivities, plan.sizes).unit
        assert unit / (4.0 * 2.0**-BITS) <= factor


def test_a_record_more_moves_a_long_tail_by_at_most_its_sensitivity():
    plan, rng = plan_of(1_000_000_000), np.random.default_rng(0)
    values, owners = rng.uniform(-1, 1, 40), rng.integers(0, 2, 40)
    values = values * np.array([1.0, 3.0])[owners]

    def total(kept):
        found = OrderedSum(plan, HardTail(20.0))
        found.update(values[kept], scores=values[kept], owners=owners[kept], ids=kept)
        return float(found.exact())

    whole = np.arange(40)
    plain = OrderedSum([1.0, 3.0], HardTail(20.0))
    plain.update(values, scores=values, owners=owners, ids=whole)
    assert total(whole) == pytest.approx(float(plain.exact()), abs=1e-3)  # sensitivities make room for rounding
    for record in range(40):
        moved = abs(total(np.delete(whole, record)) - total(whole))
        assert moved <= (1.0, 3.0)[owners[record]]
