"""Units of several records: which records of a unit take part in a step, and how they make one vector and one score."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import array_api_compat
import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import unit_draw_secret
from inosgm._internal.validate import Array
from inosgm.mechanism.contributions import Contributions
from inosgm.mechanism.hashed_sampling import siphash
from inosgm.mechanism.weights import checked_scores

UnitScore = Callable[[np.ndarray], Any]
"""The scores of the records of ONE unit -> the score of the unit."""

_QUICK: dict[Any, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    np.mean: lambda scores, starts: np.add.reduceat(scores, starts) / np.diff(starts, append=scores.size),
    np.max: np.maximum.reduceat,
    np.min: np.minimum.reduceat,
    np.sum: np.add.reduceat,
}
"""Scores that are computed for all units at once; any other one is called for each unit."""


@dataclass(frozen=True, kw_only=True, repr=False)
class UnitRule(ABC):
    """How the records of a unit make one contribution and one score.

    **Guarantee.** Contribution and score of a unit depend on the records of that unit, and on coins of its own, which
    choose `records_per_unit` of them anew in every step. They never depend on other units, so the proof of INO-SGM
    holds with units in the place of records. The combined vector is clipped to C, whatever the number of records.

    Args:
        records_per_unit: The largest number of records of a unit that take part in a step; all if not given. It limits
            the time of a step, not the privacy.
        score: A function of the scores of the records of one unit, such as `np.mean` or `np.max`.

    Raises:
        ValueError: for a number below 1.
        TypeError: for a score that is no function.
    """

    records_per_unit: int | None = None
    score: UnitScore = np.mean

    def __post_init__(self) -> None:
        if self.records_per_unit is not None:
            most = _validate.count("records_per_unit", self.records_per_unit, least=1)
            object.__setattr__(self, "records_per_unit", most)
        if not callable(self.score):
            raise TypeError(f"score must be a function of the scores of one unit, such as np.max, got {self.score!r}")

    def __repr__(self) -> str:
        score = getattr(self.score, "__name__", type(self.score).__name__)
        return f"{type(self).__name__}(records_per_unit={self.records_per_unit}, score={score})"

    @abstractmethod
    def shares(self, counts: np.ndarray) -> np.ndarray:
        """Return the factor of each record of a unit, given how many records of each unit take part."""


@dataclass(frozen=True, kw_only=True, repr=False)
class UnitMean(UnitRule):
    """The contribution of a unit is the mean of those of its records.

    >>> UnitMean(records_per_unit=8, score=np.max).shares(np.array([1, 4]))
    array([1.  , 0.25])
    """

    def shares(self, counts: np.ndarray) -> np.ndarray:
        """Return 1 / count."""
        return 1 / counts


@dataclass(frozen=True, kw_only=True, repr=False)
class UnitSum(UnitRule):
    """The contribution of a unit is the sum of those of its records.

    >>> UnitSum().shares(np.array([1, 4]))
    array([1., 1.])
    """

    def shares(self, counts: np.ndarray) -> np.ndarray:
        """Return ones."""
        return np.ones(counts.size)


@runtime_checkable
class Combinable(Contributions, Protocol):
    """Contributions of records that can be put together to contributions of units."""

    def combined(self, groups: np.ndarray, shares: np.ndarray) -> Contributions:
        """Return one vector per unit: share times the sum of the vectors of its records.

        Args:
            groups: The unit of each record, from 0, ascending and without gaps.
            shares: The factor of each unit.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordsOfUnits:
    """The records of the units of a batch that take part in a step.

    Attributes:
        positions: Their positions in the data, unit by unit.
        groups: The place of the unit of each record in the batch, ascending and without gaps.
        rule: How they are combined.
    """

    positions: np.ndarray
    groups: np.ndarray
    rule: UnitRule

    @property
    def starts(self) -> np.ndarray:
        """The place of the first record of each unit."""
        return np.flatnonzero(np.diff(self.groups, prepend=-1))

    @property
    def counts(self) -> np.ndarray:
        """The number of records of each unit."""
        return np.bincount(self.groups)

    @property
    def shares(self) -> np.ndarray:
        """The factor of the records of each unit."""
        return self.rule.shares(self.counts)

    def with_views(self, views: int) -> "RecordsOfUnits":
        """Return the same units with every record several times in a row."""
        positions, groups = (np.repeat(values, views) for values in (self.positions, self.groups))
        return replace(self, positions=positions, groups=groups)

    def unscored(self) -> "RecordsOfUnits":
        """Return the same units without the function that scores them, which need not be sent to other processes."""
        return replace(self, rule=replace(self.rule, score=np.mean))

    def of_units(self, begin: int, end: int) -> "RecordsOfUnits":
        """Return the records of the units from one place to another."""
        first, last = np.searchsorted(self.groups, [begin, end]).tolist()
        return replace(self, positions=self.positions[first:last], groups=self.groups[first:last] - begin)

    def parts(self, most: int | None) -> list["RecordsOfUnits"]:
        """Cut a batch into stretches of whole units with at most so many records; an empty batch has none.

        Raises:
            ValueError: for a unit with more records.
        """
        ends = np.cumsum(self.counts)
        if not ends.size or most is None:
            return [self] * bool(ends.size)
        cuts = [0]
        while cuts[-1] < ends.size:
            done = ends[cuts[-1] - 1] if cuts[-1] else 0
            cut = int(np.searchsorted(ends, done + most, side="right"))
            if cut == cuts[-1]:
                raise ValueError(f"records_per_unit must be at most {most}, so that no part of a batch splits a unit")
            cuts.append(cut)
        return [self.of_units(begin, end) for begin, end in pairwise(cuts)]

    def contributions(self, contributions: Contributions) -> Contributions:
        """Return the contributions of the units, given those of the records.

        Raises:
            TypeError: for contributions that cannot be put together.
        """
        if not isinstance(contributions, Combinable):
            raise TypeError(
                f"contributions must be an array or have `combined`, to be put together to units, got "
                f"{type(contributions).__name__}"
            )
        return contributions.combined(self.groups, self.shares)

    def scores(self, scores: Array) -> Array:
        """Return the scores of the units, where the scores of the records are.

        A unit with a score that is no number has none, and comes last in the order, as a record would.

        Raises:
            ValueError: for a score that is not one number per unit.
        """
        xp, scores = checked_scores(scores)
        values = np.asarray(array_api_compat.to_device(scores, "cpu"), dtype=np.float64)
        if values.size != self.groups.size:
            raise ValueError("contributions and scores must pair up: one of each for every record of a batch")
        if not values.size:
            return scores
        quick, starts = _QUICK.get(self.rule.score), self.starts
        if quick is not None:
            found = np.asarray(quick(values, starts))
        else:
            each = [self.rule.score(some.copy()) for some in np.split(values, starts[1:])]
            found = _validate.numeric("score of a unit", each).astype(np.float64)
            if found.shape != starts.shape:
                raise ValueError("score must give one number for the records of a unit")
        return xp.asarray(found, device=array_api_compat.device(scores))


