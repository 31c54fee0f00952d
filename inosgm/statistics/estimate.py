"""Estimates: a private value with its standard error, its meaning, and its cost to each owner."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inosgm._internal.text import MAX_ROWS, columns
from inosgm.accounting import ACCOUNTANTS, Segment
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.owners import Label
from inosgm.planning.plan import Plan
from inosgm.statistics.intervals import Number, TestedShares, half_width


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnerValue:
    """The private value of one owner's records, and its standard error from the noise."""

    value: Number
    standard_error: Number

    def interval(self, level: float = 0.95) -> tuple[Number, Number]:
        """Return an interval that covers the value of the owner's records with at least this probability."""
        width = half_width(self.standard_error, 0.0, level)
        return self.value - width, self.value + width


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A private value and its description; everything in it is released or public.

    Attributes:
        value: The estimate: a number, or an array.
        standard_error: The error from the noise, in the shape of the value; with sample rates below 1 it includes the
            largest error from the coins. It does not include clipping to bounds.
        bias_bound: The largest bias that the weights of owners can cause, in the shape of the value, whatever the
            records are; 0 if every record counts in full.
        estimand: What was estimated, in a sentence.
        weights: The weight of a record of each owner; None if all weigh the same.
        cost: The epsilon that it cost each owner at its delta, by label; None if the plan knows no budgets.
        by_owner: The value of each owner's own records, for stratified estimates.
        details: Other released or public values, such as the edges of a histogram.
        notes: What a reader should know about this value, such as that it lies at a bound.
        tested: The shares that a quantile was found by, which its intervals follow from.
    """

    value: Number
    standard_error: Number
    bias_bound: Number = 0.0
    estimand: str
    weights: Mapping[Label, float] | None = None
    cost: Mapping[Label, float] | None = None
    by_owner: Mapping[Label, OwnerValue] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tested: TestedShares | None = None

    def interval(self, level: float = 0.95) -> tuple[Number, Number]:
        """Return an interval that covers the estimated quantity with at least this probability over the noise.

        It covers noise and bias together: it holds whatever the records are, up to the first order of the noise for
        statistics that are not linear (variances, covariances, regressions). For arrays it holds for each number by
        itself.

        Args:
            level: In (0, 1), such as 0.95.

        Returns:
            The lower and the upper end, each in the shape of the value.

        >>> low, high = Estimate(value=10.0, standard_error=1.0, bias_bound=0.5, estimand="mean").interval(0.9)
        >>> round(low, 2), round(high, 2)
        (8.16, 11.84)
        """
        if self.tested is not None:
            return self.tested.interval(level)
        width = half_width(self.standard_error, self.bias_bound, level)
        return self.value - width, self.value + width

    def to_dict(self) -> dict[str, Any]:
        """Return a form for JSON, in which lists hold the labels of owners beside their values."""
        return {
            "value": _plain(self.value),
            "standard_error": _plain(self.standard_error),
            "bias_bound": _plain(self.bias_bound),
            "estimand": self.estimand,
            "weights": self.weights and [{"owner": label, "weight": weight} for label, weight in self.weights.items()],
            "cost": self.cost and [{"owner": label, "epsilon": epsilon} for label, epsilon in self.cost.items()],
            "by_owner": None
            if self.by_owner is None
            else [
                {"owner": label, "value": _plain(row.value), "standard_error": _plain(row.standard_error)}
                for label, row in self.by_owner.items()
            ],
            "details": {name: _plain(value) for name, value in self.details.items()},
            "notes": list(self.notes),
            "tested": None if self.tested is None else self.tested.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Estimate":
        """Return the estimate of which `to_dict` returned these values; files of earlier versions lack some of them.

        They may have been made `storable`.
        """
        values = _restored(values)
        cost, rows, weights, tested = values["cost"], values["by_owner"], values["weights"], values.get("tested")
        return cls(
            value=_number(values["value"]),
            standard_error=_number(values["standard_error"]),
            bias_bound=_number(values.get("bias_bound", 0.0)),
            estimand=values["estimand"],
            weights=None if weights is None else {row["owner"]: row["weight"] for row in weights},
            cost=None if cost is None else {row["owner"]: row["epsilon"] for row in cost},
            by_owner=None
            if rows is None
            else {
                row["owner"]: OwnerValue(value=_number(row["value"]), standard_error=_number(row["standard_error"]))
                for row in rows
            },
            details={
                name: np.asarray(value) if isinstance(value, list) else value
                for name, value in values["details"].items()
            },
            notes=tuple(values.get("notes", ())),
            tested=None if tested is None else TestedShares.from_dict(tested),
        )

    def __str__(self) -> str:
        """Return the value with no more digits than its error carries, what was estimated, and the cost."""
        if np.ndim(self.value) == 0:
            bias = f", bias at most {shown_error(self.bias_bound)}" if self.bias_bound else ""
            shown = f"{shown_number(self.value, self.standard_error)} +- {shown_error(self.standard_error)}{bias}"
        else:
            with np.printoptions(precision=6, threshold=20, suppress=True):
                shown = f"{self.value}"
        return "\n".join([shown, self.estimand, *self.notes, *self._owners()])

    def _owners(self) -> list[str]:
        """Return a table with a line for each of the first owners."""
        if self.cost is None:
            return []
        own, weights = self.by_owner or {}, self.weights or {}
        scalars = all(np.ndim(row.value) == 0 for row in own.values())
        rows = [
            [
                str(label),
                f"{epsilon:.4g}",
                *([f"{weights[label]:.3g}"] if weights else []),
                *(_shown_value(own[label]) if own and scalars else []),
            ]
            for label, epsilon in list(self.cost.items())[:MAX_ROWS]
        ]
        header = [
            "owner",
            "epsilon spent",
            *(["weight"] if weights else []),
            *(["value", "standard error"] if own and scalars else []),
        ]
        hidden = len(self.cost) - MAX_ROWS
        return [*columns(header, rows), *[f"({hidden} more owners)"] * (hidden > 0)]


def shown_number(value: Any, error: Any) -> str:
    """Return a number with as many digits as its error carries: up to the second digit of the error, at most six.

    >>> shown_number(71.0537, 0.62), shown_number(1234567.8, 2300.0), shown_number(5.0, 0.0)
    ('71.05', '1234600', '5')
    """
    value, error = float(value), float(error)
    if not (error > 0 and math.isfinite(error) and math.isfinite(value)):
        return f"{value:.6g}"
    place = math.floor(math.log10(error)) - 1  # that of the error's second digit
    if value:
        place = max(place, math.floor(math.log10(abs(value))) - 5)
    rounded = round(value, -place) + 0.0  # no negative zero
    if not 1e-5 <= abs(rounded) < 1e15 and rounded:
        return f"{rounded:.6g}"
    return f"{rounded:.{max(-place, 0)}f}"


def shown_error(error: Any) -> str:
    """Return an error with two digits."""
    error = float(error)
    if not (error > 0 and math.isfinite(error)):
        return f"{error:g}"
    return shown_number(error, error)


def _shown_value(row: OwnerValue) -> list[str]:
    return [shown_number(row.value, row.standard_error), shown_error(row.standard_error)]


def cost_of(plans: Sequence[Plan]) -> dict[Label, float] | None:
    """Return the epsilon that plans together cost each owner, at its delta; None if they know no budgets."""
    first = plans[0]
    if first.delta is None or first.accountant is None:
        return None
    epsilons = epsilon_of_rows(segments_of(plans), first.delta, ACCOUNTANTS[first.accountant])
    return dict(zip(first.labels, epsilons.tolist(), strict=True))


def segments_of(plans: Sequence[Plan]) -> list[Segment]:
    """Return the segments of plans, with one entry per owner."""
    return [Segment(p.sample_rates, p.noise_multipliers, np.full(p.sizes.size, p.steps)) for p in plans]


def storable(values: Any) -> Any:
    """Return what `Estimate.to_dict` returned without numbers that JSON does not have.

    A ratio whose denominator may be 0 has an infinite interval, and an answer that was paid for is stored anyway.

    >>> storable({"value": 1.0, "details": {"interval": [-math.inf, 2.0]}})
    {'value': 1.0, 'details': {'interval': [{'number': '-inf'}, 2.0]}}
    """
    if isinstance(values, float):
        return values if math.isfinite(values) else {"number": repr(values)}
    if isinstance(values, Mapping):
        return {name: storable(value) for name, value in values.items()}
    return [storable(value) for value in values] if isinstance(values, list | tuple) else values


def _restored(values: Any) -> Any:
    """Return values as they were before they were made `storable`."""
    if isinstance(values, Mapping):
        if values.keys() == {"number"}:
            return float(values["number"])
        return {name: _restored(value) for name, value in values.items()}
    return [_restored(value) for value in values] if isinstance(values, list | tuple) else values


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _number(value: Any) -> Number:
    return np.asarray(value, dtype=np.float64) if isinstance(value, list) else float(value)
