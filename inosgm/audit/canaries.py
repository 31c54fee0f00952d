"""Canaries: the worst record that an owner can add to a batch, and the worst batch to add it to."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import array_api_compat
import numpy as np

from inosgm._internal.trees import tree_leaves
from inosgm.audit.sum_attacks import OnData, climb
from inosgm.mechanism.inspection import ORDER_SECRET, Inspection
from inosgm.mechanism.record_filter import Filter

LONG = 1e6
"""Contributions are that many times as long as the longest that count in full, so that clipping is met, too."""

MOST = 2048
"""In larger batches all contributions point the same way; in others, each where it does the most harm."""

EVALUATIONS = 500
"""How many pairs of batches of real records are tried."""

LARGEST = 1 << 15
"""No made-up batch has more records."""

_SIZES = (17, 33, 130)  # an unstable sort permutes ties of 17 records and more


class Canary(ABC):
    """A record of an owner, and a batch that draws it or does not.

    Attributes:
        name: What it is called.
        moves: By how much the sums of the first step differ between the two worlds.
    """

    name: str
    moves: float

    @abstractmethod
    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sums of a batch that has not drawn the record, and of one that has, in both worlds. NOT PRIVATE.

        They are measured along the direction in which the worlds differ: the last sum is the greatest.
        """

    def most(self, steps: Sequence[int]) -> float:
        """Return by how much the sums of one of some steps differ at most."""
        return max(up - down for _, down, up in map(self.worlds, steps))


class Added(Canary):
    """A canary that is in the data of one world, and in the other not, so that there is nothing to draw."""

    _worlds: tuple[Filter | None, Filter | None] = (None, None)
    _passed: list[tuple[float, float]]

    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sums without the record, twice, and with it. NOT PRIVATE."""
        without, with_record = self.sums(step)
        return without, without, with_record

    def sums(self, step: int) -> tuple[float, float]:
        """Return the sums without and with the record, along the direction in which they differ. NOT PRIVATE.

        Where records pay for themselves, the steps before are made first, without the record and with it.
        """
        if self._worlds == (None, None):
            return self._sums(step)
        while len(self._passed) <= step:
            self._passed.append(self._sums(len(self._passed)))
            for records in self._worlds:
                if records is not None:
                    records.settle()
        return self._passed[step]

    @abstractmethod
    def _sums(self, step: int) -> tuple[float, float]:
        """Return the sums of a step, given what records have spent before."""

    def _begin(self, mechanism: Inspection, owners: np.ndarray) -> None:
        """Let nobody have spent anything."""
        self._worlds = mechanism.new_filter(owners), mechanism.new_filter(owners)
        self._passed = []


C = TypeVar("C", bound=Canary)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    """Made-up records: owners as positions in the plan, scores, and which of them is the added one."""

    owners: np.ndarray
    scores: np.ndarray
    added: int

    @property
    def others(self) -> np.ndarray:
        return np.delete(np.arange(self.owners.size), self.added)


def flat(total: Any) -> np.ndarray:
    """Return all numbers of a sum as one float64 vector."""
    leaves = [
        leaf.detach().cpu().numpy() if array_api_compat.is_torch_array(leaf) else leaf for leaf in tree_leaves(total)
    ]
    return np.concatenate([np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves])


class MadeUp(Added):
    """A made-up record among made-up records: what they contribute is turned so that all changes add up.

    With orthogonal contributions the sums show by how much the weight of each record changes; the signs of the
    changes are the directions in which they add up.

    Args:
        name: What it is called.
        mechanism: Whose sums are attacked.
        table: The records.
        empty: Whether the added record contributes nothing itself.
    """

    def __init__(self, name: str, mechanism: Inspection, table: _Table, *, empty: bool = False) -> None:
        self.name, self._mechanism, self._table = name, mechanism, table
        self._begin(mechanism, table.owners)
        lengths = LONG * (1 + mechanism.plan.sensitivities[table.owners])
        lengths[table.added] *= not empty
        signs = np.ones(lengths.size)
        if lengths.size <= MOST:
            without, with_record = self._totals(np.diag(lengths), 0)
            signs[with_record < without] = -1.0
        self._rows = (signs * lengths)[:, None]
        self._begin(mechanism, table.owners)
        self.moves = float(np.subtract(*self.sums(0)[::-1]))

    def _sums(self, step: int) -> tuple[float, float]:
        """Return the sums without and with the record."""
        (without,), (with_record,) = self._totals(self._rows, step)
        return (without, with_record) if with_record >= without else (-without, -with_record)

    def _totals(self, rows: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        everyone = np.arange(self._table.owners.size)
        synthetic = partial(self._mechanism.synthetic_sum, rows, self._table.scores, self._table.owners, step=step)
        without, with_record = (
            flat(synthetic(part, records=records))
            for part, records in zip((self._table.others, everyone), self._worlds, strict=True)
        )
        return without, with_record


class Found(Added):
    """The worst pair of batches of real records that a search finds, through the mechanism's own two methods."""

    name = "worst record of the data"

    def __init__(self, mechanism: Inspection, data: Any, place: int, seed: int) -> None:
        self._mechanism, self._data = mechanism, data
        _, evidence = climb(_OfOwner(mechanism, data, place), EVALUATIONS, np.random.default_rng(seed))
        self._rows = evidence["with_record"]["positions"]
        self._others = evidence["without_record"]["positions"]
        self._begin(mechanism, mechanism.owners)
        self.moves = float(np.subtract(*self.sums(0)[::-1]))

    def _sums(self, step: int) -> tuple[float, float]:
        """Return the sums without and with the record."""
        batches = [self._others, self._rows]
        without, with_record = map(flat, self._mechanism.sums(self._data, batches, step, self._worlds))
        length = float(np.linalg.norm(with_record - without))
        direction = (with_record - without) / (length or 1.0)
        start = float(without @ direction)
        return start, start + length


