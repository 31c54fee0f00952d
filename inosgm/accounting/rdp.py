"""Renyi divergences of sampled Gaussian steps, for all owners at once.

A step from a menu costs the greatest divergence of its choices at every order. Both evaluations sum positive terms of
A - 1, A the moment of order alpha of the likelihood ratio, so that no digits cancel at a rate of 1e-6. The divergence
in the other direction is never larger (Mironov, Talwar and Zhang 2019, Thm 5).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from inosgm.accounting.segments import Segment, without_dominated

_BLOCK = 1 << 21  # numbers held at once: 16 MB per temporary array


def default_orders(most: int = 1 << 17) -> np.ndarray:
    """Return orders from 1.01 to `most`: fractional ones below 11, whole ones above."""
    # At tiny rates the divergence rises steeply beyond the best order, so that a coarse grid of orders would cost a
    # large part of the rate: neighbouring high orders differ by 1 %.
    low = np.concatenate([1 + np.geomspace(0.01, 1, 60)[:-1], np.arange(20, 110) / 10])
    middle = np.arange(11, 256)
    high = np.unique(np.round(np.geomspace(256, most, math.ceil(math.log(most / 256, 1.01)) + 1)))
    return np.concatenate([low, middle, high])


def sampled_gaussian_rdp(sample_rate: np.ndarray, noise_multiplier: np.ndarray, order: float) -> np.ndarray:
    """Return the Renyi divergence of one order for every pair of a sample rate and a noise multiplier."""
    if not sample_rate.all():  # a rate of 0 costs nothing
        result = np.zeros(sample_rate.size)
        drawn = np.flatnonzero(sample_rate)
        result[drawn] = sampled_gaussian_rdp(sample_rate[drawn], noise_multiplier[drawn], order)
        return result
    log_excess = np.empty(sample_rate.size)
    whole = order == math.floor(order)
    narrow = float(np.minimum(noise_multiplier / 4, noise_multiplier**2 / 2).min(initial=np.inf))
    terms = order if whole else (order + 18 * float(noise_multiplier.max(initial=0))) / narrow
    rows = max(1, int(_BLOCK / (terms + 1)))
    for start in range(0, sample_rate.size, rows):
        block = slice(start, start + rows)
        evaluate = _whole_order if whole else _any_order
        log_excess[block] = evaluate(sample_rate[block], noise_multiplier[block], order)
    divergence = np.logaddexp(0.0, log_excess) / (order - 1)
    small = log_excess < -30  # log1p(x) = x to the last digit there, and logaddexp would round it
    divergence[small] = np.exp(log_excess[small]) / (order - 1)
    return np.where(sample_rate == 1, order / (2 * noise_multiplier**2), divergence)


def _whole_order(rate: np.ndarray, multiplier: np.ndarray, order: float) -> np.ndarray:
    """Return log(A - 1) from the binomial sum: C(a, k) (1 - q)^(a - k) q^k (exp(k (k - 1) / (2 m^2)) - 1), k >= 2."""
    k = np.arange(2, int(order) + 1, dtype=np.float64)
    choose = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    growth = (k * (k - 1) / 2) / multiplier[:, None] ** 2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        stay = np.where(order == k, 0.0, (order - k) * np.log1p(-rate)[:, None])
        log_expm1 = np.where(growth < 1, np.log(np.expm1(np.minimum(growth, 1))), growth + np.log1p(-np.exp(-growth)))
    return _log_sum(choose + stay + k * np.log(rate)[:, None] + log_expm1)


def _any_order(rate: np.ndarray, multiplier: np.ndarray, order: float) -> np.ndarray:
    """Return log(A - 1) from the integral of (1 + u)^a - 1 - a u, u = q (exp((2 x - 1) / (2 m^2)) - 1), x ~
    N(0, m^2).

    The trapezoidal rule converges exponentially: the integrand is analytic within pi m^2 of the real line,
    and the step of min(m / 4, m^2 / 2) leaves an error of exp(-39).
    """
    step = np.minimum(multiplier / 4, multiplier**2 / 2)
    count = int(np.ceil(((order + 18 * multiplier) / step).max())) + 1
    x = -9 * multiplier[:, None] + step[:, None] * np.arange(count)
    exponent = (x - 0.5) / multiplier[:, None] ** 2
    q = rate[:, None]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        u = q * np.expm1(np.minimum(exponent, 700))
        log_ratio = np.where(exponent < 600, np.log1p(u), exponent + np.log(q))
        power = order * log_ratio
        log_rest = np.where(exponent < 600, np.log1p(np.maximum(order * u, -1.0)), math.log(order) + log_ratio)
        large = power + np.log1p(-np.exp(np.minimum(log_rest - power, 0.0)))
        # Near u = 0 the difference cancels and is replaced by its series, whose relative error is below u^3, 1e-12.
        series = order * (order - 1) / 2 * u**2 * (1 + (order - 2) / 3 * u * (1 + (order - 3) / 4 * u))
        small = np.log(np.where(np.abs(u) < 1e-4, series, np.expm1(np.minimum(power, 50)) - order * u))
    inside = np.where(power < 1, small, large)
    inside = np.where(np.isnan(inside), -np.inf, inside)
    weight = -(x**2) / (2 * multiplier[:, None] ** 2) + (np.log(step / multiplier) - math.log(2 * math.pi) / 2)[:, None]
    return _log_sum(inside + weight)


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of the exponentials of each row."""
    most = terms.max(axis=1)
    return np.asarray(most + np.log(np.exp(terms - most[:, None]).sum(axis=1)))


