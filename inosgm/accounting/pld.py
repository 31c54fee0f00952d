"""Privacy loss distributions of sampled Gaussian steps: epsilons to four digits, never below the true value.

Steps are discretised as in `discrete` and composed by FFT. Two things differ from dp_accounting, with which the tests
compare. First, mass is computed bin by bin. Second, the distribution is tilted by exp(theta * loss), theta half the
optimal Chernoff order, before it is composed: the tail that determines delta then lies in the middle of the window and
has a relative instead of an absolute precision. Both make the window short, and leave the choice of the interval free:
it is chosen for each case by the variance that rounding adds.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy import fft

from inosgm.accounting.discrete import CUT, Change, Entry, Step, discretise, ends
from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.accounting.segments import Segment, undominated

Case = tuple[float | tuple[float, ...], float | tuple[float, ...], int]
"""A sample rate, a noise multiplier and a number of steps; for a menu, tuples of its undominated entries."""

TOLERANCE = 1e-4
"""Largest relative error that the grid may add to an epsilon, as long as the grid has less than 2^20 points."""

LEAST_DELTA = 1e-13
"""Smallest delta: below it, rounding in the FFT can outweigh the tail that determines delta."""

_FIRST_POINTS, _MOST_POINTS = 1 << 12, 1 << 20  # of the grid of one step
_WRAPPED_MASS = 1e-8  # relative mass that the circular FFT may wrap around the window
_FFT_ERROR = 1e-14  # error of a tilted tail by rounding in the FFT: a hundred times eps, for its log and the clipping
_FFT_STEP_ERROR = 4e-18  # the same per step: powers multiply the error of a spectrum; ten times what was measured
_CURVE_ERROR = (
    1e-3  # largest error of a whole curve by rounding in the FFT, relative to delta, if the tilt can be chosen
)


@lru_cache(maxsize=1 << 18)
def pld_epsilon(cases: tuple[Case, ...], delta: float, *, replaced: bool = False) -> float:
    """Return an upper bound on the epsilon of the composed cases at one delta; each distinct question is cached.

    Multipliers are relative to the largest change of the sum by one record that is added or removed, or `replaced`.
    """
    cases = tuple(with_joined_steps(case) for case in cases if case[2] and case[0])
    if all(rate == 1 for rate, _, _ in cases):
        mu = math.sqrt(sum(m**-2.0 for _, m, _ in cases))  # type: ignore[operator]
        return float(gaussian_epsilon(mu, delta)) if cases else 0.0
    rates = [max(rate) if isinstance(rate, tuple) else rate for rate, _, _ in cases]
    drawn = [-math.expm1(n * math.log1p(-q)) if q < 1 else 1.0 for q, (_, _, n) in zip(rates, cases, strict=True)]
    never = sum(count * math.log1p(-q) for q, (_, _, count) in zip(rates, cases, strict=True) if q < 1)
    if all(rate < 1 for rate in rates) and -math.expm1(never) <= delta:
        return 0.0  # the record is sampled with probability delta at most
    if delta < LEAST_DELTA:
        other = "RDPReplaceOne()" if replaced else "RDP()"
        raise ValueError(f"distributions account for a delta of at least {LEAST_DELTA:g}, got {delta:g}: take {other}")
    epsilon = 0.0
    changes: tuple[Change, ...] = ("replaced",) if replaced else ("removed", "added")
    for change in changes:
        epsilon = _epsilon(cases, delta, change, least=epsilon)
    # The probability of being sampled in a rare segment may be added to delta instead, and the segment left out. That
    # is tighter if its few large losses would coarsen the grid of all others.
    often = tuple(case for case, p in zip(cases, drawn, strict=True) if p > delta / 4)
    left = delta - sum(p for p in drawn if p <= delta / 4)
    if len(often) < len(cases) and left >= max(delta / 2, LEAST_DELTA):
        return min(epsilon, pld_epsilon(often, left, replaced=replaced))
    return epsilon


def case_of(segment: Segment, row: int, sensitivity_factor: float) -> Case:
    """Return one row of a segment as a case of a question, the same case for equal menus."""
    rate, multiplier = segment.sample_rate[row], segment.noise_multiplier[row] / sensitivity_factor
    steps = int(segment.steps[row])
    if not segment.is_menu:
        return float(rate), float(multiplier), steps
    rates, multipliers = undominated(rate, multiplier)
    if rates.size <= 1:
        return float(rates.sum()), float(multipliers.sum()), steps
    return tuple(rates.tolist()), tuple(multipliers.tolist()), steps


def with_joined_steps(case: Case) -> Case:
    """Return all steps of a case as one step if the record is in every batch (Gaussian mechanisms compose exactly)."""
    rate, multiplier, count = case
    if rate == 1 and not isinstance(multiplier, tuple):
        return 1.0, multiplier / math.sqrt(count), 1
    return case


def entries_of(case: Case) -> tuple[Entry, ...]:
    """Return the menu of each step of a case."""
    rate, multiplier, _ = case
    if isinstance(rate, tuple) and isinstance(multiplier, tuple):
        return tuple(zip(rate, multiplier, strict=True))
    return ((float(rate), float(multiplier)),)  # type: ignore[arg-type]


def _epsilon(cases: Sequence[Case], delta: float, change: Change, *, least: float) -> float:
    """Return the epsilon for one change of the record, or `least` if that is greater."""
    counts = [count for _, _, count in cases]
    menus = [entries_of(case) for case in cases]
    between = [ends(menu, delta / sum(counts), change) for menu in menus]

    def pieces(interval: float) -> list[Step]:
        return [discretise(menu, pair, interval, change) for menu, pair in zip(menus, between, strict=True)]

    return refined_epsilon(pieces, counts, between, delta, least=least)


def refined_epsilon(
    pieces: Callable[[float], Sequence[Step]],
    counts: Sequence[int],
    between: Sequence[tuple[float, float]],
    delta: float,
    *,
    least: float,
) -> float:
    """Return the epsilon of composed steps on a grid that is fine enough, or `least` if that is greater.

    Args:
        pieces: Returns the discretised steps, given the interval of the grid.
        counts: How often each of them is made.
        between: The losses between which each of them lies.
        delta: The delta.
        least: A bound below which nothing need be computed closely.
    """
    # With very little noise an added record has the same loss nearly everywhere, so the width needs a floor.
    width = max(max(high - low, 1e-6 * abs(high), 1e-300) for low, high in between)
    interval, finest, epsilon = width / _FIRST_POINTS, width / _MOST_POINTS, math.inf
    while True:
        bound, slope, spread = Composition(pieces(interval), counts, interval, delta).epsilon()
        epsilon = min(epsilon, bound)  # all of them are upper bounds
        # Rounding keeps the moments of order 0 and -1 and adds `spread` to the variance, so it adds
        # theta (theta + 1) / 2 * spread to the cumulant of order theta, and that over theta to epsilon.
        excess = (slope + 1) * spread / (2 * TOLERANCE * max(epsilon, 1e-300))
        if excess <= 1 or interval <= finest or epsilon <= least:
            return max(least, epsilon)
        # The added variance falls with the square of the interval; 1.1 avoids a second, slightly finer grid.
        interval = max(interval / min(max(1.2, 1.1 * math.sqrt(excess)), 16), finest)


class Composition:
    """The composed loss of discretised steps, and the epsilon at which its tail is delta."""

    def __init__(self, pieces: Sequence[Step], counts: Sequence[int], interval: float, delta: float) -> None:
        self.pieces, self.counts, self.interval = pieces, counts, interval
        never = sum(n * math.log1p(-min(s.infinite, 0.5)) for s, n in zip(pieces, counts, strict=True))
        self.left = delta + math.expm1(never)  # delta less the mass at infinity
        with np.errstate(divide="ignore"):
            self.logs = [np.log(step.mass) for step in pieces]
        self.losses = [(step.first + np.arange(step.mass.size)) * interval for step in pieces]

    def epsilon(self) -> tuple[float, float, float]:
        """Return the smallest epsilon, -d log(delta) / d epsilon there, and the variance that rounding has added."""
        order, bound = self._chernoff(math.log(self.left))
        theta = order / 2  # half of it: the tail is resolved, and rare large losses do not dominate yet
        base = self.cumulant(theta)
        weights = [self._tilted(index, theta) for index in range(len(self.pieces))]
        spread = sum(
            n * float(weight @ step.rounded) for step, n, weight in zip(self.pieces, self.counts, weights, strict=True)
        )
        # Chernoff bounds on both tails give the window; any order is valid, the best of a few is near the optimum.
        tail, wrap = math.log(CUT * self.left), math.log(_WRAPPED_MASS)
        high = min((self.cumulant(o) - tail) / o for o in order * np.array([0.8, 1, 1.2, 1.5]))
        low = max((self.cumulant(o) - base - wrap) / (o - theta) for o in theta * np.array([-2, -1, -0.5, 0, 0.4, 0.7]))
        last = math.ceil(high / self.interval)
        for start in (min(low, bound / 2), min(low, 0.0)):
            first = math.floor(start / self.interval)
            if last - first > 8 * _MOST_POINTS or (last - first) * self.interval > 600:
                break  # too large for memory, or for the exponentials of float64: the Chernoff bound remains
            losses = (first + np.arange(fft.next_fast_len(last - first + 1, real=True))) * self.interval
            mass = self._compose(weights, first, losses.size)
            epsilon, slope = self._solve(mass, losses, base, theta)
            if epsilon > losses[0] or start <= 0:
                return min(epsilon, bound), slope, spread
            # Epsilon lies below the window: repeat with a window that starts at 0.
        return bound, order, spread

    def _compose(self, weights: Sequence[np.ndarray], first: int, length: int) -> np.ndarray:
        """Return the tilted mass of the composed loss on `length` points of the grid, modulo the length."""
        spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
        for step, count, weight in zip(self.pieces, self.counts, weights, strict=True):
            points = (step.first + np.arange(weight.size)) % length
            folded = np.bincount(points, weights=weight, minlength=length)
            with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
                spectrum *= np.exp(count * np.log(fft.rfft(folded)))
        mass = np.roll(fft.irfft(spectrum, length), -(first % length))
        if not np.isfinite(mass).all():
            raise ArithmeticError("a composed privacy loss is not a number; please report the case")
        return np.asarray(np.maximum(mass, 0.0))

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return losses from 0 on, and an upper bound on the delta at each of them as epsilon; empty if too many.

        Every delta has an absolute error that is small against `left`, because the tilt is limited; between two losses
        delta does not rise.
        """
        order, _ = self._chernoff(math.log(self.left))
        error = _FFT_ERROR + _FFT_STEP_ERROR * sum(self.counts)
        theta, most = order / 2, max(math.log(_CURVE_ERROR * self.left / error), 0.5)
        while self.cumulant(theta) > most:  # a bounded loss has orders without limit, whose tilt hides small losses
            theta /= 2
        base = self.cumulant(theta)
        tail, wrap = math.log(CUT * self.left), math.log(_WRAPPED_MASS * _CURVE_ERROR * self.left)
        high = min((self.cumulant(o) - tail) / o for o in order * np.array([0.8, 1, 1.2, 1.5]))
        low = max((self.cumulant(o) - base - wrap) / (o - theta) for o in theta * np.array([-4, -2, -1, -0.5, 0]))
        first, last = math.floor(min(low, 0.0) / self.interval), max(math.ceil(high / self.interval), 1)
        if last - first > 8 * _MOST_POINTS:
            return np.empty(0), np.empty(0)
        losses = (first + np.arange(fft.next_fast_len(last - first + 1, real=True))) * self.interval
        weights = [self._tilted(index, theta) for index in range(len(self.pieces))]
        deltas, _ = self._tails(self._compose(weights, first, losses.size), losses, base, theta)
        spare = CUT * self.left + error * math.exp(base)
        return losses[-first:], deltas[-first:] + spare

    def _tails(self, mass: np.ndarray, losses: np.ndarray, base: float, theta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return delta at epsilon = each loss, and the mass from there on, of a tilted mass."""
        from scipy import signal  # slower to import than all the rest, and not needed for training

        with np.errstate(under="ignore", over="ignore"):
            weight = mass * np.exp(np.minimum(base - theta * losses, 700))
            upper = np.cumsum(weight[::-1])[::-1]
            # delta at epsilon = each loss, from the top down: D_i = e^-h D_(i+1) + (1 - e^-h) U_(i+1), where U is the
            # mass above. All terms are positive, so nothing cancels; values that overflow at the bottom exceed delta.
            above = np.append(upper[1:], 0.0)[::-1] * -math.expm1(-self.interval)
            deltas = signal.lfilter([1.0], [1.0, -math.exp(-self.interval)], above)[::-1]
        if np.isnan(deltas).any():
            raise ArithmeticError("a composed privacy loss is not a number; please report the case")
        return deltas, upper

    def _solve(self, mass: np.ndarray, losses: np.ndarray, base: float, theta: float) -> tuple[float, float]:
        """Return the epsilon whose delta is `left`, at least the first loss, and the slope there."""
        left = (1 - CUT) * self.left  # the rest pays for the mass above the window
        deltas, upper = self._tails(mass, losses, base, theta)
        index = int(np.argmax(deltas <= left))
        lower = upper[index] - deltas[index]  # the mass above, discounted by exp(epsilon - loss)
        slope = float(lower / left)
        if index == 0 or upper[index] <= left or lower <= 0:
            return float(losses[index]), slope
        return min(float(losses[index]), losses[index] + math.log((upper[index] - left) / lower)), slope

    def cumulant(self, order: float) -> float:
        """Return the logarithm of the moment generating function of the composed loss."""
        total = 0.0
        for log, loss, count in zip(self.logs, self.losses, self.counts, strict=True):
            exponent = log + order * loss
            most = exponent.max()
            total += count * (most + math.log(np.exp(exponent - most).sum()))
        return float(total)

    def _tilted(self, index: int, theta: float) -> np.ndarray:
        exponent = self.logs[index] + theta * self.losses[index]
        weight = np.exp(exponent - exponent.max())
        return np.asarray(weight / weight.sum())

    def _chernoff(self, log_delta: float) -> tuple[float, float]:
        """Return the order with the least Chernoff bound (cumulant - log delta) / order on epsilon, and the bound."""

        def bound(log_order: float) -> float:
            order = math.exp(log_order)
            return (self.cumulant(order) - log_delta) / order

        # The bound is quasi-convex in the order: walk downhill, then divide the bracket by the golden ratio. Every
        # order gives a valid bound, so 0.2 on the log scale is precise enough.
        at, step = 1.0, 1.5
        here, ahead = bound(at), bound(at + step)
        if ahead > here:
            step = -step
            ahead = bound(at + step)
        while ahead < here and abs(at) < 60:
            at, here = at + step, ahead
            ahead = bound(at + step)
        low, high = at - abs(step), at + abs(step)
        golden = (math.sqrt(5) - 1) / 2
        left, right = high - golden * (high - low), low + golden * (high - low)
        f_left, f_right = bound(left), bound(right)
        while high - low > 0.2:  # every order gives a valid bound, which is flat near the best one
            if f_left < f_right:
                high, right, f_right = right, left, f_left
                left = high - golden * (high - low)
                f_left = bound(left)
            else:
                low, left, f_left = left, right, f_right
                right = low + golden * (high - low)
                f_right = bound(right)
        return min(((math.exp(left), f_left), (math.exp(right), f_right)), key=lambda pair: pair[1])
