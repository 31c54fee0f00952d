"""Variants of plans: what single methods add to a plan, what that costs, how batches are drawn, and its keys in a file.

The plain `Variant` has Poisson batches with the rates and sensitivities of the plan in every step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm.accounting import Segment
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE
from inosgm.planning.choices import Choices

PlanMethod = Literal["sample", "scale", "blend", "uniform", "individual"]
Sampling = Literal["poisson", "without_replacement"]

PlanNumbers = Any  # a Plan: its module imports this one


@dataclass(frozen=True, eq=False)
class Variant:
    """A plan whose steps are all alike: every record is drawn independently, with the rate of its owner."""

    weight: ClassVar[float | None] = None
    choices: ClassVar[Choices | None] = None
    side_releases: ClassVar[tuple[Any, ...]] = ()
    sampling: ClassVar[Sampling] = "poisson"
    squared_norm_budget: ClassVar[np.ndarray | None] = None
    filters_records: ClassVar[bool] = False
    """Whether every record pays for itself, so that all steps share one charge of which none can be undone."""

    @property
    def relation(self) -> str:
        """How neighbouring data sets differ."""
        return ADD_REMOVE if self.sampling == "poisson" else REPLACE_ONE

    @property
    def needs_steering(self) -> bool:
        """Whether released values must choose every step."""
        return self.choices is not None

    def claimed_multipliers(self, plan: PlanNumbers) -> np.ndarray:
        """Return the noise multiplier of a step for each owner, as accountants count it."""
        return np.asarray(plan.noise_multipliers)

    def require_fitting(self, plan: PlanNumbers) -> None:
        """Raise unless the plan has the numbers that the variant needs."""
        if plan.method == "blend":
            raise ValueError("weight must be given for a blend: variant=Blend(weight=...)")
        if plan.method == "individual":
            raise ValueError(
                "squared_norm_budget must be given for the method individual: variant=IndividualAccounting(...)"
            )

    def segment(self, plan: PlanNumbers, steps: int) -> Segment:
        """Return what some steps do to the records of every owner."""
        return Segment(plan.sample_rates, plan.noise_multipliers, np.full(plan.sizes.size, steps))

    def step_cost(self, plan: PlanNumbers) -> np.ndarray:
        """Return a number per owner that orders owners by what a step costs."""
        inverse = plan.noise_multipliers**-2.0
        rates = np.maximum(plan.sample_rates, _validate.TINY)  # an owner that takes no part pays least
        return np.asarray(2 * np.log(rates) + inverse + np.log(-np.expm1(-inverse)))

    def full_norm_fraction(self, plan: PlanNumbers) -> float | np.ndarray:
        """Return the fraction of the steps to which a record of each owner can contribute its full norm."""
        return 1.0

    def pays_for(self, plan: PlanNumbers, sample_rates: np.ndarray, sensitivities: np.ndarray) -> np.ndarray:
        """Say of each owner whether a step with this rate and sensitivity costs no more than the plan pays for."""
        return np.asarray(
            (sample_rates == 0) | ((sample_rates <= plan.sample_rates) & (sensitivities <= plan.sensitivities))
        )

    def batch_counts(self, plan: PlanNumbers) -> np.ndarray | None:
        """Return the fixed number of records of each owner in a batch; None if each record is drawn independently."""
        return None

    def entries(self) -> dict[str, Any]:
        """Return the keys that a file of the plan has, as earlier versions have named them."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and (
            (self.weight, self.choices, self.side_releases, self.sampling)
            == (other.weight, other.choices, other.side_releases, other.sampling)
            and np.array_equal(self.squared_norm_budget, other.squared_norm_budget)  # type: ignore[arg-type]
        )

    def __hash__(self) -> int:
        return hash((self.weight, self.choices, self.side_releases, self.sampling))


PLAIN = Variant()


