"""Confidence intervals over seeds, and the regression of a change on epsilon."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from inosgm.reports.tables import MINUS

CONFIDENCE = 0.95
"""Confidence of all intervals and bands of a report."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        value: The mean.
        low: The lower end; NaN for a single number.
        high: The upper end.
        count: The number of values.
    """

    value: float
    low: float
    high: float
    count: int

    @property
    def clear(self) -> bool:
        """True if it excludes 0; never for an interval of length 0, because equal values do not show how they vary."""
        return self.low < self.high and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})".replace("-", MINUS)


def interval(values: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of approximately normal numbers with its confidence interval by Student's t.

    >>> interval(np.array([1.0, 2.0, 3.0]))
    Interval(value=2.0, low=-0.484..., high=4.484..., count=3)
    """
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if known.size else math.nan
    if known.size < 2:
        return Interval(value=mean, low=math.nan, high=math.nan, count=known.size)
    margin = float(stats.t.ppf((1 + confidence) / 2, known.size - 1) * stats.sem(known))
    return Interval(value=mean, low=mean - margin, high=mean + margin, count=known.size)


@dataclass(frozen=True, kw_only=True, eq=False)
class RegressionLine:
    """A regression line through points, one per owner.

    Attributes:
        slope: The slope per unit of epsilon, with its confidence interval.
        at: Points on the axis of epsilon.
        value: The line there.
        low: The lower edge of its confidence band.
        high: The upper edge.
    """

    slope: Interval
    at: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def regression(epsilon: np.ndarray, change: np.ndarray) -> RegressionLine | None:
    """Fit a line by least squares to one point per owner; None for fewer than three, or if all grant the same.

    >>> line = regression(np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.1, 1.9, 1.1, -0.1]))
    >>> round(line.slope.value, 2), line.slope.clear
    (-1.04, True)
    """
    known = ~np.isnan(change)
    x, y = epsilon[known], change[known]
    if x.size < 3 or np.ptp(x) == 0:
        return None
    fit = stats.linregress(x, y)
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, x.size - 2))
    slope, margin = float(fit.slope), quantile * float(fit.stderr)
    at = np.linspace(x.min(), x.max(), 60)
    value = fit.intercept + slope * at
    # The variance of the line at a point: that of the mean of y, plus that of the slope times the squared distance.
    reach = margin * np.sqrt(x.var() + (at - x.mean()) ** 2)
    return RegressionLine(
        slope=Interval(value=slope, low=slope - margin, high=slope + margin, count=x.size),
        at=at,
        value=value,
        low=value - reach,
        high=value + reach,
    )
