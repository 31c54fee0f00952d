"""What steps cost, and which rate, multiplier or number of steps a budget buys."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from inosgm.accounting.accountants import Accountant, chosen
from inosgm.accounting.curves import CHECK, FEW, GUESS, MARGIN, Curve, solve
from inosgm.accounting.gaussian import gaussian_delta
from inosgm.accounting.segments import Segment, _numbers, _unchecked
from inosgm.accounting.unique_rows import distinct

# A coin thrown with a double precision number cannot be trusted to fall less often than the least rate.
LEAST_RATE, MOST_RATE = 1e-15, 1.0
LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.02, 1e7
MOST_STEPS = 10**7


def epsilon(
    sample_rate: ArrayLike,
    noise_multiplier: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the epsilon of a number of sampled Gaussian steps.

    **Guarantee.** Never below the true epsilon for one record added or removed.

    Args:
        sample_rate: Probability that the record is in a step's batch, in [0, 1].
        noise_multiplier: Standard deviation of the noise over the sensitivity of the record.
        steps: How many steps.
        delta: In (0, 1).
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: naming the argument that cannot be.

    >>> print(round(epsilon(512 / 60000, 2.0, 9375, 1e-5), 3))
    1.749
    >>> epsilon([0.01, 0.02], 2.0, 1000, 1e-5).round(3)
    array([0.622, 1.33 ])
    """
    wide = np.broadcast_arrays(sample_rate, noise_multiplier, steps, delta)
    *numbers, deltas = (column.reshape(-1) for column in wide)
    found = composed_epsilon([Segment(*numbers)], deltas, accountant)
    return np.reshape(found, wide[0].shape)[()]


def composed_epsilon(segments: Sequence[Segment], delta: ArrayLike, accountant: Accountant | None = None) -> Any:
    """Return the epsilon of several segments of steps, one after the other.

    **Guarantee.** Never below the true epsilon for one record added or removed (or replaced, by the accountants of that
    unit). What is computed may depend on what earlier steps released; rates, multipliers and steps must not, but for
    the choice of each step from its menu.

    Args:
        segments: What was done; their numbers are broadcast with each other and with delta.
        delta: In (0, 1); one number or one per owner.
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays.

    Raises:
        ValueError: naming the argument that cannot be.

    >>> print(round(composed_epsilon([Segment(0.01, 1.0, 100), Segment(0.01, 2.0, 900)], 1e-5), 3))
    0.891
    """
    deltas = _numbers("delta", delta, "lie in (0, 1)", above=0, below=1)
    if not segments:
        return np.zeros(deltas.shape)[()]
    shape = np.broadcast_shapes(deltas.shape, *(column.shape for segment in segments for column in segment.columns()))
    if len(shape) > 1:
        raise ValueError(f"delta must be one number or one per owner, got an array of shape {deltas.shape}")
    deltas = np.broadcast_to(deltas, shape).reshape(-1)
    found, _ = chosen(accountant).epsilon([segment.rows_of(deltas.size) for segment in segments], deltas)
    return found.reshape(shape)[()]


