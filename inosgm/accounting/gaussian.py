"""The Gaussian mechanism without sampling: delta in closed form, epsilon by bisection."""

import numpy as np
from scipy import special


def gaussian_delta(mu: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """Return the smallest delta of a Gaussian mechanism with sensitivity / noise = mu (Balle and Wang 2018, Thm 8)."""
    # The two terms of the theorem nearly cancel for small delta, so their ratio is formed from logarithms.
    above, below = special.log_ndtr(mu / 2 - epsilon / mu), epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(above) * -np.expm1(np.minimum(below - above, 0.0)))


def gaussian_epsilon(mu: np.ndarray | float, delta: np.ndarray | float) -> np.ndarray:
    """Return the smallest epsilon for each mu and delta, rounded up in the last digits; 0 if delta alone suffices."""
    mu, delta = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(delta, dtype=np.float64))
    # The upper end follows from the tail bound P(Z > z) <= exp(-z^2 / 2).
    low, high = np.zeros(mu.shape), mu * (mu / 2 + np.sqrt(-2 * np.log(delta)))
    for _ in range(64):  # as many halvings as a float64 has bits, mantissa and exponent
        middle = (low + high) / 2
        enough = gaussian_delta(mu, middle) <= delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(np.where(gaussian_delta(mu, np.zeros(mu.shape)) <= delta, 0.0, high))
