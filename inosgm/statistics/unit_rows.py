"""One row for each unit, so that every statistic protects whole units."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import unit_draw_secret
from inosgm.mechanism.contributions import Dense
from inosgm.mechanism.hashed_sampling import siphash
from inosgm.mechanism.units import UnitIndex, UnitMean, UnitRule, lowest_of_each
from inosgm.owners import Owners, labels_at


def combine_rows(values: Any, owners: Owners, *, rule: UnitRule, seed: int = 0) -> tuple[np.ndarray, Owners]:
    """Return one row for each unit, and owners of these rows, for any statistic.

    **Guarantee.** The row of a unit depends on the rows of that unit alone, so a statistic of the combined rows
    protects one unit with all its rows: its plan, cost and ledger say so. If a unit has more than
    `rule.records_per_unit` rows, a hash of the place of each row within the unit chooses them.

    Bounds of a statistic are then bounds of combined rows: of sums of m rows within (0, b), they are (0, m b). The mean
    of `UnitMean` rows is the mean over units of their own means, in which a unit counts once, however many rows it has.
    The sum of `UnitSum` rows is that of all rows that were kept.

    Args:
        values: One number per row, or an array with one row per record, in the order of the owners' records.
        owners: Owners with units.
        rule: `UnitMean(records_per_unit=...)` or `UnitSum(records_per_unit=...)`; its score is not used.
        seed: Determines, with a row's place in its unit, which rows are kept.

    Returns:
        The combined rows (NOT PRIVATE), in the order of the units, and owners of units that have one row each.

    Raises:
        ValueError: for owners without units, a rule without `records_per_unit`, and values that are not one per record.

    >>> from inosgm import UnitSum, private_sum
    >>> visits = Owners(of_record=["a"] * 3000, epsilon=8.0, delta=1e-5, unit_of_record=np.arange(3000) // 3)
    >>> costs, patients = combine_rows(np.full(3000, 2.0), visits, rule=UnitSum(records_per_unit=2))
    >>> answer = private_sum(costs, patients, bounds=(0, 20), key=1)
    >>> abs(answer.value - 4000) < 4 * answer.standard_error
    True
    """
    _validate.instance("owners", owners, Owners, "make them with Owners(of_record=..., unit_of_record=..., ...)")
    _validate.instance("rule", rule, UnitRule, "take UnitMean(records_per_unit=...) or UnitSum(records_per_unit=...)")
    if not owners.has_units:
        raise ValueError("owners must have units to combine the rows of: give Owners unit_of_record")
    if rule.records_per_unit is None:
        raise ValueError(f"rule must limit the rows of a unit: {type(rule).__name__}(records_per_unit=8), say")
    rows = _validate.numeric("values", values)
    if not rows.ndim or len(rows) != owners.n_records:
        raise ValueError(f"values must be one for each of the {owners.n_records} records of the owners")
    positions, groups = UnitIndex(owners.unit_of_record, UnitMean()).every(np.arange(owners.n_units))
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    places = np.arange(groups.size) - begins[groups]
    hashes = siphash(unit_draw_secret(_validate.count("seed", seed), 0), places)
    kept = lowest_of_each(groups, hashes, rule.records_per_unit)
    groups = groups[kept]
    combined = Dense(rows[positions[kept]]).combined(groups, rule.shares(np.bincount(groups)))
    budgets = {
        name: dict(zip(owners.labels, getattr(owners, name).tolist(), strict=True)) for name in ("epsilon", "delta")
    }
    whose = labels_at(owners.labels, owners.owner_of_unit)
    alone = Owners.of_units(whose, epsilon=budgets["epsilon"], delta=budgets["delta"], unit_name=owners.unit_name)
    return np.asarray(combined.array), alone
