"""How sure a number over seeds is, and how a change depends on epsilon."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit
from scipy.stats import linregress

from inosgm.reports.tables import MINUS

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        value: The mean.
        low: The lower end; NaN for a single number.
        high: The upper end.
        count: Of how many numbers.
    """

    value: float
    low: float
    high: float
    count: int

    @property
    def clear(self) -> bool:
        """Whether it excludes 0. A few numbers that all agree do not tell how they vary: nothing is clear then."""
        return self.low < self.high and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})".replace("-", MINUS)


def interval(values: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of numbers that are about normal, with its confidence interval by Student's t.

    >>> interval(np.array([1.0, 2.0, 3.0]))
    Interval(value=2.0, low=-0.484..., high=4.484..., count=3)
    """
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if known.size else math.nan
    if known.size < 2:
        return Interval(value=mean, low=math.nan, high=math.nan, count=known.size)
    margin = float(stdtrit(known.size - 1, (1 + confidence) / 2) * known.std(ddof=1) / math.sqrt(known.size))
    return Interval(value=mean, low=mean - margin, high=mean + margin, count=known.size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A regression line through points, one per owner.

    Attributes:
        slope: How much the change rises with each unit of epsilon, with a confidence interval.
        at: Places on the axis of epsilon.
        value: The line there.
        low: The lower edge of its confidence band.
        high: The upper edge.
    """

    slope: Interval
    at: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def regression(epsilon: np.ndarray, change: np.ndarray) -> Line | None:
    """Fit a line by least squares, owners being the sample; None for fewer than three, or if all grant the same.

    >>> line = regression(np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.1, 1.9, 1.1, -0.1]))
    >>> round(line.slope.value, 2), line.slope.clear
    (-1.04, True)
    """
    known = ~np.isnan(change)
    x, y = epsilon[known], change[known]
    if x.size < 3 or np.ptp(x) == 0:
        return None
    fit = linregress(x, y)
    slope, margin = float(fit.slope), float(stdtrit(x.size - 2, (1 + CONFIDENCE) / 2) * fit.stderr)
    at = np.linspace(x.min(), x.max(), 60)
    value = fit.intercept + slope * at
    # the error of the slope is the deviation of the residuals over sqrt(n var(x)); that of the line follows from it
    reach = margin * np.sqrt(x.var() + (at - x.mean()) ** 2)
    return Line(
        slope=Interval(value=slope, low=slope - margin, high=slope + margin, count=x.size),
        at=at,
        value=value,
        low=value - reach,
        high=value + reach,
    )
