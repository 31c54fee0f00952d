"""Answering questions: plans for what a question may cost, all made before anything is charged, then its stages."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Purpose
from inosgm.accounting import Accountant, chosen
from inosgm.ledger.cost import Cost, LedgerHook
from inosgm.mechanism.noise import name_of_noise
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_scale
from inosgm.statistics.estimate import Estimate, cost_of, segments_of
from inosgm.statistics.queries import Procedure, Respond, Stage

Planner = Callable[..., Plan]


def answer(procedure: Procedure, parameters: Mapping[str, Any], plans: Sequence[Plan], respond: Respond) -> Estimate:
    """Answer a question stage by stage; the cost of the estimate is that of all stages together."""
    stages, estimate = procedure.stages(**parameters), None
    try:
        stage = next(stages)
        for number, plan in enumerate(plans):
            estimate = respond(number, stage, plan)
            stage = stages.send(estimate)
    except StopIteration as end:
        found: Estimate = end.value
        return replace(found, cost=cost_of(plans))
    raise RuntimeError("a procedure must have as many stages as it has shares")


def plans_for(
    procedure: Procedure,
    parameters: Mapping[str, Any],
    owners: Owners,
    *,
    plan: Plan | None = None,
    share: float = 1.0,
    planner: Planner = plan_scale,
    accountant: Accountant | None = None,
) -> tuple[Plan, ...]:
    """Return a plan for every stage of a question: all of them together cost every owner its share.

    Args:
        procedure: How the question is answered.
        parameters: Of the question.
        owners: Who grants what.
        plan: A plan that is followed as it is; for a question of one stage.
        share: Which part of its epsilon every owner spends, at its delta.
        planner: What makes plans.
        accountant: PLD() if not given.

    Raises:
        ValueError: for a plan that does not fit, and for a share outside (0, 1].
    """
    rounds = procedure.rounds(**parameters)
    if plan is not None:
        if len(rounds) > 1:
            raise ValueError("plan: a question of several stages makes its own plans; say which share it may cost")
        return (plan,)
    share = _validate.number("share", share, above=0, most=1)
    accountant = chosen(accountant)
    plans: list[Plan] = []
    for steps, part in zip(rounds, procedure.shares, strict=True):
        asked = owners if share * part == 1 else owners.granting(share * part)
        made = planner(
            asked,
            steps=steps,
            expected_batch=owners.n_records,
            clip_norm=1.0,
            accountant=accountant,
            past=segments_of(plans),
        )
        plans.append(made)
    return tuple(plans)


def costs_of(plans: Sequence[Plan], keys: Sequence[int | None]) -> tuple[Cost, ...]:
    """Return what the stages of a question cost, under the names that their noise has in a ledger."""
    names = ("new" if key is None else name_of_noise(key) for key in keys)
    return tuple(plan.cost(job=name) for plan, name in zip(plans, names, strict=True))


def keys_for(
    key: int | None, procedure: Procedure, parameters: Mapping[str, Any], plans: Sequence[Plan]
) -> tuple[int | None, ...]:
    """Return the key of every stage: no two stages, questions or plans share noise, even with one key.

    It knows nothing of the records: one question about two columns or tables needs two keys, or a ledger that refuses.
    """
    if key is None:
        return tuple(None for _ in plans)
    kind = procedure.statistic
    who = procedure.name if kind is None else kind.key_name
    asked = json.dumps([key, who, _spelled({**procedure.parameters, **parameters})], sort_keys=True)
    return tuple(Purpose.STAGE_KEY.key(f"{asked} {stage} {plan.digest}") for stage, plan in enumerate(plans))


def _spelled(value: Any) -> Any:
    """Return a parameter as JSON has it, the same for 1 and 1.0, for lists, tuples and arrays."""
    if isinstance(value, Mapping):
        return {str(name): _spelled(part) for name, part in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_spelled(part) for part in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) > 1 << 53:
        return str(value)
    return float(value) if isinstance(value, int | float) else repr(value)


def ask(
    procedure: Procedure,
    data: Any,
    owners: Owners,
    *,
    column: str | Sequence[str] | None = None,
    owner: str | None = None,
    plan: Plan | None = None,
    share: float = 1.0,
    ledger: LedgerHook | None = None,
    key: int | None = None,
    planner: Planner = plan_scale,
    **parameters: Any,
) -> Estimate:
    """Answer a question about records, in this process: in memory, or a batch of a file at a time.

    **Guarantee.** All stages together cost every owner at most `share` of the epsilon that it grants, at its delta, for
    one of its records added or removed. All plans are made, all records looked at, and everything seen to be
    affordable, before the first stage is charged.

    Args:
        procedure: How it is answered; see `PROCEDURES`.
        data: The records: an array, a column, a pandas or pyarrow table, the path or URI of a CSV or Parquet file or of
            a directory of them, or a `Table`.
        owners: Who holds which record, and grants what.
        column: The column of a table that is asked about, or several.
        owner: The column of a table that names the owner of each record; if not given, records belong to owners in the
            order of `owners`.
        plan: A plan that is followed as it is, instead of a share; for questions of one stage.
        share: Which part of its epsilon every owner spends.
        ledger: Is charged before each release, and may refuse.
        key: Makes the answer reproducible, and not private against whoever knows it.
        planner: What makes plans: `plan_scale`, or `plan_uniform` for one budget for all, the strictest.
        parameters: Of the question.
    """
    _validate.instance("owners", owners, Owners, "make them with Owners(of_record=..., epsilon=..., delta=...)")
    if not callable(planner):
        raise TypeError(f"planner must be a function such as plan_scale or plan_uniform, got {planner!r}")
    procedure.require(parameters)
    if hasattr(data, "iloc") and hasattr(data, "columns") and column is None:
        raise TypeError("column must name the column of the table that is asked about, or several")
    plans = plans_for(procedure, parameters, owners, plan=plan, share=share, planner=planner)
    keys = keys_for(key, procedure, parameters, plans)
    if ledger is not None and sum(each.steps for each in plans) > 1:  # a single round is refused as it is charged
        from inosgm.ledger.affordable import require_affordable  # only a ledger needs the modules of ledgers

        require_affordable(ledger, [costs_of(plans, keys)])
    if not (column is None and owner is None and isinstance(data, np.ndarray | list | tuple)):
        from inosgm.statistics.summing import responding  # these two load arrow, which arrays and lists do not need
        from inosgm.statistics.tables import Table

        if column is not None or owner is not None or isinstance(data, str | PathLike | Table):
            table = data if isinstance(data, Table) else Table.of(data, columns=column, owner=owner)
            return answer(procedure, parameters, plans, responding(table, owners, ledger=ledger, keys=keys))

    def respond(number: int, stage: Stage, plan: Plan) -> Estimate:
        statistic = stage.statistic(plan, owners, key=keys[number], ledger=ledger, **stage.parameters)
        return statistic.run(data)

    return answer(procedure, parameters, plans, respond)