def noise_multiplier(
    epsilon: ArrayLike,
    delta: ArrayLike,
    sample_rate: ArrayLike,
    steps: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the least noise multiplier with which the steps keep the budget.

    **Guarantee.** The epsilon of the result is at most the one asked for.

    Args:
        epsilon: Above 0.
        delta: In (0, 1).
        sample_rate: In (0, 1].
        steps: At least 1.
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: naming the argument that cannot be, or the budget that no multiplier keeps.

    >>> print(round(noise_multiplier(1.0, 1e-5, 0.01, 1000), 2))
    1.41
    """
    shape, (eps, dlt, rate, count) = _inputs(epsilon, delta, sample_rate=sample_rate, steps=steps)
    found = multipliers(eps, dlt, rate, count, (), chosen(accountant))
    _refuse(found, eps, f"no noise multiplier up to {MOST_MULTIPLIER:g} keeps it: lower sample_rate or steps")
    return found.reshape(shape)[()]


def sample_rate(
    epsilon: ArrayLike,
    delta: ArrayLike,
    noise_multiplier: ArrayLike,
    steps: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return the greatest sample rate with which the steps keep the budget, 1 if every rate does.

    **Guarantee.** The epsilon of the result is at most the one asked for.

    Args:
        epsilon: Above 0.
        delta: In (0, 1).
        noise_multiplier: Above 0.
        steps: At least 1.
        accountant: PLD() if not given.

    Returns:
        A number for numbers; an array for arrays, which are broadcast.

    Raises:
        ValueError: naming the argument that cannot be, or the budget that no rate keeps.

    >>> print(round(sample_rate(1.0, 1e-5, 2.0, 1000), 4))
    0.0154
    """
    shape, (eps, dlt, multiplier, count) = _inputs(epsilon, delta, noise_multiplier=noise_multiplier, steps=steps)
    found = rates(eps, dlt, multiplier, count, (), chosen(accountant))
    _refuse(found, eps, f"no sample rate down to {LEAST_RATE:g} keeps it: raise noise_multiplier or lower steps")
    return found.reshape(shape)[()]


def steps(
    epsilon: ArrayLike,
    delta: ArrayLike,
    sample_rate: ArrayLike,
    noise_multiplier: ArrayLike,
    accountant: Accountant | None = None,
) -> Any:
    """Return how many steps a budget pays for, at most ten million; 0 if not even one.

    **Guarantee.** The epsilon of the result is at most the one asked for. Up to 10,000 steps it is the
    greatest such number by this accountant; beyond, at most 0.01 % less.

    Args:
        epsilon: Above 0.
        delta: In (0, 1).
        sample_rate: In (0, 1].
        noise_multiplier: Above 0.
        accountant: PLD() if not given.

    Returns:
        A whole number for numbers; an array of them for arrays, which are broadcast.

    Raises:
        ValueError: naming the argument that cannot be.

    >>> print(steps(1.0, 1e-5, 0.01, 1.5))
    1178
    """
    shape, (eps, dlt, rate, multiplier) = _inputs(
        epsilon, delta, sample_rate=sample_rate, noise_multiplier=noise_multiplier
    )
    first, kinds = distinct([eps, dlt, rate, multiplier])
    found = [_steps(eps[i], dlt[i], rate[i], multiplier[i], chosen(accountant)) for i in first]
    return np.array(found, dtype=np.int64)[kinds].reshape(shape)[()]


def _steps(budget: float, delta: float, rate: float, multiplier: float, accountant: Accountant) -> int:
    """Return the number of steps for one case, by secants and halves on a log scale."""

    def value(count: int) -> float:
        found = composed_epsilon([Segment(rate, multiplier, count)], delta, accountant)
        return math.log(max(float(found), 1e-30) / budget)

    guess = float(_mu(np.array([budget]), np.array([delta]))[0]) ** 2 / _square(rate, multiplier)
    low, high, at = 0, 0, int(min(max(guess, 1), MOST_STEPS))
    f_low, f_high = -math.inf, math.inf
    while not high or high - low > max(1, 1e-4 * low):
        found = value(at)
        if found <= 0:
            low, f_low = at, found
            if at == MOST_STEPS:
                return at
        else:
            high, f_high = at, found
        if not high:
            at = min(MOST_STEPS, max(at + 1, int(at * math.exp(min(2.5 * abs(f_low) + 0.01, 2)))))
        elif not low:
            at = max(1, min(high - 1, int(high * math.exp(-min(2.5 * f_high + 0.01, 2))))) if high > 1 else 0
            if not at:
                return 0
        else:
            part = min(max(f_low / (f_low - f_high), 0.05), 0.95) if (low + high) % 3 else 0.5
            at = min(max(low + 1, round(low + part * (high - low))), high - 1)
    return low


def multipliers(
    eps: np.ndarray,
    delta: np.ndarray,
    rate: np.ndarray,
    count: np.ndarray,
    past: Sequence[Segment],
    accountant: Accountant,
) -> np.ndarray:
    """Return the noise multiplier of every row after its past, nan where none keeps the budget."""

    def ahead(s: np.ndarray, rows: np.ndarray) -> Segment:
        return _unchecked(rate[rows], np.exp(-s), count[rows])

    def start(rows: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            ratio = np.log1p(_mu(eps[rows], delta[rows]) ** 2 / (rate[rows] ** 2 * count[rows]))
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
    """Return the sample rate of every row after its past, nan where none keeps the budget; a guess saves time."""

    def ahead(s: np.ndarray, rows: np.ndarray) -> Segment:
        return _unchecked(np.minimum(np.exp(s), 1.0), multiplier[rows], count[rows])

    def start(rows: np.ndarray) -> np.ndarray:
        if guess is not None:
            return np.asarray(np.log(guess[rows]))
        step = count[rows] * _square(1.0, multiplier[rows])
        return np.asarray(np.log(_mu(eps[rows], delta[rows])) - 0.5 * np.log(step))

    line = _Line(accountant, past, delta, ahead, start, (math.log(LEAST_RATE), math.log(MOST_RATE)))
    return np.asarray(np.minimum(np.exp(line.invert(eps, [multiplier, count])), 1.0))


@dataclass(frozen=True)
class _Line:
    """The question which coordinate s (a log rate, or minus a log multiplier) of the segment ahead spends a budget."""

    accountant: Accountant
    past: Sequence[Segment]
    delta: np.ndarray
    ahead: Callable[[np.ndarray, np.ndarray], Segment]
    start: Callable[[np.ndarray], np.ndarray]
    limits: tuple[float, float]

    def segments(self, s: np.ndarray, rows: np.ndarray) -> list[Segment]:
        """Return what is done to the rows if their coordinates are s."""
        return [*(segment.rows(rows) for segment in self.past), self.ahead(s, rows)]

    def invert(self, eps: np.ndarray, lines: Sequence[np.ndarray]) -> np.ndarray:
        """Return the coordinate of every row: each distinct case once, by a shared curve where many lie on one line."""
        lines = [self.delta, *lines, *(column for segment in self.past for column in segment.columns())]
        first, case_of = distinct([eps, *lines])
        _, line_of = distinct([column[first] for column in lines])
        members = np.bincount(line_of)
        found = np.full(first.size, np.nan)
        for line in np.flatnonzero(members > FEW):
            mine = np.flatnonzero(line_of == line)
            mine = mine[np.argsort(eps[first[mine]])]
            found[mine] = self._many(eps[first[mine]], first[mine])
        alone = np.flatnonzero(members[line_of] <= FEW)
        if alone.size:
            found[alone] = self._few(eps[first[alone]], first[alone])
        return np.asarray(found[case_of])

    def _few(self, eps: np.ndarray, rows: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """Solve the rows one by one."""

        def question(s: np.ndarray, some: np.ndarray) -> np.ndarray:
            return self.accountant.epsilon(self.segments(s, rows[some]), self.delta[rows[some]])[0]

        start = self.start(rows) if start is None else start
        return solve(question, eps, start, *self.limits, self.accountant.precision)

    def _many(self, eps: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Read the coordinates of rows on one line, whose budgets rise, off a curve."""

        def question(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            row = np.full(s.size, rows[0])
            return self.accountant.epsilon(self.segments(s, row), self.delta[row])

        goal = np.log(eps)
        exact = self.accountant.confirms
        curve = Curve(question, *self.limits, GUESS if exact else CHECK)
        picks = np.searchsorted(goal, np.linspace(goal[0], goal[-1], 4 + int((goal[-1] - goal[0]) / 0.5)))
        curve.add(self.start(rows[np.unique(np.minimum(picks, goal.size - 1))]))
        curve.cover(float(goal[0]) - 0.01, float(goal[-1]))
        hopeless = curve.y[0] > goal
        found = curve.inverse(goal - (GUESS if exact else MARGIN))
        if exact:
            off = np.arange(goal.size)
            for closely in (False, True):
                segments, hint = self.segments(found[off], rows[off]), curve.hints(found[off])
                known = self.accountant.confirm(segments, self.delta[rows[off]], hint, closely=closely)
                off = off[(known > eps[off]) | (known < eps[off] * (1 - 3 * GUESS))]
            if off.size:
                found[off] = self._few(eps[off], rows[off], found[off])
        found[hopeless] = np.nan
        return found


def _mu(eps: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Return the mu of the Gaussian mechanism with this epsilon and delta: where to start looking."""
    low, high = np.full(eps.size, -30.0), np.full(eps.size, 12.0)
    for _ in range(40):
        middle = (low + high) / 2
        over = gaussian_delta(np.exp(middle), eps) > delta
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.asarray(np.exp(low))


def _square(rate: Any, multiplier: Any) -> Any:
    """Return the chi-square divergence of a step, which decides the cost of many of them."""
    return rate**2 * np.expm1(np.minimum(1 / multiplier**2, 500.0))


def _inputs(epsilon: ArrayLike, delta: ArrayLike, **others: ArrayLike) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """Return the common shape and the flat columns of the arguments of an inverse."""
    rules = {
        "sample_rate": {"rule": "lie in (0, 1]", "above": 0, "most": 1},
        "noise_multiplier": {"rule": "be > 0", "above": 0},
        "steps": {"rule": "be whole numbers >= 1", "least": 1, "whole": True},
    }
    columns = [
        _numbers("epsilon", epsilon, "be > 0", above=0),
        _numbers("delta", delta, "lie in (0, 1)", above=0, below=1),
        *[_numbers(name, values, **rules[name]) for name, values in others.items()],  # type: ignore[arg-type]
    ]
    wide = np.broadcast_arrays(*columns)
    return wide[0].shape, [column.reshape(-1) for column in wide]


def _refuse(found: np.ndarray, eps: np.ndarray, why: str) -> None:
    """Raise for the first budget that cannot be kept."""
    bad = np.flatnonzero(np.isnan(found))
    if bad.size:
        raise ValueError(f"epsilon {eps[bad[0]]:g} at position {bad[0]} is too small: {why}")
