"""What was charged: stretches of steps, and who pays which rate and multiplier."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

import numpy as np

from inosgm._journal import Row
from inosgm.cost import Cost

if TYPE_CHECKING:
    from inosgm.accounting import Segment


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
        return sum(stop - start for start, stop in self.spans)


@dataclass(frozen=True, eq=False)
class Table:
    """The distinct (rate, multiplier) pairs of a cost, and which of them each owner pays (-1: none)."""

    sample_rates: np.ndarray
    noise_multipliers: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, cost: Cost, position: np.ndarray) -> Self:
        """Group a cost: the same for equal costs, in whatever order their owners come."""
        pairs = np.stack([cost.sample_rates, cost.noise_multipliers], axis=1)
        order = np.lexsort(pairs.T)
        starts = np.concatenate([[True], np.any(np.diff(pairs[order], axis=0) != 0, axis=1)])
        group = np.full(int(position.max()) + 1, -1)  # owners who join the ledger later do not change it
        group[position[order]] = np.cumsum(starts) - 1
        distinct = pairs[order[starts]]
        return cls(distinct[:, 0], distinct[:, 1], group)

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            np.asarray(row["sample_rates"]),
            np.asarray(row["noise_multipliers"]),
            np.asarray(row["group_of_owner"]),
        )

    def to_row(self) -> Row:
        return {
            "sample_rates": self.sample_rates.tolist(),
            "noise_multipliers": self.noise_multipliers.tolist(),
            "group_of_owner": self.group.tolist(),
        }

    def digest(self) -> str:
        state = blake2b(digest_size=16)
        for array in (self.sample_rates, self.noise_multipliers, self.group):
            state.update(array.size.to_bytes(8, "big") + array.astype("<f8").tobytes())
        return state.hexdigest()

    def segment(self, steps: int, owners: int, where: list[int]) -> "Segment":
        """Return the cost of some steps, for the owners at these positions; a rate of 0 for who does not pay."""
        from inosgm.accounting import Segment  # scipy takes its time, and who only writes costs down needs none of it

        group = self.groups(owners)[where]
        rates, multipliers = np.append(self.sample_rates, 0.0), np.append(self.noise_multipliers, 1.0)
        return Segment(rates[group], multipliers[group], np.full(len(where), steps))

    def groups(self, owners: int) -> np.ndarray:
        return np.concatenate([self.group, np.full(owners - self.group.size, -1)])


@dataclass(frozen=True, eq=False)
class Job:
    """What a job was charged with, the steps that are paid, in order, and the sums that its noise was added to."""

    cost: str
    fingerprint: str
    spans: list[tuple[int, int]]
    sums: dict[int, str]


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
    """Return disjoint spans in order, with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], stop
        else:
            joined.append((start, stop))
    return joined
