"""Monotone piecewise cubics and their exact averages: the one form in which every tail is evaluated."""

from dataclasses import dataclass
from typing import Any, Self

import array_api_compat
import numpy as np

from inosgm._internal.validate import Array, namespace


@dataclass(frozen=True, eq=False)
class Pieces:
    """w, cubic on [start_i, start_i + width_i), non-decreasing, within [0, 1], and 1 from the last start on.

    Every such w is a valid mirrored tail importance function, so weights made from it are an exact INO-SGM
    whatever it was tabulated from. Areas are unevaluated sums high + low, so that the area between two knots
    keeps its relative precision however far from zero they lie.
    """

    start: np.ndarray
    width: np.ndarray
    cubic: np.ndarray  # row j holds the coefficients of (u - start)**j, divided by j + 1
    area_high: np.ndarray  # integral of w over [0, start_i], together with area_low
    area_low: np.ndarray

    @classmethod
    def hermite(
        cls,
        knots: np.ndarray,
        left: np.ndarray,
        right: np.ndarray,
        slope_left: np.ndarray | None = None,
        slope_right: np.ndarray | None = None,
    ) -> Self:
        """Join values (and slopes; straight lines without) at both ends of each piece between the knots.

        Slopes are cut to at most three secants (Fritsch and Carlson, 1980), which keeps each cubic monotone.
        """
        width = np.diff(knots)
        kept = width > 0
        width, left, right = width[kept], left[kept], right[kept]
        edges = np.stack([left, right], axis=1).ravel()
        if not (np.all(np.diff(edges) >= 0) and np.all((edges >= 0) & (edges <= 1))):
            raise ValueError("a tail stays within [0, 1] and never rises towards the less important records")
        secant = (right - left) / width
        p = secant if slope_left is None else np.minimum(slope_left[kept], 3 * secant)
        q = secant if slope_right is None else np.minimum(slope_right[kept], 3 * secant)
        cubic = [left, p / 2, (3 * secant - 2 * p - q) / (3 * width), (p + q - 2 * secant) / (4 * width**2)]
        area = width * ((left + right) / 2 + width * (p - q) / 12)
        high = np.concatenate([[0.0], np.cumsum(area)])
        return cls(
            start=np.append(knots[:-1][kept], knots[-1]),
            width=np.append(width, 0.0),
            cubic=np.concatenate([cubic, [[1.0], [0.0], [0.0], [0.0]]], axis=1),
            area_high=high,
            area_low=rounding_of_sums(np, area, high) if area.size else np.zeros(1),
        )

    def at(self, u: np.ndarray) -> Array:
        """w itself, at numpy arrays of any shape."""
        piece, offset = self._locate(np, u, np.zeros_like(u))
        return _mean_of_cubic(self.cubic[:, piece], offset, offset)

    def integral(self, x: Array) -> Array:
        """Integral of w over [0, x]."""
        xp, table = namespace(x), self._on(x)
        piece, offset = table._locate(xp, x, xp.zeros_like(x))
        area = offset * _mean_of_cubic(table.cubic[:, piece], xp.zeros_like(offset), offset)
        return table.area_high[piece] + (table.area_low[piece] + area)

    def means(self, high: Array, low: Array, spans: Array) -> Array:
        """Average w between consecutive thresholds high + low, which are `spans` apart; w itself where they coincide.

        Every term is a product or a sum of non-negative numbers: nothing cancels, so narrow intervals far from
        zero are as precise as wide ones.
        """
        xp, table = namespace(high), self._on(high)
        piece, offset = table._locate(xp, high, low)
        first, last, begin, end = piece[..., :-1], piece[..., 1:], offset[..., :-1], offset[..., 1:]
        crosses = last > first
        inside = xp.where(crosses, table.width[first], end)
        head = _mean_of_cubic(table.cubic[:, first], begin, inside)
        where = xp.nonzero(crosses)  # at most one interval per knot, and usually few
        if where[0].shape[0]:
            first, last, begin, end = first[where], last[where], begin[where], end[where]
            between = table.area_high[last] - table.area_high[first + 1]
            between = between + (table.area_low[last] - table.area_low[first + 1])
            rest = end * _mean_of_cubic(table.cubic[:, last], xp.zeros_like(end), end)
            head[where] = ((table.width[first] - begin) * head[where] + between + rest) / spans[where]
        return head.clip(0.0, 1.0)  # what rounding added; not xp.clip, which is slow

    def _on(self, like: Array) -> "Pieces":
        """Return the same table in the namespace and on the device of an array."""
        xp = namespace(like)
        if xp is np:
            return self
        device = array_api_compat.device(like)
        return Pieces(*(xp.asarray(array, device=device) for array in vars(self).values()))

    def _locate(self, xp: Any, high: Array, low: Array) -> tuple[Array, Array]:
        """Find the piece of each threshold, and the offset from its start."""
        piece = xp.searchsorted(self.start, high, side="right") - 1
        offset = (high - self.start[piece]) + low
        below = offset < 0
        if not below.any():
            return piece, offset
        piece = xp.where(below & (piece > 0), piece - 1, piece)  # high rounded up onto the knot
        return piece, (high - self.start[piece]) + low


def rounding_of_sums(xp: Any, terms: Array, sums: Array) -> Array:
    """Return what float64 cumulative sums from 0 on lost: the exact ones are sums + rounding_of_sums, to second order.

    Both begin with the sum of no terms, and go along the last axis.
    """
    before, after = sums[..., :-1], sums[..., 1:]
    step = after - before
    virtual = after - step
    error = (after - (step + virtual)) + (virtual - before)  # after - before = step + error, exactly (Knuth)
    return xp.concat([before[..., :1], xp.cumulative_sum((terms - step) - error, axis=-1)], axis=-1)


def _mean_of_cubic(cubic: Array, p: Array, q: Array) -> Array:
    """Average of a cubic between p and q, without the cancellation of a difference of antiderivatives."""
    total, squares = p + q, p * p + q * q
    return cubic[0] + total * (cubic[1] + cubic[3] * squares) + cubic[2] * (squares + p * q)
