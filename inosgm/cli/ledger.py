"""`inosgm ledger`: show what owners have spent, and grant new budgets."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.options import DeltaOption, JsonOption, QuietOption
from inosgm.cli.output import Output

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger

ledgers = typer.Typer(no_args_is_help=True, help="What every owner has spent, and new budgets.")


@ledgers.command()
def show(
    file: Annotated[Path, typer.Argument(help="The ledger, or the directory of a run that keeps its own.")],
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what owners grant, have spent and have left, and the latest charges."""
    ledger = _opened(file)
    Output(as_json=as_json, quiet=quiet).result(ledger.report, lambda: json.loads(ledger.to_json()))


@ledgers.command()
def grant(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    owners: Annotated[Path, typer.Argument(help="CSV with the columns owner, epsilon and delta, a row per owner.")],
    delta: DeltaOption = None,
    add_owners: Annotated[bool, typer.Option("--add-owners", help="Add owners that the ledger does not know.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write new budgets of some owners into a ledger; what was spent stays spent.

    A run keeps to its plan: give its owners new budgets with `inosgm revise`.
    """
    from inosgm._internal import labels as _labels
    from inosgm._internal import validate as _validate
    from inosgm.ledger.ledger import Ledger
    from inosgm.owners import Owners

    if file.is_dir():
        raise ValueError(f"{file} is a directory: the budgets of a run are changed with `inosgm revise`")
    ledger = Ledger(file)
    read = Owners.from_csv(owners, delta="delta" if delta is None else delta)
    known = ledger.labels
    meant = _labels.match_labels(read.labels, known)
    numbers = {"epsilon": read.epsilon, "delta": read.delta}
    granting = Owners.from_table({"owner": [meant[label] for label in read.labels], **numbers})
    ledger.grant(granting, add_owners=add_owners)
    out = Output(as_json=as_json, quiet=quiet)
    new = [label for label in meant.values() if label not in set(known)]
    if new:
        out.note(f"new in the ledger: {_validate.some(new)}")
    out.result(ledger.report, lambda: json.loads(ledger.to_json()))


def _opened(place: Path) -> "Ledger":
    """Open a ledger, or that of a run directory."""
    from inosgm.ledger.ledger import Ledger

    own = place / "ledger"
    if place.is_dir() and not own.is_file():
        raise FileNotFoundError(f"{place} is a directory without a ledger of its own: name the file")
    return Ledger(own if place.is_dir() else place)
