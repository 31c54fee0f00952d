"""One question of the command line: check it, print its cost, answer it, print the answer."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from inosgm.cli.options import ATTEMPTS, refuse
from inosgm.cli.output import Output, interruptible

if TYPE_CHECKING:
    from inosgm.cli.stats.progress import ProgressTable
    from inosgm.jobs import Executor
    from inosgm.ledger.ledger import Ledger
    from inosgm.ledger.refusals import BudgetExceeded
    from inosgm.owners import Owners
    from inosgm.planning.plan import Plan
    from inosgm.statistics import Estimate
    from inosgm.statistics.answering import Planner
    from inosgm.statistics.queries import Query


LARGE_EPSILON = 50
"""With a larger epsilon, one record may change the odds of an answer by a factor of e^50: a budget nobody means."""


SERIAL_ROWS = 100_000_000
"""Rows, over all rounds, below which one process works alone. A mean of Parquet took 1.1 s alone and 1.6 s in two
processes with 20 million rows, and 2.2 s in both ways with 100 million (two cores, nothing else running)."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for.

    Attributes:
        question: The name of the question, a key of `PROCEDURES`.
        table: The file, directory or URI of the records.
        columns: Its columns, by name, or a `Condition`.
        labels: Whether they hold labels, not numbers.
        parameters: Of the question.
        budgets: The CSV of the owners.
        owner_column: The column of the table that names the owner of every row.
        rows_in_order: Whether it is stated that rows belong to owners in the order of the CSV.
        where: The condition that records must satisfy.
        missing: What happens to records that lack a value.
        by: The column that names the groups of records.
        keys: The names of the groups, if these are public.
        delta: One delta for all owners.
        ledger: The file that is charged.
        share: Which part of every owner's epsilon it may cost.
        method: Whether sensitivities differ (scale) or all are those of the strictest owner (uniform).
        confidence: The probability with which the printed interval covers the answer.
        key: Makes the answer reproducible, and not private.
        store: Where jobs are kept; None for this process alone.
        processes: How many processes work without a store that is kept.
        attempts: How often a job may fail.
        dry_run: Whether to say only what it would cost, and how exact it would be.
        out: How to print it.
        output: A file for the answer, as JSON.
    """

    question: str
    table: str
    columns: tuple[Any, ...]
    labels: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    budgets: Path
    out: Output
    owner_column: str | None = None
    rows_in_order: bool = False
    where: str | None = None
    missing: str = "refuse"
    by: str | None = None
    keys: list[str] | None = None
    delta: float | None = None
    ledger: Path | None = None
    share: float = 1.0
    method: str = "scale"
    confidence: float = 0.95
    key: int | None = None
    store: str | None = None
    processes: int | None = None
    attempts: int = ATTEMPTS
    dry_run: bool = False
    output: Path | None = None


def answer(request: Request, executor: "Executor") -> None:
    """Print the cost of a question, answer it and print the answer; end with 130 if interrupted.

    Every mistake is reported before anything is charged.
    """
    from inosgm.ledger.refusals import BudgetExceeded
    from inosgm.statistics.answering import plans_for

    require_options(request)
    table = table_of(request)
    granting, owners = owners_of(request, table)
    table.check(owners)
    if not request.dry_run:
        request = replace(request, parameters=with_typed_categories(request.parameters, table, owners))
    require_parameters(request, owners)
    query = query_of(request, table)
    ledger = open_ledger(request, granting)

    def planned(share: float) -> "Sequence[Plan]":
        return plans_for(query, request.parameters, owners, share=share, planner=planner_of(request.method))

    plans = planned(request.share)
    if request.dry_run:
        _rehearse(request, query, plans, ledger)
        return
    request.out.note("\n".join([*large_budgets(owners), *cost_lines(request, owners, plans, ledger)]))
    try:
        with interruptible(lambda _: _how_to_resume(request)):
            estimate = with_condition(request, _estimate(request, table, owners, ledger, executor))
    except BudgetExceeded as refusal:
        advise(refusal, request.share, planned, ledger)
        raise
    _show(request, estimate)


def _estimate(
    request: Request, table: "ProgressTable", owners: "Owners", ledger: "Ledger | None", executor: "Executor"
) -> "Estimate":
    from inosgm.statistics import PROCEDURES
    from inosgm.statistics.answering import ask
    from inosgm.statistics.durable import run_statistic

    asking: dict[str, Any] = {
        "share": request.share,
        "planner": planner_of(request.method),
        "ledger": ledger,
        "key": request.key,
        **request.parameters,
    }
    jobs: dict[str, Any] = {"executor": executor, "attempts": request.attempts, "progress": not request.out.quiet}
    if request.store is not None:
        return run_statistic(request.question, table, owners, store=request.store, **jobs, **asking)
    if _serial(request, table):
        with table.progress(request.out.quiet):
            return ask(PROCEDURES[request.question], table, owners, **asking)
    with TemporaryDirectory(prefix="inosgm-stats-") as folder:
        return run_statistic(request.question, table, owners, store=folder, **jobs, **asking)


def _serial(request: Request, table: "ProgressTable") -> bool:
    """Return whether this process reads the table alone: several need a second to start, and a store."""
    from inosgm.statistics import PROCEDURES

    if request.processes is None:
        return True
    rows = table.rows * sum(PROCEDURES[request.question].rounds(**request.parameters))
    if rows < SERIAL_ROWS:
        request.out.note(
            f"--processes {request.processes}: this process reads {rows} rows faster alone, and does; with --store, "
            "several processes work in any case"
        )
    return rows < SERIAL_ROWS


def query_of(request: Request, table: "ProgressTable") -> "Query":
    """Return the query about the records of a table that take part."""
    from inosgm.statistics import PROCEDURES
    from inosgm.statistics.conditional import conditional

    query = PROCEDURES[request.question]
    return conditional(query, table.selection, table.rows) if table.selection.some else query


def _rehearse(request: Request, query: "Query", plans: "Sequence[Plan]", ledger: "Ledger | None") -> None:
    """Print what an answer would cost whom, and how exact it would be."""
    from inosgm.cli.stats.dry_run import costs, error_of, exactness, text_of_costs

    cost, error = costs(plans, ledger), error_of(query, request.parameters, plans, len(request.columns))
    about = {"question": request.question, "dry_run": True, "cost": cost, **error}
    request.out.result(lambda: "\n".join([*text_of_costs(cost), exactness(error)]), lambda: about)


def advise(
    refusal: "BudgetExceeded", asked: float, planned: "Callable[[float], Sequence[Plan]]", ledger: "Ledger | None"
) -> None:
    """Add to a refusal which share the ledger can still pay for, in hundredths of the share that was asked for."""
    from inosgm.ledger.affordable import require_affordable
    from inosgm.ledger.refusals import BudgetExceeded
    from inosgm.statistics.answering import costs_of

    def share(part: int) -> float:
        return float(f"{asked * part / 100:.3g}")

    def fits(part: int) -> bool:
        plans = planned(share(part))
        try:
            require_affordable(ledger, [costs_of(plans, [None] * len(plans))])
        except BudgetExceeded:
            return False
        return True

    most, too_much = 0, 100
    while too_much - most > 1:
        middle = (most + too_much) // 2
        most, too_much = (middle, too_much) if fits(middle) else (most, middle)
    refusal.advice = (
        f"--share {share(most):g} still fits"
        if most
        else f"not even --share {share(1):g} fits: owners would have to grant more (`inosgm ledger grant`)"
    )
    refusal.add_note(
        f"(by itself, a share of {asked:g} may cost {asked * refusal.granted:.6g}; after earlier charges it adds less "
        "than that, since costs compose to less than their sum)"
    )


def planner_of(method: str) -> "Planner":
    """Return the function that makes the plans of a method."""
    from inosgm.planning import planners as planning

    return {"scale": planning.plan_scale, "uniform": planning.plan_uniform}[method]


def require_parameters(request: Request, owners: "Owners") -> None:
    """Raise for parameters that the question cannot take, by making its first statistic with a placeholder plan."""
    import numpy as np

    from inosgm.planning.plan import Plan
    from inosgm.statistics import PROCEDURES

    procedure, ones = PROCEDURES[request.question], np.ones(len(owners.labels))
    plan = Plan(
        labels=owners.labels,
        sizes=owners.sizes,
        sample_rates=ones,
        sensitivities=ones,
        noise_scale=1.0,
        steps=procedure.rounds(**request.parameters)[0],
    )
    stage = next(procedure.stages(**request.parameters))
    stage.statistic(plan, **stage.parameters)


def with_typed_categories(parameters: Mapping[str, Any], table: "ProgressTable", owners: "Owners") -> dict[str, Any]:
    """Return parameters with categories as integers if the table has integers: a command line has only text."""
    from inosgm.statistics.tables import LABELS

    if "categories" not in parameters:
        return dict(parameters)
    names = parameters["categories"]
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    if whole and next(table.batches(owners, LABELS)).values.dtype.kind in "iu":
        names = [int(name) for name in names]
    return {**parameters, "categories": names}


def require_options(request: Request) -> None:
    """Raise for options that do not go together or have no meaning, and for an output that cannot be written."""
    from inosgm._internal import validate as _validate
    from inosgm.statistics.bounds import open_fraction

    _require_places(request)
    if request.owner_column is not None:
        refuse(
            "does not go with --owner-column, which says whose each row is", rows_in_order=request.rows_in_order or None
        )
    _validate.number("share", request.share, above=0, most=1)
    open_fraction("confidence", request.confidence)


def table_of(request: Request) -> "ProgressTable":
    """Return the table of a question, with its columns and the records that take part."""
    from inosgm.cli.stats.progress import ProgressTable

    how: dict[str, Any] = {name: getattr(request, name) or None for name in ("where", "by", "keys")}
    return ProgressTable.of(request.table, request.columns, request.owner_column, missing=request.missing, **how)


def _require_places(request: Request) -> None:
    """Raise for an output that cannot be written, or would overwrite what is read."""
    if request.output is None:
        if sys.stdout is None:
            raise ValueError("stdout is closed, so nobody would see the answer: open it, or name a file with --output")
        return
    for name, other in (("table", request.table), ("--budgets", request.budgets), ("--ledger", request.ledger)):
        if other is not None and request.output.resolve() == Path(other).resolve():
            raise ValueError(f"--output {request.output} would overwrite the {name}: choose another file")
    if not request.output.parent.is_dir():
        raise FileNotFoundError(f"--output {request.output}: there is no directory {request.output.parent}")


def owners_of(request: Request, table: "ProgressTable") -> tuple["Owners", "Owners"]:
    """Return all owners who grant something, and those of the table's records."""
    from inosgm.owners import Owners

    delta = "delta" if request.delta is None else request.delta
    granting = Owners.from_csv(request.budgets, delta=delta, rows_in_order=request.rows_in_order)
    counted = "records" in _header(request.budgets)
    if table.owner is None or counted:
        return granting, granting
    if granting.n_records > len(granting.labels):
        raise ValueError(
            f"{request.budgets} must have one row per owner where --owner-column {table.owner} names those of rows"
        )
    request.out.note(
        f"{request.budgets} has no column records: counting the rows of every owner, which are taken as public"
    )
    return granting, _with_counts(request, table, granting)


