"""Contributions: the norms and the weighted sum of a batch of vectors, which is all that a mechanism needs of them."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol, runtime_checkable

import array_api_compat
import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.trees import tree_map
from inosgm._internal.validate import Array


@runtime_checkable
class Contributions(Protocol):
    """The vectors g_k of a batch, without promising that they are ever held as a matrix.

    A record whose vector has a NaN or an infinity must report a norm that is not finite, and add nothing to any
    weighted sum: the mechanism gives it weight 0.
    """

    def norms(self) -> Array:
        """Return ||g_k||, one number per record."""

    def weighted_sum(self, weights: Array) -> Any:
        """Return the sum of weights_k g_k: an array, or a list, tuple or dict of arrays."""


@dataclass(frozen=True, eq=False)
class Dense:
    """Contributions held as an array whose first axis is the record.

    Norms and sums are accumulated in float64 whatever the array holds: a record of small sensitivity must not
    drown in the rounding errors of large ones.

    >>> Dense(np.array([[3.0, 4.0], [np.nan, 0.0]])).weighted_sum(np.array([2.0, 0.0]))
    array([6., 8.])
    """

    array: Array

    def __post_init__(self) -> None:
        torch = array_api_compat.is_torch_array(self.array)
        array = self.array.detach() if torch else _validate.numeric("contributions", self.array)
        object.__setattr__(self, "array", array)
        if not self.array.ndim:
            raise ValueError("contributions must have one row per record, got a single number")

    def norms(self) -> Array:
        """Return the Euclidean norm of each row, over all its axes."""
        xp = _validate.namespace(self.array)
        with np.errstate(all="ignore"):  # too long, or not finite: the mechanism leaves it out
            return xp.linalg.vector_norm(self._rows(xp), axis=1)

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum of the rows, in float64."""
        xp = _validate.namespace(self.array)
        rows, (_, weights) = self._rows(xp), _validate.floats("weights", weights, like=self.array)
        if weights.shape != rows.shape[:1]:
            raise ValueError("contributions and weights must pair up: one of each for every record")  # not how many
        finite = xp.all(xp.isfinite(rows), axis=1)
        rows = rows if bool(xp.all(finite)) else xp.where(finite[:, None], rows, xp.zeros_like(rows))
        return xp.reshape(weights @ rows, self.array.shape[1:])

    def combined(self, groups: np.ndarray, shares: np.ndarray) -> "Dense":
        """Return one vector per unit: share times the sum of the rows of its records, in float64.

        Args:
            groups: The unit of each row, from 0, ascending and without gaps.
            shares: The factor of each unit.
        """
        xp = array_api_compat.array_namespace(self.array)
        rows = self._rows(xp)
        if len(rows) != groups.size:
            raise ValueError("contributions and records must pair up: one contribution for every record of a batch")
        with np.errstate(all="ignore"):  # too long, or not finite: the mechanism leaves the unit out
            if array_api_compat.is_numpy_array(rows):
                starts = np.flatnonzero(np.diff(groups, prepend=-1))
                sums = np.add.reduceat(rows, starts, axis=0) if starts.size else rows[:0]
            else:
                where = xp.asarray(groups, device=rows.device)
                sums = rows.new_zeros((shares.size, rows.shape[1])).index_add_(0, where, rows)
            factors = xp.asarray(shares, device=array_api_compat.device(rows))
            return Dense(xp.reshape(sums * factors[:, None], (shares.size, *self.array.shape[1:])))

    def _rows(self, xp: Any) -> Array:
        size = math.prod(self.array.shape[1:])
        return xp.reshape(xp.astype(self.array, xp.float64), (self.array.shape[0], size))


@dataclass(frozen=True, eq=False)
class Concatenated:
    """Contributions in parts, such as micro-batches: norms end to end, sums added up.

    >>> halves = Concatenated([Dense(np.ones((2, 3))), Dense(np.ones((1, 3)))])
    >>> halves.weighted_sum(np.array([1.0, 2.0, 3.0]))
    array([6., 6., 6.])
    """

    parts: Sequence[Contributions]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("parts must hold at least one part; an empty batch is one part without records")

    @cached_property
    def _norms(self) -> list[Array]:
        return [part.norms() for part in self.parts]

    def norms(self) -> Array:
        """Return the norms of all parts, in their order."""
        return array_api_compat.array_namespace(*self._norms).concat(self._norms)

    def weighted_sum(self, weights: Array) -> Any:
        """Return the sum over all parts, each with its stretch of the weights."""
        ends = np.cumsum([norms.shape[0] for norms in self._norms]).tolist()
        shares = (part.weighted_sum(weights[a:b]) for part, a, b in zip(self.parts, [0, *ends], ends, strict=False))
        return reduce(lambda total, share: tree_map(operator.add, total, share), shares)


@dataclass(frozen=True, eq=False)
class Cells:
    """Contributions that each add to one of several sums, such as the counts of a histogram.

    A record touches one cell, so it moves all sums together by no more than its own row.

    Args:
        rows: One number per record, or an array with one record per row.
        cells: The cell of each record, from 0.
        count: How many cells there are.

    >>> Cells(np.array([1.0, 1.0, 1.0]), np.array([0, 2, 2]), 3).weighted_sum(np.array([1.0, 0.5, 1.0]))
    array([1. , 0. , 1.5])
    """

    rows: Array
    cells: Array
    count: int

    def __post_init__(self) -> None:
        rows, cells = _validate.numeric("rows", self.rows), _validate.numeric("cells", self.cells)
        if rows.shape[:1] != cells.shape or cells.dtype.kind not in "iu":
            raise ValueError(f"cells must be a whole number per record, got {cells.dtype}, or more or fewer than rows")
        if cells.size and not 0 <= cells.min() <= cells.max() < self.count:
            raise ValueError(f"cells must lie in 0, ..., {self.count - 1}")
        object.__setattr__(self, "rows", rows.astype(np.float64, copy=False))
        object.__setattr__(self, "cells", cells.astype(np.int64, copy=False))

    def norms(self) -> Array:
        """Return the Euclidean norm of each row."""
        return Dense(self.rows).norms()

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum of the rows of each cell, along the first axis."""
        sums = [Dense(self.rows[place]).weighted_sum(weights[place]) for place in self._places()]
        return np.stack(sums)

    def _places(self) -> list[np.ndarray]:
        return [np.flatnonzero(self.cells == cell) for cell in range(self.count)]


def as_contributions(value: Any) -> Contributions:
    """Return Contributions as they are, and an array, a table or nested lists of numbers as Dense."""
    if isinstance(value, Contributions):
        return value
    if isinstance(value, list) and not value:
        raise TypeError("contributions of no records must be an array such as np.empty((0, 2)): a list has no width")
    return Dense(value)
