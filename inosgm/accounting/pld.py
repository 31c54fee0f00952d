"""Privacy loss distributions of sampled Gaussian steps: epsilons to four digits, and never too small.

Steps are put on a grid as `discrete` describes, and compositions are FFTs. Two things are done otherwise than in
dp_accounting, which the tests compare with. Mass is measured bin by bin; and the distribution is tilted by
exp(theta * loss), theta the optimal Chernoff order, before it is composed, so that
the tail that decides delta sits in the middle of the window and is known to a relative, not an absolute,
precision. Both make the window short and the grid free: its interval is chosen from the case, by the variance
that the rounding adds.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import fft

from inosgm.accounting.discrete import CUT, Change, Entry, Step, discretise, ends
from inosgm.accounting.gaussian import gaussian_epsilon

Case = tuple[float | tuple[float, ...], float | tuple[float, ...], int]
"""A sample rate, a noise multiplier and a number of steps; tuples of both for a menu of which no entry dominates."""

TOLERANCE = 1e-4
"""What the grid may add to an epsilon, relatively, while the grid is not at its largest."""

LEAST_DELTA = 1e-13
"""Below it, rounding in the FFT can outweigh the tail that decides delta."""

_FIRST_POINTS, _MOST_POINTS = 1 << 12, 1 << 20


@lru_cache(maxsize=1 << 18)
def pld_epsilon(cases: tuple[Case, ...], delta: float, *, replaced: bool = False) -> float:
    """Return the epsilon of the composed cases at one delta, from above; each distinct question is worked out once.

    Multipliers are relative to how far a record that is added or removed, or `replaced`, moves the sum.
    """
    cases = tuple(_joined(case) for case in cases if case[2] and case[0])
    if all(rate == 1 for rate, _, _ in cases):
        mu = math.sqrt(sum(m**-2.0 for _, m, _ in cases))  # type: ignore[operator]
        return float(gaussian_epsilon(mu, delta)) if cases else 0.0
    rates = [max(rate) if isinstance(rate, tuple) else rate for rate, _, _ in cases]
    drawn = [-math.expm1(n * math.log1p(-q)) if q < 1 else 1.0 for q, (_, _, n) in zip(rates, cases, strict=True)]
    never = sum(count * math.log1p(-q) for q, (_, _, count) in zip(rates, cases, strict=True) if q < 1)
    if all(rate < 1 for rate in rates) and -math.expm1(never) <= delta:
        return 0.0  # the record is drawn with probability delta at most
    if delta < LEAST_DELTA:
        other = "RDPReplaceOne()" if replaced else "RDP()"
        raise ValueError(f"distributions account for a delta of at least {LEAST_DELTA:g}, got {delta:g}: take {other}")
    whole = 0.0
    changes: tuple[Change, ...] = ("replaced",) if replaced else ("removed", "added")
    for change in changes:
        whole = _epsilon(cases, delta, change, least=whole)
    # Drawing a record in a rare segment may also be counted into delta, and the segment left out. That is tighter where
    # its few great losses would coarsen the grid of all others.
    often = tuple(case for case, p in zip(cases, drawn, strict=True) if p > delta / 4)
    left = delta - sum(p for p in drawn if p <= delta / 4)
    if len(often) < len(cases) and left >= max(delta / 2, LEAST_DELTA):
        return min(whole, pld_epsilon(often, left, replaced=replaced))
    return whole


def _joined(case: Case) -> Case:
    """Return all steps of a case as one, if the record is in every batch."""
    rate, multiplier, count = case
    if rate == 1 and not isinstance(multiplier, tuple):
        return 1.0, multiplier / math.sqrt(count), 1
    return case


def _entries(case: Case) -> tuple[Entry, ...]:
    """Return the choices that there were at each step of a case."""
    rate, multiplier, _ = case
    if isinstance(rate, tuple) and isinstance(multiplier, tuple):
        return tuple(zip(rate, multiplier, strict=True))
    return ((float(rate), float(multiplier)),)  # type: ignore[arg-type]


def _epsilon(cases: Sequence[Case], delta: float, change: Change, *, least: float) -> float:
    """Return the epsilon when the record is added, removed or replaced, or least if greater."""
    counts = [count for _, _, count in cases]
    menus = [_entries(case) for case in cases]
    between = [ends(menu, delta / sum(counts), change) for menu in menus]
    # With very little noise an added record has one and the same loss nearly everywhere.
    width = max(max(high - low, 1e-6 * abs(high), 1e-300) for low, high in between)
    interval, finest, epsilon = width / _FIRST_POINTS, width / _MOST_POINTS, math.inf
    while True:
        pieces = [discretise(menu, pair, interval, change) for menu, pair in zip(menus, between, strict=True)]
        found, slope, spread = _Composition(pieces, counts, interval, delta).epsilon()
        epsilon = min(epsilon, found)  # all of them are upper bounds
        # Rounding keeps the moments of order 0 and -1 and adds `spread` to the variance, so it adds
        # theta (theta + 1) / 2 * spread to the cumulant of order theta, and that over theta to epsilon.
        excess = (slope + 1) * spread / (2 * TOLERANCE * max(epsilon, 1e-300))
        if excess <= 1 or interval <= finest or epsilon <= least:
            return max(least, epsilon)
        interval = max(interval / min(max(1.2, 1.1 * math.sqrt(excess)), 16), finest)


class _Composition:
    """Steps composed: where the tail that decides delta is, and what it weighs."""

    def __init__(self, pieces: Sequence[Step], counts: Sequence[int], interval: float, delta: float) -> None:
        self.pieces, self.counts, self.interval = pieces, counts, interval
        never = sum(n * math.log1p(-min(s.infinite, 0.5)) for s, n in zip(pieces, counts, strict=True))
        self.left = delta + math.expm1(never)  # what the mass at infinity leaves of delta
        with np.errstate(divide="ignore"):
            self.logs = [np.log(step.mass) for step in pieces]
        self.losses = [(step.first + np.arange(step.mass.size)) * interval for step in pieces]

    def epsilon(self) -> tuple[float, float, float]:
        """Return the smallest epsilon, -d log(delta) / d epsilon there, and the variance that rounding has added."""
        order, bound = self._chernoff(math.log(self.left))
        theta = order / 2  # half way: the tail is in sight, and rare great losses have not taken over yet
        base = self.cumulant(theta)
        weights = [self._tilted(index, theta) for index in range(len(self.pieces))]
        spread = sum(
            n * float(weight @ step.rounded) for step, n, weight in zip(self.pieces, self.counts, weights, strict=True)
        )
        tail, wrap = math.log(CUT * self.left), math.log(1e-8)
        high = min((self.cumulant(o) - tail) / o for o in order * np.array([0.8, 1, 1.2, 1.5]))
        low = max((self.cumulant(o) - base - wrap) / (o - theta) for o in theta * np.array([-2, -1, -0.5, 0, 0.4, 0.7]))
        last = math.ceil(high / self.interval)
        for start in (min(low, bound / 2), min(low, 0.0)):
            first = math.floor(start / self.interval)
            if last - first > 8 * _MOST_POINTS or (last - first) * self.interval > 600:
                break
            losses = (first + np.arange(fft.next_fast_len(last - first + 1, real=True))) * self.interval
            mass = self._compose(weights, first, losses.size)
            found, slope = self._solve(mass, losses, base, theta)
            if found > losses[0] or start <= 0:
                return min(found, bound), slope, spread
            # Epsilon lies below the window, about which the window knows nothing: look again from 0 on.
        return bound, order, spread

    def _compose(self, weights: Sequence[np.ndarray], first: int, length: int) -> np.ndarray:
        """Return the tilted mass of the composed loss on `length` points of the grid, modulo the length."""
        spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
        for step, count, weight in zip(self.pieces, self.counts, weights, strict=True):
            places = (step.first + np.arange(weight.size)) % length
            folded = np.bincount(places, weights=weight, minlength=length)
            with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
                spectrum *= np.exp(count * np.log(fft.rfft(folded)))
        mass = np.roll(fft.irfft(spectrum, length), -(first % length))
        if not np.isfinite(mass).all():
            raise ArithmeticError("a composed privacy loss is not a number; please report the case")
        return np.asarray(np.maximum(mass, 0.0))

    def _solve(self, mass: np.ndarray, losses: np.ndarray, base: float, theta: float) -> tuple[float, float]:
        """Return the epsilon whose delta is what is left, at least the first loss, and the slope there."""
        from scipy import signal  # takes longer to import than all the rest, and who only trains does not need it

        left = (1 - CUT) * self.left  # the rest pays for what lies above the window
        with np.errstate(under="ignore", over="ignore"):
            weight = mass * np.exp(np.minimum(base - theta * losses, 700))
            upper = np.cumsum(weight[::-1])[::-1]
            # delta at epsilon = each loss, from the top down: D_i = e^-h D_(i+1) + (1 - e^-h) U_(i+1), where U is the
            # mass above. Everything is positive, so nothing cancels; what overflows at the bottom is too large anyway.
            above = np.append(upper[1:], 0.0)[::-1] * -math.expm1(-self.interval)
            deltas = signal.lfilter([1.0], [1.0, -math.exp(-self.interval)], above)[::-1]
        if np.isnan(deltas).any():
            raise ArithmeticError("a composed privacy loss is not a number; please report the case")
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

        # Quasi-convex in the order: walk downhill, then divide the bracket by the golden ratio.
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
        one, two = high - golden * (high - low), low + golden * (high - low)
        f_one, f_two = bound(one), bound(two)
        while high - low > 0.2:
            if f_one < f_two:
                high, two, f_two = two, one, f_one
                one = high - golden * (high - low)
                f_one = bound(one)
            else:
                low, one, f_one = one, two, f_two
                two = low + golden * (high - low)
                f_two = bound(two)
        return min(((math.exp(one), f_one), (math.exp(two), f_two)), key=lambda pair: pair[1])
