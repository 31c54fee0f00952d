"""Hard tails in passes: counting finds the ranks between which a tail ends, and only records between them are held.

A `HardTail` gives the least important records weight 0 and the others weight 1; the record at its border counts in
part. A sum needs no record but that one. Passes over the same records count the sensitivity in narrower and narrower
windows of ranks, until the window in which the tail ends has few records. One more pass then makes the sum. It has the
bits of the sum that holds the whole tail, and `OrderedSum.exact` checks the window again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm.mechanism.orders import Order
from inosgm.mechanism.tail_buffer import expand_ids
from inosgm.mechanism.tails import HardTail, Tail

HELD = 1 << 20
"""Number of records from which on a hard tail is found in passes; one pass holds some 100 bytes for each."""

_BUCKET_BITS = 20
"""A pass divides a window into at most two to this many parts: 32 MB of counts."""

_ALL = (0, (1 << 64) - 1)
_SIGN = np.int64(-(1 << 63))


@dataclass(frozen=True)
class RankWindow:
    """The records that rank between two others, both included. NOT PRIVATE.

    Attributes:
        keys: The deciding keys of the most and the least important record, as whole numbers in the same order.
        ids: Their ids likewise, if both keys are equal: equal keys are ranked by id.
    """

    keys: tuple[int, int] = _ALL
    ids: tuple[int, int] = _ALL

    def __post_init__(self) -> None:
        for name in ("keys", "ids"):
            low, high = (int(end) for end in getattr(self, name))
            if not 0 <= low <= high <= _ALL[1]:
                raise ValueError(f"{name} must ascend within 0, ..., 2^64 - 1, got {low}, {high}")
            object.__setattr__(self, name, (low, high))

    @property
    def ends(self) -> tuple[int, int]:
        """The ends in what tells its records apart: ids if all keys are equal."""
        return self.ids if self.tied else self.keys

    @property
    def tied(self) -> bool:
        """Whether all of its records have one key."""
        return self.keys[0] == self.keys[1]

    def split(self, keys: np.ndarray, ids: np.ndarray | int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the positions of the records above the window (more important), in it, and below it.

        Args:
            keys: What `Order.deciding` returns.
            ids: One whole number per record, or the first of consecutive ones.
        """
        ordered = _ordered(keys)
        low, high = (np.uint64(end) for end in self.keys)
        above, below = ordered < low, ordered > high
        if self.tied:
            numbers = _ordered(expand_ids(ids, keys.size))
            equal = ~(above | below)
            above |= equal & (numbers < np.uint64(self.ids[0]))
            below |= equal & (numbers > np.uint64(self.ids[1]))
        return np.flatnonzero(above), np.flatnonzero(~(above | below)), np.flatnonzero(below)


def _ordered(values: np.ndarray) -> np.ndarray:
    """Return float64 or int64 numbers as uint64 in the same order; both zeros are equal, and NaN is the largest."""
    if values.dtype.kind == "f":
        bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
        ordered = (bits ^ ((bits >> 63) | _SIGN)).view(np.uint64)
        ordered[np.isnan(values)] = _ALL[1]
        return np.asarray(ordered)
    return np.asarray((values.astype(np.int64) ^ _SIGN).view(np.uint64))


