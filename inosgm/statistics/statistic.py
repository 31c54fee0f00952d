"""The base of all statistics: an INO-SGM whose contributions are shares of their owner's sensitivity."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.records import records_in
from inosgm._internal.validate import Array
from inosgm.ledger.cost import LedgerHook
from inosgm.mechanism.contributions import Cells, Contributions, Dense
from inosgm.mechanism.fixed_point import Grid
from inosgm.mechanism.mechanism import Measured
from inosgm.mechanism.orders import Descending, Order
from inosgm.mechanism.streaming import Streaming
from inosgm.mechanism.tails import NoTail, Tail
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.saturation import saturated
from inosgm.statistics.estimate import Estimate, OwnerValue, cost_of
from inosgm.statistics.intervals import Number, TestedShares

_OPTIONS = ("key", "ledger", "note")

_FIRST_ORDER = 0.01
"""The share of all weight that may be missing before a bias bound of first order gets a note."""

_FULL = 1e-9
"""A weight this close to 1 counts as 1: sensitivities are rounded to fixed point, by 1e-11 and less."""


class Statistic(Streaming):
    """A private statistic of records in memory, in chunks, or on a cluster.

    A subclass defines `contributions`, in units of the owner's sensitivity; `scores`, if there is an order; and
    `estimate`, which turns the released sum into an estimate. Its own parameters are keyword arguments that JSON can
    hold. It sets them before it calls the base.

    **What it estimates.** By default the quantity over ALL records, each counting once, as well as budgets allow: the
    plan is saturated first (`inosgm.planning.saturation`), which lowers the sensitivities of owners with large
    budgets to what the estimate uses, so that they pay less. A sum divided by `total` is then the mean of the
    contributions of all records, in which the records of owners with very small budgets are shrunk towards a
    contribution of 0 by a public weight. `estimated` says how large a bias that can be. With `assume_alike=True` a
    record weighs as much as its owner's sensitivity: less noise, and the quantity over all records only if records
    are alike across owners.

    **Guarantee.** That of `INOSGM`, for one record of an owner, added or removed: every round costs the owner a
    sampled Gaussian of its rate and multiplier in the plan. `estimate` is a function of released values and public
    numbers. Sizes of owners are public.

    With a key, an answer is a function of the key, the parameters, the plans and the `key_name` of the class. That is
    the path of the class, such as "package.module.Typical", unless the class sets one: a class with
    `key_name = "package.typical"` keeps its keyed answers when it is moved or renamed. A subclass never inherits it.
    Give no two statistics one name: with one key they would share their noise, and the difference of their sums would
    be exact.

    Args:
        plan: The public numbers; it has as many steps as the statistic has rounds.
        owners: Owners, or the label of each record's owner; None if records come in chunks only.
        tail: The part of the order that is down-weighted.
        order: The order of importance.
        bins: The number of sums into which `contributions` sorts records, with `Cells`.
        by_owner: Whether every owner has sums of its own.
        matching: The fraction of the records that take part, where only some of a table do (`conditional`): released.
        matching_error: Its standard error.
        assume_alike: Weigh records by the budgets of their owners, under the assumption that records are alike across
            owners.
        key: As for `INOSGM`.
        ledger: As for `INOSGM`.
        note: As for `INOSGM`; the name if not given.

    Raises:
        ValueError: for a plan with another number of steps.
    """

    name: ClassVar[str]
    """The name in configurations, in job stores and on the command line."""

    key_name: ClassVar[str]
    """The name of this class in the keys of its noise. For the statistics of this package it is the path that they had
    when the first keyed answers were given: text that does not change when a module is moved."""

    of_labels: ClassVar[bool] = False
    """True if columns of files are read as labels instead of numbers."""

    blind: ClassVar[bool] = False
    """True if every record contributes 0, so that records need not be read."""

    in_one_process: ClassVar[bool] = False
    """True if its sums are made by the process that releases them, not by jobs."""

    _parameters: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Every class gets its own: a subclass that inherited the name would share the noise of its base.
        chosen = vars(cls).get("key_name", f"{cls.__module__}.{cls.__qualname__}")
        if not isinstance(chosen, str) or not chosen:
            raise TypeError(f'key_name must be text such as "package.statistic", got {chosen!r}')
        cls.key_name = chosen

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the statistic's own parameters: workers construct the same statistic from them."""
        made = super().__new__(cls)
        made._parameters = {name: value for name, value in kwargs.items() if name not in _OPTIONS}
        return made

    def __init__(
        self,
        plan: Plan,
        owners: Owners | Sequence[str | int] | np.ndarray | None = None,
        *,
        tail: Tail = NoTail(),
        order: Order = Descending(),
        bins: int = 1,
        by_owner: bool = False,
        matching: float = 1.0,
        matching_error: float = 0.0,
        assume_alike: bool = False,
        key: int | None = None,
        ledger: LedgerHook | None = None,
        note: str = "",
    ) -> None:
        self.matching, self.matching_error = matching, matching_error
        if isinstance(owners, Owners):
            owners.require_records("a statistic")
        if assume_alike and by_owner:
            raise ValueError(
                "assume_alike does not go with a value for each owner (stratified): every record counts once there"
            )
        self._each_once = not by_owner and self.each_once(**self._parameters)
        if self._each_once:
            plan = saturated(plan)
        rounds = self.rounds_of(**self._parameters)
        if plan.steps != rounds:
            raise ValueError(f"plan must have {rounds} steps for the statistic {self.name!r}, got {plan.steps}")
        self._bins, self._by_owner = bins, by_owner
        cells = bins * len(plan.labels) if by_owner else bins
        note = note or self.name
        super().__init__(plan, owners, cells=cells, tail=tail, order=order, key=key, ledger=ledger, note=note)
        if not self.total > 0:
            raise ValueError(
                "tail must leave some weight: make it as long as self.tail_length(plan, fraction), a fraction below 1"
            )
        self.observed: list[np.ndarray] = []

    @classmethod
    def rounds_of(cls, **parameters: Any) -> int:
        """Return the number of releases that the statistic takes with these parameters."""
        return 1

    @classmethod
    def each_once(cls, **parameters: Any) -> bool:
        """Return whether the estimate with these parameters is over all records, each counting once, from one sum."""
        return not parameters.get("assume_alike") and not parameters.get("stratified")

    def tail_length(self, plan: Plan, fraction: float) -> float:
        """Return the length of a tail that holds a fraction of the records that take part, for the plan of `__init__`.

        For records that are weighted by budgets it holds a fraction of the expected total sensitivity. Missing weight
        of records that are shrunk counts as weight outside of the tail.
        """
        share = float(self._parameters.get("matching", 1.0))
        if not self.each_once(**self._parameters):
            return share * plan.tail_length(fraction)
        followed = saturated(plan)
        held = followed.sizes > 0
        threshold = float((followed.sample_rates * followed.sensitivities)[held].max(initial=0.0))
        length = _validate.number("fraction", fraction, least=0, most=1) * float(followed.sizes.sum()) * threshold
        return share * length

    @property
    def parameters(self) -> dict[str, Any]:
        """The statistic's own parameters: `type(statistic)(plan, **statistic.parameters)` is the same one."""
        return dict(self._parameters)

    @abstractmethod
    def contributions(self, batch: Any) -> Array | Contributions:
        """Return a number or a row per record, no longer than 1, in units of its owner's sensitivity.

        Longer ones are clipped. If records are counted in several sums, return `Cells`.
        """

    def scores(self, batch: Any) -> Array:
        """Return the importance of each record; equal for all unless a subclass overrides it."""
        return np.zeros(records_in(batch))

    def check(self, batch: Any) -> None:
        """Raise for invalid records (missing values, text among numbers), before anything is charged."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """Return the estimate from the released sums, after the last round."""

    def answer(self) -> Estimate:
        """Return the estimate, with the error of the released number of records that take part in its standard error.

        How the value depends on that number is found by moving it by its standard error (the delta method).
        """
        estimate, share = self.estimate(), self.matching
        if not self.matching_error:
            return estimate
        step = min(self.matching_error, share / 2)
        moved = []
        for self.matching in (share - step, share + step):
            moved.append(np.asarray(self.estimate().value))
        self.matching = share
        error = np.hypot(estimate.standard_error, np.abs(moved[1] - moved[0]) / 2)
        return replace(estimate, standard_error=error if np.ndim(error) else float(error))

    def learned(self, value: np.ndarray) -> None:
        """Update the state with a released sum, on which later rounds may depend."""

    def run(self, data: Any) -> Estimate:
        """Check the records, release all rounds, and return the estimate."""
        self.check(data)
        for _ in range(self._plan.steps):
            self.observe(self.release(data).value)
        return self.answer()

    def observe(self, value: np.ndarray) -> None:
        """Record the released sum of a round."""
        self.observed.append(value)
        self.learned(value)

    def after(self, values: Sequence[np.ndarray]) -> Self:
        """Resume after rounds that were released elsewhere, by this statistic with this plan and key.

        Args:
            values: The released sums, from the first round on.

        Raises:
            RuntimeError: for a statistic that has released or observed a round itself: a round that is released twice
                would be charged once.
            ValueError: for more values than the plan has steps.
        """
        if len(values) > self._plan.steps:
            raise ValueError(f"values must be those of at most {self._plan.steps} rounds, got {len(values)}")
        with self._lock:  # another thread releases either before, which is seen here, or the rounds after these
            if self._count.released or self.observed:
                raise RuntimeError(
                    f"after needs a new statistic, and this one has released {self._count.released} rounds and "
                    f"observed {len(self.observed)}: make another one with the same plan and parameters"
                )
            self._resume_at(len(values))
        for value in values:
            self.observe(value if isinstance(value, dict) else np.asarray(value, dtype=np.float64))
        return self

    @cached_property
    def sensitivities(self) -> np.ndarray:
        """The sensitivity C of every owner on the fixed-point grid: a contribution of 1 adds C to a sum."""
        return Grid.of(self._plan.sensitivities, self._plan.sizes).sensitivities

    @property
    def totals(self) -> np.ndarray:
        """The expected total sensitivity of each owner's records in a batch: public, or released."""
        return np.asarray(self.matching * self._plan.sample_rates * self._plan.sizes * self.sensitivities)

    @property
    def records(self) -> float:
        """The number of records that take part: public, or released."""
        return self.matching * float(self._plan.sizes.sum())

    @property
    def full_total(self) -> float:
        """The expected total sensitivity of a batch in which every record counts in full: public.

        If records are weighted by budgets, that of the batch as it is.
        """
        if not self._each_once:
            return float(self.totals.sum())
        held = self._plan.sizes > 0
        return self.records * float((self._plan.sample_rates * self.sensitivities)[held].max(initial=0.0))

    @property
    def total(self) -> float:
        """The public divisor of a mean: W(full_total), the sum of rho C over all records if each counts in full.

        With rates below 1 it is that of the expected batch.
        """
        return float(self._tail.W(self.full_total))

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on each released number."""
        return self._plan.noise_scale

    @cached_property
    def coin_noise(self) -> np.ndarray:
        """The largest standard deviation that the coins of each owner's records add to a sum; 0 if all take part."""
        rates = self._plan.sample_rates
        return np.asarray(np.sqrt(self._plan.sizes * rates * (1 - rates)) * self.sensitivities)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of a record of each owner: at most 1 if each is to count once, 1 on average if not."""
        expected, sizes = self._plan.sample_rates * self.sensitivities, self._plan.sizes
        if not self._each_once:
            return np.asarray(expected * sizes.sum() / (expected @ sizes))
        return np.asarray(expected * self.records / self.full_total)

    @property
    def missing(self) -> float:
        """The sum of |1 - weight| over all records: the largest bias of a sum of contributions."""
        off = np.abs(1 - self.weights)
        return float(self._plan.sizes @ np.where(off < _FULL, 0.0, off))

    @property
    def bias_ratio(self) -> float:
        """The largest bias over the error from the noise, for every linear function of a sum: a public number."""
        return self.missing / self.records * self.full_total / self.noise

    def first_order_notes(self) -> tuple[str, ...]:
        """Return what to say about a bias bound of first order where more than a hundredth of all weight is missing."""
        share = self.missing / self.records
        if share <= _FIRST_ORDER:
            return ()
        return (
            f"{100 * share:.2g} % of the weight is missing or too much, and the bias bound is of first order: it may "
            "be too small; planner=plan_uniform (--method uniform) gives an answer without this bias",
        )

    @property
    def error_ratio(self) -> float:
        """The largest error from noise and coins over that from the noise alone: 1 if all records take part."""
        return float(np.hypot(1.0, np.linalg.norm(self.coin_noise) / self.noise)) if self._each_once else 1.0

    def estimated(
        self,
        value: Number,
        standard_error: Number,
        estimand: str,
        *,
        bias_bound: Number | None = None,
        by_owner: dict[Any, OwnerValue] | None = None,
        notes: Sequence[str] = (),
        tested: TestedShares | None = None,
        **details: Any,
    ) -> Estimate:
        """Return an estimate with the sentence, the weights of records and the cost of this plan.

        Args:
            value: The estimate.
            standard_error: Its error from the noise alone.
            estimand: What it is, such as "mean"; the sentence of the estimate also says over which records.
            bias_bound: The largest bias; if not given, that of a linear function of one sum (or of a smooth one, to
                first order), which is a public multiple of the standard error.
            by_owner: The values of owners.
            notes: As for `Estimate`.
            tested: As for `Estimate`.
            details: As for `Estimate`.
        """
        records, units = int(self._plan.sizes.sum()), f"{self._plan.unit_name}s"
        weights = self.weights
        alike = by_owner is not None or bool(np.allclose(weights, weights[0], rtol=1e-9))  # equal up to rounding
        if bias_bound is None:
            bias_bound = (0.0 if by_owner is not None else self.bias_ratio) * standard_error
        standard_error = self.error_ratio * standard_error
        if by_owner is not None:
            sentence = (
                f"{estimand} over all {records} {units}, each counting once, put together from those of each owner"
            )
        elif alike:
            sentence = f"{estimand} over all {records} {units}, each counting once"
        elif self._each_once:
            sentence = (
                f"{estimand} over all {records} {units}, each counting once; the {units} of owners with very small "
                "budgets count in part, which biases it"
            )
        else:
            sentence = (
                f"{estimand}, weighted by what budgets buy: that over all {records} {units} only if {units} are alike "
                "across owners, which is assumed"
            )
        return Estimate(
            value=value,
            standard_error=standard_error,
            bias_bound=bias_bound,
            estimand=sentence,
            weights=None if alike else dict(zip(self._plan.labels, weights.tolist(), strict=True)),
            cost=cost_of([self._plan]),
            by_owner=by_owner,
            details=details,
            notes=tuple(notes),
            tested=tested,
        )

    def measure(self, data: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> Measured:
        """Return contributions in units of the sum, a record scaled by its owner's sensitivity, and scores."""
        contributions, scores = super().measure(data, positions, owners, step)
        if isinstance(contributions, Cells):
            rows, cells = contributions.rows, contributions.cells
        elif isinstance(contributions, Dense):
            rows, cells = np.asarray(contributions.array, dtype=np.float64), np.zeros(owners.size, dtype=np.int64)
        else:
            raise TypeError(f"contributions must be rows or Cells, got {type(contributions).__name__}")
        if len(rows) != owners.size:
            raise ValueError("contributions must be one for every record of a batch")
        rows = rows * self.sensitivities[owners].reshape(-1, *[1] * (rows.ndim - 1))
        if self._by_owner:
            cells = owners * self._bins + cells
        return (Dense(rows) if self._cells == 1 else Cells(rows, cells, self._cells)), scores
