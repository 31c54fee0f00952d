"""`inosgm certify`: attack the sensitivity of every built-in mechanism."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.options import JsonOption, QuietOption
from inosgm.cli.output import Output

if TYPE_CHECKING:
    from inosgm.audit.certifier import Certificate

    Found = Mapping[str, Mapping[str, Certificate]]


def certify(
    evaluations: Annotated[int, typer.Option(min=1, help="Pairs of batches to try per mechanism.")] = 500,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The search is a function of it.")] = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attack every built-in tail, order and clipping; exit code 1 if a sensitivity is exceeded."""
    from rich.console import Console
    from rich.progress import track

    from inosgm.audit.certifier import built_in_mechanisms
    from inosgm.audit.certifier import certify as search

    shown = track(built_in_mechanisms().items(), description="attacking", console=Console(stderr=True), disable=quiet)
    rows = {
        tail: {name: search(mechanism, evaluations=evaluations, seed=seed) for name, mechanism in choices.items()}
        for tail, choices in shown
    }
    broken = sum(one.exceeds() for row in rows.values() for one in row.values())
    out = Output(as_json=as_json, quiet=quiet)
    out.result(lambda: _table(rows), lambda: {"evaluations": evaluations, "seed": seed, "mechanisms": _listed(rows)})
    verdict = f"{broken} mechanisms exceed their sensitivity" if broken else "no sensitivity exceeded"
    out.note(f"{evaluations} pairs of batches for each mechanism: {verdict}.")
    if broken:
        raise typer.Exit(1)


def _table(rows: "Found") -> str:
    """Return a row for each tail, in colour on a terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table("tail", title="worst |change of the sum| / sensitivity, minus 1")
    for choice in next(iter(rows.values())):
        table.add_column(choice, overflow="fold", justify="right")
    for tail, row in rows.items():
        cells = [f"[bold red]{one.ratio:.3g}[/]" if one.exceeds() else f"{one.ratio - 1:+.0e}" for one in row.values()]
        table.add_row(tail, *cells)
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")


def _listed(rows: "Found") -> list[dict[str, Any]]:
    return [
        {"tail": tail, "mechanism": name, "ratio": one.ratio, "exceeds": one.exceeds()}
        for tail, row in rows.items()
        for name, one in row.items()
    ]
