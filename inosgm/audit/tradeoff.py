"""The largest power of any test of whether a record is in, at each level, if the claim holds."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import fft, special

from inosgm.accounting.discrete import Change, Step, discretise, ends

Power = Callable[[np.ndarray], np.ndarray]
"""The largest true-positive rate for each false-positive rate, never too small; both non-decreasing."""

LOST = 1e-8
"""The probability beyond each end of a window of composed losses; powers are too large by this at most."""

_MOST_POINTS = 1 << 18  # of a grid of losses: an FFT of a few milliseconds
_INFLATION = 1e-4  # largest relative increase of the variance of a loss by rounding to the grid


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
    if sample_rate == 1:
        return gaussian_power(math.sqrt(steps) / noise_multiplier)
    if steps == 1 and change == "removed":
        present = gaussian_power(1 / noise_multiplier)
        return lambda level: (1 - sample_rate) * level + sample_rate * present(level)
    levels, powers = _composed(sample_rate, noise_multiplier, steps, change)
    return lambda level: np.interp(level, levels, powers)


def gaussian_power(mu: float) -> Power:
    """Return the power of the best test of N(mu, 1) against N(0, 1)."""
    return lambda level: np.asarray(special.ndtr(special.ndtri(level) + mu))


def plain_power(epsilon: float, delta: float) -> Power:
    """Return the largest power under (epsilon, delta), whatever the mechanism."""
    growth = math.exp(epsilon)
    return lambda level: np.clip(np.minimum(growth * level + delta, 1 - (1 - delta - level) / growth), 0.0, 1.0)


@lru_cache(maxsize=1 << 10)
def _composed(rate: float, multiplier: float, steps: int, change: Change = "removed") -> tuple[np.ndarray, np.ndarray]:
    """Return levels and powers of the likelihood-ratio tests of composed steps, between which power is linear."""
    step, interval = _grid(rate, multiplier, steps, change)
    losses = (step.first + np.arange(step.mass.size)) * interval
    low, high = _window(step.mass, losses, steps)
    first = math.floor(low / interval)
    length = fft.next_fast_len(math.ceil(high / interval) - first + 1, real=True)
    folded = np.bincount((step.first + np.arange(losses.size)) % length, weights=step.mass, minlength=length)
    mass = np.roll(fft.irfft(fft.rfft(folded) ** steps, length), -((first) % length))
    mass = np.maximum(mass, 0.0)[::-1]  # from the greatest loss on, as tests take them
    total = (first + np.arange(length))[::-1] * interval
    certain = -math.expm1(steps * math.log1p(-step.infinite)) + 2 * LOST
    with np.errstate(over="ignore"):
        levels = np.cumsum(mass * np.exp(np.minimum(-total, 700.0)))
    powers = np.minimum(certain + np.cumsum(mass), 1.0)
    return np.append(0.0, levels), np.append(min(certain, 1.0), powers)


def _grid(rate: float, multiplier: float, steps: int, change: Change) -> tuple[Step, float]:
    """Return one step with its losses on a grid that is fine enough, and the grid's interval."""
    entry = [(rate, multiplier)]
    low, high = ends(entry, 1e4 * LOST / steps, change)
    interval = (high - low) / 1024
    while True:
        step = discretise(entry, (low, high), interval, change)
        losses = np.arange(step.mass.size) * interval
        mean = step.mass @ losses
        excess = float(step.mass @ step.rounded / (step.mass @ (losses - mean) ** 2) / _INFLATION)
        if excess <= 1 or step.mass.size >= _MOST_POINTS:
            return step, interval
        interval /= min(max(1.2, math.sqrt(excess)), _MOST_POINTS / step.mass.size)


def _window(mass: np.ndarray, losses: np.ndarray, steps: int) -> tuple[float, float]:
    """Return two losses beyond which the composed loss lies with probability at most LOST each, by Chernoff's bound."""
    with np.errstate(divide="ignore"):
        logs = np.log(mass)
    mean = float(mass @ losses / mass.sum())
    spread = math.sqrt(float(mass @ (losses - mean) ** 2) / mass.sum())

    def bound(order: float) -> float:
        exponent = logs + order * losses
        most = exponent.max()
        return float((steps * (most + math.log(np.exp(exponent - most).sum())) - math.log(LOST)) / order)

    orders = 2.0 ** np.arange(-8, 9) / (spread * math.sqrt(steps))
    low, high = max(map(bound, -orders)), min(map(bound, orders))
    return max(low, steps * losses[0]), min(high, steps * losses[-1])
