"""What a plan whose unit is one record promises about several records together, and what to sample instead."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.text import columns
from inosgm.accounting import Accountant, Segment, chosen, noise_multiplier
from inosgm.accounting.group import group_epsilon
from inosgm.accounting.unique_rows import unique_rows
from inosgm.accounting.units import ADD_REMOVE, relation_of
from inosgm.owners import Label, Owners

PlanNumbers = Any  # a Plan: its module imports this one

_CLOSE = 1e-3
"""Relative precision of a noise multiplier for groups; it is never below the one that keeps the budget."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupPrivacy:
    """The epsilons of a plan about several units of one owner that are added or removed together.

    Attributes:
        labels: The owners.
        sizes: Numbers of records (or units) in a group.
        epsilon: One row per owner, one column per size, at the delta of the owner.
        delta: The delta of each owner.
    """

    labels: tuple[Label, ...]
    sizes: tuple[int, ...]
    epsilon: np.ndarray
    delta: np.ndarray

    def table(self) -> str:
        """Return a table for people."""
        rows = [
            [str(label), *(f"{value:.4g}" for value in row), f"{delta:.3g}"]
            for label, row, delta in zip(self.labels, self.epsilon, self.delta, strict=True)
        ]
        return "\n".join(columns(["owner", *(f"epsilon of {size}" for size in self.sizes), "delta"], rows))


def group_privacy_of(plan: PlanNumbers, sizes: Sequence[int]) -> GroupPrivacy:
    """Return the epsilons of groups under a plan; `Plan.group_privacy` documents it."""
    counts = tuple(_validate.count("sizes", size, least=1) for size in sizes)
    if not counts:
        raise ValueError("sizes must hold at least one number of records")
    if relation_of(plan.unit) != ADD_REMOVE:
        raise ValueError(f"groups are added or removed, and the unit of the plan is {plan.unit}: take Poisson batches")
    _, delta, _ = plan.budgets()
    segments = plan.segments_until(plan.steps)
    if any(segment.sample_rate.ndim > 1 for segment in segments):
        raise ValueError("a plan with choices has no table of groups: the worst choice for a group is not that for one")
    first, kinds = unique_rows([delta, *(column for segment in segments for column in segment.columns())])
    found = [[group_epsilon(_cases(segments, row), float(delta[row]), size) for size in counts] for row in first]
    return GroupPrivacy(labels=plan.labels, sizes=counts, epsilon=np.array(found)[kinds], delta=delta)


def _cases(segments: Sequence[Segment], row: int) -> tuple[tuple[float, float, int], ...]:
    return tuple((float(s.sample_rate[row]), float(s.noise_multiplier[row]), int(s.steps[row])) for s in segments)


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplingAdvice:
    """Sampling single records with group accounting (ELS) against sampling whole units (ULS), by public numbers.

    Both run as many records in an expected batch. `noise` is the standard deviation of the noise on the mean gradient,
    in units of the clip norm, if an owner were alone. That of ULS lies between two numbers: gradients of a unit's
    records that all point one way keep their length in the mean, independent ones are shorter by the square root of
    their number, and could be clipped there.

    Attributes:
        labels: The owners.
        records_per_unit: The number of records of a unit.
        of_records: The noise with ELS, per owner.
        of_units: The noise with ULS per owner, if records of a unit are independent, and if they are alike.
    """

    labels: tuple[Label, ...]
    records_per_unit: int
    of_records: np.ndarray
    of_units: tuple[np.ndarray, np.ndarray]

    @property
    def better(self) -> tuple[str, ...]:
        """What to sample for each owner: "units", "records", or "unclear" if it depends on how alike records are."""
        least, most = self.of_units
        verdicts = np.where(most <= self.of_records, "units", np.where(least > self.of_records, "records", "unclear"))
        return tuple(verdicts.tolist())

    def report(self) -> str:
        """Return a table for people."""
        numbers = (self.of_records, *self.of_units)
        rows = [
            [str(label), *(f"{column[place]:.3g}" for column in numbers), self.better[place]]
            for place, label in enumerate(self.labels)
        ]
        heads = ["owner", "noise, records sampled", "units sampled (independent)", "units sampled (alike)", "sample"]
        return "\n".join([f"units of {self.records_per_unit} records", *columns(heads, rows)])


def compare_sampling(
    owners: Owners,
    *,
    records_per_unit: int,
    steps: int,
    expected_records: float,
    accountant: Accountant | None = None,
) -> SamplingAdvice:
    """Say whether to sample single records, accounted as groups, or whole units (arXiv 2407.07737), by public numbers.

    Args:
        owners: Owners with units, or, if every record of theirs is one, as many units as they have records.
        records_per_unit: The number of records of a unit; units with fewer are protected better.
        steps: The number of steps.
        expected_records: The expected number of records in a batch, for both.
        accountant: Of units; PLD() if not given. Groups are always accounted by distributions.

    Returns:
        The noise of both for each owner.

    Raises:
        ValueError: for a batch that is larger than all records.

    >>> owners = Owners(of_record=["a"] * 100 + ["b"] * 400, epsilon={"a": 1.0, "b": 8.0}, delta=1e-5)
    >>> compare_sampling(owners, records_per_unit=8, steps=50, expected_records=200).better
    ('unclear', 'unclear')
    """
    _validate.instance("owners", owners, Owners, "make them with Owners(of_record=..., epsilon=..., delta=...)")
    size = _validate.count("records_per_unit", records_per_unit, least=1)
    steps = _validate.count("steps", steps, least=1)
    batch = _validate.number("expected_records", expected_records, above=0)
    rate = batch / (owners.n_units * size)
    if rate > 1:
        raise ValueError(f"expected_records must be at most the {owners.n_units * size} records, got {batch:g}")
    first, kinds = unique_rows([owners.epsilon, owners.delta])
    budgets = [(float(owners.epsilon[row]), float(owners.delta[row])) for row in first]
    alone = np.array([_multiplier_for_group(*budget, rate, steps, size) for budget in budgets])[kinds]
    units = np.asarray(noise_multiplier(owners.epsilon, owners.delta, rate, steps, accountant=chosen(accountant)))
    of_units = units * size / batch
    return SamplingAdvice(
        labels=owners.labels,
        records_per_unit=size,
        of_records=alone / batch,
        of_units=(of_units / np.sqrt(size), of_units),
    )


def _multiplier_for_group(epsilon: float, delta: float, rate: float, steps: int, size: int) -> float:
    """Return about the least noise multiplier with which a group spends at most epsilon."""

    def keeps(multiplier: float) -> bool:
        return group_epsilon(((rate, multiplier, steps),), delta, size) <= epsilon

    high = 1.0
    while not keeps(high):
        high *= 2
    low = high / 2
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
