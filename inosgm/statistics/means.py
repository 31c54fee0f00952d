"""The mean of a bounded column, over all records or stratified by owner."""

from typing import Any

import numpy as np

from inosgm.owners import Label, Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import Bounds
from inosgm.statistics.column import BoundedColumn
from inosgm.statistics.estimate import Estimate, OwnerValue
from inosgm.statistics.queries import single
from inosgm.statistics.statistic import Statistic


class Mean(BoundedColumn):
    """The mean of numbers within public bounds.

    **What it estimates.** The mean over all records, each counting once. Where some owners grant so little that
    counting their records in full would add more noise than it removes bias, these are shrunk towards the middle of
    the bounds by a public weight; `bias_bound` says what that causes at most. Stratified: a mean for each owner,
    combined by their public sizes, unbiased, with the noise of all owners. With `assume_alike=True`: the mean in
    which a record weighs as much as its owner's sensitivity, which grows with its budget. That has less noise, and is
    the mean over all records only if records are alike across owners.

    **Bias.** That of the weights. Values beyond the bounds count as the nearer bound.

    **Guarantee.** That of `Statistic`, in one round.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts.
        stratified: Estimate a mean for each owner.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> estimate = Mean(plan, [0, 0, 0, 0], bounds=(0, 10), key=1).run([1.0, 2.0, 3.0, 14.0])
    >>> round(estimate.value, 1), round(estimate.standard_error, 4)
    (4.0, 0.0125)
    """

    name = "mean"
    key_name = "inosgm.statistics.means.Mean"
    what = "mean"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, stratified: bool = False, **options: Any
    ) -> None:
        self.bounds, self.stratified = Bounds.of(bounds), stratified
        super().__init__(plan, owners, by_owner=stratified, **options)

    def estimate(self) -> Estimate:
        """Return the mean."""
        if not self.stratified:
            return self.estimated_mean(self.what)
        shares, errors = owner_means(self, self.observed[0])
        values, errors = self.bounds.middle + self.bounds.half * shares, self.bounds.half * errors
        fractions = self.plan.sizes / self.plan.sizes.sum()
        value = float(fractions @ values)
        return self.estimated(
            value,
            float(np.linalg.norm(fractions * errors)),
            self.what,
            by_owner=owner_values(self.plan, values, errors),
            notes=self.bounds.notes(value),
        )


def owner_means(statistic: Statistic, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean contribution of every owner's records, and its standard error; 0 for owners without records.

    With sample rates below 1 the error includes the largest one from the coins.

    Args:
        statistic: The statistic that released the sums.
        sums: One released sum per owner, or a row of them.
    """
    rows = np.reshape(sums, (len(statistic.plan.labels), *np.shape(sums)[1:]))
    totals = np.broadcast_to(statistic.totals.reshape(-1, *[1] * (rows.ndim - 1)), rows.shape)
    held = totals > 0
    divisors = np.where(held, totals, 1.0)
    noise = np.hypot(statistic.noise, statistic.coin_noise).reshape(-1, *[1] * (rows.ndim - 1))
    return np.where(held, rows / divisors, 0.0), np.where(held, noise / divisors, 0.0)


def owner_values(plan: Plan, values: np.ndarray, errors: np.ndarray) -> dict[Label, OwnerValue]:
    """Return values and standard errors, one or a row for every owner, under the labels of the owners."""
    return {
        label: OwnerValue(
            value=value if np.ndim(value) else float(value), standard_error=error if np.ndim(error) else float(error)
        )
        for label, value, error in zip(plan.labels, values, errors, strict=True)
    }


def private_mean(values: Any, owners: Owners, *, bounds: Any, stratified: bool = False, **options: Any) -> Estimate:
    """Return the mean of a bounded column; see `Mean`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_mean([20.0, 40.0] * 500, owners, bounds=(0, 100), key=1)
    >>> print(estimate)
    29.78 +- 0.19
    mean over all 1000 records, each counting once
    owner  epsilon spent
    a             0.9998
    b             0.9998
    >>> low, high = estimate.interval(0.95)
    >>> low < 30 < high
    True
    """
    return answer_query(single(Mean), values, owners, bounds=bounds, stratified=stratified, **options)
