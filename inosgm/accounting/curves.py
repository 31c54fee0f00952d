"""Epsilon as a monotone function of one coordinate: solved for a few budgets, tabulated for many.

Along a line of cases (rates at one multiplier, multipliers at one rate, ...) epsilon rises with one coordinate s. A few
budgets are solved one by one. For many budgets, epsilon is tabulated at nodes and interpolated by local cubics on a log
scale:

* An interval between two nodes is trusted only if an exact evaluation in its middle agrees with the interpolation
  within MIDPOINT_TOLERANCE; otherwise it is divided.
* A reading is moved to the safe side by SAFETY_MARGIN. That is four times the error allowed at any midpoint, and the
  halves that are used are more accurate than the whole interval that was checked.
* A reading never leaves the two exact nodes around it. In an interval that is not trusted it is the safe one of them.

Fifty thousand budgets cost a few dozen distributions in this way. If an accountant can confirm cheaply (Renyi), the
table is only a guess, and every budget is confirmed exactly.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

Question = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Coordinates s -> (epsilon, hint), epsilon rising with s."""

MIDPOINT_TOLERANCE = 1.5e-4
"""Largest error of log epsilon in the middle of a trusted interval."""

SAFETY_MARGIN = 6e-4
"""Distance on the log scale by which a reading of epsilon is raised: four times MIDPOINT_TOLERANCE."""

TARGET_MARGIN = 1.5e-3
"""Distance below a budget at which an inverse aims, on the log scale. It exceeds SAFETY_MARGIN, so that a later reading
of the same curve stays below the budget."""

GUESS_TOLERANCE = 1e-3
"""Tolerance and target margin of a table whose readings are all confirmed exactly."""

MAX_SOLVED_BUDGETS = 4
"""Largest number of budgets on one line that are solved one by one: a table needs more evaluations than they do."""

_LEAST_EPSILON = 1e-30  # stands for an epsilon of 0, which has no logarithm
_MAX_DIVISIONS = 14  # an interval that 14 divisions do not make smooth is bounded by its exact nodes


class Curve:
    """A table of log epsilon at nodes of s between two limits."""

    def __init__(self, question: Question, low: float, high: float, tolerance: float = MIDPOINT_TOLERANCE) -> None:
        self.question, self.low, self.high, self.tolerance = question, low, high, tolerance
        self.s = np.empty(0)
        self.y = np.empty(0)
        self.hint = np.empty(0)

    def add(self, s: np.ndarray) -> np.ndarray:
        """Evaluate at new nodes and return log epsilon there."""
        s = np.clip(s, self.low, self.high)
        epsilon, hint = self.question(s)
        y = np.log(np.maximum(epsilon, _LEAST_EPSILON))
        every, first = np.unique(np.concatenate([self.s, s]), return_index=True)
        self.y = np.concatenate([self.y, y])[first]
        self.hint = np.concatenate([self.hint, hint])[first]
        self.s = every
        return np.asarray(y)

    def cover(self, low: float, high: float) -> None:
        """Add nodes outwards until their log epsilon spans [low, high], as far as the limits allow."""
        # log epsilon rises about as fast as s, so the distance that is missing, and a tenth, is a good stride; strides
        # grow by half each time in case the curve is flatter. They stay in [0.02, 2]: a shorter one would add nodes
        # that differ by rounding only, a longer one would overshoot.
        grow = 1.0
        while self.y[0] > low and self.s[0] > self.low:
            self.add(np.array([self.s[0] - grow * min(max(1.1 * (self.y[0] - low), 0.02), 2.0)]))
            grow *= 1.5
        grow = 1.0
        while self.y[-1] < high and self.s[-1] < self.high:
            self.add(np.array([self.s[-1] + grow * min(max(1.1 * (high - self.y[-1]), 0.02), 2.0)]))
            grow *= 1.5

    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes with log epsilon made strictly increasing by raising values, never by lowering them."""
        y = np.maximum.accumulate(self.y)
        last = np.append(np.diff(y) > 1e-12, True)  # of nodes with equal epsilon, the largest s buys the most
        return self.s[last], y[last]

    def inverse(self, y: np.ndarray) -> np.ndarray:
        """Return the interpolated s at which log epsilon is y, for values that the nodes span."""
        trusted = self._refine(y, forward=False)
        s, values = self._nodes()
        if s.size < 2:
            return np.full(y.size, s[0])
        interval = np.clip(np.searchsorted(values, y, side="right") - 1, 0, s.size - 2)
        return np.where(trusted[interval], interpolate(values, s, y), s[interval])

    def upper(self, s: np.ndarray) -> np.ndarray:
        """Return an upper bound on log epsilon at s, for coordinates between the nodes."""
        trusted = self._refine(s, forward=True)
        at, values = self._nodes()
        if at.size < 2:
            return np.full(s.size, values[-1])
        interval = np.clip(np.searchsorted(at, s, side="right") - 1, 0, at.size - 2)
        return np.where(trusted[interval], interpolate(at, values, s) + SAFETY_MARGIN, values[interval + 1])

    def hints(self, s: np.ndarray) -> np.ndarray:
        """Return the hint at each coordinate, interpolated between the nodes."""
        return np.asarray(np.interp(s, self.s, self.hint))

    def _refine(self, wanted: np.ndarray, *, forward: bool) -> np.ndarray:
        """Divide the intervals that hold a wanted value until the table predicts their midpoints; return which it does.

        A reading in an interval that is not trusted is one of its nodes.
        """
        wanted = np.sort(wanted)
        trusted: set[tuple[float, float]] = set()
        for _ in range(_MAX_DIVISIONS):
            s, y = self._nodes()
            if s.size < 2:
                break
            key = s if forward else y
            held = np.diff(np.searchsorted(wanted, key)) > 0
            held[0] |= wanted[0] <= key[0]
            held[-1] |= wanted[-1] >= key[-1]
            # A short interval needs no check: each of its nodes is within twice the tolerance of every reading.
            wide = y[1:] - y[:-1] > 2 * self.tolerance
            index = np.array([i for i in np.flatnonzero(held & wide) if (s[i], s[i + 1]) not in trusted])
            if not index.size:
                break
            if forward:
                middle = (s[index] + s[index + 1]) / 2
                predicted = interpolate(s, y, middle)
            else:
                predicted = (y[index] + y[index + 1]) / 2
                middle = interpolate(y, s, predicted)
            # If epsilon is (nearly) 0 or the midpoint lies at an end, the prediction is void: halve the interval.
            inside = s[index] + np.array([[0.03], [0.97]]) * (s[index + 1] - s[index])
            void = (middle < inside[0]) | (middle > inside[1]) | (y[index] <= np.log(_LEAST_EPSILON) + 1)
            middle = np.where(void, inside.mean(axis=0), middle)
            confirmed = (np.abs(self.add(middle) - predicted) <= self.tolerance) & ~void
            for i, m, good in zip(index, middle, confirmed, strict=True):
                if good:
                    trusted.update([(s[i], float(m)), (float(m), s[i + 1])])
        s, y = self._nodes()
        known = np.array([pair in trusted for pair in pairwise(s)], dtype=bool)
        return np.asarray((np.diff(y) <= 2 * self.tolerance) | known)


def interpolate(knots: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Interpolate by the cubic through the four nearest knots, clipped to the values of the two around each point."""
    interval = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, knots.size - 2)
    width = min(4, knots.size)
    near = np.clip(interval - 1, 0, knots.size - width)[:, None] + np.arange(width)
    away = at[:, None] - knots[near]
    result = np.zeros(at.size)
    for i in range(width):
        weight = values[near[:, i]]
        for j in range(width):
            if j != i:
                weight = weight * away[:, j] / (knots[near[:, i]] - knots[near[:, j]])
        result += weight
    return np.asarray(np.clip(result, values[interval], values[interval + 1]))


