"""The largest power of any test of whether a record is in, at each level, if the claim holds."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy import fft, special

from inosgm.accounting.discrete import Change, Entry, Step, discretise, ends

Power = Callable[[np.ndarray], np.ndarray]
"""The largest true-positive rate for each false-positive rate, never too small; both non-decreasing."""

LOST = 1e-8
"""The probability beyond each end of a window of composed losses; powers are too large by this at most."""

_MOST_POINTS = 1 << 18  # of a grid of losses: an FFT of a few milliseconds
_INFLATION = 1e-4  # largest relative increase of the variance of a loss by rounding to the grid


Stretch = tuple[tuple[Entry, ...], int]
"""The entries that a step is chosen from, one if there is no choice, and a number of steps."""


def sampled_gaussian_power(
    sample_rate: float, noise_multiplier: float, steps: int, change: Change = "removed"
) -> Power:
    """Return the power of the best test of "the record is in" against steps of a sampled Gaussian mechanism.

    If the record is "replaced", in batches of a fixed size, the test is of one record against the other.
    The multiplier is relative to the distance that the change moves a sum.

    **Guarantee.** No test of what the steps release, of any size, has more power. It is exact without sampling and for
    a single step with a record removed; other steps are taken from privacy loss distributions that are rounded
    pessimistically.
    """
    return composed_power(((((sample_rate, noise_multiplier),), steps),), change)


def composed_power(stretches: Sequence[Stretch], change: Change = "removed") -> Power:
    """Return the power of the best test of "the record is in" against all steps of several stretches together.

    **Guarantee.** As `sampled_gaussian_power`; a step that is chosen from several entries counts as the pair that
    dominates them all.
    """
    taken = tuple((entries, steps) for entries, steps in stretches if steps and max(entries)[0] > 0)
    if all(len(entries) == 1 and entries[0][0] == 1 for entries, _ in taken):
        return gaussian_power(math.sqrt(sum(steps * entries[0][1] ** -2 for entries, steps in taken)))
    if len(taken) == 1 and taken[0][1] == 1 and len(taken[0][0]) == 1 and change == "removed":
        ((rate, multiplier),) = taken[0][0]
        present = gaussian_power(1 / multiplier)
        return lambda level: (1 - rate) * level + rate * present(level)
    levels, powers = _composed(taken, change)
    return lambda level: np.interp(level, levels, powers)


def gaussian_power(mu: float) -> Power:
    """Return the power of the best test of N(mu, 1) against N(0, 1)."""
    return lambda level: np.asarray(special.ndtr(special.ndtri(level) + mu))


def plain_power(epsilon: float, delta: float) -> Power:
    """Return the largest power under (epsilon, delta), whatever the mechanism."""
    growth = math.exp(epsilon)
    return lambda level: np.clip(np.minimum(growth * level + delta, 1 - (1 - delta - level) / growth), 0.0, 1.0)


@lru_cache(maxsize=1 << 10)
def _composed(stretches: tuple[Stretch, ...], change: Change = "removed") -> tuple[np.ndarray, np.ndarray]:
    """Return levels and powers of the likelihood-ratio tests of composed steps, between which power is linear."""
    steps, interval = _grid(stretches, change)
    counts = [count for _, count in stretches]
    low, high = _window(steps, counts, interval)
    first = math.floor(low / interval)
    length = fft.next_fast_len(math.ceil(high / interval) - first + 1, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    for step, count in zip(steps, counts, strict=True):
        points = (step.first + np.arange(step.mass.size)) % length
        spectrum *= fft.rfft(np.bincount(points, weights=step.mass, minlength=length)) ** count
    mass = np.roll(fft.irfft(spectrum, length), -(first % length))
    mass = np.maximum(mass, 0.0)[::-1]  # from the greatest loss on, as tests take them
    total = (first + np.arange(length))[::-1] * interval
    finite = sum(count * math.log1p(-step.infinite) for step, count in zip(steps, counts, strict=True))
    certain = -math.expm1(finite) + 2 * LOST
    with np.errstate(over="ignore"):
        levels = np.cumsum(mass * np.exp(np.minimum(-total, 700.0)))  # exp(709) is the largest float64
    powers = np.minimum(certain + np.cumsum(mass), 1.0)
    return np.append(0.0, levels), np.append(min(certain, 1.0), powers)


def _grid(stretches: tuple[Stretch, ...], change: Change) -> tuple[list[Step], float]:
    """Return a step of each stretch with its losses on a grid that is fine enough, and the grid's interval."""
    every = sum(count for _, count in stretches)
    between = [ends(entries, 1e4 * LOST / every, change) for entries, _ in stretches]
    interval = max(high - low for low, high in between) / 1024
    while True:
        steps = [
            discretise(entries, pair, interval, change) for (entries, _), pair in zip(stretches, between, strict=True)
        ]
        added = variance = 0.0
        for step, (_, count) in zip(steps, stretches, strict=True):
            losses = np.arange(step.mass.size) * interval
            added += count * float(step.mass @ step.rounded)
            variance += count * float(step.mass @ (losses - step.mass @ losses) ** 2)
        excess, points = added / variance / _INFLATION, max(step.mass.size for step in steps)
        if excess <= 1 or points >= _MOST_POINTS:
            return steps, interval
        # Rounding adds variance with the square of the interval; 1.2 at least, so that the loop ends soon.
        interval /= min(max(1.2, math.sqrt(excess)), _MOST_POINTS / points)


def _window(steps: Sequence[Step], counts: Sequence[int], interval: float) -> tuple[float, float]:
    """Return two losses beyond which the composed loss lies with probability at most LOST each, by Chernoff's bound."""
    parts = [(step.first + np.arange(step.mass.size)) * interval for step in steps]
    with np.errstate(divide="ignore"):
        logs = [np.log(step.mass) for step in steps]
    variance = 0.0
    for step, losses, count in zip(steps, parts, counts, strict=True):
        mean = float(step.mass @ losses / step.mass.sum())
        variance += count * float(step.mass @ (losses - mean) ** 2) / step.mass.sum()

    def bound(order: float) -> float:
        cumulant = 0.0
        for log, losses, count in zip(logs, parts, counts, strict=True):
            exponent = log + order * losses
            most = exponent.max()
            cumulant += count * (most + math.log(np.exp(exponent - most).sum()))
        return float((cumulant - math.log(LOST)) / order)

    orders = 2.0 ** np.arange(-8, 9) / math.sqrt(variance)
    low, high = max(map(bound, -orders)), min(map(bound, orders))
    lowest, highest = (sum(n * losses[end] for losses, n in zip(parts, counts, strict=True)) for end in (0, -1))
    return max(low, float(lowest)), min(high, float(highest))