@dataclass(frozen=True, eq=False)
class Blend(Variant):
    """A plan of `plan_blend`.

    Args:
        weight: In [0, 1], the share of the rates in telling owners apart.
    """

    weight: float  # type: ignore[misc]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _validate.number("weight", self.weight, least=0, most=1))

    def require_fitting(self, plan: PlanNumbers) -> None:
        """Raise for a plan that is no blend."""
        if plan.method != "blend":
            raise ValueError(
                f"weight must be given for a blend and for nothing else, got {self.weight!r} for {plan.method!r}"
            )

    def entries(self) -> dict[str, Any]:
        """Return the weight."""
        return {"weight": self.weight}


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupSampling(Variant):
    """A plan whose steps follow released values: ASC and aZB.

    Args:
        choices: The rates and sensitivities that released values may choose among for a step; those of the plan are
            those of the first step. None if every step has those of the plan, or leaves owners out.
        side_releases: Plans that pay for what is released meanwhile, such as losses of groups.
        sampling: "poisson", or "without_replacement": batches with a fixed number of records of each owner, whose unit
            of privacy is a record that is replaced.
    """

    choices: Choices | None = None  # type: ignore[misc]
    side_releases: Sequence[PlanNumbers] = ()  # type: ignore[assignment, misc]
    sampling: Sampling = "poisson"  # type: ignore[misc]

    def __post_init__(self) -> None:
        object.__setattr__(self, "side_releases", tuple(self.side_releases))
        if self.sampling not in ("poisson", "without_replacement"):
            raise ValueError(f"sampling must be poisson or without_replacement, got {self.sampling!r}")

    def require_fitting(self, plan: PlanNumbers) -> None:
        """Raise for choices of other owners, for a first step that is not among them, and for other side releases."""
        super().require_fitting(plan)
        if self.choices is not None and self.choices.sample_rates.shape[1] != plan.sizes.size:
            columns = self.choices.sample_rates.shape[1]
            raise ValueError(f"choices must have one column per owner: got {columns} for {plan.sizes.size} owners")
        if any(other.labels != plan.labels or other.unit != plan.unit for other in self.side_releases):
            raise ValueError("side_releases must be plans of the same owners and unit")

    def segment(self, plan: PlanNumbers, steps: int) -> Segment:
        """Return what some steps do to the records: no choice costs more than the dominating pair of all choices."""
        if self.choices is None:
            return super().segment(plan, steps)
        multipliers = plan.noise_scale / self.choices.sensitivities.T
        return Segment(self.choices.sample_rates.T, multipliers, np.full(plan.sizes.size, steps))

    def pays_for(self, plan: PlanNumbers, sample_rates: np.ndarray, sensitivities: np.ndarray) -> np.ndarray:
        """Say of each owner whether a step is among the choices, or costs no more than one of them."""
        if self.choices is None:
            return super().pays_for(plan, sample_rates, sensitivities)
        return self.choices.pay_for(sample_rates, sensitivities)

    def batch_counts(self, plan: PlanNumbers) -> np.ndarray | None:
        """Return the sizes of batches without replacement."""
        if self.sampling == "poisson":
            return None
        # A rate is a whole number over the size of a group: their product may lie below that number by a rounding.
        return np.asarray(np.floor(plan.sample_rates * plan.sizes * (1 + 1e-9)), dtype=np.int64)

    def entries(self) -> dict[str, Any]:
        """Return the choices, the side releases and the sampling."""
        return {"menu": self.choices, "beside": self.side_releases, "sampling": self.sampling}


@dataclass(frozen=True, eq=False)
class IndividualAccounting(Variant):
    """A plan in which every record pays by the norms that it contributes, until its budget is used up.

    All steps together are one Gaussian mechanism with noise multiplier 1 / sqrt(squared_norm_budget).

    Args:
        squared_norm_budget: What one record of each owner may spend in all steps together, in squares of norm over
            noise scale.
    """

    squared_norm_budget: np.ndarray  # type: ignore[misc]
    filters_records: ClassVar[bool] = True

    def __init__(self, squared_norm_budget: ArrayLike) -> None:
        budget = _validate.vector("squared_norm_budget", squared_norm_budget)
        _validate.each("squared_norm_budget", budget, (budget > 0) & (budget < np.inf), "lie in (0, inf)")
        object.__setattr__(self, "squared_norm_budget", budget)

    def require_fitting(self, plan: PlanNumbers) -> None:
        """Raise for batches that are drawn: a filter would have to charge every step, sampled or not."""
        if (plan.sample_rates != 1).any():
            raise ValueError("squared_norm_budget must be given for full batches: rates of 1")
        if plan.method == "blend":
            raise ValueError("a blend cannot have a squared_norm_budget: take the method individual, or none")
        if self.squared_norm_budget.size != plan.sizes.size:
            raise ValueError(
                f"squared_norm_budget must hold one entry per owner: got {self.squared_norm_budget.size} for "
                f"{plan.sizes.size} sample_rates"
            )

    def claimed_multipliers(self, plan: PlanNumbers) -> np.ndarray:
        """Return the multipliers with which the steps of the plan spend the budget in equal parts."""
        return np.asarray(np.sqrt(plan.steps / self.squared_norm_budget))

    def segment(self, plan: PlanNumbers, steps: int) -> Segment:
        """Return what any number of steps does: the first one may spend everything, so any step means all."""
        counted = np.full(plan.sizes.size, 0 if steps == 0 else plan.steps)
        return Segment(plan.sample_rates, self.claimed_multipliers(plan), counted)

    def step_cost(self, plan: PlanNumbers) -> np.ndarray:
        """Return the logarithm of what a record may spend."""
        return np.asarray(np.log(self.squared_norm_budget))

    def full_norm_fraction(self, plan: PlanNumbers) -> np.ndarray:
        """Return the fraction of the steps after which a record with full norms has used up its budget, at most 1."""
        return np.asarray(np.minimum(self.squared_norm_budget / plan.steps * plan.noise_multipliers**2, 1))

    def entries(self) -> dict[str, Any]:
        """Return the budget."""
        return {"allowance": self.squared_norm_budget}


def variant_of(entries: Mapping[str, Any]) -> Variant:
    """Return the variant of a plan file from its keys, those that are not set included.

    Raises:
        ValueError: for keys of several variants.
    """
    variants: list[Variant] = []
    if entries["weight"] is not None:
        variants.append(Blend(entries["weight"]))
    if entries["menu"] is not None or entries["beside"] or entries["sampling"] != "poisson":
        asked = {"choices": entries["menu"], "side_releases": entries["beside"], "sampling": entries["sampling"]}
        variants.append(GroupSampling(**asked))
    if entries["allowance"] is not None:
        variants.append(IndividualAccounting(entries["allowance"]))
    if len(variants) > 1:
        names = " and ".join(type(variant).__name__ for variant in variants)
        raise ValueError(f"a plan has the keys of one method only, got those of {names}")
    return variants[0] if variants else PLAIN
