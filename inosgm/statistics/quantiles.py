"""Quantiles of a bounded column, by bisection on noisy counts."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import Bounds, numbers, open_fraction
from inosgm.statistics.column import BoundedColumn
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.intervals import TestedShares
from inosgm.statistics.queries import single

ROUNDS = 12
"""Default number of bisections: the last bracket is 1/4096 of the distance of the bounds."""


class Quantile(BoundedColumn):
    """A quantile of numbers within public bounds, by the plain sampled Gaussian mechanism (an order does not help).

    Every round counts the records at or below the middle of a bracket, with noise, and keeps the half of the bracket in
    which the quantile seems to be. After the last round the middle of the bracket is the estimate.

    **What it estimates.** The smallest value t such that at least `level` of all records, each counting once, have
    values up to t. Where the records of owners with very small budgets count in part, as for `Mean`, half of what is
    missing is taken to lie up to every t. With `assume_alike=True`, shares are those of the weight, a record weighing
    as much as its owner's sensitivity.

    **Bias.** The estimate is no finer than the last bracket, (high - low) / 2^rounds wide. Values beyond the bounds are
    counted there. A wrong half is never corrected later. What the weights can cause is a bias of shares, at most
    `tested.bias`. `interval` includes it, and `bias_bound` is what it causes in the value, as far as the released
    shares tell.

    **Standard error.** Noise is on counts: by how much it moves the quantile depends on how densely values lie there,
    which could be had for more budget only. What is certain is `interval(level)`: it holds the quantile with that
    probability over the noise, whatever the data, ties and gaps included (if sample rates are 1). It follows from the
    values that were tested and the share that was found up to each (`tested`). Two standard
    errors reach from the estimate to the farther end of the 95 % interval without that bias, so they cover the quantile
    at least 95 times in 100; one is at least half the last bracket. They are often several times as long as needed:
    where no value was tested close to the quantile on one side, nothing was released that would tell.

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

    @property
    def _contribution(self) -> tuple[float, float]:
        """The indicator of a value up to the threshold at which a record contributes 0, and the largest distance from
        it.

        At 1/2 the distance is smallest, and so is the noise of a share. If records are weighted by budgets it is the
        level.
        """
        return (0.5, 0.5) if self.each_once(**self.parameters) else (self.level, max(self.level, 1 - self.level))

    def contributions(self, batch: Any) -> np.ndarray:
        """Return whether values are up to the threshold, centred, and scaled to be no longer than 1."""
        centre, scale = self._contribution
        return ((numbers(batch) <= self.threshold) - centre) / scale

    def learned(self, value: np.ndarray) -> None:
        """Keep the half of the bracket that the released count points to."""
        self.tested.append(self.threshold)
        centre, scale = self._contribution
        if scale * value >= (self.level - centre) * self.total:
            self.high = self.threshold
        else:
            self.low = self.threshold

    def estimate(self) -> Estimate:
        """Return the middle of the last bracket."""
        centre, scale = self._contribution
        scale = scale / self.total
        shares = centre + scale * np.array([float(value) for value in self.observed])
        tested = TestedShares(
            tested=np.array(self.tested),
            shares=shares,
            error=float(np.hypot(scale * self.noise * self.error_ratio, self._number_error)),
            bias=min(self.missing / 2 / self.records, 1.0),
            level=self.level,
            low=self.bounds.low,
            high=self.bounds.high,
        )
        error = max(self._farther(tested.around(tested.margin(0.95))) / 2, (self.high - self.low) / 2)
        return self.estimated(
            self.threshold,
            error / self.error_ratio,  # which `estimated` multiplies by, and shares have already
            f"quantile at level {self.level:g}",
            bias_bound=self._farther(tested.around(tested.bias)) if tested.bias else 0.0,
            notes=self._notes(),
            tested=tested,
        )

    @property
    def _number_error(self) -> float:
        """The error of shares near the level from a released number of records: they are measured from the centre."""
        return abs(self.level - self._contribution[0]) * self.matching_error / self.matching

    def _farther(self, interval: tuple[float, float]) -> float:
        """Return the distance of the estimate from the farther end of an interval."""
        return max(self.threshold - interval[0], interval[1] - self.threshold)

    def _notes(self) -> tuple[str, ...]:
        """Return what to say about a bracket that ends at a bound: no tested value lies between it and the quantile."""
        if self.low > self.bounds.low and self.high < self.bounds.high:
            return ()
        return self.bounds.notes(self.bounds.low if self.low == self.bounds.low else self.bounds.high)


def private_quantile(
    values: Any, owners: Owners, *, bounds: Any, level: float, rounds: int = ROUNDS, **options: Any
) -> Estimate:
    """Return a quantile of a bounded column, by bisection on noisy counts; see `Quantile`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_quantile(list(range(1000)), owners, bounds=(0, 5000), level=0.5, key=1)
    >>> low, high = estimate.interval(0.95)
    >>> low < 500 < high, abs(estimate.value - 500) < 50
    (True, True)
    """
    return answer_query(single(Quantile), values, owners, bounds=bounds, level=level, rounds=rounds, **options)
