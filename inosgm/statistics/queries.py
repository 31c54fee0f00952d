"""Queries: each is answered by one or more statistics in turn."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from inosgm.planning.plan import Plan
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.statistic import Statistic

if TYPE_CHECKING:
    from inosgm.statistics.views import View  # which needs pyarrow; arrays in memory do without


@dataclass(frozen=True, eq=False)
class Stage:
    """One statistic of a query with its parameters, which may depend on the estimates of earlier stages.

    Attributes:
        statistic: The statistic.
        parameters: Its parameters.
        view: What it sees of the records of a table, a `View`; None for their values.
    """

    statistic: type[Statistic]
    parameters: Mapping[str, Any]
    view: "View | None" = None


Stages = Generator[Stage, Estimate, Estimate]


@dataclass(frozen=True, eq=False)
class Query:
    """A question about records that is answered by statistics in turn.

    Attributes:
        name: The name of the query.
        stages: Takes the parameters of the query; yields stages, is sent their estimates, and returns the answer.
        rounds: Takes the same parameters, and returns the number of releases of each stage.
        shares: The fraction of the budget that may be spent up to the end of each stage; the last is 1.
        statistic: The only statistic of a query with one stage, whose parameters these are.
        risk: The number of the stage that pays for names of groups that are not public (`KeyRisk`), if there is one.
        base: The query about all records, if this one is about some; it has the same parameters.
    """

    name: str
    stages: Callable[..., Stages]
    rounds: Callable[..., tuple[int, ...]]
    shares: tuple[float, ...] = (1.0,)
    statistic: type[Statistic] | None = None
    risk: int | None = None
    base: "Query | None" = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The names of its parameters, with their defaults."""
        if self.base is not None:
            return self.base.parameters
        functions = [self.stages] if self.statistic is None else _constructors(self.statistic)
        declared = [parameter for function in functions for parameter in signature(function).parameters.values()]
        own = {parameter.name: parameter.default for parameter in declared if parameter.kind is parameter.KEYWORD_ONLY}
        return own if self.statistic is None else {**own, "assume_alike": False}

    def each_once(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether the answer is over all records, each counting once, from sums over all of them."""
        if self.base is not None:
            return self.base.each_once(parameters)
        return (Statistic if self.statistic is None else self.statistic).each_once(**parameters)

    def require(self, parameters: Mapping[str, Any]) -> None:
        """Raise for a parameter that the query does not have."""
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            raise TypeError(
                f"{self.name} has no parameter {unknown[0]!r}, only {', '.join(self.parameters)} and the options of "
                "`ask`: column, owner, where, missing, by, keys, plan, share, ledger, key, planner"
            )


def single(statistic: type[Statistic]) -> Query:
    """Return the query that is answered by one statistic."""

    def stages(**parameters: Any) -> Stages:
        return (yield Stage(statistic, parameters))

    def rounds(**parameters: Any) -> tuple[int, ...]:
        return (statistic.rounds_of(**parameters),)

    return Query(statistic.name, stages, rounds, statistic=statistic)


def _constructors(statistic: type[Statistic]) -> list[Callable[..., Any]]:
    """Return the constructors that declare the parameters of a statistic, that of the class itself last."""
    kinds = [kind for kind in reversed(statistic.__mro__) if issubclass(kind, Statistic) and kind is not Statistic]
    return [kind.__init__ for kind in kinds if "__init__" in vars(kind)]


Responder = Callable[[int, Stage, Plan], Estimate]
"""Answers a stage, given its number and its plan."""

Procedure = Query  # the exported name
