"""Questions: each is one or more statistics in turn."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from inosgm.planning.plan import Plan
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.statistic import Statistic


@dataclass(frozen=True, eq=False)
class Stage:
    """One statistic of a question: which, and with which parameters. They may depend on what was estimated before."""

    statistic: type[Statistic]
    parameters: Mapping[str, Any]


Stages = Generator[Stage, Estimate, Estimate]


@dataclass(frozen=True, eq=False)
class Procedure:
    """How a question is answered: by statistics in turn.

    Attributes:
        name: What the question is called.
        stages: Takes the parameters of the question; yields stages, is sent their estimates, and returns the answer.
        rounds: Takes the same parameters, and returns how many releases each stage takes.
        shares: After each stage, which part of the budget may be spent; the last is 1.
        statistic: The only one, whose parameters these are.
    """

    name: str
    stages: Callable[..., Stages]
    rounds: Callable[..., tuple[int, ...]]
    shares: tuple[float, ...] = (1.0,)
    statistic: type[Statistic] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The names of its parameters, and what they are if left out."""
        functions = [self.stages] if self.statistic is None else _constructors(self.statistic)
        found = [each for function in functions for each in signature(function).parameters.values()]
        return {each.name: each.default for each in found if each.kind is each.KEYWORD_ONLY}

    def require(self, parameters: Mapping[str, Any]) -> None:
        """Raise for a parameter that it does not have."""
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            raise TypeError(
                f"{self.name} has no parameter {unknown[0]!r}, only {', '.join(self.parameters)} and the options of "
                "`ask`: column, owner, plan, share, ledger, key, planner"
            )


def single(statistic: type[Statistic]) -> Procedure:
    """Return the procedure that is one statistic."""

    def stages(**parameters: Any) -> Stages:
        return (yield Stage(statistic, parameters))

    def rounds(**parameters: Any) -> tuple[int, ...]:
        return (statistic.rounds_of(**parameters),)

    return Procedure(statistic.name, stages, rounds, statistic=statistic)


def _constructors(statistic: type[Statistic]) -> list[Callable[..., Any]]:
    """Return what takes the parameters of a statistic, that of the class itself last."""
    kinds = [kind for kind in reversed(statistic.__mro__) if issubclass(kind, Statistic) and kind is not Statistic]
    return [kind.__init__ for kind in kinds if "__init__" in vars(kind)]


Respond = Callable[[int, Stage, Plan], Estimate]
"""Answers a stage, given its number and its plan."""
