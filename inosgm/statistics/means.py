"""The mean of a bounded column."""

from typing import Any

import numpy as np

from inosgm.owners import Owners
from inosgm.plan import Plan
from inosgm.statistics.bounds import Bounds, require_numbers
from inosgm.statistics.estimate import Estimate, OwnerValue
from inosgm.statistics.statistic import Statistic


class Mean(Statistic):
    """The mean of numbers within public bounds.

    **What it estimates.** Weighted (the default): the mean in which a record of owner n weighs as much as its
    sensitivity C_n, which grows with its budget. It has the least noise, and is biased towards owners with large
    budgets where owners differ. Stratified: a mean for each owner, put together by their public sizes; unbiased, with
    the noise of all owners in it. Where an unbiased overall mean is all that is wanted, nothing beats one budget for
    all, the strictest (`planner=plan_uniform`): whoever lets every record count the same has to add as much noise as
    the strictest owner asks for.

    **Bias.** Values beyond the bounds count as the nearer bound.

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

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, stratified: bool = False, **options: Any
    ) -> None:
        self.bounds, self.stratified = Bounds.of(bounds), stratified
        super().__init__(plan, owners, by_owner=stratified, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but finite numbers."""
        require_numbers(batch)

    def contributions(self, batch: Any) -> np.ndarray:
        """Return distances from the middle of the bounds, in halves of the range."""
        return self.bounds.shares(batch)

    def estimate(self) -> Estimate:
        """Return the mean."""
        middle, half, (sums,) = self.bounds.middle, self.bounds.half, self.observed
        if not self.stratified:
            return self.estimated(
                middle + half * float(sums) / self.total,
                half * self.noise / self.total,
                "mean, in which records weigh as much as the budget of their owner buys",
            )
        sizes, totals = self.plan.sizes, self.totals
        held = sizes > 0
        values = np.where(held, middle + half * sums / np.where(held, totals, 1.0), middle)
        errors = np.where(held, half * self.noise / np.where(held, totals, 1.0), 0.0)
        shares = sizes / sizes.sum()
        return self.estimated(
            float(shares @ values),
            float(np.linalg.norm(shares * errors)),
            "mean, put together from a mean for each owner by their sizes: every record weighs the same",
            by_owner={
                label: OwnerValue(value=float(value), standard_error=float(error))
                for label, value, error in zip(self.plan.labels, values, errors, strict=True)
            },
        )
