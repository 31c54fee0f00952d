"""What was charged: stretches of steps, and who pays which rate and multiplier."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

import numpy as np

from inosgm.ledger.cost import Cost
from inosgm.ledger.journal import Row

if TYPE_CHECKING:
    from inosgm.accounting import Segment


Step = tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]
"""What a step costs an owner: a sample rate and a noise multiplier, or those of the owner's menu."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One row of the history: which steps of which job were paid for, and when.

    `spans` holds half-open stretches of step numbers; `cost` identifies the per-owner rates and multipliers.
    """

    job: str
    fingerprint: str
    note: str
    time: str
    spans: tuple[tuple[int, int], ...]
    cost: str

    @property
    def steps(self) -> int:
        """How many steps the charge pays for."""
        return length(self.spans)


@dataclass(frozen=True, eq=False)
class Table:
    """The distinct (rate, multiplier) pairs, or menus of them, of a cost, and which each owner pays (-1: none).

    Rates and multipliers have one entry per pair, or one row per menu.
    """

    sample_rates: np.ndarray
    noise_multipliers: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, cost: Cost, position: np.ndarray) -> Self:
        """Group a cost: the same for equal costs, in whatever order their owners come."""
        shape, owners = cost.sample_rates.shape[1:], len(cost.labels)
        pairs = np.concatenate([cost.sample_rates.reshape(owners, -1), cost.noise_multipliers.reshape(owners, -1)], 1)
        order = np.lexsort(pairs.T)
        starts = np.concatenate([[True], np.any(np.diff(pairs[order], axis=0) != 0, axis=1)])
        group = np.full(int(position.max()) + 1, -1)  # owners who join the ledger later do not change it
        group[position[order]] = np.cumsum(starts) - 1
        rates, multipliers = np.split(pairs[order[starts]], 2, axis=1)
        return cls(rates.reshape(-1, *shape), multipliers.reshape(-1, *shape), group)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the table that a row of the journal holds."""
        return cls(
            np.asarray(row["sample_rates"]),
            np.asarray(row["noise_multipliers"]),
            np.asarray(row["group_of_owner"]),
        )

    def to_row(self) -> Row:
        """Return the table as a row of the journal holds it."""
        return {
            "sample_rates": self.sample_rates.tolist(),
            "noise_multipliers": self.noise_multipliers.tolist(),
            "group_of_owner": self.group.tolist(),
        }

    def digest(self) -> str:
        """Return a digest of the numbers, by which equal tables are found."""
        state = blake2b(digest_size=16)
        if self.sample_rates.ndim > 1:
            state.update(f"menus of {self.sample_rates.shape[1]}".encode())
        for array in (self.sample_rates, self.noise_multipliers, self.group):
            state.update(array.size.to_bytes(8, "big") + array.astype("<f8").tobytes())
        return state.hexdigest()

    def segment(self, steps: int, owners: int, where: list[int]) -> "Segment":
        """Return the cost of some steps, for the owners at these positions; a rate of 0 for who does not pay."""
        from inosgm.accounting import Segment  # scipy takes its time, and who only writes costs down needs none of it

        group, idle = self.groups(owners)[where], (1, *self.sample_rates.shape[1:])
        rates = np.concatenate([self.sample_rates, np.zeros(idle)])
        multipliers = np.concatenate([self.noise_multipliers, np.ones(idle)])
        return Segment(rates[group], multipliers[group], np.full(len(where), steps))

    def step(self, group: int) -> Step:
        """Return what a step costs the owners of a group: a rate and a multiplier, or those of their menu.

        What costs nothing, or is there twice, is left out of a menu; one that has one entry left is that entry.
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
class Job:
    """What a job was charged with.

    Attributes:
        cost: The digest of what a step costs.
        fingerprint: Stands for data, configuration and code.
        spans: The steps that are paid, in order.
        charged: The steps that were ever charged, in order: those that were undone are among them.
        sums: By step, the sum that its noise was added to.
        coins: By step, the coins that were tossed before the charge.
    """

    cost: str
    fingerprint: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    charged: list[tuple[int, int]] = field(default_factory=list)
    sums: dict[int, str] = field(default_factory=dict)
    coins: dict[int, str] = field(default_factory=dict)


def uncovered(start: int, stop: int, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of [start, stop) outside of the disjoint, sorted spans."""
    parts = []
    for begin, end in spans:
        if begin >= stop:
            break
        if start < begin:
            parts.append((start, begin))
        start = max(start, end)
    return [*parts, (start, stop)] if start < stop else parts


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what spans cover as disjoint spans in order, with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and joined[-1][1] >= start:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def length(spans: Iterable[tuple[int, int]]) -> int:
    """Return how many steps spans hold."""
    return sum(stop - start for start, stop in spans)