def _with_counts(request: Request, table: "ProgressTable", granting: "Owners") -> "Owners":
    """Return the owners of a table with the numbers of their records; those who have none are left out."""
    import numpy as np

    from inosgm.owners import Owners
    from inosgm.statistics.tables import LABELS, NUMBERS

    form = LABELS if request.labels else NUMBERS
    if request.dry_run:  # the labels of owners are public, and nothing else is read
        table, form = type(table).of(request.table, str(table.owner), table.owner), LABELS
    counts = np.zeros(len(granting.labels), dtype=np.int64)
    with table.progress(request.out.quiet):
        for batch in table.batches(granting, form):
            counts += np.bincount(batch.owners, minlength=counts.size)
    held = np.flatnonzero(counts)
    if held.size < counts.size:
        request.out.note(f"{counts.size - held.size} of {counts.size} owners have no row in the table, and pay nothing")
    return Owners.from_table(
        {
            "owner": [granting.labels[place] for place in held],
            "epsilon": granting.epsilon[held],
            "delta": granting.delta[held],
            "records": counts[held],
        }
    )


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [name.strip() for name in next(csv.reader(file), [])]


def open_ledger(request: Request, owners: "Owners") -> "Ledger | None":
    """Open the ledger, or create it, and print which."""
    from inosgm.ledger.ledger import Ledger

    if request.ledger is None:
        request.out.note("no --ledger: the cost of this question is recorded nowhere")
        return None
    if not os.path.exists(request.ledger):
        if request.dry_run:
            return None
        request.out.note(f"there is no ledger {request.ledger}: it is created, for these owners")
    return Ledger(request.ledger, owners=owners)