class _OfOwner(OnData):
    """Batches of real records to which a record of one owner is added."""

    def __init__(self, mechanism: Inspection, data: Any, place: int) -> None:
        super().__init__(mechanism, data)
        self._own = np.flatnonzero(mechanism.owners == place)

    def start(self, generator: np.random.Generator) -> tuple[np.ndarray, int]:
        rows, _ = super().start(generator)
        added = int(generator.choice(self._own))
        return np.union1d(rows, [added]), added

    def move(self, state: tuple[np.ndarray, int], generator: np.random.Generator) -> tuple[np.ndarray, int]:
        rows, added = state
        if generator.random() < 0.25:
            added = int(generator.choice(self._own))
            return np.union1d(rows, [added]), added
        while True:
            rows, other = super().move(state, generator)
            if other == added:
                return rows, added


def canaries_of(made: Callable[..., C], mechanism: Inspection, place: int) -> list[C]:
    """Return the worst canaries of each kind for an owner, given by its place in the plan.

    Top-ranked: counts in full itself. Displacement: contributes nothing, ranks lowest, and moves all others. Tied: has
    the score of all others, with the first, a middle or the last id. Small among large: its owner has a small
    sensitivity, the others the largest.
    """
    found = [
        _worst(made, "top-ranked", mechanism, _ranked(mechanism, place, place, best=True)),
        _worst(made, "displacement", mechanism, _ranked(mechanism, place, place, best=False), empty=True),
    ]
    for name, share in (("first", 0.0), ("middle", 0.5), ("last", 1.0)):
        found.append(_worst(made, f"tied, {name} id", mechanism, _tied(mechanism, place, share)))
    sensitivities = mechanism.plan.sensitivities
    largest = int(np.argmax(sensitivities))
    if sensitivities[largest] > sensitivities[place]:
        tables = [table for best in (False, True) for table in _ranked(mechanism, place, largest, best=best)]
        found.append(_worst(made, "small among large", mechanism, tables))
    return found


def _worst(
    made: Callable[..., C], name: str, mechanism: Inspection, tables: Sequence[_Table], *, empty: bool = False
) -> C:
    return max((made(name, mechanism, table, empty=empty) for table in tables), key=lambda canary: canary.moves)


def _ranked(mechanism: Inspection, place: int, around: int, *, best: bool) -> list[_Table]:
    """Return batches in which the added record ranks first or last, whatever the order goes by."""
    return [_placed(mechanism, place, around, size, best=best) for size in _sizes(mechanism, place, around)]


def _placed(mechanism: Inspection, place: int, around: int, size: int, *, best: bool) -> _Table:
    """Try scores and ids for the added record, and keep those with the rank that is looked for."""
    order, cost = mechanism.order.at(0, ORDER_SECRET), mechanism.plan.step_cost
    ids = np.arange(size)
    tables: list[tuple[int, _Table]] = []
    by_id = order.ranking(np.zeros(size), ids, np.zeros(size))
    for added in {0, size - 1, int(by_id[0]), int(by_id[-1])}:
        owners = np.full(size, around)
        owners[added] = place
        for score in (-1.0, float(size)):
            scores = ids.astype(np.float64)
            scores[added] = score
            rank = int(np.flatnonzero(order.ranking(scores, ids, cost[owners]) == added)[0])
            tables.append((rank, _Table(owners=owners, scores=scores, added=added)))
    return (min if best else max)(tables, key=lambda entry: entry[0])[1]


def _tied(mechanism: Inspection, place: int, share: float) -> list[_Table]:
    largest = int(np.argmax(mechanism.plan.sensitivities))
    return [
        _Table(owners=owners, scores=np.zeros(owners.size), added=added)
        for around in dict.fromkeys((place, largest))
        for owners, added in _among(place, around, _sizes(mechanism, place, around), share)
    ]


def _among(place: int, around: int, sizes: Sequence[int], share: float) -> Iterator[tuple[np.ndarray, int]]:
    for size in sizes:
        owners, added = np.full(size, around), round(share * (size - 1))
        owners[added] = place
        yield owners, added


def _sizes(mechanism: Inspection, place: int, around: int) -> list[int]:
    """Return sizes of batches: some small ones, and those that fill the tail and more."""
    sensitivities = mechanism.plan.sensitivities
    fill = int(np.ceil((mechanism.tail.length + sensitivities[place]) / sensitivities[around])) + 2
    return sorted({*_SIZES, min(fill, LARGEST), min(fill + fill // 2, LARGEST)})
