"""`inosgm audit-model`: attack a model that exists, from a table of what it says about records."""

from pathlib import Path
from typing import Annotated

import typer

from inosgm.cli.options import JsonOption, QuietOption
from inosgm.cli.output import Output


def audit_model(
    table: Annotated[Path, typer.Argument(help="A CSV or Parquet file with a row for each record.")],
    member: Annotated[str, typer.Option("--member", help="The column that says 1 for members, 0 for others.")],
    loss: Annotated[str | None, typer.Option("--loss", help="The column with the model's loss on each record.")] = None,
    probability: Annotated[
        str | None, typer.Option("--probability", help="The column with the probability of the true class instead.")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner-column", help="The column with each record's owner.")] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option("--reference", help="A column of the same kind by a reference model without these records."),
    ] = None,
    randomised: Annotated[
        bool, typer.Option("--randomised", help="A fair coin decided about each record: bounds on epsilon are valid.")
    ] = False,
    epsilon: Annotated[
        list[str] | None, typer.Option("--epsilon", help="The promise to an owner, as OWNER=1.5; or all=1.5.")
    ] = None,
    delta: Annotated[float, typer.Option("--at-delta", help="The delta of promises and bounds.")] = 1e-5,
    confidence: Annotated[
        float, typer.Option("--confidence", min=0.5, max=0.999999, help="Of intervals, and of all bounds at once.")
    ] = 0.95,
    output: Annotated[Path | None, typer.Option("--output", help="Also write the page, Markdown, mode 0600.")] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attack a model that exists, owner by owner; exit code 3 if a guarantee is contradicted.

    NOT PRIVATE: the output is as secret as the records. It needs no model, only the loss or the probability of the true
    class that the model gives to each record. Without --randomised there are no bounds, and the page says why.
    """
    import numpy as np

    from inosgm.audit.model_audit import audit_model as attack
    from inosgm.audit.score_tables import columns_of, from_loss, from_probability
    from inosgm.audit.secret_files import write_secret
    from inosgm.cli.audit import CONTRADICTED

    if (loss is None) == (probability is None):
        raise ValueError("give either --loss or --probability: the column with what the model says")
    named = [loss or probability or "", *(reference or ())]
    read = columns_of(table, [member, *named, *([owner] if owner else [])])
    score = from_probability if probability else from_loss
    scores = [score(name, read[name]) for name in named]
    found = attack(
        scores[0],
        read[member],
        owners=None if owner is None else read[owner].astype(str),
        references=np.array(scores[1:]) if reference else None,
        randomised=randomised,
        epsilon=dict(map(_promise, epsilon or ())),
        delta=delta,
        confidence=confidence,
    )
    if output is not None:
        write_secret(output, found.page().encode())
    out = Output(as_json=as_json, quiet=quiet)
    out.result(found.page, found.to_dict)
    for line in found.contradictions:
        typer.echo(f"contradicted: {line}", err=True)
    if found.contradictions:
        raise typer.Exit(CONTRADICTED)


def _promise(text: str) -> tuple[str, float]:
    """Return owner and epsilon of a promise."""
    owner, equals, value = text.rpartition("=")
    try:
        return owner, float(value if equals and owner else "")
    except ValueError:
        raise ValueError(f"--epsilon must be OWNER=NUMBER, got {text!r}: clinic=1.5, say") from None
