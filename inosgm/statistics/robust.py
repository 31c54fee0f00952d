"""Means that are robust to outliers: records far from a centre that was released before are down-weighted."""

from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.mechanism.orders import Ascending
from inosgm.mechanism.tails import HardTail, LinearTail
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.answering import answer_query
from inosgm.statistics.bounds import Bounds, numbers, open_fraction, require_numbers
from inosgm.statistics.column import BoundedColumn
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.quantiles import ROUNDS, Quantile
from inosgm.statistics.queries import Query, Stage, Stages
from inosgm.statistics.statistic import Statistic

CENTRE_SHARE = 0.25
"""Fraction of the budget that is spent on one quantile; a rough centre suffices."""

QUARTILES_SHARE = 0.35
"""Fraction that is spent on both quartiles: epsilons of Gaussians add up in squares, 0.35^2 = 2 x 0.25^2 about."""


class TrimmedMean(BoundedColumn):
    """The mean of numbers within public bounds without those that are farthest from a centre.

    **What it estimates.** The mean of the 1 - fraction of all values that are closest to the centre, each counting
    once; the record at the border counts in part. If values are skewed, more is dropped on the long side, so that it
    differs from the mean by design. With `assume_alike=True`, a record weighs as much as its owner's sensitivity.

    **Bias.** That of the weights: if B records are missing, as for `Mean`, of the m = (1 - fraction) N closest ones
    at most B are missing, and the estimate takes the m - B closest counted ones and B times the middle of the bounds.
    Values beyond the bounds count as the nearer bound. With sample rates below 1 the closest of a batch stand for the
    closest of all.

    **Standard error.** That of the mean about the centre as it is; the noise of the centre, if it was released, is not
    in it.

    **Guarantee.** That of `Statistic`, in one round, if the centre is public or was released before:
    `private_trimmed_mean` pays for a median first.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        bounds: The smallest and the largest value that counts.
        centre: The point from which distances are measured.
        fraction: In (0, 1): the fraction of the records that is dropped.
        options: As for `Statistic`.

    Raises:
        ValueError: for a fraction outside (0, 1).

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> trimmed = TrimmedMean(plan, [0] * 4, bounds=(0, 100), centre=4.0, fraction=0.25, key=1)
    >>> round(trimmed.run([3.0, 4.0, 5.0, 99.0]).value)
    4
    """

    name = "trimmed-mean"
    key_name = "inosgm.statistics.robust.TrimmedMean"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, bounds: Any, centre: float, fraction: float, **options: Any
    ) -> None:
        self.bounds, self.centre = Bounds.of(bounds), _validate.number("centre", centre)
        self.fraction = open_fraction("fraction", fraction)
        super().__init__(
            plan, owners, tail=HardTail(self.tail_length(plan, self.fraction)), order=Ascending(), **options
        )

    def scores(self, batch: Any) -> np.ndarray:
        """Return distances from the centre: the closest are the most important."""
        return np.asarray(np.abs(np.clip(numbers(batch), self.bounds.low, self.bounds.high) - self.centre))

    def estimate(self) -> Estimate:
        """Return the mean."""
        return self.estimated_mean(
            f"mean of the {1 - self.fraction:.4g} of the values that are closest to {self.centre:.6g},",
            centre=self.centre,
        )


class RobustMean(Statistic):
    """The mean of numbers that are clipped to within a radius of a centre; the farthest are down-weighted.

    Its noise grows with the radius, not with the distance of the bounds: if a few values are far off, it is by far the
    most precise of the means.

    **What it estimates.** The mean of clip(x, centre - radius, centre + radius) over all records with weights rho_k in
    [0, 1], the importance of a record's rank. Records are ranked by their distance from the centre. The closest 1 -
    fraction of them have rho = 1; from there rho falls on a straight line to 0 at the farthest. With
    `assume_alike=True`, weights are rho_k C_k with the sensitivity of the record's owner, and fractions are those of
    the total sensitivity.

    **Bias.** That of the weights: missing records count as the centre. It is not the mean of skewed values: the
    clipped and dropped part of the long side is missing, by design. If centre or radius are far off, because the
    budgets are small, so is the estimate: it never leaves their range. With sample rates below 1 the ranks in a batch
    stand for those among all.

    **Standard error.** That of the mean about the centre as it is; the noise of centre and radius, if they were
    released, is not in it.

    **Guarantee.** That of `Statistic`, in one round, if centre and radius are public or were released before:
    `private_robust_mean` pays for quartiles first.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        centre: The point from which distances are measured.
        radius: The largest distance from it at which a value is not clipped.
        fraction: In [0, 1]: the fraction of the records, from the farthest one in, that is down-weighted.
        options: As for `Statistic`.

    Raises:
        ValueError: for a radius that is not positive, and a fraction outside [0, 1].

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.01, steps=1)
    >>> robust = RobustMean(plan, [0] * 4, centre=4.0, radius=2.0, fraction=0.25, key=1)
    >>> round(robust.run([3.0, 4.0, 5.0, 99.0]).value, 1)
    4.3
    """

    name = "robust-mean"
    key_name = "inosgm.statistics.robust.RobustMean"

    def __init__(
        self, plan: Plan, owners: Owners | Any = None, *, centre: float, radius: float, fraction: float, **options: Any
    ) -> None:
        self.centre, self.radius = _validate.number("centre", centre), _validate.number("radius", radius, above=0)
        self.fraction = _validate.number("fraction", fraction, least=0, most=1)
        super().__init__(
            plan, owners, tail=LinearTail(self.tail_length(plan, self.fraction)), order=Ascending(), **options
        )

    def check(self, batch: Any) -> None:
        """Raise for anything but finite numbers."""
        require_numbers(batch)

    def contributions(self, batch: Any) -> np.ndarray:
        """Return distances from the centre with their sign, in radii, at most 1."""
        return np.clip((numbers(batch) - self.centre) / self.radius, -1.0, 1.0)

    def scores(self, batch: Any) -> np.ndarray:
        """Return distances from the centre: the closest are the most important."""
        return np.abs(numbers(batch) - self.centre)

    def estimate(self) -> Estimate:
        """Return the mean."""
        (total,) = self.observed
        return self.estimated(
            self.centre + self.radius * float(total) / self.total,
            self.radius * self.noise / self.total,
            f"mean of values moved to within {self.radius:.6g} of {self.centre:.6g}, of which the farthest "
            f"{self.fraction:.4g} count less and less,",
            centre=self.centre,
            radius=self.radius,
        )


