"""Statistics of a column for each of several groups, in one release: a record is in one group."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from inosgm._internal import validate as _validate
from inosgm.mechanism.contributions import Cells
from inosgm.owners import Label, Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.bounds import Bounds, numbers, open_fraction, require_indicator
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.quantiles import ROUNDS
from inosgm.statistics.ratios import CONFIDENCE, ratios
from inosgm.statistics.selection import checked_keys
from inosgm.statistics.statistic import Statistic


class _Grouped(Statistic):
    """A statistic of rows (value, position of the group); the position -1 stands for all other groups together."""

    keys: tuple[Label, ...]

    def __init__(self, plan: Plan, owners: Owners | Any, keys: Sequence[Label], **options: Any) -> None:
        self.keys = checked_keys(keys)
        super().__init__(plan, owners, bins=len(self.keys) + 1, **options)

    def _cells_of(self, batch: Any) -> np.ndarray:
        """Return the cell of each record; the others have the last one."""
        return np.asarray(np.reshape(batch, (-1, 2))[:, 1]).astype(np.int64) % (len(self.keys) + 1)

    def check(self, batch: Any) -> None:
        """Tables deliver finite numbers and known positions."""

    @property
    def per_record(self) -> float:
        """The number of records that a released sum of 1 stands for."""
        return self.records / self.total


class GroupMoments(_Grouped):
    """The number of records, the sum and the mean of a bounded column for each of several groups.

    A record adds the row (z, 1) / sqrt(2) to its group, z being its distance from the middle of the bounds in halves of
    their range: the row is no longer than 1, so all groups together cost as much as one question.

    **What it estimates.** For each group the count, the sum, or the mean as the ratio of two sums. Its standard error
    is that of the delta method, and `details` has Fieller's interval. Noise does not depend on the size of a group: the
    error of a mean is large where a group is small.

    **Bias.** Values beyond the bounds count as the nearer bound.

    **Guarantee.** That of `Statistic`, in one round. The names of groups are public.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        keys: The names of the groups.
        bounds: The smallest and the largest value that counts.
        what: "mean", "sum" or "count" (of records).
        indicator: Whether values must be 0 or 1.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[4], noise_scale=0.001, steps=1)
    >>> rows = np.array([[1.0, 0], [3.0, 0], [8.0, 1], [9.0, -1]])
    >>> GroupMoments(plan, [0, 0, 0, 0], keys=["a", "b"], bounds=(0, 10), key=1).run(rows).value.round(1)
    array([2., 8.])
    """

    name = "group-moments"
    key_name = "inosgm.statistics.groups.GroupMoments"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        keys: Sequence[Label],
        bounds: Any,
        what: str = "mean",
        indicator: bool = False,
        **options: Any,
    ) -> None:
        self.bounds, self.what, self.indicator = Bounds.of(bounds), what, indicator
        if what not in ("mean", "sum", "count"):
            raise ValueError(f"what must be mean, sum or count, got {what!r}")
        super().__init__(plan, owners, keys, **options)

    def check(self, batch: Any) -> None:
        """Raise for anything but zeros and ones, where these are asked for."""
        if self.indicator:
            require_indicator(np.reshape(batch, (-1, 2))[:, 0])

    def contributions(self, batch: Any) -> Cells:
        """Return the row of each record, in the cell of its group."""
        rows = np.reshape(batch, (-1, 2))
        shares = self.bounds.shares(rows[:, 0])
        return Cells(np.stack([shares, np.ones(shares.size)], axis=1) / np.sqrt(2), self._cells_of(rows), self._cells)

    def estimate(self) -> Estimate:
        """Return the value of each group."""
        (sums,) = self.observed
        centred, counts = np.sqrt(2) * self.per_record * np.reshape(sums, (-1, 2))[:-1].T
        error = np.sqrt(2) * self.per_record * self.noise
        middle, half = self.bounds.middle, self.bounds.half
        details: dict[str, Any] = {"keys": np.array(self.keys), "records": counts, "records_error": error}
        notes: list[str] = []
        if self.what == "count":
            values, errors = counts, np.full(counts.size, error)
        elif self.what == "sum":
            values, errors = middle * counts + half * centred, np.full(counts.size, error * np.hypot(middle, half))
        else:
            shares, spreads, intervals = ratios(centred, counts, error, error)
            values, errors = middle + half * shares, half * spreads
            details["interval"] = middle + half * intervals
            unknown = [str(key) for key, (low, _) in zip(self.keys, intervals, strict=True) if not np.isfinite(low)]
            if unknown:
                notes.append(
                    f"nothing is known about {_validate.some(unknown)}: the number of records cannot be told from 0, "
                    "and the printed value is noise, which may lie beyond the bounds"
                )
        return self.estimated(values, errors, f"{self.what} of every group", notes=notes, **details)


class GroupQuantiles(_Grouped):
    """A quantile of a bounded column for each of several groups, by bisection of all groups at once.

    Every round counts, for each group, the records at or below the middle of the group's bracket.

    **What it estimates.** For each group what `Quantile` estimates. `details` has an interval for each group that holds
    its quantile with probability 0.95 over the noise; the standard error is a quarter of it.

    **Guarantee.** That of `Statistic`, in as many rounds. The names of groups are public.

    Args:
        plan: The public numbers; a step for every round.
        owners: As for `Statistic`.
        keys: The names of the groups.
        counts: The released number of records of each group.
        bounds: The smallest and the largest value that a quantile may have.
        level: In (0, 1): 0.5 is the median.
        rounds: The number of releases.
        options: As for `Statistic`.

    >>> plan = Plan(sample_rates=[1], sensitivities=[1], sizes=[5], noise_scale=0.001, steps=8)
    >>> how = {"keys": ["a"], "counts": [5.0], "bounds": (0, 10), "level": 0.5, "rounds": 8}
    >>> rows = np.array([[1.0, 0], [2.0, 0], [3.0, 0], [8.0, 0], [9.0, 0]])
    >>> GroupQuantiles(plan, [0] * 5, **how, key=1).run(rows).value.round(1)
    array([3.])
    """

    name = "group-quantiles"
    key_name = "inosgm.statistics.groups.GroupQuantiles"

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Any = None,
        *,
        keys: Sequence[Label],
        counts: Sequence[float],
        bounds: Any,
        level: float,
        rounds: int = ROUNDS,
        **options: Any,
    ) -> None:
        self.bounds, self.level = Bounds.of(bounds), open_fraction("level", level)
        self.counts = np.asarray(counts, dtype=np.float64)
        groups = len(checked_keys(keys)) + 1
        self.low, self.high = np.full(groups, self.bounds.low), np.full(groups, self.bounds.high)
        self._tested: list[np.ndarray] = []
        super().__init__(plan, owners, keys, **options)

    @classmethod
    def rounds_of(cls, **parameters: Any) -> int:
        """Return the parameter `rounds`."""
        return _validate.count("rounds", parameters.get("rounds", ROUNDS), least=1)

    @property
    def thresholds(self) -> np.ndarray:
        """The value up to which the next round counts, for each group."""
        return np.asarray(self.low / 2 + self.high / 2)

    def contributions(self, batch: Any) -> Cells:
        """Return 1 - level for records up to their group's threshold and -level for others, over the larger one."""
        rows = np.reshape(batch, (-1, 2))
        cells = self._cells_of(rows)
        below = numbers(rows[:, 0]) <= self.thresholds[cells]
        return Cells((below - self.level) / max(self.level, 1 - self.level), cells, self._cells)

    def learned(self, value: np.ndarray) -> None:
        """Keep the half of each bracket that the released counts point to."""
        middle = self.thresholds
        self._tested.append(middle)
        self.high = np.where(value >= 0, middle, self.high)
        self.low = np.where(value >= 0, self.low, middle)

    def estimate(self) -> Estimate:
        """Return the middle of the last bracket of each group."""
        groups = len(self.keys)
        scale = max(self.level, 1 - self.level) * self.per_record
        error = scale * self.noise
        records = np.maximum(self.counts, error)
        off = scale * np.array(self.observed)[:, :groups]  # records up to each tested value, less what the level says
        margin = error * float(-ndtri((1 - CONFIDENCE) / 2 / len(self.observed)))  # Bonferroni over all rounds
        margin += max(self.level, 1 - self.level) * self.missing  # what the weights can move
        tested = np.array(self._tested)[:, :groups]
        low = np.where(off < -margin, tested, self.bounds.low).max(axis=0)
        high = np.where(off > margin, tested, self.bounds.high).min(axis=0)
        return self.estimated(
            self.thresholds[:groups],
            np.maximum((high - low) / 4, (self.high - self.low)[:groups] / 2),
            f"quantile at level {self.level:g} of every group",
            bias_bound=np.zeros(groups),  # the interval has it, and the error is a quarter of the interval
            keys=np.array(self.keys),
            records=records,
            interval=np.stack([low, high], axis=1),
        )
