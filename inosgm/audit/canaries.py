"""Canaries: the worst record that an owner can add to a batch, and the worst batch to add it to."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import array_api_compat
import numpy as np

from inosgm._internal.trees import tree_leaves
from inosgm.audit.sum_attacks import DataPairs, climb
from inosgm.mechanism.inspection import ORDER_SECRET, Inspection
from inosgm.mechanism.record_filter import Filter

LONG = 1e6
"""Contributions are this many times longer than the clipping bound, so that clipping is tested as well."""

LARGEST_DIRECTED = 2048
"""Largest batch whose worst directions are computed, which takes a matrix of its size squared; in larger ones all
contributions point the same way."""

EVALUATIONS = 500
"""Number of pairs of batches of real records that are tried: a search of seconds."""

LARGEST_BATCH = 1 << 15
"""Largest number of records in a synthetic batch: a sum of more takes seconds."""

_SIZES = (17, 33, 130)  # an unstable sort permutes ties of 17 records and more


class Canary(ABC):
    """A record of an owner, and a batch that draws it or does not.

    Attributes:
        name: Its name in tables.
        moves: The distance between the sums of the first step in the two worlds.
    """

    name: str
    moves: float

    @abstractmethod
    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sum of a batch without the record, and the sums of one with it in both worlds. NOT PRIVATE.

        They are measured along the direction in which the worlds differ: the last sum is the largest.
        """

    def most(self, steps: Sequence[int]) -> float:
        """Return the largest distance between the sums of the two worlds over some steps."""
        return max(up - down for _, down, up in map(self.worlds, steps))


class AddedCanary(Canary):
    """A canary that is in the data of one world only, so that the other world has nothing to draw."""

    _worlds: tuple[Filter | None, Filter | None] = (None, None)
    _passed: list[tuple[float, float]]

    def worlds(self, step: int) -> tuple[float, float, float]:
        """Return the sums without the record, twice, and with it. NOT PRIVATE."""
        without, with_record = self.sums(step)
        return without, without, with_record

    def sums(self, step: int) -> tuple[float, float]:
        """Return the sums without and with the record, along the direction in which they differ. NOT PRIVATE.

        With individual accounting, the earlier steps are computed first, without the record and with it.
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
        """Return the sums of a step, given the earlier costs of records."""

    def _begin(self, mechanism: Inspection, owners: np.ndarray) -> None:
        """Reset the costs of all records to 0."""
        self._worlds = mechanism.new_filter(owners), mechanism.new_filter(owners)
        self._passed = []


C = TypeVar("C", bound=Canary)


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticTable:
    """Synthetic records: owners as positions in the plan, scores, and the position of the added record."""

    owners: np.ndarray
    scores: np.ndarray
    added: int

    @property
    def others(self) -> np.ndarray:
        """The positions of all records but the added one."""
        return np.delete(np.arange(self.owners.size), self.added)


def flat(total: Any) -> np.ndarray:
    """Return all numbers of a sum as one float64 vector."""
    leaves = [
        leaf.detach().cpu().numpy() if array_api_compat.is_torch_array(leaf) else leaf for leaf in tree_leaves(total)
    ]
    return np.concatenate([np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves])


class SyntheticCanary(AddedCanary):
    """A synthetic record among synthetic records, whose contributions are directed so that all changes add up.

    With orthogonal contributions, the sums show the change of the weight of each record; the signs of the changes are
    the directions in which they add up.

    Args:
        name: Its name in tables.
        mechanism: The attacked mechanism.
        table: The records.
        empty: Whether the added record contributes nothing itself.
    """

    def __init__(self, name: str, mechanism: Inspection, table: SyntheticTable, *, empty: bool = False) -> None:
        self.name, self._mechanism, self._table = name, mechanism, table
        self._begin(mechanism, table.owners)
        lengths = LONG * (1 + mechanism.plan.sensitivities[table.owners])
        lengths[table.added] *= not empty
        signs = np.ones(lengths.size)
        if lengths.size <= LARGEST_DIRECTED:
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


class DataCanary(AddedCanary):
    """The worst pair of batches of real records that a search finds, through the mechanism's own two methods."""

    name = "worst record of the data"

    def __init__(self, mechanism: Inspection, data: Any, owner_index: int, seed: int) -> None:
        self._mechanism, self._data = mechanism, data
        _, evidence = climb(_OwnerPairs(mechanism, data, owner_index), EVALUATIONS, np.random.default_rng(seed))
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