def large_budgets(owners: "Owners") -> Iterator[str]:
    """Yield a warning if an owner grants an epsilon that promises nothing."""
    worst = int(owners.epsilon.argmax())
    if owners.epsilon[worst] > LARGE_EPSILON:
        yield (
            f"warning: owner {owners.labels[worst]!r} grants epsilon {owners.epsilon[worst]:g}, and an epsilon above "
            f"{LARGE_EPSILON} protects nobody: is it a percentage, or a typing error?"
        )


def cost_lines(request: Request, owners: "Owners", plans: "Sequence[Plan]", ledger: "Ledger | None") -> Iterator[str]:
    """Yield what plans cost every owner; of very many owners, the first ones."""
    from inosgm._internal.text import MAX_ROWS, columns
    from inosgm.statistics.estimate import cost_of

    once = ", once, however often the same command resumes" if request.store else ""
    yield f"this may cost {100 * request.share:.4g} % of every owner's epsilon{once}:"
    left, costs = None if ledger is None else ledger.remaining(), cost_of(plans) or {}
    some = list(zip(owners.labels, owners.sizes.tolist(), owners.epsilon.tolist(), strict=True))[:MAX_ROWS]
    yield from columns(
        ["owner", "records", "epsilon granted", *([] if left is None else ["left"]), "at most"],
        [
            [
                str(label),
                str(records),
                f"{epsilon:.4g}",
                *([] if left is None else [f"{left[label]:.4g}"]),
                f"{costs[label]:.4g}",
            ]
            for label, records, epsilon in some
        ],
    )
    if len(owners.labels) > MAX_ROWS:
        yield f"({len(owners.labels) - MAX_ROWS} more owners)"
    yield ""