@dataclass(frozen=True, eq=False)
class Renyi:
    """A bound on the divergences of a step: sample rates, noise multipliers and an order -> divergences."""

    divergence: Callable[[np.ndarray, np.ndarray, float], np.ndarray]
    orders: np.ndarray

    def of(self, segment: Segment, order: float) -> np.ndarray:
        """Return the divergence of a step of every row: the greatest one of its choices."""
        if not segment.is_menu:
            return self.divergence(segment.sample_rate, segment.noise_multiplier, order)
        shape = segment.sample_rate.shape
        flat = self.divergence(segment.sample_rate.reshape(-1), segment.noise_multiplier.reshape(-1), order)
        return np.asarray(flat.reshape(shape).max(axis=1))


POISSON = Renyi(sampled_gaussian_rdp, default_orders())
"""One record added or removed, Poisson sampling."""


def epsilon_at(segments: Sequence[Segment], delta: np.ndarray, order: float, renyi: Renyi) -> np.ndarray:
    """Return the epsilon of every row at one order, by Theorem B.6 of the paper (Balle et al. 2020)."""
    spent = np.zeros(delta.size)
    for segment in segments:
        spent += segment.steps * renyi.of(segment, order)
    epsilons = spent + math.log1p(-1 / order) - (np.log(delta) + math.log(order)) / (order - 1)
    if np.isnan(epsilons).any():
        row = int(np.flatnonzero(np.isnan(epsilons))[0])
        raise ArithmeticError(f"the Renyi divergence of order {order:g} is not a number in row {row}")
    return np.asarray(epsilons)


def epsilon_at_each(
    segments: Sequence[Segment], delta: np.ndarray, indices: np.ndarray, renyi: Renyi = POISSON
) -> np.ndarray:
    """Return the epsilon of every row at its own index into the orders; any index gives an upper bound."""
    epsilons = np.empty(delta.size)
    by_order = np.argsort(indices, kind="stable")
    for rows in [] if not delta.size else np.split(by_order, np.flatnonzero(np.diff(indices[by_order])) + 1):
        order = float(renyi.orders[indices[rows[0]]])
        epsilons[rows] = epsilon_at([segment.rows(rows) for segment in segments], delta[rows], order, renyi)
    return np.maximum(epsilons, 0.0)


def best_epsilon(
    segments: Sequence[Segment], delta: np.ndarray, near: np.ndarray | None = None, renyi: Renyi = POISSON
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least epsilon of every row over the orders, and its index into the orders.

    (order - 1) * epsilon is convex in the order, so epsilon is quasi-convex: a walk that stops when it rises has seen
    the minimum, and only rows that still fall pay for the long sums of the high orders. With indices to start `near`,
    the walk is short.
    """
    segments = [without_dominated(segment) for segment in segments]
    every = np.arange(delta.size)
    best, best_index = np.full(delta.size, np.inf), np.zeros(delta.size, dtype=np.int64)

    def improve(indices: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Evaluate rows at indices, keep the better values and return the rows that improved."""
        inside = (indices >= 0) & (indices < renyi.orders.size)
        indices, rows = indices[inside], rows[inside]
        epsilons = epsilon_at_each([segment.rows(rows) for segment in segments], delta[rows], indices, renyi)
        better = epsilons < best[rows]
        best[rows[better]], best_index[rows[better]] = epsilons[better], indices[better]
        return np.asarray(rows[better])

    stride = 16
    if near is None:
        rows, index = every, 0
        while rows.size and index < renyi.orders.size:
            rows = improve(np.full(rows.size, index), rows)
            index += stride
    else:
        improve(np.clip(near, 0, renyi.orders.size - 1), every)
        for side in (-2, 2):
            rows = every
            while rows.size:
                rows = improve(best_index[rows] + side, rows)
        stride = 2
    while stride > 1:
        stride //= 2
        centre = best_index.copy()
        for side in (-stride, stride):
            improve(centre + side, every)
    return np.maximum(best, 0.0), best_index.astype(np.float64)