class UnitIndex:
    """The records of every unit.

    Args:
        unit_of_record: The position of the unit of each record; every unit has a record.
        rule: How the records of a unit are combined, and how many of them take part.

    >>> index = UnitIndex(np.array([1, 0, 1, 1]), UnitMean(records_per_unit=2))
    >>> index.drawn(np.array([0, 1]), step=0, secret=7).groups
    array([0, 1, 1])
    """

    def __init__(self, unit_of_record: np.ndarray, rule: UnitRule) -> None:
        self._records = np.argsort(unit_of_record, kind="stable")
        self._counts = np.bincount(unit_of_record)
        self._starts = np.cumsum(self._counts) - self._counts
        self.rule, self.size, self.of_record = rule, unit_of_record.size, unit_of_record

    def drawn(self, units: np.ndarray, step: int, secret: int) -> RecordsOfUnits:
        """Return the records of some units that take part in a step.

        Args:
            units: The positions of the units, ascending.
            step: The step.
            secret: What nobody knows who sees the release: which records are chosen follows from it.
        """
        positions, groups = self.every(units)
        most = self.rule.records_per_unit
        if most is not None and groups.size and np.bincount(groups).max() > most:
            kept = lowest_of_each(groups, siphash(unit_draw_secret(secret, step), positions), most)
            positions, groups = positions[kept], groups[kept]
        return RecordsOfUnits(positions=positions, groups=groups, rule=self.rule)

    def every(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of all records of some units, unit by unit, and the place of the unit of each."""
        counts = self._counts[units]
        groups = np.repeat(np.arange(units.size), counts)
        begins = np.repeat(self._starts[units] - (np.cumsum(counts) - counts), counts)
        return self._records[np.arange(groups.size) + begins], groups


def lowest_of_each(groups: np.ndarray, hashes: np.ndarray, most: int) -> np.ndarray:
    """Return whether each entry is among the `most` lowest hashes of its group; equal hashes go by place.

    >>> lowest_of_each(np.array([0, 0, 0, 1]), np.array([5, 3, 4, 9]), 2)
    array([False,  True,  True,  True])
    """
    order = np.lexsort((hashes, groups))
    sorted_groups = groups[order]
    begins = np.flatnonzero(np.diff(sorted_groups, prepend=sorted_groups[:1] - 1))
    ranks = np.arange(groups.size) - np.repeat(begins, np.diff(begins, append=groups.size))
    kept = np.empty(groups.size, dtype=np.bool_)
    kept[order] = ranks < most
    return kept
