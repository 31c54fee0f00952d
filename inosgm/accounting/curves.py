"""Epsilon along a line of cases: solved for a few budgets, tabulated for many.

Along a line (rates at one multiplier, multipliers at one rate, ...) epsilon rises with one coordinate s. A
few budgets are solved one by one. For many, epsilon is tabulated at nodes and interpolated in between, by
local cubics on a log scale:

* an interval between two nodes is trusted only after an exact evaluation in its middle has agreed with what
  the table foresaw within CHECK; until then it is divided;
* what is read off is moved to the safe side by ROOM, several times what any middle was allowed to be off,
  while the halves that are then used are better still than the whole that was checked;
* a reading never leaves the two exact nodes around it, and where no trust comes about it is the safe one of
  them.

So fifty thousand budgets cost a few dozen distributions. Where an accountant can confirm cheaply (Renyi), the
table is only a guess, and every single budget is confirmed exactly.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

Question = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Coordinates s -> (epsilon, hint), epsilon rising with s."""

CHECK = 1.5e-4
ROOM = 6e-4
MARGIN = 1.5e-3
"""How far below a budget a reading aims, on the log scale: above ROOM, so that it is found to be below it."""

GUESS = 1e-3
"""How well a table has to foresee when every reading is confirmed, and how far below a budget it then aims."""

FEW = 4
"""Up to so many budgets are solved one by one."""

_TINY = 1e-30
_ROUNDS = 14


