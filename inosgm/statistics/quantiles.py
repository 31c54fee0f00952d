"""Quantiles of a bounded column, by bisection on noisy counts."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from inosgm._internal import validate as _validate
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import Bounds, numbers, open_fraction
from inosgm.statistics.column import BoundedColumn
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.queries import single

ROUNDS = 12
"""Default number of bisections: the last bracket is 1/4096 of the distance of the bounds."""

CONFIDENCE = 0.95
"""Confidence of the interval in the details of a quantile."""


class Quantile(BoundedColumn):
    """A quantile of numbers within public bounds, by the plain sampled Gaussian mechanism (an order does not help).

    Every round counts the records at or below the middle of a bracket, with noise, and keeps the half of the bracket in
    which the quantile seems to be. After the last round the middle of the bracket is the estimate.

    **What it estimates.** The smallest value t such that records with values up to t have at least `level` of all
    weight, a record of owner n weighing as much as its sensitivity C_n, which grows with its budget. Where owners
    differ it leans towards those with large budgets; one budget for all (`planner=plan_uniform`) lets every record
    weigh the same.

    **Bias.** The estimate is no finer than the last bracket, (high - low) / 2^rounds wide. Values beyond the bounds are
    counted there. A wrong half is never corrected later.

    **Standard error.** Noise is on counts: by how much it moves the quantile depends on how densely values lie there,
    which could be had for more budget only. It is estimated from the released counts themselves, by the slope between
    the closest tested values at which they were clearly off the level, and is never less than half the last bracket.
    That is rough: in trials the error was within it three times in four, and within twice as much nine times in ten.
    Where the interval (below) reaches to a bound, because too few records lie beyond the quantile, it is a quarter of
    the interval.
    `details` has what is certain: an interval that holds the quantile with probability 0.95 over the noise, whatever
    the data (if sample rates are 1); the values that were tested, and the share of weight that was found up to each;
    and the standard error of those shares.

    **Guarantee.** That of `Statistic`, in as many rounds. Where a round looks depends on released counts only.

    Args:
        plan: The public numbers; a step for every round.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that the quantile may have.
        level: In (0, 1): 0.5 is the median.
        rounds: How many releases; each has its part of the budget, and halves the bracket.
        options: As for `Statistic`.

    Raises:
        ValueError: for a level outside (0, 1).

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[5], noise_scale=0.01, steps=10)
    >>> median = Quantile(plan, [0] * 5, bounds=(0, 10), level=0.5, rounds=10, key=1)
    >>> round(median.run([1.0, 2.0, 3.0, 9.0, 14.0]).value, 1)
    3.0
    """

    name = "quantile"
    key_name = "inosgm.statistics.quantiles.Quantile"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        bounds: Any,
        level: float,
        rounds: int = ROUNDS,
        **options: Any,
    ) -> None:
        self.bounds, self.level = Bounds.of(bounds), open_fraction("level", level)
        self.low, self.high = self.bounds.low, self.bounds.high
        self.tested: list[float] = []
        super().__init__(plan, owners, **options)

    @classmethod
    def rounds_of(cls, **parameters: Any) -> int:
        """Return the parameter `rounds`."""
        return _validate.count("rounds", parameters.get("rounds", ROUNDS), least=1)

    @property
    def threshold(self) -> float:
        """The value up to which the next round counts."""
        return self.low / 2 + self.high / 2

    def contributions(self, batch: Any) -> np.ndarray:
        """Return 1 - level for records up to the threshold and -level for others, over the larger of the two."""
        return ((numbers(batch) <= self.threshold) - self.level) / max(self.level, 1 - self.level)

    def learned(self, value: np.ndarray) -> None:
        """Keep the half of the bracket that the released count points to."""
        self.tested.append(self.threshold)
        if value >= 0:
            self.high = self.threshold
        else:
            self.low = self.threshold

    def estimate(self) -> Estimate:
        """Return the middle of the last bracket."""
        scale = max(self.level, 1 - self.level) / self.total
        shares = self.level + scale * np.array([float(value) for value in self.observed])
        error = scale * self.noise
        (low, below), (high, above) = self._around(shares, 2 * error)
        slope = (above - below) / (high - low)
        # A Bonferroni bound over all rounds: with this margin no share is misjudged in any round.
        margin = error * float(-ndtri((1 - CONFIDENCE) / 2 / shares.size))
        interval = np.array([value for value, _ in self._around(shares, margin)])
        resolved = self.bounds.low < interval[0] and interval[1] < self.bounds.high
        unknown = 0.0 if resolved else float(interval[1] - interval[0])
        return self.estimated(
            self.threshold,
            max(error / slope, (self.high - self.low) / 2, unknown / 4),
            f"quantile at level {self.level:g}: the value up to which {self.level:g} of all weight lies; records weigh "
            "as much as the budget of their owner buys",
            interval=interval,
            tested=np.array(self.tested),
            shares=shares,
            share_error=error,
        )

    def _around(self, shares: np.ndarray, margin: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the closest tested values at which the share was off the level by more than a margin, and the shares.

        Up to the lower bound there is nothing, up to the upper bound everything.
        """
        points = [(self.bounds.low, 0.0), *zip(self.tested, shares.tolist(), strict=True), (self.bounds.high, 1.0)]
        below = [point for point in points if point[1] < self.level - margin]
        above = [point for point in points if point[1] > self.level + margin]
        return max(below, default=points[0]), min(above, default=points[-1])


def private_quantile(
    values: Any, owners: Owners, *, bounds: Any, level: float, rounds: int = ROUNDS, **options: Any
) -> Estimate:
    """Return a quantile of a bounded column, by bisection on noisy counts; see `Quantile`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_quantile(list(range(1000)), owners, bounds=(0, 5000), level=0.5, key=1)
    >>> low, high = estimate.details["interval"]
    >>> bool(low < 500 < high), abs(estimate.value - 500) < 50
    (True, True)
    """
    return answer_query(single(Quantile), values, owners, bounds=bounds, level=level, rounds=rounds, **options)
