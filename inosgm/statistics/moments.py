"""Means and covariances of bounded columns from one noisy sum, for covariances and regressions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from inosgm.statistics.bounds import Bounds, numbers


@dataclass(frozen=True)
class Box:
    """The public bounds of several columns.

    A record z, in halves of the ranges from the middle, adds the row (z, svec(z z' - I)) / m, m being the number of
    columns and svec the upper triangle with what is off the diagonal times sqrt(2), so that lengths are kept. Its
    squared length is (s^2 - s + m) / m^2 with s = |z|^2 in [0, m]: at most 1. Without the I, which costs nothing since
    the sum of all weights is public, it would be longer, and z itself would not be free.

    >>> Box.of([(0, 10), (0, 2)]).rows([[10.0, 2.0], [5.0, 1.0]])
    array([[ 0.5       ,  0.5       ,  0.        ,  0.70710678,  0.        ],
           [ 0.        ,  0.        , -0.5       ,  0.        , -0.5       ]])
    """

    columns: tuple[Bounds, ...]

    @classmethod
    def of(cls, bounds: Any) -> Self:
        """Read a pair of numbers for each column.

        Raises:
            ValueError: for anything else.
        """
        if not isinstance(bounds, Sequence | np.ndarray) or not len(bounds) or isinstance(bounds, str):
            raise ValueError(f"bounds must be a pair of numbers for each column, got {bounds!r}")
        if not all(isinstance(pair, Sequence | np.ndarray | Bounds) for pair in bounds):
            raise ValueError(f"bounds must be a list with a pair of numbers for each column, got {bounds!r}")
        return cls(tuple(Bounds.of(pair) for pair in bounds))

    @property
    def middles(self) -> np.ndarray:
        """The middle of each column."""
        return np.array([column.middle for column in self.columns])

    @property
    def halves(self) -> np.ndarray:
        """Half of the range of each column."""
        return np.array([column.half for column in self.columns])

    def shares(self, values: Any) -> np.ndarray:
        """Return each column as distances from its middle, in halves of its range: numbers in [-1, 1].

        Raises:
            ValueError: for another number of columns.
        """
        table = numbers(values)
        table = table.reshape(0, len(self.columns)) if table.shape == (0,) else table
        if table.ndim != 2 or table.shape[1] != len(self.columns):
            raise ValueError(f"values must be {len(self.columns)} numbers per record, got shape {table.shape}")
        return np.asarray(np.clip((table - self.middles) / self.halves, -1.0, 1.0))

    def rows(self, values: Any) -> np.ndarray:
        """Return the contributions (z, svec(z z' - I)) / m of records; none is longer than 1."""
        z = self.shares(values)
        i, j, stretch = _triangle(len(self.columns))
        return np.concatenate([z, (z[:, i] * z[:, j] - (i == j)) * stretch], axis=1) / len(self.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """The noisy mean and covariance matrix of columns, in halves of their ranges from their middles.

    Attributes:
        box: The bounds of the columns.
        mean: The mean of each column.
        covariance: M - mean mean' with the noisy second moments M, and with the noise variance added to the diagonal,
            which the product takes away: unbiased, symmetric, and not always positive definite.
        noise: The standard deviation of the noise on the mean and, in svec, on M.
    """

    box: Box
    mean: np.ndarray
    covariance: np.ndarray
    noise: float

    @classmethod
    def of(cls, box: Box, value: np.ndarray, total: float, noise: float) -> Self:
        """Read a released sum of rows.

        Args:
            box: The bounds that made the rows.
            value: The sum.
            total: The sum of weight x sensitivity over all records.
            noise: The standard deviation of the noise on each number of the sum.
        """
        m = len(box.columns)
        scaled = value * (m / total)
        i, j, stretch = _triangle(m)
        second = np.eye(m)
        second[i, j] += scaled[m:] / stretch
        second[j, i] = second[i, j]
        mean, spread = scaled[:m], noise * m / total
        covariance = second - np.outer(mean, mean) + spread**2 * np.eye(m)
        return cls(box=box, mean=mean, covariance=covariance, noise=spread)

    def errors(self, of_covariance: np.ndarray, of_mean: np.ndarray | float = 0.0) -> np.ndarray:
        """Return first-order standard errors of functions of the moments (the delta method).

        A change of the moments changes the covariance by dM - dmean mean' - mean dmean'.

        Args:
            of_covariance: The derivatives with respect to the covariance, in the last two axes.
            of_mean: Those with respect to the mean beside, in the last axis.
        """
        symmetric = (of_covariance + np.swapaxes(of_covariance, -1, -2)) / 2
        means = of_mean - 2 * symmetric @ self.mean
        return np.asarray(self.noise * np.sqrt((symmetric**2).sum(axis=(-1, -2)) + (means**2).sum(axis=-1)))


def _triangle(m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows and columns of an upper triangle, and the factor of svec for each entry."""
    i, j = np.triu_indices(m)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))
