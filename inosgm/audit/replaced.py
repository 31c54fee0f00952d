"""Canaries that are replaced: a record and its opposite, in batches of a fixed size."""

from dataclasses import replace
from typing import Any

import numpy as np

from inosgm.audit.canaries import EVALUATIONS, LARGEST_DIRECTED, LONG, Canary, DataCanary, SyntheticTable, flat
from inosgm.mechanism.inspection import ORDER_SECRET, Inspection


class ReplacedCanary(Canary):
    """A synthetic record in one world, and its opposite in the other: ranked first, in the opposite direction.

    A batch that has not drawn it holds a record that moves nothing instead. One record removed and one added move a sum
    by 2 C at most; contributions are directed so that all changes between the two worlds add up.

    Args:
        name: Its name in tables.
        mechanism: The attacked mechanism.
        table: The records of the first world.
        empty: Whether the record of the first world contributes nothing itself.
    """

    def __init__(self, name: str, mechanism: Inspection, table: SyntheticTable, *, empty: bool = False) -> None:
        self.name, self._mechanism = name, mechanism
        self._tables = _opposite(mechanism, table), table
        size, added = table.owners.size, table.added
        lengths = LONG * (1 + mechanism.plan.sensitivities[table.owners])
        lengths = np.append(lengths, lengths[added])
        lengths[added] *= not empty
        signs = np.append(np.ones(size), -1.0)
        if size <= LARGEST_DIRECTED:  # the opposite has a direction of its own, the last
            one = np.diag(lengths)[:size]
            other = one.copy()
            other[added] = np.append(np.zeros(size), lengths[-1])
            _, *totals = self._totals((other, one), 0)
            signs = np.where(totals[1] < totals[0], -1.0, 1.0)
        one = (signs * lengths)[:size, None]
        other = one.copy()
        other[added] = signs[-1] * lengths[-1]
        self._both = other, one
        _, down, up = self.worlds(0)
        self.moves = up - down

    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sums of a batch without the record, with the other one, and with it. NOT PRIVATE."""
        (out,), (down,), (up,) = self._totals(self._both, step)
        return (out, down, up) if up >= down else (-out, -down, -up)

    def _totals(self, rows: tuple[np.ndarray, np.ndarray], step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sums of the others, of all with the opposite, and of all with the record."""
        everyone = np.arange(self._tables[0].owners.size)

        def total(world: int, positions: np.ndarray) -> np.ndarray:
            table = self._tables[world]
            return flat(self._mechanism.synthetic_sum(rows[world], table.scores, table.owners, positions, step=step))

        return total(0, self._tables[0].others), total(0, everyone), total(1, everyone)


class AmongCopies(Canary):
    """A canary that is replaced by a copy of its opposite in a batch that has not drawn it.

    A batch then reveals only whether it has drawn the record of one world: the pair of a sampled Gaussian with twice
    the sensitivity, which is the worst pair for large privacy losses.
    """

    def __init__(self, canary: ReplacedCanary) -> None:
        self.name, self.moves, self._canary = f"{canary.name}, others alike", canary.moves, canary

    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sums of a batch without the record, with the other one, and with it. NOT PRIVATE."""
        _, down, up = self._canary.worlds(step)
        return down, down, up


class ReplacedDataCanary(DataCanary):
    """The worst record that a search finds, and the record of the same owner that differs most from it."""

    def __init__(self, mechanism: Inspection, data: Any, owner_index: int, seed: int) -> None:
        super().__init__(mechanism, data, owner_index, seed)
        (self._added,) = np.setdiff1d(self._rows, self._others)
        own = np.setdiff1d(np.flatnonzero(mechanism.owners == owner_index), [self._added])
        some = np.random.default_rng(seed).permutation(own)[: EVALUATIONS // 5].tolist()
        self._instead = max(some, key=self._distance, default=None)
        _, down, up = self.worlds(0)
        self.moves = up - down

    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sums of a batch without the record, with the other one, and with it. NOT PRIVATE."""
        out, down, up = self._totals_with(self._instead, step)
        direction = (up - down) / (float(np.linalg.norm(up - down)) or 1.0)
        return float(out @ direction), float(down @ direction), float(up @ direction)

    def _distance(self, instead: int) -> float:
        _, down, up = self._totals_with(instead, 0)
        return float(np.linalg.norm(up - down))

    def _totals_with(self, instead: int | None, step: int) -> list[np.ndarray]:
        """Return the sums without both records, with the replacement, and with the added record."""
        two = [self._added] if instead is None else [self._added, instead]
        others = np.setdiff1d(self._rows, two)
        batches = others, np.union1d(others, two[1:]), np.union1d(others, two[:1])
        sums = self._mechanism.sums(self._data, [rows.astype(np.int64) for rows in batches], step)
        return [flat(total) for total in sums]


def _opposite(mechanism: Inspection, table: SyntheticTable) -> SyntheticTable:
    """Return the records with the score of the replaced one changed so that it ranks as high as possible."""
    order, ids = mechanism.order.at(0, ORDER_SECRET), np.arange(table.owners.size)
    cost = mechanism.plan.step_cost[table.owners]
    tables = []
    for score in (-1.0, float(ids.size)):
        scores = table.scores.copy()
        scores[table.added] = score
        rank = int(np.flatnonzero(order.ranking(scores, ids, cost) == table.added)[0])
        tables.append((rank, replace(table, scores=scores)))
    return min(tables, key=lambda entry: entry[0])[1]