class _OwnerPairs(DataPairs):
    """Batches of real records to which a record of one owner is added."""

    def __init__(self, mechanism: Inspection, data: Any, owner_index: int) -> None:
        super().__init__(mechanism, data)
        self._own = np.flatnonzero(mechanism.owners == owner_index)

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


def canaries_of(made: Callable[..., C], mechanism: Inspection, owner_index: int) -> list[C]:
    """Return the worst canary of each kind for an owner, given by its position in the plan.

    Top-ranked: it has full weight itself. Displacement: it contributes nothing, ranks lowest, and changes the weights
    of all others. Tied: it has the score of all others, with the first, a middle or the last id. Small among large: its
    owner has a small sensitivity, the others have the largest.
    """
    canaries = [
        _worst(made, "top-ranked", mechanism, _ranked(mechanism, owner_index, owner_index, best=True)),
        _worst(made, "displacement", mechanism, _ranked(mechanism, owner_index, owner_index, best=False), empty=True),
    ]
    for name, share in (("first", 0.0), ("middle", 0.5), ("last", 1.0)):
        canaries.append(_worst(made, f"tied, {name} id", mechanism, _tied(mechanism, owner_index, share)))
    sensitivities = mechanism.plan.sensitivities
    largest = int(np.argmax(sensitivities))
    if sensitivities[largest] > sensitivities[owner_index]:
        tables = [table for best in (False, True) for table in _ranked(mechanism, owner_index, largest, best=best)]
        canaries.append(_worst(made, "small among large", mechanism, tables))
    return canaries


def _worst(
    made: Callable[..., C], name: str, mechanism: Inspection, tables: Sequence[SyntheticTable], *, empty: bool = False
) -> C:
    return max((made(name, mechanism, table, empty=empty) for table in tables), key=lambda canary: canary.moves)


def _ranked(mechanism: Inspection, owner_index: int, around: int, *, best: bool) -> list[SyntheticTable]:
    """Return batches in which the added record ranks first or last under the order of the mechanism."""
    return [
        _best_ranked(mechanism, owner_index, around, size, best=best) for size in _sizes(mechanism, owner_index, around)
    ]


def _best_ranked(mechanism: Inspection, owner_index: int, around: int, size: int, *, best: bool) -> SyntheticTable:
    """Return the batch with the best or worst rank of the added record among several scores and ids."""
    order, cost = mechanism.order.at(0, ORDER_SECRET), mechanism.plan.step_cost
    ids = np.arange(size)
    tables: list[tuple[int, SyntheticTable]] = []
    by_id = order.ranking(np.zeros(size), ids, np.zeros(size))
    for added in {0, size - 1, int(by_id[0]), int(by_id[-1])}:
        owners = np.full(size, around)
        owners[added] = owner_index
        for score in (-1.0, float(size)):
            scores = ids.astype(np.float64)
            scores[added] = score
            rank = int(np.flatnonzero(order.ranking(scores, ids, cost[owners]) == added)[0])
            tables.append((rank, SyntheticTable(owners=owners, scores=scores, added=added)))
    return (min if best else max)(tables, key=lambda entry: entry[0])[1]


def _tied(mechanism: Inspection, owner_index: int, share: float) -> list[SyntheticTable]:
    largest = int(np.argmax(mechanism.plan.sensitivities))
    return [
        SyntheticTable(owners=owners, scores=np.zeros(owners.size), added=added)
        for around in dict.fromkeys((owner_index, largest))
        for owners, added in _among(owner_index, around, _sizes(mechanism, owner_index, around), share)
    ]


def _among(owner_index: int, around: int, sizes: Sequence[int], share: float) -> Iterator[tuple[np.ndarray, int]]:
    for size in sizes:
        owners, added = np.full(size, around), round(share * (size - 1))
        owners[added] = owner_index
        yield owners, added


def _sizes(mechanism: Inspection, owner_index: int, around: int) -> list[int]:
    """Return sizes of batches: some small ones, and two that more than fill the tail."""
    sensitivities = mechanism.plan.sensitivities
    fill = int(np.ceil((mechanism.tail.length + sensitivities[owner_index]) / sensitivities[around])) + 2
    return sorted({*_SIZES, min(fill, LARGEST_BATCH), min(fill + fill // 2, LARGEST_BATCH)})
