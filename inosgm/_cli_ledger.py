"""The commands that look at ledgers."""

import json
from pathlib import Path
from typing import Annotated

import typer

from inosgm._cli_options import JsonOption, QuietOption, Voice

ledgers = typer.Typer(no_args_is_help=True, help="What every owner has spent.")


@ledgers.command()
def show(
    file: Annotated[Path, typer.Argument(help="The ledger.")],
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what owners grant, have spent and have left, and the latest charges."""
    from inosgm.ledger import Ledger

    ledger = Ledger(file)
    Voice(as_json=as_json, quiet=quiet).result(ledger.report, lambda: json.loads(ledger.to_json()))
