"""The batches of many models at once: rows of equal length, some of whose entries are empty."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inosgm.mechanism.sampling import PoissonSamplers
from inosgm.planning.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """One row per model; an empty entry holds record 0 of the pool, with weight 0.

    Attributes:
        records: Positions in the pool.
        ids: Positions among the members, ascending: the ids of records for a trainer of the members alone.
        owners: Positions in the plan.
        there: Whether the entry is a record.
    """

    records: np.ndarray
    ids: np.ndarray
    owners: np.ndarray
    there: np.ndarray

    def of(self, some: slice) -> "Batches":
        """Return the batches of some models, cut to the longest of them."""
        places = max(1, int(self.there[some].any(axis=0).sum()))
        return Batches(**{name: np.ascontiguousarray(rows[some, :places]) for name, rows in vars(self).items()})


class Batching:
    """Draws the batches of many models, each of its own members of one pool.

    Args:
        plan: The sample rates.
        owners: The owner of every record of the pool, as a position in the plan.
        members: For each model the positions of its members in the pool, ascending.
    """

    def __init__(self, plan: Plan, owners: np.ndarray, members: Sequence[np.ndarray]) -> None:
        self._owners = owners
        self._samplers = PoissonSamplers(plan.sample_rates, [owners[positions] for positions in members])
        self._members = np.concatenate(members)
        self._begins = np.cumsum([0, *(positions.size for positions in members)])[:-1, None]

    def draw(self, coins: Sequence[np.random.Generator]) -> Batches:
        """Return the next batches, given a generator for each model."""
        ids, there = self._samplers.draw(coins)
        records = np.where(there, self._members[np.where(there, self._begins + ids, 0)], 0)
        return Batches(records=records, ids=ids, owners=self._owners[records], there=there)
