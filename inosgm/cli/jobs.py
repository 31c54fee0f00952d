"""`inosgm jobs`: show the state and the results of a store of jobs."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.options import JsonOption, QuietOption
from inosgm.cli.output import Output

if TYPE_CHECKING:
    from inosgm.jobs import Store

jobs = typer.Typer(no_args_is_help=True, help="Stores of jobs: what is done, running, failed and left.")

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="The store: a path, or a URI such as s3://bucket/runs.")
]


DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to look for stores.")]

WATCH_SECONDS = 2.0
"""Time between two looks at a store that is watched."""


@jobs.command(name="list")
def list_stores(
    directory: DirectoryArgument = Path("runs"), quiet: QuietOption = False, as_json: JsonOption = False
) -> None:
    """List the stores in a directory: how many of their jobs are done, running, failed and left."""
    from inosgm._internal.text import columns
    from inosgm.jobs.housekeeping import find_stores

    found = list(find_stores(directory))
    names = ("done", "running", "failed", "left")
    rows = [
        [str(store.path), *(str(store.status.counts()[name]) for name in names), _size(store.size), _age(store.age)]
        for store in found
    ]
    table = "\n".join(columns(["store", *names, "size", "last change"], rows)) if rows else f"no stores in {directory}"
    Output(as_json=as_json, quiet=quiet).result(
        lambda: table,
        lambda: {
            "stores": [
                {"path": str(store.path), **store.status.counts(), "bytes": store.size, "age": store.age}
                for store in found
            ]
        },
    )


@jobs.command()
def clean(
    older_than: Annotated[str, typer.Option("--older-than", metavar="AGE", help="Such as 12h, 30d or 8w.")],
    directory: DirectoryArgument = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; else they are only listed.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the jobs and results of stores in which nothing runs and nothing has changed for a time.

    Charges stay, also those that only the store knows. Stores in which jobs run are left alone. Without --yes nothing
    is deleted.
    """
    from inosgm.jobs.housekeeping import delete, find_stores, seconds_of

    least = seconds_of(older_than)
    old = [store for store in find_stores(directory) if store.age >= least and store.deletable]
    lines = []
    for store in old:
        if yes:
            delete(store)
        counts = store.status.counts()
        left = counts["left"] + counts["failed"]
        about = f"{_size(store.size)}, last change {_age(store.age)} ago" + f", {left} jobs unfinished" * (left > 0)
        lines.append(f"{'deleted' if yes else 'would delete'} {store.path}: {about}")
    last = [f"no store in {directory} is that old and idle"] * (not old)
    last += ["nothing was deleted: add --yes"] * (bool(old) and not yes)
    Output(as_json=as_json, quiet=quiet).result(
        lambda: "\n".join([*lines, *last]), lambda: {"deleted": yes, "stores": [str(store.path) for store in old]}
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _age(seconds: float) -> str:
    return f"{seconds / 86400:.1f} d" if seconds >= 86400 else f"{seconds / 3600:.1f} h"


@jobs.command()
def status(
    store: StoreArgument,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="Those of failed jobs; they may show data.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again when it changes, until no job runs.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which jobs of a store are done, running, failed and left; delete leftover secrets of finished jobs."""
    from time import sleep

    from inosgm.jobs import Store
    from inosgm.jobs.status import status as look

    place, out, shown = Store(store), Output(as_json=as_json, quiet=quiet), None
    place.sweep()
    while True:
        found = look(place)
        if found != shown:
            out.result(partial(found.report, tracebacks=tracebacks), found.to_dict)
        shown = found
        if not watch or not found.counts()["running"]:
            return
        sleep(WATCH_SECONDS)


@jobs.command()
def summary(
    store: StoreArgument,
    parquet: Annotated[Path | None, typer.Option(help="Also write all numbers into this Parquet file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw them into this file: .svg, .png, .pdf.")] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Summarize the finished runs of a store: mean, spread and confidence band by owner, or by point of a sweep.

    For an audit, show what attacks on the finished shadow models achieve; exit code 3 if a guarantee is contradicted.
    """
    from inosgm.audit.report import Audit
    from inosgm.cli.audit import end_if_contradicted
    from inosgm.experiments import Summary
    from inosgm.experiments.training_study import holds_sweep
    from inosgm.jobs import Store
    from inosgm.jobs.purpose import AUDIT, holds

    out, place = Output(as_json=as_json, quiet=quiet), Store(store)
    if not place.exists():
        raise FileNotFoundError(f"there is no store at {place.uri}")
    place.sweep()
    if holds_sweep(place):
        if figure is not None:
            raise ValueError(
                f"--figure is about one configuration, and {store} holds several: draw them with "
                f"`inosgm report {store} --figures DIRECTORY`"
            )
        _points(place, parquet, out)
        return
    found = Audit.of(place) if holds(place, AUDIT) else Summary.of(place)
    if parquet is not None:
        found.to_parquet(parquet)
    if figure is not None:
        found.figure(figure)
    try:
        out.result(found.table, lambda: {"store": place.uri, **found.to_dict()})
    finally:  # also where stdout cannot be written to
        if isinstance(found, Audit):
            end_if_contradicted(found)


def _points(store: "Store", parquet: Path | None, out: Output) -> None:
    """Print the points of a sweep; for a comparison, its table first."""
    from inosgm.experiments.comparison_results import Comparison, holds_comparison
    from inosgm.experiments.sweep_results import standings

    points = standings(store)
    compared = Comparison.of(store) if holds_comparison(store) else None
    if parquet is not None:
        parquet.write_bytes(points.to_parquet())
    if compared is None:
        out.result(points.table, lambda: {"store": store.uri, **points.to_dict()})
    else:
        out.result(
            lambda: f"{compared.table()}\n\nall points, including those of the tuning:\n{points.table()}",
            lambda: {"store": store.uri, **compared.to_dict(), **points.to_dict()},
        )
