"""A question of the command line: who grants what, what it will cost, the answer."""

import csv
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from inosgm.cli.options import Voice, refuse

if TYPE_CHECKING:
    from inosgm.cli.stats_progress import Watched
    from inosgm.jobs import Executor
    from inosgm.ledger.ledger import Ledger
    from inosgm.owners import Owners
    from inosgm.statistics import Estimate
    from inosgm.statistics.answering import Planner


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks.

    Attributes:
        question: The name of the question, one of `PROCEDURES`.
        table: The file, directory or URI of the records.
        columns: The columns that are asked about.
        labels: Whether they hold labels, not numbers.
        parameters: Of the question.
        owners: The CSV of the owners.
        owner: The column of the table that names the owner of every row.
        rows_in_order: Whether it is stated that rows belong to owners in the order of the CSV.
        delta: One delta for all owners.
        ledger: The file that is charged.
        share: Which part of every owner's epsilon it may cost.
        method: Whether sensitivities differ (scale) or all are those of the strictest owner (uniform).
        key: Makes the answer reproducible, and not private.
        store: Where jobs are kept; None for this process alone.
        attempts: How often a job may fail.
        voice: How to say it.
        output: A file for the answer, as JSON.
    """

    question: str
    table: str
    columns: tuple[str, ...]
    labels: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    owners: Path
    voice: Voice
    owner: str | None = None
    rows_in_order: bool = False
    delta: float | None = None
    ledger: Path | None = None
    share: float = 1.0
    method: str = "scale"
    key: int | None = None
    store: str | None = None
    attempts: int = 5
    output: Path | None = None


def answer(asked: Asked, executor: "Executor") -> None:
    """Say what a question costs, answer it and print the answer; end with 130 if interrupted.

    Whatever is wrong is said before anything is charged.
    """
    from inosgm._internal import validate as _validate
    from inosgm.cli.stats_progress import Watched
    from inosgm.ledger.refusals import BudgetExceeded

    _require_places(asked)
    if asked.owner is not None:
        refuse("does not go with --owner, which says whose each row is", rows_in_order=asked.rows_in_order or None)
    _validate.number("share", asked.share, above=0, most=1)
    table = Watched.of(asked.table, asked.columns, asked.owner)
    granting, owners = _owners(asked, table)
    table.check(owners)
    asked = replace(asked, parameters=_spelled(asked.parameters, table, owners))
    _require_parameters(asked, owners)
    ledger = _ledger(asked, granting)
    asked.voice.tell("\n".join(_cost(asked, owners, ledger)))
    try:
        estimate = _estimate(asked, table, owners, ledger, executor)
    except BudgetExceeded as refusal:
        refusal.advice = _advice(asked, owners, ledger)
        refusal.add_note(
            f"(by itself, a share of {asked.share:g} costs {asked.share * refusal.granted:.6g}; after what was spent "
            "before it adds less than that, since costs compose to less than their sum)"
        )
        raise
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {_left(asked)}", err=True)
        raise typer.Exit(130) from None
    _show(asked, estimate)


def _estimate(
    asked: Asked, table: "Watched", owners: "Owners", ledger: "Ledger | None", executor: "Executor"
) -> "Estimate":
    from inosgm.statistics import PROCEDURES
    from inosgm.statistics.answering import ask
    from inosgm.statistics.durable import run_statistic

    asking: dict[str, Any] = {
        "share": asked.share,
        "planner": _planner(asked.method),
        "ledger": ledger,
        "key": asked.key,
        **asked.parameters,
    }
    if asked.store is None:
        with table.watched(asked.voice.quiet):
            return ask(PROCEDURES[asked.question], table, owners, **asking)
    jobs: dict[str, Any] = {"executor": executor, "attempts": asked.attempts, "progress": not asked.voice.quiet}
    return run_statistic(asked.question, table, owners, store=asked.store, **jobs, **asking)


def _advice(asked: Asked, owners: "Owners", ledger: "Ledger | None") -> str:
    """Say which share a ledger that has refused a question would still pay for, to a hundredth of what was asked."""
    from inosgm.ledger.affordable import require_affordable
    from inosgm.ledger.refusals import BudgetExceeded
    from inosgm.statistics import PROCEDURES
    from inosgm.statistics.answering import costs_of, plans_for

    def share(part: int) -> float:
        return float(f"{asked.share * part / 100:.3g}")

    def fits(part: int) -> bool:
        how: dict[str, Any] = {"share": share(part), "planner": _planner(asked.method)}
        plans = plans_for(PROCEDURES[asked.question], asked.parameters, owners, **how)
        try:
            require_affordable(ledger, [costs_of(plans, [None] * len(plans))])
        except BudgetExceeded:
            return False
        return True

    most, too_much = 0, 100
    while too_much - most > 1:
        middle = (most + too_much) // 2
        most, too_much = (middle, too_much) if fits(middle) else (most, middle)
    if not most:
        return f"not even --share {share(1):g} fits: owners would have to grant more (`inosgm ledger grant`)"
    return f"--share {share(most):g} still fits"


def _planner(method: str) -> "Planner":
    from inosgm.planning import planners as planning

    return {"scale": planning.plan_scale, "uniform": planning.plan_uniform}[method]


def _require_parameters(asked: Asked, owners: "Owners") -> None:
    """Raise for parameters that the question cannot take, by making its first statistic with a plan of no account."""
    import numpy as np

    from inosgm.planning.plan import Plan
    from inosgm.statistics import PROCEDURES

    procedure, ones = PROCEDURES[asked.question], np.ones(len(owners.labels))
    plan = Plan(
        labels=owners.labels,
        sizes=owners.sizes,
        sample_rates=ones,
        sensitivities=ones,
        noise_scale=1.0,
        steps=procedure.rounds(**asked.parameters)[0],
    )
    stage = next(procedure.stages(**asked.parameters))
    stage.statistic(plan, **stage.parameters)


def _spelled(parameters: Mapping[str, Any], table: "Watched", owners: "Owners") -> dict[str, Any]:
    """Return parameters with categories as whole numbers, if these are what the table has: words are all text."""
    from inosgm.statistics.tables import LABELS

    if "categories" not in parameters:
        return dict(parameters)
    names = parameters["categories"]
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    if whole and next(table.batches(owners, LABELS)).values.dtype.kind in "iu":
        names = [int(name) for name in names]
    return {**parameters, "categories": names}


def _require_places(asked: Asked) -> None:
    """Raise for an output that cannot be written, or would overwrite what is read."""
    if asked.output is None:
        if sys.stdout is None:
            raise ValueError("stdout is closed, so nobody would see the answer: open it, or name a file with --output")
        return
    for name, other in (("table", asked.table), ("--owners", asked.owners), ("--ledger", asked.ledger)):
        if other is not None and asked.output.resolve() == Path(other).resolve():
            raise ValueError(f"--output {asked.output} would overwrite the {name}: choose another file")
    if not asked.output.parent.is_dir():
        raise FileNotFoundError(f"--output {asked.output}: there is no directory {asked.output.parent}")


def _owners(asked: Asked, table: "Watched") -> tuple["Owners", "Owners"]:
    """Return all owners who grant something, and those of the table's records."""
    from inosgm.owners import Owners

    delta = "delta" if asked.delta is None else asked.delta
    granting = Owners.from_csv(asked.owners, delta=delta, rows_in_order=asked.rows_in_order)
    counted = "records" in _header(asked.owners)
    if table.owner is None or counted:
        return granting, granting
    if granting.n_records > len(granting.labels):
        raise ValueError(f"{asked.owners} must have one row per owner where --owner {table.owner} names those of rows")
    asked.voice.tell(
        f"{asked.owners} has no column records: counting the rows of every owner, which are taken as public"
    )
    return granting, _counted(asked, table, granting)


