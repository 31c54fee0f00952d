"""Intervals that cover both the noise and the bias of an estimate, and those of quantiles from noisy shares."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from inosgm.statistics.bounds import open_fraction

Number = float | np.ndarray


def half_width(standard_error: Number, bias_bound: Number, level: float) -> Number:
    """Return by how much an estimate may miss: the error is below it with probability `level` or more.

    An estimate with a normal error and an unknown bias of at most b standard errors misses by more than c standard
    errors most often if the bias is b, so c is the quantile of |Z + b| at the level. It is smaller than b plus the
    quantile of |Z|.

    Args:
        standard_error: That of the noise.
        bias_bound: The largest bias.
        level: In (0, 1).

    >>> float(round(half_width(1.0, 0.0, 0.95), 3)), float(round(half_width(1.0, 2.0, 0.95), 3))
    (1.96, 3.645)
    """
    level = open_fraction("level", level)
    error, bias = np.asarray(standard_error, dtype=np.float64), np.asarray(bias_bound, dtype=np.float64)
    noisy = error > 0
    ratio = np.where(noisy, bias / np.where(noisy, error, 1.0), 0.0)
    low, high = ratio + max(float(ndtri(level)), 0.0), ratio + ndtri((1 + level) / 2)
    low = np.where(ratio == 0, 0.0, np.minimum(low, high) - ratio * (level < 0.5))
    for _ in range(60):  # bisection: float64 has 53 bits
        middle = (low + high) / 2
        covered = ndtr(middle - ratio) - ndtr(-middle - ratio)
        low, high = np.where(covered < level, middle, low), np.where(covered < level, high, middle)
    width = np.where(noisy, error * high, bias)
    return width if width.ndim else float(width)


@dataclass(frozen=True, kw_only=True, eq=False)
class TestedShares:
    """Where a quantile was looked for: noisy shares of the records up to some values; all of it is released or public.

    Attributes:
        tested: The values that were tested, in the order of the rounds.
        shares: The share of records that was found up to each.
        error: The standard error of every share.
        bias: The largest bias of every share.
        level: The level of the quantile.
        low: The lower bound of the column.
        high: The upper bound.
    """

    tested: np.ndarray
    shares: np.ndarray
    error: float
    bias: float
    level: float
    low: float
    high: float

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return an interval that holds the quantile with at least this probability, whatever the data."""
        return self.around(self.bias + self.margin(confidence))

    def margin(self, confidence: float) -> float:
        """Return by how much the noise moves no share in the wrong direction, in any round, with this probability.

        A tested value is below the quantile, or not. It is misjudged only if the noise of its share exceeds the
        margin in one direction. The union bound over rounds holds although later rounds follow from earlier ones.
        """
        miss = (1 - open_fraction("level", confidence)) / self.shares.size
        return self.error * max(float(-ndtri(miss)), 0.0)

    def around(self, margin: float) -> tuple[float, float]:
        """Return the closest tested values, or bounds, at which the share was off the level by more than a margin."""
        below, above = self.tested[self.shares < self.level - margin], self.tested[self.shares > self.level + margin]
        return float(max(below, default=self.low)), float(min(above, default=self.high))

    def to_dict(self) -> dict[str, Any]:
        """Return a form for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TestedShares":
        """Return what `to_dict` was made of."""
        arrays = {name: np.asarray(values[name], dtype=np.float64) for name in ("tested", "shares")}
        return cls(**{**values, **arrays})
