"""The upper-tail mean without an order: a quantile first, then how far values lie above it."""

from typing import Any

import numpy as np

from inosgm import Owners, Plan
from inosgm.statistics import Quantile, Statistic
from inosgm.statistics.bounds import Bounds, numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.queries import Query, Stage, Stages

QUARTER = 0.25
"""The part of the budget that the quantile may cost."""


class MeanExcess(Statistic):
    """A threshold plus the mean of what values have above it, over 1 - level (Rockafellar and Uryasev, 2000).

    At the quantile of the level this is the mean of the largest 1 - level of all values; a threshold that is a little
    off makes it only a very little larger. Its noise is that of values between the threshold and the upper bound.
    """

    name = "mean-excess"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, level: float, threshold: float, **options: Any
    ) -> None:
        self.level, self.threshold = level, threshold
        self.above = Bounds.of((0.0, Bounds.of(bounds).high - threshold))
        super().__init__(plan, owners, **options)

    def contributions(self, batch: Any) -> np.ndarray:
        """Return what each value has above the threshold, centred."""
        return self.above.shares(np.maximum(numbers(batch) - self.threshold, 0.0))

    def estimate(self) -> Estimate:
        """Return the mean of the largest values."""
        (total,) = self.observed
        scale = self.above.half / (1 - self.level)
        value = self.threshold + self.above.middle / (1 - self.level) + scale * float(total) / self.total
        return self.estimated(value, scale * self.noise / self.total, "upper-tail mean by a released threshold")


def _stages(*, bounds: Any, level: float) -> Stages:
    quantile = yield Stage(Quantile, {"bounds": bounds, "level": level})
    return (yield Stage(MeanExcess, {"bounds": bounds, "level": level, "threshold": float(quantile.value)}))


WITHOUT_ORDER = Query("mean-above-a-quantile", _stages, lambda **parameters: (Quantile.rounds_of(), 1), (QUARTER, 1.0))
