"""The command line."""

import os
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from inosgm import __version__, _cli_audit, _cli_compare, _cli_demo, _cli_jobs, _cli_stats, _cli_training

if TYPE_CHECKING:
    from inosgm import Plan

app = typer.Typer(no_args_is_help=True, add_completion=False)


class Method(StrEnum):
    """How a plan tells owners apart."""

    sample = "sample"
    scale = "scale"
    blend = "blend"
    uniform = "uniform"


class Accounting(StrEnum):
    """Who works out what steps cost."""

    pld = "pld"
    rdp = "rdp"


def main(commands: typer.Typer = app) -> None:
    """Run a command line; a user's mistake ends in one line and exit code 2, not in a traceback."""
    sys.path.insert(0, os.getcwd())  # import paths in configurations start here, as with `python -m`
    try:
        commands()
    except Exception as error:
        from inosgm._refusals import BudgetExceeded

        mistakes = (ValueError, TypeError, OSError, ArithmeticError, MemoryError, RuntimeError, IndexError, ImportError)
        if not isinstance(error, (*mistakes, BudgetExceeded)):
            raise
        typer.secho("error: ", fg="red", nl=False, err=True)
        typer.echo("\n".join([str(error), *getattr(error, "__notes__", [])]), err=True)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Private sums in which every data owner keeps its own budget."""


@app.command()
def plan(
    owners: Annotated[
        Path,
        typer.Argument(
            help="CSV with the columns owner, epsilon, delta: a row per record, or per owner with a column records."
        ),
    ],
    steps: Annotated[int, typer.Option(help="How many releases.")],
    expected_batch: Annotated[float, typer.Option(help="Expected number of records in a batch.")],
    clip_norm: Annotated[float, typer.Option(help="Mean sensitivity of a record.")] = 1.0,
    method: Annotated[
        Method,
        typer.Option(help="Let rates differ (sample), sensitivities (scale), both (blend), or nothing (uniform)."),
    ] = Method.sample,
    weight: Annotated[float | None, typer.Option(help="For a blend: 1 is sample, 0 is scale.")] = None,
    accountant: Annotated[Accounting, typer.Option(help="Exact (pld), or as in the papers (rdp).")] = Accounting.pld,
    delta: Annotated[float | None, typer.Option(help="One delta for all, instead of a column of the CSV.")] = None,
    output: Annotated[Path, typer.Option(help="Where to write the plan.")] = Path("plan.json"),
) -> None:
    """Say what budgets buy, per owner, and write the plan as JSON."""
    from inosgm import planning
    from inosgm.accounting import ACCOUNTANTS
    from inosgm.owners import Owners

    if output.resolve() == owners.resolve():
        raise ValueError(f"--output {output} would overwrite the owners: choose another file")
    if (method is Method.blend) != (weight is not None):
        raise ValueError("--weight goes with --method blend, and a blend needs one")
    methods: dict[Method, Callable[..., Plan]] = {
        Method.sample: planning.plan_sample,
        Method.scale: planning.plan_scale,
        Method.blend: partial(planning.plan_blend, weight=weight or 0.0),
        Method.uniform: planning.plan_uniform,
    }
    made = methods[method](
        Owners.from_csv(owners, delta="delta" if delta is None else delta),
        steps=steps,
        expected_batch=expected_batch,
        clip_norm=clip_norm,
        accountant=ACCOUNTANTS[accountant],
    )
    output.write_text(made.to_json() + "\n", encoding="utf-8")
    typer.echo(made.report())
    typer.echo(f"written to {output}")


ledgers = typer.Typer(no_args_is_help=True)
app.add_typer(ledgers, name="ledger", help="What every owner has spent.")


app.add_typer(_cli_jobs.jobs, name="jobs", help="Stores of jobs: what is done, running, failed and left.")
app.add_typer(_cli_stats.stats, name="stats", help="Private statistics of a table, each owner with its own budget.")


@ledgers.command()
def show(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False,
) -> None:
    """Show what owners grant, have spent and have left, and the latest charges."""
    from inosgm.ledger import Ledger

    ledger = Ledger(file)
    typer.echo(ledger.to_json() if as_json else ledger.report())


for _command in (
    _cli_training.train,
    _cli_training.evaluate,
    _cli_compare.compare,
    _cli_training.revise,
    _cli_audit.audit,
    _cli_demo.demo,
):
    app.command()(_command)


@app.command()
def certify(
    evaluations: Annotated[int, typer.Option(help="Pairs of batches to try per mechanism.")] = 500,
    seed: Annotated[int, typer.Option(help="The search is a function of it.")] = 0,
) -> None:
    """Attack every built-in tail, order and clipping; exit code 1 if a sensitivity is exceeded."""
    from inosgm.certifier import built_in_mechanisms
    from inosgm.certifier import certify as search

    mechanisms = built_in_mechanisms()
    rows = {
        tail: [search(mechanism, evaluations=evaluations, seed=seed) for mechanism in choices.values()]
        for tail, choices in track(mechanisms.items(), description="attacking", console=Console(stderr=True))
    }
    table = Table("tail", title="worst |change of the sum| / sensitivity, minus 1")
    for choice in next(iter(mechanisms.values())):
        table.add_column(choice, overflow="fold", justify="right")
    for tail, row in rows.items():
        cells = [f"[bold red]{found.ratio:.3g}[/]" if found.exceeds() else f"{found.ratio - 1:+.0e}" for found in row]
        table.add_row(tail, *cells)
    broken = sum(found.exceeds() for row in rows.values() for found in row)
    verdict = f"{broken} mechanisms exceed their sensitivity" if broken else "no sensitivity exceeded"
    console = Console()
    console.print(table)
    console.print(f"{evaluations} pairs of batches for each mechanism: {verdict}.")
    sys.exit(1 if broken else 0)
