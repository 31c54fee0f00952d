"""An exact ROC curve, also with ties, and its variance over target models and records."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from inosgm.audit.clusters import Products

KNOTS = 64
"""Number of values of members, and of others, that bin points where the variance of an area is estimated."""

BLOCK = 1 << 16
"""Number of sorted values that are looked up at once, so that the other array stays in the cache."""

CLUSTERS = 1 << 7
"""Number of targets or records whose histograms are made at once, so that these stay in the cache."""


class Thresholds(NamedTuple):
    """Thresholds with given false positive rates; a share of the points at the threshold itself counts as beyond."""

    value: np.ndarray
    share: np.ndarray
    tpr: np.ndarray


class Curve:
    """The ROC curve of statistics.

    Args:
        values: The statistics, a row per target and a column per record; no NaN.
        members: Whether each record was in, in the same form; there are members and others.
    """

    def __init__(self, values: np.ndarray, members: np.ndarray) -> None:
        self._values, self._members = values, members
        self.inside, self.outside = np.sort(values[members]), np.sort(values[~members])

    def area(self) -> float:
        """Return the area under the curve: the share of (member, other) pairs in the right order; ties count half."""
        twice = 0
        for start in range(0, self.inside.size, BLOCK):
            block = self.inside[start : start + BLOCK]
            low = int(np.searchsorted(self.outside, block[0], "left"))
            here = self.outside[low : int(np.searchsorted(self.outside, block[-1], "right"))]
            below = np.searchsorted(here, block, "left")
            tied = block[here[np.minimum(below, here.size - 1)] == block] if here.size else block[:0]
            ties = np.searchsorted(here, tied, "right") - np.searchsorted(here, tied, "left")
            twice += 2 * (low * block.size + int(below.sum())) + int(ties.sum())
        return twice / (2 * self.inside.size * self.outside.size)

    def thresholds(self, rates: np.ndarray) -> Thresholds:
        """Return the thresholds that have these false positive rates."""
        count = self.outside.size
        value = self.outside[count - np.clip(np.ceil(rates * count - 1e-9).astype(np.int64), 1, count)]
        out_from, out_to = (np.searchsorted(self.outside, value, side) for side in ("left", "right"))
        in_from, in_to = (np.searchsorted(self.inside, value, side) for side in ("left", "right"))
        share = np.clip((rates * count - (count - out_to)) / (out_to - out_from), 0, 1)
        return Thresholds(value, share, (self.inside.size - in_to + share * (in_to - in_from)) / self.inside.size)

    def products(self, at: Thresholds) -> tuple[Products, Products, Products]:
        """Return the squared influences of members, those of others, and the products of both.

        The influence of a point is the amount by which it raises the share beyond a threshold, or the area, the latter
        by its rank among the points of the other kind. Ranks are binned at `KNOTS` values, which takes less than a
        thousandth from the variance of the area.

        Args:
            at: The thresholds; the area comes after them.
        """
        knots = np.unique(np.concatenate([at.value, _spaced(self.inside), _spaced(self.outside)]))
        inside, outside = (np.diff(_edges(points, knots)) for points in (self.inside, self.outside))
        below_in, below_out = ((np.cumsum(counts) - counts / 2) / counts.sum() for counts in (inside, outside))
        beyond = _beyond(knots, at)
        of_members = _influences(np.column_stack([beyond, below_out]), inside)
        of_others = _influences(np.column_stack([beyond, 1 - below_in]), outside)
        bins, size = self._bins(knots), 2 * knots.size + 1
        clusters = [_sum_products(_histograms(each, size), of_members, of_others) for each in (bins, bins.T)]
        points = (inside @ of_members**2, outside @ of_others**2, np.zeros(of_members.shape[1]))
        first, second, mixed = (Products(*three) for three in zip(*clusters, points, strict=True))
        return first, second, mixed

    def _bins(self, knots: np.ndarray) -> np.ndarray:
        """Return the bin of each point; those of members come after those of others."""
        size = 2 * knots.size + 1
        bins = np.empty(self._values.shape, np.min_scalar_type(2 * size))
        numbers = np.arange(size, dtype=bins.dtype)
        for row, values, members in zip(bins, self._values, self._members, strict=True):
            order = np.argsort(values)
            row[order] = np.repeat(numbers, np.diff(_edges(values[order], knots)))
            row += members * bins.dtype.type(size)
        return bins


def _spaced(points: np.ndarray) -> np.ndarray:
    """Return at most `KNOTS` of the sorted points, evenly spaced."""
    return points[np.unique(np.linspace(0, points.size - 1, KNOTS).round().astype(np.int64))]


def _edges(points: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the edges of bins of sorted points: below the first knot, at it, between it and the second, and so on."""
    cuts = np.column_stack([np.searchsorted(points, knots, side) for side in ("left", "right")])
    return np.concatenate([[0], cuts.ravel(), [points.size]])


def _beyond(knots: np.ndarray, at: Thresholds) -> np.ndarray:
    """Return the share of the points in each bin (row) that is beyond each threshold (column)."""
    own = 2 * np.searchsorted(knots, at.value) + 1
    bin_ = np.arange(2 * knots.size + 1)[:, None]
    return np.where(bin_ == own, at.share, bin_ > own)


def _influences(shares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the amount by which a point in each bin raises the mean of the shares."""
    return np.asarray((shares - counts @ shares / counts.sum()) / counts.sum())


def _histograms(bins: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of others and of members in each bin, for some clusters (rows) after the others."""
    for start in range(0, len(bins), CLUSTERS):
        some = bins[start : start + CLUSTERS]
        first = np.arange(len(some), dtype=np.intp)[:, None] * (2 * size)
        counts = np.bincount((some + first).ravel(), minlength=len(some) * 2 * size)
        others, members = counts.reshape(len(some), 2, size).swapaxes(0, 1).astype(np.float64)
        yield others, members


def _sum_products(
    histograms: Iterator[tuple[np.ndarray, np.ndarray]], of_members: np.ndarray, of_others: np.ndarray
) -> np.ndarray:
    """Return the products of influences, summed over clusters."""
    total = np.zeros((3, of_members.shape[1]))
    for others, members in histograms:
        one, other = members @ of_members, others @ of_others
        total += [(one**2).sum(axis=0), (other**2).sum(axis=0), (one * other).sum(axis=0)]
    return total
