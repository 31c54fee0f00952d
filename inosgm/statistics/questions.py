"""Several questions that share one budget; all of them are known to be affordable before the first release."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inosgm._internal import validate as _validate
from inosgm.accounting import chosen
from inosgm.ledger.affordable import fixed_together
from inosgm.ledger.ledger import Ledger
from inosgm.owners import Label, Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_scale
from inosgm.statistics.answering import Planner, costs_of, keys_for, plans_for, run_stages
from inosgm.statistics.conditional import conditional
from inosgm.statistics.estimate import Estimate, cost_of
from inosgm.statistics.queries import Query
from inosgm.statistics.registry import PROCEDURES
from inosgm.statistics.selection import Column
from inosgm.statistics.summing import plan_positions, sum_table, table_responder
from inosgm.statistics.tables import Table


class Question:
    """A question about the columns of a table, for `Questions`.

    Args:
        question: The name of the question, one of `PROCEDURES`, such as "mean".
        column: The column that it is about, or several.
        importance: Its weight when the budget is divided. Twice the importance is half the variance of the noise.
        where: As for `answer_query`.
        missing: As for `answer_query`.
        by: As for `answer_query`.
        keys: As for `answer_query`.
        parameters: The parameters of the question.

    Raises:
        ValueError: for an unknown question, or an importance that is not positive.
        TypeError: for a parameter that the question does not have.
    """

    def __init__(
        self,
        question: str,
        column: Column | Sequence[Column],
        *,
        importance: float = 1.0,
        where: str | None = None,
        missing: str = "refuse",
        by: str | None = None,
        keys: Sequence[Label] | None = None,
        **parameters: Any,
    ) -> None:
        if question not in PROCEDURES:
            raise ValueError(f"question must be one of {', '.join(sorted(PROCEDURES))}, got {question!r}")
        PROCEDURES[question].require(parameters)
        self.question, self.column, self.parameters = question, column, parameters
        self.importance = _validate.number("importance", importance, above=0)
        self._selecting: dict[str, Any] = {"where": where, "missing": missing, "by": by, "keys": keys}

    def table(self, data: Any, owner: str | None) -> Table:
        """Return the columns of the question from some data."""
        return Table.of(data, self.column, owner, **self._selecting)

    def query(self, table: Table) -> Query:
        """Return the query about the records of its table that take part."""
        query = PROCEDURES[self.question]
        return conditional(query, table.selection, table.rows) if table.selection.some else query


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """The answers to several questions, in their order.

    Attributes:
        estimates: One for each question; the cost of each is that of itself alone.
        cost: The epsilon that all of them together cost each owner.
        left: What the ledger has left for each owner afterwards; None without a ledger.
    """

    estimates: tuple[Estimate, ...]
    cost: Mapping[Label, float]
    left: Mapping[Label, float] | None

    def __str__(self) -> str:
        answers = "\n\n".join(str(estimate) for estimate in self.estimates)
        if self.left is None:
            return answers
        left = ", ".join(f"{label}: {epsilon:.4g}" for label, epsilon in list(self.left.items())[:10])
        more = f" ({len(self.left) - 10} more owners)" if len(self.left) > 10 else ""
        return f"{answers}\n\nepsilon left: {left}{more}"


class Questions:
    """Several questions about one table that share one budget.

    Epsilon is divided by importance: costs of Gaussian noise add up in squares, so a question with weight w of all
    weights W may cost sqrt(w / W) of what the share buys, and all of them together cost the share.

    **Guarantee.** All questions together cost every owner at most `share` of its epsilon, at its delta. Each has a row
    of its own in the ledger for every release. All parameters, plans and values are checked, and the ledger is known to
    be able to pay for everything, before the first release. To check values, every table is read once more.

    Args:
        questions: The questions.

    Raises:
        ValueError: for none.

    >>> table = {"wage": [20.0, 40.0] * 500, "age": [30.0, 50.0] * 500, "site": ["a", "b"] * 500}
    >>> owners = Owners(of_record=table["site"], epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    >>> wage = Question("mean", "wage", bounds=(0, 100), importance=3)
    >>> both = Questions([wage, Question("mean", "age", bounds=(0, 99))])
    >>> answers = both.ask(table, owners, owner="site", share=0.5, key=1)
    >>> [abs(one.value - mean) < 4 * one.standard_error for one, mean in zip(answers.estimates, [30, 40])]
    [True, True]
    >>> round(answers.cost["a"], 2)
    0.5
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = tuple(questions)
        if not self.questions:
            raise ValueError("questions must hold at least one Question, got none")
        for question in self.questions:
            _validate.instance("questions", question, Question, 'write Question("mean", "wage", bounds=(0, 5000))')

    def ask(
        self,
        data: Any,
        owners: Owners,
        *,
        owner: str | None = None,
        share: float = 1.0,
        ledger: Ledger | None = None,
        key: int | None = None,
        planner: Planner = plan_scale,
    ) -> Answers:
        """Answer all questions.

        Args:
            data: The table, as for `answer_query`.
            owners: The owners of the records, and their budgets.
            owner: The column that names the owner of each record.
            share: The fraction of its epsilon that every owner spends for all questions together.
            ledger: The ledger that is charged.
            key: Makes the answers reproducible, and not private against anybody who knows it.
            planner: As for `answer_query`.

        Raises:
            BudgetExceeded: if the ledger cannot pay for all questions; nothing is charged then.
        """
        share = _validate.number("share", share, above=0, most=1)
        tables = [question.table(data, owner) for question in self.questions]
        queries = [question.query(table) for question, table in zip(self.questions, tables, strict=True)]
        plans = self.plans(queries, owners, share=share, planner=planner)
        parts = list(zip(self.questions, queries, tables, plans, strict=True))
        keys = [
            keys_for(key, query, {**asked.parameters, "question": number}, own)
            for number, (asked, query, _, own) in enumerate(parts)
        ]
        for asked, query, table, own in parts:
            table.check(owners)
            plan_positions(owners, own[0])
            _check_values(query, asked.parameters, own, table, owners)
        costs = tuple(cost for own, names in zip(plans, keys, strict=True) for cost in costs_of(own, names))
        with fixed_together(ledger, [costs]):
            estimates = tuple(
                run_stages(query, asked.parameters, own, table_responder(table, owners, ledger=ledger, keys=names))
                for (asked, query, table, own), names in zip(parts, keys, strict=True)
            )
        spent = cost_of([plan for own in plans for plan in own])
        assert spent is not None  # plans of owners know their budgets
        return Answers(estimates=estimates, cost=spent, left=None if ledger is None else ledger.remaining())

    def plans(
        self, queries: Sequence[Query], owners: Owners, *, share: float = 1.0, planner: Planner = plan_scale
    ) -> list[tuple[Plan, ...]]:
        """Return the plans of every question; all of them together cost every owner at most its share."""
        weights = [question.importance for question in self.questions]
        made: list[tuple[Plan, ...]] = []
        reached = 0.0
        for position, (question, query) in enumerate(zip(self.questions, queries, strict=True), start=1):
            goal = 1.0 if position == len(weights) else math.sqrt(sum(weights[:position]) / sum(weights))
            how: dict[str, Any] = {"planner": planner, "accountant": chosen(None)}
            how |= {"past": [plan for own in made for plan in own], "reached": reached / goal}
            made.append(plans_for(query, question.parameters, owners, share=share * goal, **how))
            reached = goal
        return made


def _check_values(
    query: Query, parameters: Mapping[str, Any], plans: Sequence[Plan], table: Table, owners: Owners
) -> None:
    """Raise for invalid parameters or values, by making the first sum of a query that reads records; it is dropped."""
    stages = query.stages(**parameters)
    stage, number = next(stages), 0
    while stage.statistic.blind:
        stage, number = stages.send(Estimate(value=0.0, standard_error=0.0, estimand="")), number + 1
    sum_table(stage.statistic(plans[number], **stage.parameters), table, owners, view=stage.view)
