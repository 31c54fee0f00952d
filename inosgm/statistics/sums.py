"""Sums of a bounded column, and counts of records."""

from dataclasses import replace
from typing import Any

import numpy as np

from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import numbers, require_numbers
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.means import Mean, owner_values
from inosgm.statistics.queries import single
from inosgm.statistics.statistic import WEIGHED


class Sum(Mean):
    """The sum of numbers within public bounds: the mean times the number of records, which is public.

    **What it estimates.** Weighted (the default): the number of records times the mean in which a record weighs as
    much as its owner's sensitivity, which grows with its budget. It has the least noise, and is biased towards owners
    with large budgets where owners differ. Stratified: a sum for each owner, and all of them together; every record
    counts the same, with the noise of all owners in it. Where an unbiased overall sum is all that is wanted, nothing
    beats one budget for all, the strictest (`planner=plan_uniform`).

    **Bias.** Values beyond the bounds count as the nearer bound.

    **Guarantee.** That of `Statistic`, in one round. The numbers of records in the plan are public.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts.
        stratified: Estimate a sum for each owner.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.001, steps=1)
    >>> estimate = Sum(plan, [0, 0, 0, 0], bounds=(0, 10), key=1).run([1.0, 2.0, 3.0, 14.0])
    >>> round(estimate.value, 1), round(estimate.standard_error, 4)
    (16.0, 0.005)
    """

    name = "sum"
    key_name = "inosgm.statistics.sums.Sum"

    def estimate(self) -> Estimate:
        """Return the sum."""
        mean, sizes = super().estimate(), self.plan.sizes
        records = int(sizes.sum())
        rows = mean.by_owner
        if rows is None:
            estimand = (
                f"{self.name}: the number of records times the mean in which records "
                f"{WEIGHED if mean.weights else 'weigh the same'}"
            )
            own = None
        else:
            estimand = f"{self.name}, put together from a {self.name} for each owner: every record counts the same"
            values, errors = (
                np.array([getattr(row, name) for row in rows.values()]) for name in ("value", "standard_error")
            )
            own = owner_values(self.plan, sizes * values, sizes * errors)
        return replace(
            mean,
            value=records * mean.value,
            standard_error=records * mean.standard_error,
            estimand=estimand,
            by_owner=own,
        )


class Count(Sum):
    """The number of records with 1 (or True) in a column of zeros and ones.

    **What it estimates.** As for `Sum`: weighted, the number of records times the share of ones in which a record
    weighs as much as its owner's sensitivity; stratified, a count for each owner, and all of them together. A count
    is not rounded, and noise may take it below 0 or above the number of records: that keeps it unbiased.

    **Bias.** None but that of the weights.

    **Guarantee.** That of `Statistic`, in one round. The numbers of records in the plan are public.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        stratified: Estimate a count for each owner.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> round(Count(plan, [0, 0, 0, 0], key=1).run([True, False, True, True]).value, 1)
    3.0
    """

    name = "count"
    key_name = "inosgm.statistics.sums.Count"

    def __init__(self, plan: Plan, owners: Owners | Any = None, *, stratified: bool = False, **options: Any) -> None:
        super().__init__(plan, owners, bounds=(0.0, 1.0), stratified=stratified, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but zeros and ones."""
        require_indicator(batch)


def require_indicator(batch: Any) -> None:
    """Raise for anything but zeros and ones; the message has the position, never the value."""
    require_numbers(batch)
    values = numbers(batch)
    bad = (values != 0) & (values != 1)
    if bad.any():
        raise ValueError(
            f"values must be 0 or 1, true or false, got something else at position {int(np.argmax(bad))}: compare the "
            "column with something first (a condition), or count groups (group-counts)"
        )


def private_sum(values: Any, owners: Owners, *, bounds: Any, stratified: bool = False, **options: Any) -> Estimate:
    """Return the sum of a bounded column; see `Sum`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_sum([20.0, 40.0] * 500, owners, bounds=(0, 100), stratified=True, key=1)
    >>> abs(estimate.value - 30_000) < 4 * estimate.standard_error
    True
    """
    return answer_query(single(Sum), values, owners, bounds=bounds, stratified=stratified, **options)


def private_count(values: Any, owners: Owners, *, stratified: bool = False, **options: Any) -> Estimate:
    """Return the number of records with 1, or True, in a column of zeros and ones; see `Count`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_count([True, False] * 500, owners, stratified=True, key=1)
    >>> abs(estimate.value - 500) < 4 * estimate.standard_error
    True
    """
    return answer_query(single(Count), values, owners, stratified=stratified, **options)
