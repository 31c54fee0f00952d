"""The tail of a stream: the least important records, and no more of them than can still be in it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from inosgm.mechanism.fixed_point import BLOCK
from inosgm.mechanism.orders import Order

_NOBODY = np.empty(0, dtype=np.int64)

_LEAST_WAITING = 1 << 16
"""Smallest number of waiting records that is worth sorting to evict some of them."""

_NEAR = 1 << 10
"""A cut is found to within so many records."""

_SAMPLE = 1 << 15
"""Number of records that a cut is guessed from: it then keeps some 3 % more than the tail."""

_RESERVED = 1 << 28
"""Bytes that are reserved for a tail at once, before records come: they count as memory when they are written."""

Evict = Callable[[np.ndarray, np.ndarray], None]
"""Takes the rows and the cells of records that leave the tail."""


@dataclass(frozen=True, eq=False)
class HeldRecords:
    """Records of a batch, column by column."""

    scores: np.ndarray
    ids: np.ndarray
    owners: np.ndarray
    rows: np.ndarray
    cells: np.ndarray

    @classmethod
    def empty(cls, size: int, shape: tuple[int, ...], cells: int) -> Self:
        """Return columns whose values do not matter, for rows of a shape; a single cell takes no memory."""
        ids, owners = np.empty(size, np.int64), np.empty(size, np.int64)
        places = np.empty(size, np.int64) if cells > 1 else np.broadcast_to(np.int64(0), size)
        return cls(np.empty(size), ids, owners, np.empty((size, *shape)), places)

    @property
    def written(self) -> dict[str, np.ndarray]:
        """The columns that have memory of their own, by name."""
        return {name: column for name, column in vars(self).items() if column.flags.writeable}

    def copy(self) -> "HeldRecords":
        """Return the same records apart."""
        return HeldRecords(*(getattr(self, field.name).copy() for field in fields(self)))

    def at(self, positions: np.ndarray | slice) -> "HeldRecords":
        """Return some of them."""
        return HeldRecords(*(getattr(self, field.name)[positions] for field in fields(self)))

    def blocks(self) -> Iterator["HeldRecords"]:
        """Yield them in blocks, of which the contributions can be summed exactly."""
        for begin in range(0, len(self), BLOCK):
            yield self.at(slice(begin, begin + BLOCK))

    def __len__(self) -> int:
        return int(self.scores.size)


class Kept:
    """Records below which the others have less sensitivity together than the tail is long.

    They are written into columns that are longer than what they hold, and let go block by block in place: memory that
    is asked for anew at every step would cost more than the work on it.

    Args:
        order: What counts as important.
        spans: The sensitivity of each owner, a whole number of units.
        costs: What an order by owners goes by.
        begins: The first threshold, in units, that is not in the tail.
        cells: Into how many sums records are sorted.
    """

    def __init__(self, order: Order, spans: np.ndarray, costs: np.ndarray, begins: int, cells: int = 1) -> None:
        self._order, self._spans, self._costs, self._begins = order, spans.astype(np.int64), costs, begins
        self._cells = cells
        self._columns: HeldRecords | None = None
        self._size = self._looked_at = 0
        self._sorted = True
        self._cut: float | None = None

    @property
    def records(self) -> HeldRecords | None:
        """What is held; after `settle`, from the least important record up. It changes when records are added."""
        return None if self._columns is None else self._columns.at(slice(0, self._size))

    def all(self) -> list[HeldRecords]:
        """Return everything that is held, in parts, apart from what happens later."""
        return [] if self._columns is None else [self._columns.at(slice(0, self._size)).copy()]

    def candidates(self, scores: np.ndarray, owners: np.ndarray, ids: np.ndarray | int) -> np.ndarray | None:
        """Return the positions of records that may be in the tail; None for all."""
        if not self._begins:
            return _NOBODY
        if self._cut is None:
            return None
        if self._order.scores_decide:
            key = self._order.deciding(scores, None, None)
        else:
            key = self._order.deciding(scores, expand_ids(ids, scores.size), self._costs[owners])
        return np.flatnonzero(~(key < self._cut))  # also a NaN

    def take(
        self,
        scores: np.ndarray,
        ids: np.ndarray | int,
        owners: np.ndarray,
        rows: np.ndarray,
        cells: np.ndarray | None,
        positions: np.ndarray | None = None,
    ) -> HeldRecords:
        """Add records, and return them as they are held until others are added or let go.

        Args:
            scores: One number per record, like ids (or the first of consecutive ones), owners and cells (or None).
            ids: As above.
            owners: As above.
            rows: Their contributions.
            cells: As above.
            positions: The positions of those that are added; None for all.
        """
        number = scores.size if positions is None else positions.size
        columns = self._room_for(number, rows)
        added = columns.at(slice(self._size, self._size + number))
        given = {"scores": scores, "owners": owners, "rows": rows, "cells": 0 if cells is None else cells, "ids": ids}
        for name, held in added.written.items():
            column = given[name]
            if isinstance(column, int) and name == "cells":
                held[...] = column
            elif isinstance(column, int):
                np.add(np.arange(number) if positions is None else positions, column, out=held)
            elif positions is None:
                held[...] = column
            else:
                np.take(column, positions, axis=0, out=held, mode="clip")  # the other modes make a copy first
        self._size += number
        self._sorted = False
        return added

    def _room_for(self, number: int, rows: np.ndarray) -> HeldRecords:
        """Return columns with room for more records."""
        needed, now = self._size + number, self._columns
        if now is None or needed > now.scores.size:
            size = max(needed, self._expected(rows) if now is None else 2 * now.scores.size)
            self._columns = HeldRecords.empty(size, rows.shape[1:], self._cells)
            if now is not None:
                for name, column in self._columns.written.items():
                    column[: self._size] = getattr(now, name)[: self._size]
        assert self._columns is not None
        return self._columns

    def _expected(self, rows: np.ndarray) -> int:
        """Return how many records are held at most, or as many as are reserved; memory counts once it is used."""
        wide = 4 + math.prod(rows.shape[1:])
        return min(int(2.1 * self._begins / float(self._spans.min())) + BLOCK, _RESERVED // (8 * wide))

    def _key_of(self, held: HeldRecords) -> np.ndarray:
        if self._order.scores_decide:
            return self._order.deciding(held.scores, None, None)
        return self._order.deciding(held.scores, held.ids, self._costs[held.owners])

    def shrink(self, evict: Evict) -> None:
        """Let most of the records go that are not in the tail, if many have come since the last time.

        Args:
            evict: Takes the rows and the cells of records that are let go, at most a block at a time.
        """
        if self._size - self._looked_at <= max(_LEAST_WAITING, self._looked_at) or self._columns is None:
            return
        if self._size * int(self._spans.max()) < self._begins:  # all of them are in the tail
            return
        held = self._columns.at(slice(0, self._size))
        self._looked_at = self._size
        found = self._cut_in(held)
        if found is None:
            return
        self._cut, left = found
        if left > 1.25 * self._begins:  # ties
            self.settle(evict)
            return
        position = 0
        for some in held.blocks():
            above = self._key_of(some) < self._cut
            gone, kept = np.flatnonzero(above), np.flatnonzero(~above)
            evict(some.rows[gone], some.cells[gone])
            for name, column in held.written.items():
                column[position : position + kept.size] = getattr(some, name)[kept]
            position += kept.size
        self._size = self._looked_at = position

    def _cut_in(self, held: HeldRecords) -> tuple[float, int] | None:
        """Return a key such that the records from there on fill the tail, and the sensitivity that they have.

        A sample says where it may be, and all records are compared with it. If they have too little, the exact cut is
        found. Returns None if all records together have too little.
        """
        step = held.scores.size // _SAMPLE
        if step >= 4:
            sample = held.at(slice(None, None, step))
            guess = _guessed_cut(self._key_of(sample), step * self._spans[sample.owners], self._begins)
            left = 0 if guess is None else self._span_from(held, guess)
            if guess is not None and left >= self._begins:
                return guess, left
        spans = self._spans[held.owners]
        if spans.sum() < self._begins:
            return None
        cut = _exact_cut(self._key_of(held), spans, self._begins)
        return cut, self._span_from(held, cut)

    def _span_from(self, held: HeldRecords, cut: float) -> int:
        """Return the sensitivity of the records from a key on."""
        return sum(int(self._spans[some.owners[~(self._key_of(some) < cut)]].sum()) for some in held.blocks())

    def settle(self, evict: Evict) -> None:
        """Sort what is held: afterwards `records` are those of the tail, from the least important up.

        Args:
            evict: As for `shrink`.

        Raises:
            ValueError: if two records have one id; nothing was changed then.
        """
        if self._sorted or self._columns is None:
            return
        held = self._columns.at(slice(0, self._size))
        lowest_first = self._order.ranking(held.scores, held.ids, self._costs[held.owners])[::-1]
        ends = np.cumsum(self._spans[held.owners[lowest_first]])
        size = int(np.searchsorted(ends, self._begins)) + 1  # the one that goes on beyond the tail belongs to it
        gone = lowest_first[size:]
        for begin in range(0, gone.size, BLOCK):
            some = gone[begin : begin + BLOCK]
            evict(held.rows[some], held.cells[some])
        self._columns = kept = held.at(lowest_first[:size])
        self._size = self._looked_at = len(kept)
        self._sorted = True
        if size <= len(held):
            self._cut = float(self._key_of(kept.at(slice(-1, None)))[0])


def _guessed_cut(key: np.ndarray, spans: np.ndarray, begins: int) -> float | None:
    """Return a key that probably leaves a little more than `begins`, by a sample whose spans stand for all records."""
    lowest_first = np.argsort(key)[::-1]  # NaN first
    ends = np.cumsum(spans[lowest_first])
    goal = begins + 4 * math.sqrt(begins * float(ends[-1]) / key.size)  # four standard errors of a share
    at = int(np.searchsorted(ends, goal))
    return float(key[lowest_first[at]]) if at < key.size else None


def _exact_cut(key: np.ndarray, spans: np.ndarray, begins: int) -> float:
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