def _counted(asked: Asked, table: "Watched", granting: "Owners") -> "Owners":
    """Return the owners of a table with the numbers of their records; those who have none are left out."""
    import numpy as np

    from inosgm.owners import Owners
    from inosgm.statistics.tables import LABELS, NUMBERS

    counts = np.zeros(len(granting.labels), dtype=np.int64)
    with table.watched(asked.voice.quiet):
        for batch in table.batches(granting, LABELS if asked.labels else NUMBERS):
            counts += np.bincount(batch.owners, minlength=counts.size)
    held = np.flatnonzero(counts)
    if held.size < counts.size:
        asked.voice.tell(f"{counts.size - held.size} of {counts.size} owners have no row in the table, and pay nothing")
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


def _ledger(asked: Asked, owners: "Owners") -> "Ledger | None":
    """Open the ledger, or make it, and say which."""
    from inosgm.ledger.ledger import Ledger

    if asked.ledger is None:
        asked.voice.tell("no --ledger: nobody will remember what this cost")
        return None
    if not os.path.exists(asked.ledger):
        asked.voice.tell(f"there is no ledger {asked.ledger}: it is made, for these owners")
    return Ledger(asked.ledger, owners=owners)


def _cost(asked: Asked, owners: "Owners", ledger: "Ledger | None") -> Iterator[str]:
    """Say what it costs whom, of very many owners for some."""
    from inosgm._internal.text import MOST, columns

    once = ", once, however often the same command goes on with the store" if asked.store else ""
    yield f"this may cost {100 * asked.share:.4g} % of every owner's epsilon{once}:"
    left = None if ledger is None else ledger.remaining()
    some = list(zip(owners.labels, owners.sizes.tolist(), owners.epsilon.tolist(), strict=True))[:MOST]
    yield from columns(
        ["owner", "records", "epsilon granted", *([] if left is None else ["left"]), "at most"],
        [
            [
                str(label),
                str(records),
                f"{epsilon:.4g}",
                *([] if left is None else [f"{left[label]:.4g}"]),
                f"{asked.share * epsilon:.4g}",
            ]
            for label, records, epsilon in some
        ],
    )
    if len(owners.labels) > MOST:
        yield f"({len(owners.labels) - MOST} more owners)"
    yield ""


def _left(asked: Asked) -> str:
    """Say how to go on after an interruption."""
    if asked.store is not None:
        return f"what is done is kept in {asked.store}, and the same command goes on with it"
    charged = "" if asked.ledger is None else f"; what {asked.ledger} was charged stays charged"
    return f"nothing is kept{charged}. With --store, the same command would go on"


def _show(asked: Asked, estimate: "Estimate") -> None:
    """Print an answer, and write it."""
    from inosgm._internal.files import write_durably
    from inosgm.cli.stats_format import shown

    about = {"question": asked.question, "table": asked.table, "columns": list(asked.columns), "share": asked.share}
    values = {**about, "parameters": dict(asked.parameters), **estimate.to_dict()}
    if asked.output is not None:
        write_durably(asked.output, json.dumps(values).encode() + b"\n")
    kept = "the same command shows the result" if asked.store is not None else ""
    kept = kept if asked.output is None else f"the result is in {asked.output}"
    asked.voice.result(lambda: shown(estimate, asked.columns), lambda: values, kept=kept)
    if asked.output is not None:
        asked.voice.tell(f"written to {asked.output}")
