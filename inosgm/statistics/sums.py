"""Sums of a bounded column, and counts of records."""

from typing import Any

import numpy as np

from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import require_indicator
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.means import Mean, owner_means, owner_values
from inosgm.statistics.queries import single


class Sum(Mean):
    """The sum of numbers within public bounds: the mean times the number of records, which is public.

    **What it estimates.** The sum over all records, each counting once; as for `Mean`, the records of owners with
    very small budgets may be shrunk towards the middle of the bounds. Stratified: a sum for each owner, and all of
    them together. With `assume_alike=True`: the number of records times the mean that is weighted by budgets, which
    is the sum only if records are alike across owners.

    **Bias.** That of the weights, at most `bias_bound`. Values beyond the bounds count as the nearer bound.

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
    what = "sum"

    def estimate(self) -> Estimate:
        """Return the sum."""
        sizes = self.plan.sizes
        records, middle, half = int(sizes.sum()), self.bounds.middle, self.bounds.half
        if self.stratified:
            shares, errors = owner_means(self, self.observed[0])
            own = middle + half * shares, half * errors
            fractions = sizes / records
            value, error = float(fractions @ own[0]), float(np.linalg.norm(fractions * own[1]))
            rows = owner_values(self.plan, sizes * own[0], sizes * own[1])
        else:
            (total,) = self.observed
            value, error, rows = middle + half * float(total) / self.total, half * self.noise / self.total, None
        return self.estimated(
            records * value, records * error, self.what, by_owner=rows, notes=self.bounds.notes(value)
        )


class Count(Sum):
    """The number of records with 1 (or True) in a column of zeros and ones.

    **What it estimates.** The number of such records among all, each counting once, as `Sum` does; stratified, a count
    for each owner, and all of them together. `value` is not rounded, and noise may take it below 0 or above the
    number of records, which keeps it unbiased; what is printed has no more digits than the error carries.

    **Bias.** That of the weights, at most `bias_bound`.

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
    what = "number of records with 1 (or true)"

    def __init__(self, plan: Plan, owners: Owners | Any = None, *, stratified: bool = False, **options: Any) -> None:
        super().__init__(plan, owners, bounds=(0.0, 1.0), stratified=stratified, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but zeros and ones."""
        require_indicator(batch)


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
