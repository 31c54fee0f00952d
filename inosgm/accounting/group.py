"""Group privacy: what sampled Gaussian steps reveal about k records together, by privacy loss distributions.

Of k records of one owner, J ~ Binomial(k, q) are in a batch, and J of them move a sum by at most J times the
sensitivity: adding them one after another, each moves it by at most the sensitivity. A step is therefore dominated by
sum_j P(J = j) N(j, m^2) against N(0, m^2), whatever the directions are (Choquette-Choo et al. 2024, on mixtures of
Gaussians with vectors of bounded norm). Losses are log sum_j P(J = j) exp((2 j x - j^2) / (2 m^2)), which rises with x.
They are put on a grid as in `discrete`: the mass between two points is split so that its probability under both
neighbours is unchanged.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from inosgm.accounting.discrete import CUT, Step
from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.accounting.pld import LEAST_DELTA, refined_epsilon

Case = tuple[float, float, int]
"""A sample rate, a noise multiplier and a number of steps."""

_LOW_TAIL = 1e-11
"""Mass below a grid; it is moved up, which is safe."""

_HALVINGS = 60
"""Bisections for the point with a given loss: float64 has no more digits."""


@lru_cache(maxsize=1 << 14)
def group_epsilon(cases: tuple[Case, ...], delta: float, size: int) -> float:
    """Return an upper bound on the epsilon of the composed cases for `size` records that are added or removed together.

    >>> [round(group_epsilon(((0.01, 1.0, 1000),), 1e-5, size), 2) for size in (1, 4)]
    [1.83, 8.9]
    """
    cases = tuple(case for case in cases if case[2] and case[0])
    if all(rate == 1 for rate, _, _ in cases):
        mu = size * math.sqrt(sum(count / multiplier**2 for _, multiplier, count in cases))
        return float(gaussian_epsilon(mu, delta)) if cases else 0.0
    if delta < LEAST_DELTA:
        raise ValueError(f"distributions account for a delta of at least {LEAST_DELTA:g}, got {delta:g}")
    counts, epsilon = [count for _, _, count in cases], 0.0
    for added in (False, True):
        steps = [_GroupStep(rate, multiplier, size, delta / sum(counts), added) for rate, multiplier, _ in cases]

        def pieces(interval: float, steps: Sequence[_GroupStep] = steps) -> list[Step]:
            return [step.discretised(interval) for step in steps]

        epsilon = refined_epsilon(pieces, counts, [step.between for step in steps], delta, least=epsilon)
    return float(epsilon)


class _GroupStep:
    """One step: the mixture against the Gaussian around 0 (records are removed), or the other way round (added)."""

    def __init__(self, rate: float, multiplier: float, size: int, delta: float, added: bool) -> None:
        self.multiplier, self.added = multiplier, added
        drawn = np.arange(size + 1.0)
        with np.errstate(divide="ignore"):
            logs = special.xlogy(drawn, rate) + special.xlog1py(size - drawn, -rate)
        logs += special.gammaln(size + 1) - special.gammaln(drawn + 1) - special.gammaln(size - drawn + 1)
        kept = np.isfinite(logs)
        self.drawn, self.logs = drawn[kept], logs[kept]
        self.odds = np.exp(self.logs) / np.exp(self.logs).sum()
        far, near = -special.ndtri(CUT * delta / 4), -special.ndtri(_LOW_TAIL)
        if added:
            self.begin, self.end = -multiplier * far, multiplier * near
        else:
            tails = np.minimum(0.5, CUT * delta / 4 / size / np.maximum(self.odds, 1e-300))
            self.begin, self.end = -multiplier * near, float((self.drawn - multiplier * special.ndtri(tails)).max())
        low, high = self._loss(np.array([self.begin, self.end])).tolist()
        self.between = (-high, -low) if added else (low, high)

    def _loss(self, points: np.ndarray) -> np.ndarray:
        """Return the loss at points of the sum, if records are removed."""
        exponents = (2 * points[:, None] * self.drawn - self.drawn**2) / (2 * self.multiplier**2)
        return np.asarray(special.logsumexp(exponents + self.logs, axis=1))

    def _points(self, losses: np.ndarray) -> np.ndarray:
        """Return the points at which these losses are reached, ascending with the losses."""
        low, high = np.full(losses.size, self.begin - 1.0), np.full(losses.size, self.end + 1.0)
        least, most = self._loss(low[:1])[0], self._loss(high[:1])[0]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self._loss(middle) < losses
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(losses <= least, -np.inf, np.where(losses > most, np.inf, high))

    def discretised(self, interval: float) -> Step:
        """Return the step on the grid."""
        first, last = math.floor(self.between[0] / interval), math.ceil(self.between[1] / interval)
        last = max(last, first + 1)
        grid = np.arange(first, last + 1) * interval
        points = self._points(-grid[::-1])[::-1] if self.added else self._points(grid)
        mixture = self._mass(points) @ self.odds
        alone = _between(points / self.multiplier)
        own, other = (alone, mixture) if self.added else (mixture, alone)
        with np.errstate(all="ignore"):  # exp of large losses meets masses that are 0
            up = (own - other * np.exp(np.minimum(grid[:-1], 700))) / (own * -math.expm1(-interval))
        up = np.where(np.isfinite(up) & (own > 1e-14), np.clip(up, 0.0, 1.0), 1.0)  # tiny masses are rounded up
        total, rounded = np.zeros(grid.size), np.zeros(grid.size)
        total[:-1] += own * (1 - up)
        total[1:] += own * up
        rounded[1:] = up * (1 - up) * interval**2
        below, beyond = self._outside(points)
        total[0] += below
        return Step(first, total, beyond, rounded)

    def _mass(self, points: np.ndarray) -> np.ndarray:
        """Return the mass between consecutive points, for each number of records that are drawn."""
        return np.stack([_between((points - drawn) / self.multiplier) for drawn in self.drawn], axis=1)

    def _outside(self, points: np.ndarray) -> tuple[float, float]:
        """Return the mass with losses below and above the grid."""
        if self.added:  # a large loss is a small sum
            return float(special.ndtr(-points[0] / self.multiplier)), float(special.ndtr(points[-1] / self.multiplier))
        low, high = ((points[place] - self.drawn) / self.multiplier for place in (0, -1))
        return float(special.ndtr(low) @ self.odds), float(special.ndtr(-high) @ self.odds)


def _between(points: np.ndarray) -> np.ndarray:
    """Return the mass of a standard normal between consecutive points, without cancellation in the upper tail."""
    low, high = np.minimum(points[:-1], points[1:]), np.maximum(points[:-1], points[1:])
    upper = low > 0
    a, b = np.where(upper, -high, low), np.where(upper, -low, high)
    return np.asarray(special.ndtr(b) - special.ndtr(a))
