"""Ratios of two private values, such as a mean among records whose number is private, with their error."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

CONFIDENCE = 0.95
"""Confidence of the interval of a ratio."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of two independent noisy values.

    Attributes:
        value: The ratio.
        standard_error: Its error from the noise, to the first order (the delta method).
        interval: Fieller's interval at confidence 0.95 over the noise: all ratios r for which numerator - r denominator
            is within its error of 0. It is infinite if the denominator is not clearly positive.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, numerator: float, denominator: float, numerator_error: float, denominator_error: float) -> "Ratio":
        """Return the ratio of two values.

        The denominator is a number of records, so it counts as at least its own standard error.

        >>> ratio = Ratio.of(50.0, 100.0, 1.0, 1.0)
        >>> ratio.value, round(ratio.standard_error, 4), [round(end, 3) for end in ratio.interval]
        (0.5, 0.0112, [0.478, 0.522])
        """
        below = max(denominator, denominator_error)
        value = numerator / below
        error = math.hypot(numerator_error, value * denominator_error) / below
        return cls(value, error, _fieller(numerator, denominator, numerator_error, denominator_error))


def _fieller(a: float, b: float, a_error: float, b_error: float) -> tuple[float, float]:
    """Return the interval of the ratios r with (a - r b)^2 <= z^2 (a_error^2 + r^2 b_error^2)."""
    z = float(-ndtri((1 - CONFIDENCE) / 2))
    square, middle = b * b - (z * b_error) ** 2, a * b
    if b <= 0 or square <= 0:
        return -math.inf, math.inf
    spread = math.sqrt(max(middle * middle - square * (a * a - (z * a_error) ** 2), 0.0))
    return (middle - spread) / square, (middle + spread) / square


def ratios(
    numerators: np.ndarray, denominators: np.ndarray, numerator_error: float, denominator_error: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return several ratios, their standard errors, and a row with the interval of each."""
    found = [
        Ratio.of(float(a), float(b), numerator_error, denominator_error)
        for a, b in zip(numerators, denominators, strict=True)
    ]
    return (
        np.array([ratio.value for ratio in found]),
        np.array([ratio.standard_error for ratio in found]),
        np.array([ratio.interval for ratio in found]).reshape(-1, 2),
    )
