"""The promises of a plan about one record of every owner, which an audit tries to refute."""

import math
from dataclasses import dataclass

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.inverses import LEAST_MULTIPLIER
from inosgm.accounting.units import ADD_REMOVE, name_in, relation_of
from inosgm.owners import Label
from inosgm.planning.plan import Plan

USUAL_DELTA = 1e-5
"""The delta for a plan without budgets, and so without a delta: the usual one of the papers."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim about one record of an owner that is added to the data or removed from it, or replaced by another.

    Attributes:
        owner: The label of the owner.
        granted: The epsilon that the owner grants, if the plan knows it.
        spent: The epsilon of the whole plan, with earlier plans of a sequence; infinite if there is hardly any noise.
        delta: The delta of both.
        sample_rate: The probability that the record is in the batch of a step.
        noise_multiplier: The standard deviation of the noise over the sensitivity of the record; on average over the
            steps if costs are accounted per record. It does not include that a replaced record moves a sum by twice its
            sensitivity.
        steps: The number of steps.
        unit: The unit of privacy, of `inosgm.accounting.units`.
    """

    owner: Label
    granted: float | None
    spent: float
    delta: float
    sample_rate: float
    noise_multiplier: float
    steps: int
    unit: str = ADD_REMOVE

    @property
    def relation(self) -> str:
        """How neighbouring data sets differ: "add/remove" or "replace-one"."""
        return relation_of(self.unit)


def claims_of(plan: Plan, delta: float | None = None) -> tuple[Claim, ...]:
    """Return the claims of a plan about one record of each of its owners.

    Args:
        plan: Any plan. One without budgets is accounted for by PLD, and grants nothing.
        delta: The delta of the claims; by default that of the plan's budgets, or else 1e-5.

    >>> plan = Plan(sample_rates=[1.0], sensitivities=[1.0], sizes=[10], noise_scale=1.0, steps=1)
    >>> round(claims_of(plan)[0].spent, 3)
    4.377
    """
    size = len(plan.labels)
    if delta is not None:
        deltas = np.full(size, _validate.number("delta", delta, above=0, most=1))
    else:
        deltas = np.full(size, USUAL_DELTA) if plan.delta is None else plan.delta
    at_budgets = delta is None or (plan.delta is not None and bool((plan.delta == deltas).all()))
    granted = plan.epsilon if at_budgets else None
    accountant = ACCOUNTANTS[plan.accountant or name_in(plan.unit, "pld")]
    spent = np.full(size, math.inf)
    multipliers = plan.variant.claimed_multipliers(plan)
    noisy = np.flatnonzero(multipliers >= LEAST_MULTIPLIER)
    if noisy.size:
        rows = [segment.rows(noisy) for segment in plan.segments_until(plan.steps)]
        spent[noisy] = epsilon_of_rows(rows, deltas[noisy], accountant)
    return tuple(
        Claim(
            owner=label,
            granted=None if granted is None else float(granted[index]),
            spent=float(spent[index]),
            delta=float(deltas[index]),
            sample_rate=float(plan.sample_rates[index]),
            noise_multiplier=float(multipliers[index]),
            steps=plan.steps,
            unit=plan.unit,
        )
        for index, label in enumerate(plan.labels)
    )
