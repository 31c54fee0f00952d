"""The command line."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from inosgm import __version__

app = typer.Typer(no_args_is_help=True, add_completion=False)


def main() -> None:
    """Run the command line; a user's mistake ends in one line and exit code 2, not in a traceback."""
    try:
        app()
    except (ValueError, TypeError, OSError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {error}")
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
def demo(
    key: Annotated[int | None, typer.Option(help="Make the run reproducible (and not private).")] = None,
) -> None:
    """Release private means of real medical data, with and without an ordered tail."""
    from inosgm.demo import run, table_of

    Console().print(table_of(run(key)))


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
        cells = [f"{found.ratio - 1:+.0e}" if found.holds() else f"[bold red]{found.ratio:.3g}[/]" for found in row]
        table.add_row(tail, *cells)
    broken = sum(not found.holds() for row in rows.values() for found in row)
    verdict = f"{broken} mechanisms exceed their sensitivity" if broken else "no sensitivity exceeded"
    console = Console()
    console.print(table)
    console.print(f"{evaluations} pairs of batches for each mechanism: {verdict}.")
    sys.exit(1 if broken else 0)
