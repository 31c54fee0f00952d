"""The cost of steps, and its inverses: the rate, the multiplier or the number of steps that a budget allows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from inosgm.accounting.accountants import chosen
from inosgm.accounting.curves import (
    GUESS_TOLERANCE,
    MAX_SOLVED_BUDGETS,
    MIDPOINT_TOLERANCE,
    TARGET_MARGIN,
    Curve,
    solve,
)
from inosgm.accounting.gaussian import gaussian_delta
from inosgm.accounting.interface import Accountant
from inosgm.accounting.segments import Segment, checked_numbers, unchecked_segment
from inosgm.accounting.unique_rows import unique_rows

# float64 uniforms have a granularity of 2^-53 = 1.1e-16: a smaller probability could not be sampled exactly.
LEAST_RATE, MOST_RATE = 1e-15, 1.0
# At 0.02 one step without sampling costs epsilon 1,250 and more; beyond 1e7 the noise drowns any sum of records.
LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.02, 1e7
MOST_STEPS = 10**7  # far beyond any training run; `steps` returns it for budgets that would allow more


def epsilon(
    sample_rate: ArrayLike,
    noise_multiplier: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the epsilon of a number of sampled Gaussian steps.

    **Guarantee.** The result is never below the true epsilon for one record added or removed.

    Args:
        sample_rate: Probability that the record is in a step's batch, in [0, 1].
        noise_multiplier: Standard deviation of the noise over the sensitivity of the record.
        steps: How many steps.
        delta: In (0, 1).
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: if an argument is out of range; the message names it.

    >>> print(round(epsilon(512 / 60000, 2.0, 9375, 1e-5), 3))
    1.749
    >>> epsilon([0.01, 0.02], 2.0, 1000, 1e-5).round(3)
    array([0.622, 1.33 ])
    """
    wide = np.broadcast_arrays(sample_rate, noise_multiplier, steps, delta)
    *numbers, deltas = (column.reshape(-1) for column in wide)
    return np.reshape(composed_epsilon([Segment(*numbers)], deltas, accountant), wide[0].shape)[()]


def composed_epsilon(segments: Sequence[Segment], delta: ArrayLike, accountant: Accountant | None = None) -> Any:
    """Return the epsilon of several segments of steps, one after the other.

    **Guarantee.** The result is never below the true epsilon for one record added or removed (or replaced, with the
    accountants of that unit). The computation of a step may depend on values released before. Rates, multipliers and
    numbers of steps must not, except for the choice of each step from its menu.

    Args:
        segments: The steps; their numbers are broadcast with each other and with delta.
        delta: In (0, 1); one number or one per owner.
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays.

    Raises:
        ValueError: if an argument is out of range; the message names it.

    >>> print(round(composed_epsilon([Segment(0.01, 1.0, 100), Segment(0.01, 2.0, 900)], 1e-5), 3))
    0.891
    """
    deltas = checked_numbers("delta", delta, "lie in (0, 1)", above=0, below=1)
    if not segments:
        return np.zeros(deltas.shape)[()]
    shape = np.broadcast_shapes(deltas.shape, *(column.shape for segment in segments for column in segment.columns()))
    if len(shape) > 1:
        raise ValueError(f"delta must be one number or one per owner, got an array of shape {deltas.shape}")
    deltas = np.broadcast_to(deltas, shape).reshape(-1)
    epsilons, _ = chosen(accountant).epsilon([segment.rows_of(deltas.size) for segment in segments], deltas)
    return epsilons.reshape(shape)[()]


