"""`inosgm jobs`: show the state and the results of a store of jobs."""

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


@jobs.command()
def status(
    store: StoreArgument,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="Those of failed jobs; they may show data.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show which jobs of a store are done, running, failed and left; delete leftover secrets of finished jobs."""
    from inosgm.jobs import Store
    from inosgm.jobs.status import status as look

    place = Store(store)
    place.sweep()
    found = look(place)
    Output(as_json=as_json, quiet=quiet).result(lambda: found.report(tracebacks=tracebacks), found.to_dict)


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
