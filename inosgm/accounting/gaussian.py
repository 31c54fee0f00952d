"""The Gaussian mechanism without sampling, where everything is known in closed form."""

import numpy as np
from scipy import special


def gaussian_delta(mu: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """Return the smallest delta of a Gaussian mechanism with sensitivity / noise = mu (Balle and Wang 2018, Thm 8)."""
    above, below = special.log_ndtr(mu / 2 - epsilon / mu), epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(np.exp(above) * -np.expm1(np.minimum(below - above, 0.0)))


def gaussian_epsilon(mu: np.ndarray | float, delta: np.ndarray | float) -> np.ndarray:
    """Return the smallest epsilon for each mu and delta, rounded upwards in the last digits, 0 where none is needed."""
    mu, delta = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(delta, dtype=np.float64))
    low, high = (
        np.zeros(mu.shape),
        mu * (mu / 2 + np.sqrt(-2 * np.log(delta))),
    )  # the tail bound exp(-z^2 / 2)
    for _ in range(64):
        middle = (low + high) / 2
        enough = gaussian_delta(mu, middle) <= delta
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(np.where(gaussian_delta(mu, np.zeros(mu.shape)) <= delta, 0.0, high))
