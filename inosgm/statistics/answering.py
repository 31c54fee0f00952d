"""Answers to queries: all plans are made before anything is charged, then the stages run in turn."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm._internal.plugins import plugin
from inosgm.accounting import Accountant, chosen
from inosgm.ledger.cost import Cost, LedgerHook
from inosgm.mechanism.noise import name_of_noise
from inosgm.owners import Label, Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_scale
from inosgm.planning.saturation import saturated
from inosgm.statistics.estimate import Estimate, cost_of, segments_of
from inosgm.statistics.key_selection import risk_plan
from inosgm.statistics.queries import Query, Responder, Stage

if TYPE_CHECKING:
    from inosgm.statistics.conditions import Condition
    from inosgm.statistics.selection import Column
    from inosgm.statistics.tables import Table

Planner = Callable[..., Plan]


def run_stages(query: Query, parameters: Mapping[str, Any], plans: Sequence[Plan], respond: Responder) -> Estimate:
    """Run the stages of a query; the cost of the returned estimate is that of all stages together."""
    stages, estimate = query.stages(**parameters), None
    try:
        stage = next(stages)
        for number, plan in enumerate(plans, start=1):
            estimate = respond(number - 1, stage, plan)
            stage = stages.send(estimate)
    except StopIteration as end:
        final: Estimate = end.value
        return replace(final, cost=cost_of(plans[:number]))
    raise RuntimeError("a query must have as many stages as it has shares")


def plans_for(
    query: Query,
    parameters: Mapping[str, Any],
    owners: Owners,
    *,
    plan: Plan | None = None,
    share: float = 1.0,
    planner: Planner = plan_scale,
    accountant: Accountant | None = None,
    past: Sequence[Plan] = (),
    reached: float = 0.0,
) -> tuple[Plan, ...]:
    """Return a plan for every stage of a query: all of them together cost every owner at most its share.

    Where every record counts once, plans are saturated: owners with large budgets pay only what the estimate uses.

    Args:
        query: The query.
        parameters: The parameters of the query.
        owners: The owners and their budgets.
        plan: A plan to follow; for a query of one stage.
        share: The fraction of its epsilon that every owner spends, at its delta.
        planner: The function that makes plans.
        accountant: PLD() if not given.
        past: Plans that are paid for from the same share before.
        reached: The fraction of the share that these may have cost.

    Raises:
        ValueError: if a plan is given for several stages, or the share is outside (0, 1].
    """
    owners.require_records("a statistic")
    rounds, each_once = query.rounds(**parameters), query.each_once(parameters)
    if plan is not None:
        if len(rounds) > 1:
            raise ValueError(
                "plan: a query of several stages makes its own plans; give the share that it may cost instead"
            )
        return (saturated(plan) if each_once else plan,)
    share = _validate.number("share", share, above=0, most=1)
    accountant = chosen(accountant)
    plans: list[Plan] = []
    for stage, (steps, spent) in enumerate(zip(rounds, query.shares, strict=True)):
        if stage == query.risk:
            plans.append(risk_plan(owners, accountant))
            continue
        # costs of Gaussian noise add up in squares; without a past it is the query's own share, in all its bits
        spent = math.sqrt(reached**2 + (1 - reached**2) * spent**2) if reached and spent < 1 else spent
        made = planner(
            owners if share * spent == 1 else owners.granting(share * spent),
            steps=steps,
            expected_batch=owners.n_records,
            clip_norm=1.0,
            accountant=accountant,
            past=segments_of([*past, *plans]),
        )
        plans.append(saturated(made) if each_once else made)
    return tuple(plans)


def costs_of(plans: Sequence[Plan], keys: Sequence[int | None]) -> tuple[Cost, ...]:
    """Return the costs of the stages of a query, under the names that their noise has in a ledger."""
    names = ("new" if key is None else name_of_noise(key) for key in keys)
    return tuple(plan.cost(job=name) for plan, name in zip(plans, names, strict=True))


def keys_for(
    key: int | None, query: Query, parameters: Mapping[str, Any], plans: Sequence[Plan]
) -> tuple[int | None, ...]:
    """Return the key of every stage: no two stages, queries or plans share noise, even with one key.

    The keys do not depend on the records: one query about two columns or tables needs two keys, or a ledger, which
    refuses the second one.
    """
    if key is None:
        return tuple(None for _ in plans)
    kind = query.statistic
    who = query.name if kind is None else kind.key_name
    asked = json.dumps([key, who, _canonical(_named(query, parameters))], sort_keys=True)
    return tuple(Purpose.STAGE_KEY.key(f"{asked} {stage} {plan.digest}") for stage, plan in enumerate(plans))


def _named(query: Query, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters as keys know them.

    An estimate over all records is named as such, and a weighted or stratified one is not, which keeps the keys that
    these had before there was a choice. With one key the two must not share their noise.
    """
    named = {name: value for name, value in {**query.parameters, **parameters}.items() if name != "assume_alike"}
    return {**named, "each_once": True} if query.each_once(parameters) else named