RowQuestion = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Coordinates s and the rows that they belong to -> epsilon, rising with s in every row."""


def solve(
    question: RowQuestion, epsilon: np.ndarray, start: np.ndarray, low: float, high: float, precision: float
) -> np.ndarray:
    """Return, for every row, an evaluated s whose epsilon is at most the row's, by less than `precision` if possible.

    The search brackets the solution, then uses regula falsi with halving (the Illinois method), for all rows at once. A
    row that keeps its epsilon even at `high` gets `high`; a row that does not keep it at `low` gets NaN.
    """
    goal, aim = np.log(epsilon), -precision / 2
    s = np.clip(start, low, high)
    left, right = np.full(s.size, np.nan), np.full(s.size, np.nan)
    f_left, f_right = np.full(s.size, np.nan), np.full(s.size, np.nan)
    last = np.zeros(s.size)
    grow = np.ones(s.size)
    rows = np.arange(s.size)
    for _ in range(300):  # a guard: brackets shrink every time, so that the search ends long before
        value = np.log(np.maximum(question(s[rows], rows), _LEAST_EPSILON)) - goal[rows]
        under, over = rows[value <= 0], rows[value > 0]
        left[under], f_left[under] = s[under], value[value <= 0] - aim
        right[over], f_right[over] = s[over], value[value > 0] - aim
        f_right[under] = np.where(last[under] < 0, f_right[under] / 2, f_right[under])
        f_left[over] = np.where(last[over] > 0, f_left[over] / 2, f_left[over])
        last[under], last[over] = -1, 1
        near = (value <= 0) & (value >= -precision)
        # 1e-13 is a few roundings of a coordinate of order 1: such a bracket cannot be divided any more.
        stuck = (right[rows] - left[rows] < 1e-13) | (left[rows] >= high) | (right[rows] <= low)
        rows, value = rows[~(near | stuck)], value[~(near | stuck)]
        if not rows.size:
            return left
        # Clipped, so that every evaluation shortens the bracket by one percent at least.
        fraction = np.clip(-f_left[rows] / (f_right[rows] - f_left[rows]), 0.01, 0.99)
        between = left[rows] + fraction * (right[rows] - left[rows])  # NaN until the solution is bracketed
        # A little farther than the missing distance, as in `Curve.cover`, and farther each time that it was too short.
        stride = np.clip(1.2 * np.abs(value), 0.02, 0.7) * grow[rows]
        grow[rows] *= 1.7
        outside = np.where(np.isnan(left[rows]), right[rows] - stride, left[rows] + stride)
        s[rows] = np.clip(np.where(np.isnan(between), outside, between), low, high)
    raise ArithmeticError("the search for a parameter did not converge; please report the case")