def noise_multiplier(
    epsilon: ArrayLike,
    delta: ArrayLike,
    sample_rate: ArrayLike,
    steps: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the least noise multiplier with which the steps keep the budget.

    **Guarantee.** The epsilon of the result is at most `epsilon`.

    Args:
        epsilon: Above 0.
        delta: In (0, 1).
        sample_rate: In (0, 1].
        steps: At least 1.
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: if an argument is out of range, or no multiplier keeps a budget; the message names it.

    >>> print(round(noise_multiplier(1.0, 1e-5, 0.01, 1000), 2))
    1.41
    """
    shape, (eps, dlt, rate, count) = _inputs(epsilon, delta, sample_rate=sample_rate, steps=steps)
    result = multipliers(eps, dlt, rate, count, (), chosen(accountant))
    _require_feasible(
        result, eps, f"no noise multiplier up to {MOST_MULTIPLIER:g} keeps it: lower sample_rate or steps"
    )
    return result.reshape(shape)[()]


def sample_rate(
    epsilon: ArrayLike,
    delta: ArrayLike,
    noise_multiplier: ArrayLike,
    steps: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the greatest sample rate with which the steps keep the budget, 1 if every rate does.

    **Guarantee.** The epsilon of the result is at most `epsilon`.

    Args:
        epsilon: Above 0.
        delta: In (0, 1).
        noise_multiplier: Above 0.
        steps: At least 1.
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: if an argument is out of range, or no rate keeps a budget; the message names it.

    >>> print(round(sample_rate(1.0, 1e-5, 2.0, 1000), 4))
    0.0154
    """
    shape, (eps, dlt, multiplier, count) = _inputs(epsilon, delta, noise_multiplier=noise_multiplier, steps=steps)
    result = rates(eps, dlt, multiplier, count, (), chosen(accountant))
    _require_feasible(
        result, eps, f"no sample rate down to {LEAST_RATE:g} keeps it: raise noise_multiplier or lower steps"
    )
    return result.reshape(shape)[()]


def steps(
    epsilon: ArrayLike,
    delta: ArrayLike,
    sample_rate: ArrayLike,
    noise_multiplier: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the number of steps that a budget pays for, at most ten million; 0 if it does not pay for one.

    **Guarantee.** The epsilon of the result is at most `epsilon`. Up to 10,000 steps it is the greatest such number by
    this accountant; beyond, at most 0.01 % less.

    Args:
        epsilon: Above 0.
        delta: In (0, 1).
        sample_rate: In (0, 1].
        noise_multiplier: Above 0.
        accountant: PLD() if not given.

    Returns:
        A whole number for numbers; an array of them for arrays, which are broadcast.

    Raises:
        ValueError: if an argument is out of range; the message names it.

    >>> print(steps(1.0, 1e-5, 0.01, 1.5))
    1178
    """
    shape, (eps, dlt, rate, multiplier) = _inputs(
        epsilon, delta, sample_rate=sample_rate, noise_multiplier=noise_multiplier
    )
    first, kinds = unique_rows([eps, dlt, rate, multiplier])
    counts = [_steps(eps[i], dlt[i], rate[i], multiplier[i], chosen(accountant)) for i in first]
    return np.array(counts, dtype=np.int64)[kinds].reshape(shape)[()]


def _steps(budget: float, delta: float, rate: float, multiplier: float, accountant: Accountant) -> int:
    """Return the number of steps for one case, by secants and bisection on a log scale."""

    def value(count: int) -> float:
        spent = composed_epsilon([Segment(rate, multiplier, count)], delta, accountant)
        return math.log(max(float(spent), 1e-30) / budget)  # an epsilon of 0 has no logarithm

    guess = float(gaussian_mu(np.array([budget]), np.array([delta]))[0]) ** 2 / _square(rate, multiplier)
    low, high, at = 0, 0, int(min(max(guess, 1), MOST_STEPS))
    f_low, f_high = -math.inf, math.inf
    while not high or high - low > max(1, 1e-4 * low):  # to 0.01 %: epsilon is not known better
        excess = value(at)
        if excess <= 0:
            low, f_low = at, excess
            if at == MOST_STEPS:
                return at
        else:
            high, f_high = at, excess
        # For many steps epsilon grows like their square root or faster, so 2.5 x the distance overshoots to a bracket.
        if not high:
            at = min(MOST_STEPS, max(at + 1, int(at * math.exp(min(2.5 * abs(f_low) + 0.01, 2)))))
        elif not low:
            at = max(1, min(high - 1, int(high * math.exp(-min(2.5 * f_high + 0.01, 2))))) if high > 1 else 0
            if not at:
                return 0
        else:
            # Mostly secants; an occasional halving guards against one end that never moves.
            fraction = min(max(f_low / (f_low - f_high), 0.05), 0.95) if (low + high) % 3 else 0.5
            at = min(max(low + 1, round(low + fraction * (high - low))), high - 1)
    return low


def multipliers(
    eps: np.ndarray,
    delta: np.ndarray,
    rate: np.ndarray,
    count: np.ndarray,
    past: Sequence[Segment],
    accountant: Accountant,
) -> np.ndarray:
    """Return the noise multiplier of every row after its past; NaN if none keeps the budget."""

    def ahead(s: np.ndarray, rows: np.ndarray) -> Segment:
        return unchecked_segment(rate[rows], np.exp(-s), count[rows])

    def start(rows: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            ratio = np.log1p(gaussian_mu(eps[rows], delta[rows]) ** 2 / (rate[rows] ** 2 * count[rows]))
        return np.asarray(0.5 * np.log(ratio))

    limits = -math.log(MOST_MULTIPLIER), -math.log(LEAST_MULTIPLIER)
    line = _Line(accountant, past, delta, ahead, start, limits)
    return np.asarray(np.exp(-line.invert(eps, [rate, count])))


def rates(
    eps: np.ndarray,
    delta: np.ndarray,
    multiplier: np.ndarray,
    count: np.ndarray,
    past: Sequence[Segment],
    accountant: Accountant,
    guess: np.ndarray | None = None,
) -> np.ndarray:
    """Return the sample rate of every row after its past; NaN if none keeps the budget. A guess saves time."""

    def ahead(s: np.ndarray, rows: np.ndarray) -> Segment:
        return unchecked_segment(np.minimum(np.exp(s), 1.0), multiplier[rows], count[rows])

    def start(rows: np.ndarray) -> np.ndarray:
        if guess is not None:
            return np.asarray(np.log(guess[rows]))
        step = count[rows] * _square(1.0, multiplier[rows])
        return np.asarray(np.log(gaussian_mu(eps[rows], delta[rows])) - 0.5 * np.log(step))

    line = _Line(accountant, past, delta, ahead, start, (math.log(LEAST_RATE), math.log(MOST_RATE)))
    return np.asarray(np.minimum(np.exp(line.invert(eps, [multiplier, count])), 1.0))


@dataclass(frozen=True)
class _Line:
    """The search for the coordinate s (log rate, or minus log multiplier) at which the next segment spends a budget."""

    accountant: Accountant
    past: Sequence[Segment]
    delta: np.ndarray
    ahead: Callable[[np.ndarray, np.ndarray], Segment]
    start: Callable[[np.ndarray], np.ndarray]
    limits: tuple[float, float]

    def segments(self, s: np.ndarray, rows: np.ndarray) -> list[Segment]:
        """Return the past and the next segment of the rows if their coordinates are s."""
        return [*(segment.rows(rows) for segment in self.past), self.ahead(s, rows)]

    def invert(self, eps: np.ndarray, lines: Sequence[np.ndarray]) -> np.ndarray:
        """Return the coordinate of every row; distinct cases are solved once, those on one line by a shared curve."""
        lines = [self.delta, *lines, *(column for segment in self.past for column in segment.columns())]
        first, case_of = unique_rows([eps, *lines])
        _, line_of = unique_rows([column[first] for column in lines])
        members = np.bincount(line_of)
        coordinates = np.full(first.size, np.nan)
        for line in np.flatnonzero(members > MAX_SOLVED_BUDGETS):
            cases = np.flatnonzero(line_of == line)
            cases = cases[np.argsort(eps[first[cases]])]
            coordinates[cases] = self._read_off(eps[first[cases]], first[cases])
        alone = np.flatnonzero(members[line_of] <= MAX_SOLVED_BUDGETS)
        if alone.size:
            coordinates[alone] = self._solve(eps[first[alone]], first[alone])
        return np.asarray(coordinates[case_of])

    def _solve(self, eps: np.ndarray, rows: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """Solve the rows one by one."""

        def question(s: np.ndarray, some: np.ndarray) -> np.ndarray:
            return self.accountant.epsilon(self.segments(s, rows[some]), self.delta[rows[some]])[0]

        start = self.start(rows) if start is None else start
        return solve(question, eps, start, *self.limits, self.accountant.precision)

    def _read_off(self, eps: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Read the coordinates of rows on one line, sorted by budget, off a curve."""

        def question(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            row = np.full(s.size, rows[0])
            return self.accountant.epsilon(self.segments(s, row), self.delta[row])

        goal = np.log(eps)
        exact = self.accountant.confirms
        curve = Curve(question, *self.limits, GUESS_TOLERANCE if exact else MIDPOINT_TOLERANCE)
        picks = np.searchsorted(goal, np.linspace(goal[0], goal[-1], 4 + int((goal[-1] - goal[0]) / 0.5)))
        curve.add(self.start(rows[np.unique(np.minimum(picks, goal.size - 1))]))
        curve.cover(float(goal[0]) - 0.01, float(goal[-1]))  # 1 % lower: a margin is subtracted from goals below
        infeasible = curve.y[0] > goal
        coordinates = curve.inverse(goal - (GUESS_TOLERANCE if exact else TARGET_MARGIN))
        if exact:
            off = np.arange(goal.size)
            for closely in (False, True):
                segments, hint = self.segments(coordinates[off], rows[off]), curve.hints(coordinates[off])
                known = self.accountant.confirm(segments, self.delta[rows[off]], hint, closely=closely)
                # 3 x the tolerance: a guess aims one tolerance below the budget and may err by one more.
                off = off[(known > eps[off]) | (known < eps[off] * (1 - 3 * GUESS_TOLERANCE))]
            if off.size:
                coordinates[off] = self._solve(eps[off], rows[off], coordinates[off])
        coordinates[infeasible] = np.nan
        return coordinates


def gaussian_mu(eps: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return the largest mu of a Gaussian mechanism with this epsilon and delta, rounded down."""
    low, high = np.full(eps.size, -30.0), np.full(eps.size, 12.0)  # of log mu: every sensible budget lies between
    for _ in range(40):
        middle = (low + high) / 2
        over = gaussian_delta(np.exp(middle), eps) > delta
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.asarray(np.exp(low))


def _square(rate: Any, multiplier: Any) -> Any:
    """Return the chi-square divergence of a step, which determines the cost of many steps."""
    return rate**2 * np.expm1(np.minimum(1 / multiplier**2, 500.0))  # expm1 overflows above 709


def _inputs(epsilon: ArrayLike, delta: ArrayLike, **others: ArrayLike) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """Return the common shape and the flat columns of the arguments of an inverse."""
    rules = {
        "sample_rate": {"rule": "lie in (0, 1]", "above": 0, "most": 1},
        "noise_multiplier": {"rule": "be > 0", "above": 0},
        "steps": {"rule": "be whole numbers >= 1", "least": 1, "whole": True},
    }
    columns = [
        checked_numbers("epsilon", epsilon, "be > 0", above=0),
        checked_numbers("delta", delta, "lie in (0, 1)", above=0, below=1),
        *[checked_numbers(name, values, **rules[name]) for name, values in others.items()],  # type: ignore[arg-type]
    ]
    wide = np.broadcast_arrays(*columns)
    return wide[0].shape, [column.reshape(-1) for column in wide]


def _require_feasible(result: np.ndarray, eps: np.ndarray, why: str) -> None:
    """Raise for the first budget without a solution."""
    bad = np.flatnonzero(np.isnan(result))
    if bad.size:
        raise ValueError(f"epsilon {eps[bad[0]]:g} at position {bad[0]} is too small: {why}")
