"""The variance of a bounded column."""

import math
from typing import Any

import numpy as np

from inosgm.owners import Owners
from inosgm.statistics.answering import answer_query
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.means import Mean, owner_means, owner_values
from inosgm.statistics.queries import single


class Variance(Mean):
    """The variance of numbers within public bounds: the mean squared distance from their mean.

    A record contributes (z, 2 z^2 - 1) / sqrt(2), z its distance from the middle of the bounds in halves of the range:
    no longer than 1, and both numbers are centred. Mean and mean square follow, and from them the variance.

    **What it estimates.** The variance over all records, each counting once; mean and mean square may be shrunk as for
    `Mean`. Stratified: a variance for each owner about its own mean, and that of all records, within owners and
    between them. With `assume_alike=True`: the variance of the distribution in which a record weighs as much as its
    owner's sensitivity. Divided by the number of records, not by one less.

    **Bias.** Values beyond the bounds count as the nearer bound. What noise adds to the square of the mean is known and
    subtracted. A variance below 0, or above what bounds allow, is moved there: that is a bias where noise is large
    beside the variance.

    **Standard error.** By the delta method, about the released mean. So is the bias bound, with the square of the
    largest bias of the mean added.

    **Guarantee.** That of `Statistic`, in one round.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts.
        stratified: Estimate a variance for each owner.
        options: As for `Statistic`.

    >>> from inosgm import Plan
    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.001, steps=1)
    >>> estimate = Variance(plan, [0, 0, 0, 0], bounds=(0, 10), key=1).run([1.0, 2.0, 3.0, 14.0])
    >>> round(estimate.value, 1), round(estimate.details["mean"], 1)
    (12.5, 4.0)
    """

    name = "variance"
    key_name = "inosgm.statistics.variance.Variance"

    def contributions(self, batch: Any) -> np.ndarray:
        """Return distances from the middle of the bounds and their squares, both centred."""
        z = self.bounds.shares(batch)
        return np.stack([z, 2 * z * z - 1], axis=1) / math.sqrt(2)

    def estimate(self) -> Estimate:
        """Return the variance."""
        (sums,) = self.observed
        if not self.stratified:
            means, error = math.sqrt(2) * sums / self.total, math.sqrt(2) * self.noise / self.total
            value, standard_error = self._variance(means, error)
            share = min(self.missing / self.records, 1.0)
            return self.estimated(
                float(value),
                float(standard_error),
                "variance",
                # First order, and the square of the bias of the mean, which is at most `share` halves of the range.
                bias_bound=float(self.bias_ratio * standard_error) + self.bounds.half**2 * share**2,
                mean=self._mean(means),
            )
        moments, errors = (math.sqrt(2) * means for means in owner_means(self, np.reshape(sums, (-1, 2))))
        shares = self.plan.sizes / self.plan.sizes.sum()
        value, standard_error = self._variance(shares @ moments, float(np.linalg.norm(shares * errors[:, 0])))
        own = [self._variance(row, float(error)) for row, error in zip(moments, errors[:, 0], strict=True)]
        values, spreads = np.array(own).T
        values[self.plan.sizes == 0] = 0.0
        return self.estimated(
            value,
            standard_error,
            "variance",
            by_owner=owner_values(self.plan, values, spreads),
            mean=self._mean(shares @ moments),
        )

    def _mean(self, means: np.ndarray) -> float:
        return float(self.bounds.middle + self.bounds.half * means[0])

    def _variance(self, means: np.ndarray, error: float) -> tuple[float, float]:
        """Return the variance by the means of z and 2 z^2 - 1, each with a standard error, and its own."""
        first, square = float(means[0]), (float(means[1]) + 1) / 2
        scale = self.bounds.half**2
        slope = 2 * min(abs(first), 1.0)  # of the square of the mean, which noise may take beyond the bounds
        # The square of a noisy mean is too large by error^2, which is added back; a variance lies in [0, half^2].
        return scale * min(max(square - first**2 + error**2, 0.0), 1.0), scale * error * math.hypot(0.5, slope)


def private_variance(values: Any, owners: Owners, *, bounds: Any, stratified: bool = False, **options: Any) -> Estimate:
    """Return the variance of a bounded column; see `Variance`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_variance([20.0, 20.0, 40.0, 40.0] * 250, owners, bounds=(0, 100), key=1)
    >>> abs(estimate.value - 100) < 4 * estimate.standard_error
    True
    """
    return answer_query(single(Variance), values, owners, bounds=bounds, stratified=stratified, **options)