class Curve:
    """A table of log epsilon at nodes of s between two limits."""

    def __init__(self, question: Question, low: float, high: float, check: float = CHECK) -> None:
        self.question, self.low, self.high, self.check = question, low, high, check
        self.s = np.empty(0)
        self.y = np.empty(0)
        self.hint = np.empty(0)

    def add(self, s: np.ndarray) -> np.ndarray:
        """Evaluate at new nodes and return log epsilon there."""
        s = np.clip(s, self.low, self.high)
        epsilon, hint = self.question(s)
        y = np.log(np.maximum(epsilon, _TINY))
        every, first = np.unique(np.concatenate([self.s, s]), return_index=True)
        self.y = np.concatenate([self.y, y])[first]
        self.hint = np.concatenate([self.hint, hint])[first]
        self.s = every
        return np.asarray(y)

    def cover(self, low: float, high: float) -> None:
        """Add nodes outwards until they hold log epsilon from low to high, as far as the limits allow."""
        grow = 1.0
        while self.y[0] > low and self.s[0] > self.low:
            self.add(np.array([self.s[0] - grow * min(max(1.1 * (self.y[0] - low), 0.02), 2.0)]))
            grow *= 1.5
        grow = 1.0
        while self.y[-1] < high and self.s[-1] < self.high:
            self.add(np.array([self.s[-1] + grow * min(max(1.1 * (high - self.y[-1]), 0.02), 2.0)]))
            grow *= 1.5

    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes with log epsilon made strictly rising, never lowered."""
        y = np.maximum.accumulate(self.y)
        last = np.append(np.diff(y) > 1e-12, True)  # of equal values the last is the one that is worth most
        return self.s[last], y[last]

    def inverse(self, y: np.ndarray) -> np.ndarray:
        """Return s with log epsilon y, as near as the interpolation knows, for values that the nodes cover."""
        trusted = self._refine(y, forward=False)
        s, values = self._nodes()
        if s.size < 2:
            return np.full(y.size, s[0])
        interval = np.clip(np.searchsorted(values, y, side="right") - 1, 0, s.size - 2)
        return np.where(trusted[interval], interpolate(values, s, y), s[interval])

    def upper(self, s: np.ndarray) -> np.ndarray:
        """Return log epsilon at s from above, for coordinates between the nodes."""
        trusted = self._refine(s, forward=True)
        at, values = self._nodes()
        if at.size < 2:
            return np.full(s.size, values[-1])
        interval = np.clip(np.searchsorted(at, s, side="right") - 1, 0, at.size - 2)
        return np.where(trusted[interval], interpolate(at, values, s) + ROOM, values[interval + 1])

    def hints(self, s: np.ndarray) -> np.ndarray:
        """Return the hints between the nodes around each coordinate."""
        return np.asarray(np.interp(s, self.s, self.hint))

    def _refine(self, wanted: np.ndarray, *, forward: bool) -> np.ndarray:
        """Divide the intervals that hold something wanted until the middles come out as the table foresees.

        Returns whether each interval may be trusted; if a reading falls into one that may not, a node has to
        do.
        """
        wanted = np.sort(wanted)
        trusted: set[tuple[float, float]] = set()
        for _ in range(_ROUNDS):
            s, y = self._nodes()
            if s.size < 2:
                break
            key = s if forward else y
            held = np.diff(np.searchsorted(wanted, key)) > 0
            held[0] |= wanted[0] <= key[0]
            held[-1] |= wanted[-1] >= key[-1]
            open_ = [
                i for i in np.flatnonzero(held) if y[i + 1] - y[i] > 2 * self.check and (s[i], s[i + 1]) not in trusted
            ]
            if not open_:
                break
            index = np.array(open_)
            if forward:
                middle = (s[index] + s[index + 1]) / 2
                foreseen = interpolate(s, y, middle)
            else:
                foreseen = (y[index] + y[index + 1]) / 2
                middle = interpolate(y, s, foreseen)
            # Where the table has no idea (epsilon falls to 0, or nearly) the interval is halved instead.
            inside = s[index] + np.array([[0.03], [0.97]]) * (s[index + 1] - s[index])
            lost = (middle < inside[0]) | (middle > inside[1]) | (y[index] <= np.log(_TINY) + 1)
            middle = np.where(lost, inside.mean(axis=0), middle)
            right = (np.abs(self.add(middle) - foreseen) <= self.check) & ~lost
            for i, m, good in zip(index, middle, right, strict=True):
                if good:
                    trusted.update([(s[i], float(m)), (float(m), s[i + 1])])
        s, y = self._nodes()
        known = np.array([pair in trusted for pair in pairwise(s)], dtype=bool)
        return np.asarray((np.diff(y) <= 2 * self.check) | known)


def interpolate(knots: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Interpolate by the cubic through the four nearest knots, held within the values of the two around each point."""
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
    """Return, for every row, an s that was evaluated and keeps the row's epsilon, by less than `precision` if
    it can.

    Brackets, then regula falsi with halving (Illinois), all rows at once. A row that keeps its epsilon even
    at the limit `high` gets `high`; a row that does not even keep it at `low` gets nan.
    """
    goal, aim = np.log(epsilon), -precision / 2
    s = np.clip(start, low, high)
    left, right = np.full(s.size, np.nan), np.full(s.size, np.nan)
    f_left, f_right = np.full(s.size, np.nan), np.full(s.size, np.nan)
    last = np.zeros(s.size)
    grow = np.ones(s.size)
    rows = np.arange(s.size)
    for _ in range(300):
        value = np.log(np.maximum(question(s[rows], rows), _TINY)) - goal[rows]
        under, over = rows[value <= 0], rows[value > 0]
        left[under], f_left[under] = s[under], value[value <= 0] - aim
        right[over], f_right[over] = s[over], value[value > 0] - aim
        f_right[under] = np.where(last[under] < 0, f_right[under] / 2, f_right[under])
        f_left[over] = np.where(last[over] > 0, f_left[over] / 2, f_left[over])
        last[under], last[over] = -1, 1
        near = (value <= 0) & (value >= -precision)
        stuck = (right[rows] - left[rows] < 1e-13) | (left[rows] >= high) | (right[rows] <= low)
        rows, value = rows[~(near | stuck)], value[~(near | stuck)]
        if not rows.size:
            return left
        part = np.clip(-f_left[rows] / (f_right[rows] - f_left[rows]), 0.01, 0.99)
        between = left[rows] + part * (right[rows] - left[rows])
        stride = np.clip(1.2 * np.abs(value), 0.02, 0.7) * grow[rows]
        grow[rows] *= 1.7
        outside = np.where(np.isnan(left[rows]), right[rows] - stride, left[rows] + stride)
        s[rows] = np.clip(np.where(np.isnan(between), outside, between), low, high)
    raise ArithmeticError("no end to the search for a parameter; please report the case")
