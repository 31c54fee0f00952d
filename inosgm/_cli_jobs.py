"""The commands that look at stores of jobs."""

import json
from pathlib import Path
from typing import Annotated

import typer

jobs = typer.Typer(no_args_is_help=True)

StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="The store: a path, or a URI such as s3://bucket/runs.")
]


@jobs.command()
def status(
    store: StoreArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Everything but tracebacks, for machines.")] = False,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="Those of failed jobs; they may show data.")] = False,
) -> None:
    """Say which jobs of a store are done, running, failed and left; reads the store alone."""
    from inosgm.jobs import Store
    from inosgm.jobs.status import status as look

    found = look(Store(store))
    typer.echo(json.dumps(found.to_dict()) if as_json else found.report(tracebacks=tracebacks))


@jobs.command()
def summary(
    store: StoreArgument,
    parquet: Annotated[Path | None, typer.Option(help="Also write all numbers into this Parquet file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw them into this file: .svg, .png, .pdf.")] = None,
) -> None:
    """Say what the runs of a store that are done came to: mean, spread and confidence band by owner; or by point.

    Of an audit, what attacks on the shadow models that are done achieve; exit code 3 if a promise does not hold.
    """
    from inosgm._cli_audit import end_if_contradicted
    from inosgm.audit.report import Audit
    from inosgm.jobs import Store
    from inosgm.jobs.purpose import AUDIT, holds
    from inosgm.runs import Summary
    from inosgm.runs.seeds import holds_sweep

    place = Store(store)
    if holds_sweep(place):
        from inosgm.runs.comparison import Comparison, holds_comparison
        from inosgm.runs.standings import standings

        if figure is not None:
            raise ValueError(f"--figure is about one configuration, and {store} holds several: `inosgm report` draws")
        points = standings(place)
        if holds_comparison(place):
            typer.echo(Comparison.of(place).table())
            typer.echo("\nall points, those that were tried to tune included:")
        typer.echo(points.table())
        if parquet is not None:
            parquet.write_bytes(points.to_parquet())
        return
    found = Audit.of(place) if holds(place, AUDIT) else Summary.of(place)
    typer.echo(found.table())
    if parquet is not None:
        found.to_parquet(parquet)
    if figure is not None:
        found.figure(figure)
    if isinstance(found, Audit):
        end_if_contradicted(found)
