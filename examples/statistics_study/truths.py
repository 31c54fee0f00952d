"""The true, unweighted statistics of a table, and in which form estimates are compared with them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from inosgm.mechanism.orders import Ascending
from inosgm.mechanism.tails import LinearTail, Tail
from inosgm.mechanism.weights import importance_weights


def upper_tail_mean(level: float) -> Callable[[np.ndarray], float]:
    """Return the mean of the largest 1 - level of the values; the one at the border counts in part.

    >>> upper_tail_mean(0.5)(np.array([1.0, 2.0, 6.0]))
    4.666666666666667
    """

    def truth(values: np.ndarray) -> float:
        size = (1 - level) * values.size
        largest = np.sort(values)[::-1]
        parts = np.clip(size - np.arange(values.size), 0, 1)
        return float(parts @ largest / size)

    return truth


def about_median(tail_of: Callable[[float], Tail]) -> Callable[[np.ndarray], float]:
    """Return the mean of values of which those far from the median count less, or nothing.

    Args:
        tail_of: The tail, given the number of values.
    """

    def truth(values: np.ndarray) -> float:
        scores = np.abs(values - np.median(values))
        weights = importance_weights(scores, 1.0, tail_of(float(values.size)), order=Ascending())
        return float(weights @ values / weights.sum())

    return truth


def robust_mean(reach: float, fraction: float) -> Callable[[np.ndarray], float]:
    """Return the mean of values moved to within so many distances of the quartiles of their middle.

    The fraction that is farthest counts less and less.
    """

    def truth(values: np.ndarray) -> float:
        lower, upper = np.quantile(values, [0.25, 0.75], method="inverted_cdf")
        centre, radius = (lower + upper) / 2, reach * (upper - lower)
        scores = np.abs(values - centre)
        weights = importance_weights(scores, 1.0, LinearTail(fraction * values.size), order=Ascending())
        return float(weights @ np.clip(values, centre - radius, centre + radius) / weights.sum())

    return truth


def top_heavy_sum(fraction: float) -> Callable[[np.ndarray], float]:
    """Return the sum of values of which a fraction, from the smallest up, counts less."""
    return lambda values: float(importance_weights(values, 1.0, LinearTail(fraction * values.size)) @ values)


def projector(_: np.ndarray, components: Any) -> np.ndarray:
    """Return the projection onto components, which knows nothing of their signs."""
    rows = np.atleast_2d(np.asarray(components))
    return np.asarray(rows.T @ rows).ravel()


def with_ones(data: np.ndarray) -> np.ndarray:
    """Return the columns but the last, after a column of ones."""
    return np.column_stack([np.ones(len(data)), data[:, :-1]])


def least_squares(data: np.ndarray) -> np.ndarray:
    """Return the intercept and the coefficients with which all columns but the last predict the last."""
    return np.asarray(np.linalg.lstsq(with_ones(data), data[:, -1], rcond=None)[0])


def least_trimmed_squares(kept: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return those of the rows that they predict best, found by concentration steps from all rows on."""

    def truth(data: np.ndarray) -> np.ndarray:
        found, size = least_squares(data), round(kept * len(data))
        for _ in range(50):
            residuals = np.abs(data[:, -1] - with_ones(data) @ found)
            found = least_squares(data[np.argsort(residuals, kind="stable")[:size]])
        return found

    return truth


def predictions(data: np.ndarray, coefficients: Any) -> np.ndarray:
    """Return what coefficients predict for every row."""
    return np.asarray(with_ones(data) @ np.asarray(coefficients))


def spread_of_last(data: np.ndarray, _: np.ndarray) -> float:
    """Return the size of the deviations of the last column from its mean."""
    return float(np.linalg.norm(data[:, -1] - data[:, -1].mean()))