def _canonical(value: Any) -> Any:
    """Return a parameter for JSON, the same for 1 and 1.0, and for lists, tuples and arrays."""
    if isinstance(value, Mapping):
        return {str(name): _canonical(entry) for name, entry in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_canonical(entry) for entry in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) > 1 << 53:  # float64 would make different integers equal
        return str(value)
    return float(value) if isinstance(value, int | float) else repr(value)


def answer_query(
    query: Query,
    data: Any,
    owners: Owners,
    *,
    column: "Column | Sequence[Column] | None" = None,
    owner: str | None = None,
    where: "str | Condition | None" = None,
    missing: str = "refuse",
    by: str | None = None,
    keys: Sequence[Label] | None = None,
    plan: Plan | None = None,
    share: float = 1.0,
    ledger: LedgerHook | None = None,
    key: int | None = None,
    planner: Planner = plan_scale,
    **parameters: Any,
) -> Estimate:
    """Answer a query about records, in this process: in memory, or one batch of a file at a time.

    **Guarantee.** All stages together cost every owner at most `share` of the epsilon that it grants, at its delta, for
    one of its records added or removed. All plans are made, all records are checked, and the ledger is known to be able
    to pay, before the first stage is charged.

    Args:
        query: One of `PROCEDURES`, or `single(statistic)`.
        data: The records: an array, a column, a table in memory (pandas, pyarrow, Polars, DuckDB), the path or URI of a
            CSV or Parquet file or of a directory of them, or a `Table`, which has the next four options in it.
        owners: The owners of the records, and their budgets.
        column: The column of a table that the query is about, or several.
        owner: The column of a table that names the owner of each record; if not given, records belong to owners in the
            order of `owners`.
        where: A condition on the columns of a record, such as "sex == 'F'" (`Condition`): the question is about the
            records that satisfy it. The others add nothing. Owners pay for all of their records, because the answer
            depends on whether a record satisfies the condition.
        missing: What happens to records that lack a value: "refuse" the table, or "drop" such records; "count" drops
            them and releases how many they are, for a fifth of the epsilon.
        by: The column of a table that names the group of each record: the answer has a value for each group. For means,
            sums, counts, shares, quantiles and histograms.
        keys: The names of the groups, if these are public. If not, names that many records have are released first, for
            40 % of the epsilon and 5 % of the delta (`KeySelection`).
        plan: A plan to follow, instead of a share; for queries of one stage. Where every record counts once,
            sensitivities that are larger than the estimate needs are lowered, and cost less.
        share: The fraction of its epsilon that every owner spends.
        ledger: The ledger that is charged before each release; it may refuse.
        key: Makes the answer reproducible; it is not private against anybody who knows the key.
        planner: The function that makes plans: `plan_scale`, or `plan_uniform` for one budget for all, the strictest.
        parameters: The parameters of the query.
    """
    _validate.instance("owners", owners, Owners, "make them with Owners(of_record=..., epsilon=..., delta=...)")
    if not callable(planner):
        raise TypeError(f"planner must be a function such as plan_scale or plan_uniform, got {planner!r}")
    query.require(parameters)
    if hasattr(data, "columns") and column is None:
        raise TypeError(
            "column must name the column of the table that is asked about, or several, or be a condition that is "
            "counted, such as Condition('age >= 65')"
        )
    plain = where is None and missing == "refuse" and by is None and keys is None
    table = None
    if not (plain and column is None and owner is None and isinstance(data, np.ndarray | list | tuple)):
        how: dict[str, Any] = {"where": where, "missing": missing, "by": by, "keys": keys}
        table = _table_of(data, plain, columns=column, owner=owner, **how)
        if table is not None and table.selection.some:
            query = plugin("ask about some records")(query, table.selection, table.rows)
    plans = plans_for(query, parameters, owners, plan=plan, share=share, planner=planner)
    stage_keys = keys_for(key, query, parameters, plans)

    def respond(number: int, stage: Stage, plan: Plan) -> Estimate:
        statistic = stage.statistic(plan, owners, key=stage_keys[number], ledger=ledger, **stage.parameters)
        return statistic.run(data)

    responder: Callable[[int, Stage, Plan], Estimate] = respond
    if table is not None:
        from inosgm.statistics.summing import table_responder

        responder = table_responder(table, owners, ledger=ledger, keys=stage_keys)
    if ledger is None or sum(made.steps for made in plans) == 1:  # a single round is refused when it is charged
        return run_stages(query, parameters, plans, responder)
    from inosgm.ledger.affordable import fixed_together  # only a ledger needs the modules of ledgers

    with fixed_together(ledger, [costs_of(plans, stage_keys)]):
        return run_stages(query, parameters, plans, responder)


def _table_of(data: Any, plain: bool, **how: Any) -> "Table | None":
    """Return the table of records that are read in batches; None for columns in memory."""
    from inosgm.statistics.tables import Table  # which imports pyarrow: arrays and lists do not need it

    plain = plain and how["columns"] is None and how["owner"] is None
    if isinstance(data, Table):
        if not plain:
            raise TypeError("column, owner, where, missing, by and keys go into Table.of if data is a Table")
        return data
    if plain and not isinstance(data, str | PathLike):
        return None
    return Table.of(data, **how)


ask = answer_query  # the exported name