def _how_to_resume(request: Request) -> str:
    """Return what an interrupted command has kept."""
    if request.store is not None:
        return f"finished work is kept in {request.store}, and the same command resumes"
    charged = "" if request.ledger is None else f"; what {request.ledger} was charged stays charged"
    return f"nothing is kept{charged}. With --store, the same command would resume"


def with_condition(request: Request, estimate: "Estimate") -> "Estimate":
    """Return an answer about a condition with a sentence that names it, instead of zeros and ones."""
    condition = getattr(request.columns[0], "text", None)
    if condition is None:
        return estimate
    return replace(estimate, estimand=estimate.estimand.replace("1 (or true)", condition, 1))


def column_names(request: Request) -> list[str]:
    """Return the names of the columns; a condition is its text."""
    return [getattr(column, "text", column) for column in request.columns]


def _show(request: Request, estimate: "Estimate") -> None:
    """Print an answer, and write it."""
    from inosgm.cli.stats.format import shown

    kept = "the same command shows the result" if request.store is not None else ""
    print_result(
        request,
        lambda: shown(estimate, column_names(request), request.confidence),
        {"table": request.table, "share": request.share, **values_of(request, estimate)},
        kept=kept,
    )


def values_of(request: Request, estimate: "Estimate") -> dict[str, Any]:
    """Return an answer for machines."""
    from inosgm.cli.stats.format import interval_of

    ends, confidence = interval_of(estimate, request.confidence)
    return {
        "question": request.question,
        "columns": column_names(request),
        **({} if request.where is None else {"where": request.where}),
        **({} if request.by is None else {"by": request.by}),
        **({} if request.missing == "refuse" else {"missing": str(request.missing)}),
        "parameters": dict(request.parameters),
        "confidence": confidence,
        "interval": [end.tolist() for end in ends],
        **estimate.to_dict(),
    }


def print_result(request: Request, text: Callable[[], str], values: Mapping[str, Any], *, kept: str = "") -> None:
    """Print what was released, and write it."""
    from inosgm._internal.files import write_durably

    if request.output is not None:
        write_durably(request.output, json.dumps(values).encode() + b"\n")
        kept = f"the result is in {request.output}"
    request.out.result(text, lambda: values, kept=kept)
    if request.output is not None:
        request.out.note(f"written to {request.output}")