class RankCounts:
    """The sensitivity and the number of the records in each part of a window of ranks. NOT PRIVATE.

    The counts of several parts of the data are merged by adding; they do not depend on how the data were divided.

    Args:
        window: The window.
    """

    def __init__(self, window: RankWindow) -> None:
        self.window = window
        low, high = window.ends
        self._shift = max(0, (high - low).bit_length() - _BUCKET_BITS)
        size = ((high - low) >> self._shift) + 1
        self._sums, self._numbers = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._first, self._last = np.full(size, _ALL[1], np.uint64), np.zeros(size, np.uint64)
        self._ids = np.array([_ALL[1], 0], np.uint64)
        self._below = 0

    def add(self, keys: np.ndarray, spans: np.ndarray, ids: np.ndarray | int) -> None:
        """Count records.

        Args:
            keys: What `Order.deciding` returns.
            spans: The sensitivity of each, in units; int64.
            ids: One whole number per record, or the first of consecutive ones.
        """
        _, inside, below = self.window.split(keys, ids)
        self._below += int(spans[below].sum())
        if not inside.size:
            return
        numbers = _ordered(expand_ids(ids, keys.size)[inside])
        told = numbers if self.window.tied else _ordered(keys[inside])
        buckets = ((told - np.uint64(self.window.ends[0])) >> np.uint64(self._shift)).astype(np.int64)
        np.add.at(self._sums, buckets, spans[inside])
        np.add.at(self._numbers, buckets, 1)
        np.minimum.at(self._first, buckets, told)
        np.maximum.at(self._last, buckets, told)
        self._ids[0], self._ids[1] = min(self._ids[0], numbers.min()), max(self._ids[1], numbers.max())

    def merge(self, other: "RankCounts") -> None:
        """Add the counts of other records in the same window."""
        self.load(other.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the counts as arrays; parts without records are left out."""
        parts = np.flatnonzero(self._numbers)
        limbs = np.array([self._below >> 32, self._below & 0xFFFFFFFF], np.int64)
        columns = {"sums": self._sums, "numbers": self._numbers, "first": self._first, "last": self._last}
        return {"parts": parts, "ids": self._ids, "below": limbs, **{name: of[parts] for name, of in columns.items()}}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Add counts that `arrays` has returned."""
        parts = arrays["parts"]
        self._sums[parts] += arrays["sums"]
        self._numbers[parts] += arrays["numbers"]
        self._first[parts] = np.minimum(self._first[parts], arrays["first"])
        self._last[parts] = np.maximum(self._last[parts], arrays["last"])
        ids = arrays["ids"]
        self._ids[0], self._ids[1] = min(self._ids[0], ids[0]), max(self._ids[1], ids[1])
        self._below += (int(arrays["below"][0]) << 32) + int(arrays["below"][1])

    def narrowed(self, begins: int) -> tuple[RankWindow, int]:
        """Return the part of the window in which the tail ends, and how many records it has.

        If the tail holds all records, it is the part of the most important ones.

        Args:
            begins: The first threshold, in units, that is not in the tail.

        Raises:
            ValueError: if so many records have one id that the window cannot become narrower.
        """
        parts = np.flatnonzero(self._numbers)[::-1]  # from the least important up
        if not parts.size:
            return self.window, 0
        ends = np.cumsum(self._sums[parts])
        at = min(int(np.searchsorted(ends, begins - self._below)), parts.size - 1)
        part = parts[at]
        number, ends_there = int(self._numbers[part]), (int(self._first[part]), int(self._last[part]))
        if self.window.tied:
            if ends_there[0] == ends_there[1] and number > 1:
                raise ValueError("ids must differ: two records with one id have no fixed order")
            return RankWindow(self.window.keys, ends_there), number
        tied = ends_there[0] == ends_there[1]
        return RankWindow(ends_there, (int(self._ids[0]), int(self._ids[1])) if tied else _ALL), number


@dataclass(frozen=True)
class PassTask:
    """What a pass over the records does: count in a window of ranks, or make the sum with it. NOT PRIVATE.

    Attributes:
        number: The number of the pass, from 0 on.
        window: The window.
        counting: Whether records are counted.
    """

    number: int
    window: RankWindow
    counting: bool


def needs_passes(tail: Tail, order: Order, sensitivities: np.ndarray, records: float) -> bool:
    """Return whether a tail is a hard one that may hold too many records for memory; a function of public numbers."""
    if not (isinstance(tail, HardTail) and order.scores_decide):
        return False
    return min(tail.length / float(sensitivities.min()), records) > HELD


def sum_in_passes(begins: int, read: Callable[[PassTask], Any]) -> Any:
    """Return the sum that the last of several passes over the same records makes.

    Args:
        begins: The first threshold, in units, that is not in the tail.
        read: Takes what a pass does, and returns the `RankCounts` or the sum of all records.
    """
    window, number = RankWindow(), 0
    while True:
        window, records = read(PassTask(number, window, counting=True)).narrowed(begins)
        number += 1
        if records <= HELD:
            return read(PassTask(number, window, counting=False))
