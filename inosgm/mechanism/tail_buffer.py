"""The tail of a stream: the least important records, and no more of them than can still be in it."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from inosgm.mechanism.orders import Order

_NOBODY = np.empty(0, dtype=np.int64)

_LEAST_WAITING = 1 << 16
"""Smallest number of waiting records that is worth sorting to evict some of them."""

_NEAR = 1 << 10
"""A cut is found to within so many records."""


@dataclass(frozen=True, eq=False)
class HeldRecords:
    """Records of a batch, column by column."""

    scores: np.ndarray
    ids: np.ndarray
    owners: np.ndarray
    rows: np.ndarray
    cells: np.ndarray

    @classmethod
    def joined(cls, parts: list["HeldRecords"]) -> Self:
        """Return several one after the other."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def at(self, positions: np.ndarray | slice) -> "HeldRecords":
        """Return some of them."""
        return HeldRecords(*(getattr(self, field.name)[positions] for field in fields(self)))

    def __len__(self) -> int:
        return int(self.scores.size)


class Kept:
    """Records below which the others have less sensitivity together than the tail is long.

    Args:
        order: What counts as important.
        spans: The sensitivity of each owner, a whole number of units.
        costs: What an order by owners goes by.
        begins: The first threshold, in units, that is not in the tail.
    """

    def __init__(self, order: Order, spans: np.ndarray, costs: np.ndarray, begins: int) -> None:
        self._order, self._spans, self._costs, self._begins = order, spans, costs, begins
        self.records: HeldRecords | None = None
        self._waiting: list[HeldRecords] = []
        self._size = self._wait = 0
        self._cut: float | None = None

    def candidates(self, scores: np.ndarray, owners: np.ndarray, ids: np.ndarray | int) -> np.ndarray:
        """Return the positions of records that may be in the tail."""
        if not self._begins:
            return _NOBODY
        if self._cut is None:
            return np.arange(scores.size)
        if self._order.scores_decide:
            key = self._order.deciding(scores, None, None)
        else:
            key = self._order.deciding(scores, expand_ids(ids, scores.size), self._costs[owners])
        return np.flatnonzero(~(key < self._cut))  # also a NaN

    def take(self, records: HeldRecords) -> HeldRecords | None:
        """Add records, and return those that are known not to be in the tail any more."""
        self._waiting.append(records)
        self._wait += len(records)
        return self._shrink() if self._wait > max(_LEAST_WAITING, self._size) else None

    def all(self) -> list[HeldRecords]:
        """Return everything that is held, in parts."""
        return [*([] if self.records is None else [self.records]), *self._waiting]

    def _shrink(self) -> HeldRecords | None:
        """Return most of the records that are not in the tail, without sorting them, or all if many are tied."""
        found = HeldRecords.joined(self.all())
        spans = self._spans[found.owners].astype(np.int64)
        gone = None
        if spans.sum() >= self._begins:
            key = self._order.deciding(found.scores, found.ids, self._costs[found.owners])
            self._cut = _cut_of(key, spans, self._begins)
            above = key < self._cut
            if spans[~above].sum() > 1.25 * self._begins:  # ties
                return self.settle()
            found, gone = found.at(np.flatnonzero(~above)), found.at(np.flatnonzero(above))
        self.records, self._waiting = None, [found]
        self._wait, self._size = 0, len(found)
        return gone

    def settle(self) -> HeldRecords | None:
        """Sort in what waits: afterwards `records` go from the least important up; return those that are not kept.

        Raises:
            ValueError: if two records have one id.
        """
        if not self._waiting:
            return None
        found = HeldRecords.joined(self.all())
        lowest_first = self._order.ranking(found.scores, found.ids, self._costs[found.owners])[::-1]
        found = found.at(lowest_first)
        ends = np.cumsum(self._spans[found.owners].astype(np.int64))
        size = int(np.searchsorted(ends, self._begins)) + 1  # the one that goes on beyond the tail belongs to it
        kept = self.records = found.at(slice(0, size))
        self._waiting, self._wait, self._size = [], 0, len(kept)
        if size <= len(found):
            top = kept.at(slice(-1, None))
            self._cut = float(self._order.deciding(top.scores, top.ids, self._costs[top.owners])[0])
        return found.at(slice(size, None))


def _cut_of(key: np.ndarray, spans: np.ndarray, begins: int) -> float:
    """Return a key, nearly the smallest, such that the records from there on have at least `begins` together.

    What all records have together must not be less. Halves are looked at that become smaller and smaller.
    """
    while key.size > _NEAR:
        cut = np.partition(key, key.size // 2)[key.size // 2]
        above = key < cut
        some = np.flatnonzero(~above)
        span = int(spans[some].sum())
        if span < begins:
            begins -= span
            some = np.flatnonzero(above)
        if some.size == key.size:  # ties
            break
        key, spans = key[some], spans[some]
    return float(key.min())


def expand_ids(ids: np.ndarray | int, size: int) -> np.ndarray:
    """Return consecutive ids, of which the first was given, one by one."""
    return np.arange(ids, ids + size) if isinstance(ids, int) else ids
