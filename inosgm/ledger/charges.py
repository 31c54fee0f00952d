"""Charges: which steps of a job are paid for, and the rate and multiplier that each owner pays."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from inosgm.ledger.cost import Cost
from inosgm.ledger.journal import Row

if TYPE_CHECKING:
    from inosgm.accounting import Segment


Step = tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]
"""The cost of a step to an owner: a sample rate and a noise multiplier, or those of the owner's menu."""

MOST_PLAIN_NUMBERS = 10_000
"""Largest number of entries of an array that a row of an adaptive ledger holds as numbers that people can read."""

Spans = Sequence[tuple[int, int]]
"""Half-open intervals of step numbers."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One row of the history: the steps of a job that were paid for, and the time.

    `spans` holds half-open intervals of step numbers; `cost` identifies the per-owner rates and multipliers. `event` is
    the number of the event of an adaptive ledger that has committed to the steps; None in a ledger of costs that are
    fixed in advance, where all charges compose as one. `by` names the user, the host and the program that have charged;
    "" in such a ledger.
    """

    job: str
    fingerprint: str
    note: str
    time: str
    spans: tuple[tuple[int, int], ...]
    cost: str
    event: int | None = None
    by: str = ""

    @property
    def steps(self) -> int:
        """Number of steps that the charge pays for."""
        return length(self.spans)


@dataclass(frozen=True, eq=False)
class CostTable:
    """The distinct (rate, multiplier) pairs, or menus of them, of a cost, and which each owner pays (-1: none).

    Rates and multipliers have one entry per pair, or one row per menu.
    """

    sample_rates: np.ndarray
    noise_multipliers: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, cost: Cost, position: np.ndarray) -> Self:
        """Return the table of a cost; it does not depend on the order of the owners."""
        shape, owners = cost.sample_rates.shape[1:], len(cost.labels)
        pairs = np.concatenate([cost.sample_rates.reshape(owners, -1), cost.noise_multipliers.reshape(owners, -1)], 1)
        order = np.lexsort(pairs.T)
        starts = np.concatenate([[True], np.any(np.diff(pairs[order], axis=0) != 0, axis=1)])
        group = np.full(int(position.max()) + 1, -1)  # as short as possible: owners that join later do not change it
        group[position[order]] = np.cumsum(starts) - 1
        rates, multipliers = np.split(pairs[order[starts]], 2, axis=1)
        return cls(rates.reshape(-1, *shape), multipliers.reshape(-1, *shape), group)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the table that a row of the journal holds."""
        return cls(*(_unpacked(row[name]) for name in ("sample_rates", "noise_multipliers", "group_of_owner")))

    def to_row(self, *, packed: bool = False) -> Row:
        """Return the table as a row of the journal holds it; if `packed`, with long arrays as text of their bytes."""
        arrays = {
            "sample_rates": self.sample_rates,
            "noise_multipliers": self.noise_multipliers,
            "group_of_owner": self.group,
        }
        return {name: _packed(array) if packed else array.tolist() for name, array in arrays.items()}

    def digest(self) -> str:
        """Return a digest of the numbers, equal for equal tables."""
        state = blake2b(digest_size=16)
        if self.sample_rates.ndim > 1:
            state.update(f"menus of {self.sample_rates.shape[1]}".encode())
        for array in (self.sample_rates, self.noise_multipliers, self.group):
            state.update(array.size.to_bytes(8, "big") + array.astype("<f8").tobytes())
        return state.hexdigest()

    def segment(self, steps: int, owners: int, where: list[int]) -> "Segment":
        """Return the cost of some steps for the owners at these positions; owners that do not pay have a rate of 0."""
        from inosgm.accounting import Segment  # scipy is slow to import, and charging a cost does not need it

        group, idle = self.groups(owners)[where], (1, *self.sample_rates.shape[1:])
        rates = np.concatenate([self.sample_rates, np.zeros(idle)])
        multipliers = np.concatenate([self.noise_multipliers, np.ones(idle)])
        return Segment(rates[group], multipliers[group], np.full(len(where), steps))

    def step(self, group: int) -> Step:
        """Return the cost of a step to the owners of a group: a rate and a multiplier, or those of their menu.

        Repeated entries, and entries that cost nothing, are left out of a menu. A menu with one entry left is that
        entry.
        """
        rates, multipliers = self.sample_rates[group].tolist(), self.noise_multipliers[group].tolist()
        if self.sample_rates.ndim == 1:
            return rates, multipliers
        menu = sorted({pair for pair in zip(rates, multipliers, strict=True) if pair[0] > 0})
        if len(menu) == 1:
            return menu[0]
        return tuple(rate for rate, _ in menu), tuple(multiplier for _, multiplier in menu)

    def groups(self, owners: int) -> np.ndarray:
        """Return the group of every owner of a ledger; -1 for those that joined after the charge."""
        return np.concatenate([self.group, np.full(owners - self.group.size, -1)])


@dataclass(frozen=True, eq=False)
class ChargedJob:
    """The charges of a job.

    Attributes:
        cost: The digest of the cost of a step.
        fingerprint: Stands for data, configuration and code.
        spans: The steps that are paid, in order.
        charged: The steps that were ever charged, including undone ones, in order.
        sums: By step, a digest of the sum that its noise was added to.
        coins: By step, a digest of the coins that were tossed before the charge.
    """

    cost: str
    fingerprint: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    charged: list[tuple[int, int]] = field(default_factory=list)
    sums: dict[int, str] = field(default_factory=dict)
    coins: dict[int, str] = field(default_factory=dict)


def _packed(array: np.ndarray) -> list[Any] | dict[str, Any]:
    """Return an array for JSON: its numbers, or, if they are many, their bytes in base 64, which is far faster."""
    if array.size <= MOST_PLAIN_NUMBERS:
        return list(array.tolist())
    dtype = "<i8" if array.dtype.kind == "i" else "<f8"
    return {"dtype": dtype, "shape": list(array.shape), "base64": b64encode(array.astype(dtype).tobytes()).decode()}


def _unpacked(values: list[Any] | dict[str, Any]) -> np.ndarray:
    """Return the array of which `_packed` returned this."""
    if not isinstance(values, dict):
        return np.asarray(values)
    return np.frombuffer(b64decode(values["base64"]), dtype=values["dtype"]).reshape(values["shape"])


def uncovered(start: int, stop: int, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the intervals of [start, stop) outside of the disjoint, sorted spans."""
    gaps = []
    for begin, end in spans:
        if begin >= stop:
            break
        if start < begin:
            gaps.append((start, begin))
        start = max(start, end)
    return [*gaps, (start, stop)] if start < stop else gaps


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of spans as disjoint spans in order, with adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and joined[-1][1] >= start:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def length(spans: Iterable[tuple[int, int]]) -> int:
    """Return the number of steps in spans."""
    return sum(stop - start for start, stop in spans)
