"""Orders: which records of a batch count as more important."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import order_seed
from inosgm._internal.validate import Array

STABLE_SORT_SIZE = 512
"""Largest number of keys that one stable sort handles faster than sort-then-repair."""

_MASK = (1 << 64) - 1


class Order(ABC):
    """A strict total order on records.

    **Guarantee.** Which of two records comes first depends on their own scores, owners and ids only, never on who
    else is in the batch: equal scores go by record id (the smaller id is more important), NaN scores come last.
    Adding or removing a record therefore never rearranges the others.
    """

    scores_decide: ClassVar[bool] = False
    """Whether ids and owners matter only where scores are equal."""

    def at(self, step: int, secret: int) -> "Order":
        """Return the order to use at a step of a mechanism: itself, unless it is drawn anew at every step.

        Args:
            step: The step.
            secret: What nobody knows who sees the release.
        """
        return self

    def ranking(self, scores: Array, ids: Array | None, owners: Array | None) -> Array:
        """Return the positions of the records from the most to the least important.

        Args:
            scores: One float64 per record.
            ids: One distinct integer per record; None stands for ascending ids.
            owners: One number per record, smaller for more private owners; only some orders need it.

        Returns:
            A permutation of 0, ..., n - 1, where the scores are.
        """
        xp = _validate.namespace(scores)
        keys = self._keys(xp, scores, ids, owners)
        ranking = None
        if ids is not None and not (ids[1:] > ids[:-1]).all():
            ranking = xp.argsort(ids, stable=True)
            if bool(xp.any(ids[ranking][1:] == ids[ranking][:-1])):
                raise ValueError("ids must differ: two records with one id have no fixed order")
        for key in reversed(keys):
            by_key = _stable_argsort(xp, key if ranking is None else key[ranking])
            ranking = by_key if ranking is None else ranking[by_key]
        return ranking

    def rankings(self, scores: np.ndarray, ids: np.ndarray, owners: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Return the positions of the records of many batches, each from the most to the least important.

        Args:
            scores: One row per batch, as for `ranking`, like ids and owners; ids ascend in every row.
            ids: One distinct integer per record.
            owners: One number per record.
            there: Whether there is a record at all: batches differ in size, and empty places are ranked first (but
                for scores beyond 1e300).

        Returns:
            A permutation in every row.
        """
        ranking = None
        for key in reversed(self._keys(np, scores, ids, owners)):
            key = np.where(there, key, _first_places(key))
            by_key = _stable_argsorts(key if ranking is None else np.take_along_axis(key, ranking, 1))
            ranking = by_key if ranking is None else np.take_along_axis(ranking, by_key, 1)
        return np.asarray(ranking)

    def deciding(self, scores: np.ndarray, ids: np.ndarray | None, owners: np.ndarray | None) -> np.ndarray:
        """Return the key that decides unless it is equal: the smaller, the more important; a NaN is the least.

        Ids and owners may be left out if `scores_decide`.
        """
        return np.asarray(self._keys(np, scores, ids, owners)[0])

    @abstractmethod
    def _keys(self, xp: Any, scores: Array, ids: Array | None, owners: Array | None) -> list[Array]:
        """Return what to sort by, ascending, the deciding key first."""


def _stable_argsort(xp: Any, key: Array) -> Array:
    """Sort ascending, NaN last, ties as they stand.

    numpy's unstable sort of many keys is several times faster than its stable one, so ties are put right afterwards:
    within a run of equal keys, positions are sorted by sorting run * n + position.
    """
    if xp is not np:
        return xp.argsort(key, stable=True)
    if key.shape[0] <= STABLE_SORT_SIZE:
        return key.argsort(stable=True)
    ranking = np.argsort(key)
    ordered = key[ranking]
    tied = (ordered[1:] == ordered[:-1]) | np.isnan(ordered[:-1])
    if tied.any():
        run = np.cumsum(np.concatenate([[0], ~tied])) * key.size
        ranking = np.sort(run + ranking) - run
    return ranking


