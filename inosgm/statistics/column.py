"""The base of statistics of one column of bounded numbers."""

from typing import Any

import numpy as np

from inosgm.statistics.bounds import Bounds, require_numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.statistic import Statistic


class BoundedColumn(Statistic):
    """A statistic of one column of numbers; a subclass sets `bounds` before it calls the base."""

    bounds: Bounds

    def check(self, batch: Any) -> None:
        """Raise for anything but finite numbers."""
        require_numbers(batch)

    def contributions(self, batch: Any) -> np.ndarray:
        """Return distances from the middle of the bounds, in units of half the range."""
        return self.bounds.shares(batch)

    def estimated_mean(self, what: str, **details: Any) -> Estimate:
        """Return the mean of the values by the only released sum."""
        (total,) = self.observed
        value = self.bounds.middle + self.bounds.half * float(total) / self.total
        error = self.bounds.half * self.noise / self.total
        most = (1.0 if self.each_once(**self.parameters) else 2.0) * self.bounds.half  # from the middle, or end to end
        bias = min(self.bias_ratio * error, most)
        return self.estimated(value, error, what, bias_bound=bias, notes=self.bounds.notes(value), **details)