def _trimmed_stages(*, bounds: Any, fraction: float = 0.1, rounds: int = ROUNDS, assume_alike: bool = False) -> Stages:
    """Estimate the median, then the mean of the values close to it."""
    open_fraction("fraction", fraction)
    alike = {"assume_alike": True} if assume_alike else {}
    median = yield Stage(Quantile, {"bounds": bounds, "level": 0.5, "rounds": rounds, **alike})
    return (yield Stage(TrimmedMean, {"bounds": bounds, "centre": median.value, "fraction": fraction, **alike}))


def _robust_stages(
    *, bounds: Any, reach: float = 2.0, fraction: float = 0.1, rounds: int = ROUNDS, assume_alike: bool = False
) -> Stages:
    """Estimate both quartiles, then the mean of the values close to their middle."""
    alike = {"assume_alike": True} if assume_alike else {}
    reach = _validate.number("reach", reach, above=0)
    _validate.number("fraction", fraction, least=0, most=1)
    limits = Bounds.of(bounds)
    lower = yield Stage(Quantile, {"bounds": bounds, "level": 0.25, "rounds": rounds, **alike})
    upper = yield Stage(Quantile, {"bounds": bounds, "level": 0.75, "rounds": rounds, **alike})
    centre = float(lower.value + upper.value) / 2
    finest = 2 * limits.half / 2**rounds
    widest = max(limits.high - centre, centre - limits.low)
    radius = min(max(reach * float(upper.value - lower.value), finest), widest)
    return (yield Stage(RobustMean, {"centre": centre, "radius": radius, "fraction": fraction, **alike}))


def _rounds(quantiles: int) -> Any:
    def rounds(**parameters: Any) -> tuple[int, ...]:
        return (*[Quantile.rounds_of(**parameters)] * quantiles, 1)

    return rounds


TRIMMED = Query(TrimmedMean.name, _trimmed_stages, _rounds(1), (CENTRE_SHARE, 1.0))
ROBUST = Query(RobustMean.name, _robust_stages, _rounds(2), (CENTRE_SHARE, QUARTILES_SHARE, 1.0))


def private_trimmed_mean(
    values: Any, owners: Owners, *, bounds: Any, fraction: float = 0.1, rounds: int = ROUNDS, **options: Any
) -> Estimate:
    """Return the mean of a bounded column without the fraction that is farthest from the median; see `TrimmedMean`.

    A quarter of the budget pays for the median, in several rounds; the rest pays for the mean.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_trimmed_mean([20.0, 40.0] * 490 + [100.0] * 20, owners, bounds=(0, 100), key=1)
    >>> 20 < estimate.value < 40
    True
    """
    return answer_query(TRIMMED, values, owners, bounds=bounds, fraction=fraction, rounds=rounds, **options)


def private_robust_mean(
    values: Any,
    owners: Owners,
    *,
    bounds: Any,
    reach: float = 2.0,
    fraction: float = 0.1,
    rounds: int = ROUNDS,
    **options: Any,
) -> Estimate:
    """Return a mean that is robust to outliers, with little noise even if the bounds are wide; see `RobustMean`.

    A part of the budget pays for both quartiles. Values are clipped to within `reach` times the distance of the
    quartiles from the middle between them (2 gives Tukey's fences), and the farthest fraction is down-weighted.

    **Guarantee.** It costs every owner at most `share` of its epsilon; `answer_query` describes this and other options.

    >>> owners = Owners(of_record=["a", "b"] * 500, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> estimate = private_robust_mean([20.0, 40.0] * 490 + [9e5] * 20, owners, bounds=(0, 1e6), rounds=24, key=1)
    >>> 20 < estimate.value < 40, estimate.standard_error < 1
    (True, True)
    """
    return answer_query(ROBUST, values, owners, bounds=bounds, reach=reach, fraction=fraction, rounds=rounds, **options)
