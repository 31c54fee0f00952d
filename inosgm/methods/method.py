"""The description of a method: all that commands, configurations, comparisons, reports and docs know about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inosgm.accounting import ACCOUNTANTS, Segment
from inosgm.accounting.units import ADD_REMOVE
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import PlanSequence
from inosgm.planning.steering import Steering

TELLING_APART = ("sample", "scale", "blend")
"""Values of `plan.method` that give owners with different budgets different rates or sensitivities."""

_UNSET = {"sampling": "poisson", "leave_out": None, "lower": None, "undersample": None, "rounds": None}
"""Keys of `plan` that make a configuration one of a single method, with their values for all other methods."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to train with the budgets that owners grant.

    Functions of a method are given `options`, the `plan` section of a configuration with its defaults filled in.

    Attributes:
        name: Its name for commands and in Python.
        title: Its name in reports.
        description: What it does, in one line.
        glossary: What it does with budgets that differ, for readers who are new to it; continues "it ...".
        published: How it relates to the published method.
        planner: Makes its plan, or the plans of its stages, from (owners, options, **request), where the request has
            steps, expected_batch, clip_norm, accountant and past.
        recognises: Says of (options, ordered) whether a configuration is one of this method.
        plan_method: The value of `plan.method` that it sets; None if it keeps the value of the configuration, which
            must tell owners apart.
        options: Other keys of `plan` that it sets.
        takes: Keys of `plan` that a configuration with this `plan.method` may have and others may not.
        needs: Keys of `plan` that a configuration must have.
        ordered: Whether it needs a tail.
        adjusted: Whether it needs an adjustment of logits.
        different_budgets: Whether it needs owners that grant different epsilons.
        steering: Makes the object that chooses each step, from (plan, options).
        unit: The unit of privacy of its epsilons.
        keeps_budgets: Whether every owner spends at most what it grants.
        warning: What readers of a table must know about its guarantee; empty if it is that of all others.
    """

    name: str
    title: str
    description: str
    glossary: str
    published: str
    planner: Callable[..., Plan | tuple[Plan, ...]]
    recognises: Callable[[Any, bool], bool]
    plan_method: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    ordered: bool = False
    adjusted: bool = False
    different_budgets: bool = False
    steering: Callable[[Plan, Any], Steering] | None = None
    unit: str = ADD_REMOVE
    keeps_budgets: bool = True
    warning: str = ""

    def plans(self, options: Any, owners: Owners, past: Sequence[Segment] = ()) -> PlanSequence:
        """Return the plans of the method, which are followed one after another.

        Raises:
            ValueError: for options of several methods, and for what the planner refuses.
        """
        given = [name for name in ("leave_out", "lower", "undersample") if getattr(options, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are methods of their own: set one of them")
        request = {name: getattr(options, name) for name in ("steps", "expected_batch", "clip_norm")}
        made = self.planner(owners, options, accountant=ACCOUNTANTS[options.accountant], past=past, **request)
        return PlanSequence(made if isinstance(made, tuple) else (made,))

    @property
    def plan_methods(self) -> tuple[str, ...]:
        """The values of `plan.method` that a configuration of it may have."""
        return TELLING_APART if self.plan_method is None else (self.plan_method,)

    @property
    def changes(self) -> dict[str, Any]:
        """The keys, by path, that turn a configuration into one of this method.

        They are its plan, the defaults of the keys of other methods, no tail unless it is ordered, and no adjustment
        unless it is adjusted. A configuration keeps `steering`, `lasting` and `teachers`, which only some methods read.
        """
        keys = {**_UNSET, **self.options}
        if self.plan_method is not None:
            keys |= {"method": self.plan_method, "weight": None}
        tail = {} if self.ordered else {"tail": {"kind": "none"}}
        adjustment = {} if self.adjusted else {"adjustment": None}
        return {**{f"plan.{name}": value for name, value in keys.items()}, **tail, **adjustment}


def adjusted_form(method: Method) -> Method:
    """Return the form of a method that corrects logits by the class prior of its plan."""
    return replace(
        method,
        name=f"{method.name}-adjusted",
        title=f"{method.title}, adjusted",
        description=f"{method.title}, with logits corrected by the class prior that the plan implies, which is public",
        glossary=f"is {method.title} with logits that are corrected for how much of a batch each class gets",
        published="logit adjustment (Menon et al., 2021) on top",
        adjusted=True,
    )