def _first_places(keys: np.ndarray) -> np.ndarray:
    """Return keys that come before others and differ from each other, one for each place in a row."""
    places = np.arange(keys.shape[1])
    return -1e300 * (places + 1) if keys.dtype.kind == "f" else np.iinfo(keys.dtype).min + places


def _stable_argsorts(keys: np.ndarray) -> np.ndarray:
    """Sort every row ascending, NaN last, ties as they stand."""
    rankings = np.argsort(keys, axis=1)
    ordered = np.take_along_axis(keys, rankings, 1)
    tied = np.flatnonzero(((ordered[:, 1:] == ordered[:, :-1]) | np.isnan(ordered[:, :-1])).any(axis=1))
    if tied.size:
        rankings[tied] = np.argsort(keys[tied], axis=1, stable=True)
    return rankings


@dataclass(frozen=True)
class Descending(Order):
    """The larger the score, the more important; the order of INO-SGD, whose score is the loss.

    >>> Descending().ranking(np.array([0.5, 2.0, np.nan, 2.0]), None, None)
    array([1, 3, 0, 2])
    """

    scores_decide = True

    def _keys(self, xp: Any, scores: Array, ids: Array | None, owners: Array | None) -> list[Array]:
        return [-scores]


@dataclass(frozen=True)
class Ascending(Order):
    """The smaller the score, the more important: for scores that measure doubt, distance or error.

    >>> Ascending().ranking(np.array([0.5, 2.0, np.nan, -1.0]), None, None)
    array([3, 0, 1, 2])
    """

    scores_decide = True

    def _keys(self, xp: Any, scores: Array, ids: Array | None, owners: Array | None) -> list[Array]:
        return [scores]


@dataclass(frozen=True)
class RandomOrder(Order):
    """A random order of record ids, drawn anew at every step of a mechanism; scores count for nothing.

    Each record draws its place by a hash of the seed and its own id, so it needs ids. In a mechanism ids are positions,
    which shift when a record leaves: whoever knew the order would see everybody rearranged. A mechanism therefore draws
    it with a secret of its own, its key if it has one: what is left of a random order is again one, so nothing is seen.

    Args:
        seed: Any whole number >= 0; the same seed gives the same order.

    >>> RandomOrder(seed=0).ranking(np.zeros(4), np.arange(4), None)
    array([2, 3, 0, 1])
    """

    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", _validate.count("seed", self.seed))

    def at(self, step: int, secret: int) -> Order:
        """Return the order of a step, different for every step and every secret."""
        return RandomOrder(order_seed(self.seed, step, secret))

    def _keys(self, xp: Any, scores: Array, ids: Array | None, owners: Array | None) -> list[Array]:
        if ids is None:
            raise ValueError("RandomOrder needs ids: a position in the batch would depend on who else is in it")
        return [_hash(xp, ids, order_seed(self.seed))]


def _hash(xp: Any, ids: Array, seed: int) -> Array:
    """Mix ids and a seed (the finalizer of SplitMix64), in int64 arithmetic that wraps."""
    mixed = xp.astype(ids, xp.int64) ^ _signed(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ ((mixed >> shift) & (_MASK >> shift))) * _signed(factor)
    return mixed ^ ((mixed >> 31) & (_MASK >> 31))


def _signed(value: int) -> int:
    return (value & _MASK) - ((value & _MASK) >> 63 << 64)


@dataclass(frozen=True)
class OwnerFirst(Order):
    """Records of more private owners first, then the larger score: the mixed order of App. C.2.2.

    The least private owner then always fills the tail and is hardly learnt: a comparison, not a recommendation.

    >>> OwnerFirst().ranking(np.array([9.0, 1.0, 5.0]), None, np.array([2.0, 0.5, 0.5]))
    array([2, 1, 0])
    """

    def _keys(self, xp: Any, scores: Array, ids: Array | None, owners: Array | None) -> list[Array]:
        if owners is None:
            raise ValueError("OwnerFirst needs owners: one number per record, smaller for more private owners")
        return [owners, -scores]
