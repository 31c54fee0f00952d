"""Statistics of the largest values of a column, which only an ordered sum gives in one release."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.mechanism.orders import Descending
from inosgm.mechanism.tails import HardTail, LinearTail, Tail
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import Bounds, open_fraction
from inosgm.statistics.column import BoundedColumn
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.queries import single


class _Largest(BoundedColumn):
    """A sum of the values of a bounded column, of which the largest are the most important."""

    def __init__(self, plan: Plan, owners: Owners | Any, bounds: Any, tail: Tail, **options: Any) -> None:
        self.bounds = Bounds.of(bounds)
        super().__init__(plan, owners, tail=tail, order=Descending(), **options)

    def scores(self, batch: Any) -> np.ndarray:
        """Return the contributions: the largest values are the most important."""
        return self.bounds.shares(batch)


class UpperTailMean(_Largest):
    """The mean of the largest values of a column: the conditional value at risk (CVaR, expected shortfall) at a level.

    **What it estimates.** The mean of the largest 1 - level of all values, each counting once; the record at the border
    counts in part. With `assume_alike=True`: that of the distribution in which a record weighs as much as its owner's
    sensitivity. There is no estimate owner by owner, because how many of the largest values an owner holds is not
    public.

    **Bias.** Where the records of owners with very small budgets count in part, as for `Mean`, let B be the number of
    records that is missing, and m = (1 - level) N. The sum of the largest m values lies between two cases: the
    missing ones are all at the lower bound (then it is that of the m largest counted ones), or all at the upper one
    (then they replace B of these). The estimate takes the m - B largest counted values and B times the middle of the
    bounds: its bias is at most B / m halves of the range in both cases. Values beyond the bounds count as the nearer
    bound. With sample rates below 1 the largest of a batch stand for the largest of all: a bias that falls as batches
    grow.

    **Guarantee.** That of `Statistic`, in one round. No threshold has to be known or paid for.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts.
        level: In (0, 1): 0.9 is the mean of the largest tenth.
        options: As for `Statistic`.

    Raises:
        ValueError: for a level outside (0, 1).

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> round(UpperTailMean(plan, [0, 0, 0, 0], bounds=(0, 10), level=0.5, key=1).run([1.0, 7.0, 9.0, 3.0]).value, 1)
    8.0
    """

    name = "upper-tail-mean"
    key_name = "inosgm.statistics.tails.UpperTailMean"

    def __init__(self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, level: float, **options: Any) -> None:
        self.level = open_fraction("level", level)
        super().__init__(plan, owners, bounds, HardTail(self.tail_length(plan, self.level)), **options)

    def estimate(self) -> Estimate:
        """Return the mean of the largest values."""
        return self.estimated_mean(
            f"mean of the largest {1 - self.level:.4g} of the values (CVaR at level {self.level:g})"
        )


class TopHeavySum(_Largest):
    """A sum in which the largest values count in full, and smaller ones less and less.

    **What it estimates.** The sum of rho_k x_k over all records, each counting once: x_k is the value, and rho_k in
    [0, 1] the importance of the record's rank. Records are ranked by value. The upper 1 - fraction of them have rho =
    1; below, rho falls on a straight line to 0 at the smallest value. With `assume_alike=True`, fractions are those
    of the total sensitivity, and x_k has the weight C_k / c besides, C_k being the sensitivity of its owner and c the
    mean of C.

    **Bias.** That of the weights: the sum is a mixture of sums of largest values, so the bias is at most that of
    `UpperTailMean`, for a sum. As an estimate of the sum of all values it lacks most of what the small ones add, by
    design. Values beyond the bounds count as the nearer bound. With sample rates below 1 the ranks in a batch stand
    for those among all.

    **Guarantee.** That of `Statistic`, in one round. Its noise is that of `Sum`: order changes what is estimated, not
    the noise.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts.
        fraction: In (0, 1]: the fraction of the records, from the smallest value up, that is down-weighted.
        options: As for `Statistic`.

    Raises:
        ValueError: for a fraction outside (0, 1].

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.001, steps=1)
    >>> round(TopHeavySum(plan, [0, 0, 0, 0], bounds=(0, 10), fraction=0.5, key=1).run([8.0, 1.0, 9.0, 3.0]).value, 1)
    19.5
    """

    name = "top-heavy-sum"
    key_name = "inosgm.statistics.tails.TopHeavySum"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, fraction: float = 0.5, **options: Any
    ) -> None:
        self.fraction = _validate.number("fraction", fraction, above=0, most=1)
        super().__init__(plan, owners, bounds, LinearTail(self.tail_length(plan, self.fraction)), **options)

    def estimate(self) -> Estimate:
        """Return the sum."""
        (total,) = self.observed
        weight = self.records / self.full_total
        return self.estimated(
            weight * (self.bounds.middle * self.total + self.bounds.half * float(total)),
            weight * self.bounds.half * self.noise,
            f"sum in which the largest {1 - self.fraction:.4g} of the values count in full, and the others from there "
            "down on a straight line to 0 at the smallest,",
        )


def private_upper_tail_mean(values: Any, owners: Owners, *, bounds: Any, level: float, **options: Any) -> Estimate:
    """Return the mean of the largest 1 - level of a bounded column (CVaR); see `UpperTailMean`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_upper_tail_mean(list(range(1000)), owners, bounds=(0, 1000), level=0.9, key=1)
    >>> abs(estimate.value - 949.5) < 4 * estimate.standard_error
    True
    """
    return answer_query(single(UpperTailMean), values, owners, bounds=bounds, level=level, **options)


def private_top_heavy_sum(
    values: Any, owners: Owners, *, bounds: Any, fraction: float = 0.5, **options: Any
) -> Estimate:
    """Return the sum of a bounded column in which small values count less and less; see `TopHeavySum`.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_top_heavy_sum([0.0] * 900 + [10.0] * 100, owners, bounds=(0, 10), key=1)
    >>> abs(estimate.value - 1000) < 4 * estimate.standard_error
    True
    """
    return answer_query(single(TopHeavySum), values, owners, bounds=bounds, fraction=fraction, **options)
