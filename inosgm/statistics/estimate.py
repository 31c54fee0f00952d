"""Estimates: a private value with its standard error, its meaning, and its cost to each owner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inosgm._internal.text import MAX_ROWS, columns
from inosgm.accounting import ACCOUNTANTS, Segment
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.owners import Label
from inosgm.planning.plan import Plan

Number = float | np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnerValue:
    """The private value of one owner's records, and its standard error from the noise."""

    value: Number
    standard_error: Number


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A private value and its description; everything in it is released or public.

    Attributes:
        value: The estimate: a number, or an array.
        standard_error: The error from the noise alone, in the shape of the value; it does not include sampling of the
            data, clipping to bounds, or the bias of a weighted estimate.
        estimand: A description of the estimated quantity.
        weights: The weight of a record of each owner, 1 on average over all records; None if all weigh the same.
        cost: The epsilon that it cost each owner at its delta, by label; None if the plan knows no budgets.
        by_owner: The value of each owner's own records, for stratified estimates.
        details: Other released or public values, such as the edges of a histogram.
    """

    value: Number
    standard_error: Number
    estimand: str
    weights: Mapping[Label, float] | None = None
    cost: Mapping[Label, float] | None = None
    by_owner: Mapping[Label, OwnerValue] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a form for JSON, in which lists hold the labels of owners beside their values."""
        return {
            "value": _plain(self.value),
            "standard_error": _plain(self.standard_error),
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
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Estimate":
        """Return the estimate of which `to_dict` returned these values."""
        cost, rows, weights = values["cost"], values["by_owner"], values["weights"]
        return cls(
            value=_number(values["value"]),
            standard_error=_number(values["standard_error"]),
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
        )

    def __str__(self) -> str:
        with np.printoptions(precision=6, threshold=20, suppress=True):
            single = np.ndim(self.value) == 0
            shown = f"{self.value:.6g} +- {self.standard_error:.2g}" if single else f"{self.value}"
        lines = [shown, self.estimand, *self._owners()]
        return "\n".join(lines)

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
                *([f"{own[label].value:.6g}", f"{own[label].standard_error:.2g}"] if own and scalars else []),
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


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _number(value: Any) -> Number:
    return np.asarray(value, dtype=np.float64) if isinstance(value, list) else float(value)
