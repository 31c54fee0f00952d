"""Renyi divergences when one record is replaced by another, in batches of a fixed size without replacement.

The bound is that of Wang, Balle and Kasiviswanathan 2019, Theorem 27 (of which Theorem 9 is the simple form), as
dp_accounting has it: with g the sampled fraction and the likelihood ratio L of the Gaussian mechanism,

    (a - 1) D_a <= log(1 + g^2 C(a, 2) min(4 (E L^2 - 1), 2 E L^2) + sum over j >= 3 of g^j C(a, j) B_j),
    B_j = min(2 E L^j, 4 sqrt(E (L - 1)^(2 floor(j / 2)) E (L - 1)^(2 ceil(j / 2)))).

and never more than without sampling, since divergences are quasi-convex. The moments of L - 1 are computed as integrals
of positive numbers instead of differences of large ones, so that no digits cancel.
"""

import math
from functools import lru_cache

import numpy as np
from scipy import special

from inosgm.accounting.rdp import Renyi

# Largest j with the tight bound on B_j. Above it the simple bound 2 E L^j is used, which is nearly equal.
_MOMENTS = 256
# All whole orders up to 255, then 1 % apart: see `rdp.default_orders`.
_ORDERS = np.unique(np.concatenate([np.arange(2, 256), np.round(np.geomspace(256, 1 << 17, 640))]))


def replaced_gaussian_rdp(sample_rate: np.ndarray, noise_multiplier: np.ndarray, order: float) -> np.ndarray:
    """Return the Renyi divergence of one whole order for every pair of a sampled fraction and a noise multiplier.

    Multipliers are relative to the largest change of the sum by a replaced record, which is twice its bound.
    """
    result = order / (2 * noise_multiplier**2) * (sample_rate > 0)
    sampled = np.flatnonzero((sample_rate > 0) & (sample_rate < 1))
    if not sampled.size:
        return np.asarray(result)
    j = np.arange(2, int(order) + 1)
    choose = special.gammaln(order + 1) - special.gammaln(j + 1) - special.gammaln(order - j + 1)
    for row in sampled:
        terms = choose + j * math.log(sample_rate[row]) + _terms(float(noise_multiplier[row]), int(order))
        log_sum = special.logsumexp(terms)
        log_moment = np.logaddexp(0.0, log_sum) if log_sum > -30 else math.exp(log_sum)  # log1p(x) = x below exp(-30)
        result[row] = min(result[row], log_moment / (order - 1))
    return np.asarray(result)


def _terms(multiplier: float, order: int) -> np.ndarray:
    """Return log B_j for j = 2, ..., order."""
    known = 32 if order <= 32 else _MOMENTS  # two cached lengths: most best orders are small
    first = _first_terms(multiplier, known)
    if order <= known:
        return first[: order - 1]
    return np.append(first, _simple(multiplier, np.arange(known + 1, order + 1)))


def _simple(multiplier: float, j: np.ndarray) -> np.ndarray:
    return np.asarray(math.log(2) + j * (j - 1) / (2 * multiplier**2))


@lru_cache(maxsize=1 << 14)
def _first_terms(multiplier: float, most: int) -> np.ndarray:
    """Return log B_j for j = 2, ..., most."""
    j = np.arange(2, most + 1)
    terms = _simple(multiplier, j)
    if multiplier > 1:  # with less noise E (L - 1)^j >= E L^j - j E L^(j - 1) >= E L^j / 2
        moments = _log_moments(multiplier, most + 2)
        terms = np.minimum(terms, math.log(4) + (moments[j // 2] + moments[-(-j // 2)]) / 2)
    terms.setflags(write=False)
    return terms


def _log_moments(multiplier: float, most: int) -> np.ndarray:
    """Return log E (L - 1)^k for k = 0, 2, ..., most, L = exp(z / m - 1 / (2 m^2)) with a standard normal z.

    The integrand is entire and falls like a Gaussian: the trapezoidal rule converges faster than exponentially.
    """
    z = np.arange(-40.0, most / multiplier + 40.0, 0.05)  # order k peaks at k / m; exp(-40^2 / 2) is 0 in float64
    exponent = z / multiplier - 0.5 / multiplier**2
    with np.errstate(divide="ignore"):
        log = np.where(exponent < 30, np.log(np.abs(np.expm1(np.minimum(exponent, 30)))), exponent)
    weight = -(z**2) / 2 + math.log(0.05 / math.sqrt(2 * math.pi))  # 0.05 is the step of z
    orders = np.arange(2, most + 1, 2)[:, None]
    return np.append(0.0, special.logsumexp(orders * log + weight, axis=1))


REPLACED = Renyi(replaced_gaussian_rdp, _ORDERS)
"""One record replaced by another, fixed-size batches without replacement."""
