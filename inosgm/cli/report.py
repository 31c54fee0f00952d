"""`inosgm report`: write one HTML page about runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.options import JsonOption, QuietOption, refuse

if TYPE_CHECKING:
    from inosgm.reports import Contents

RunsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Run directories, stores of seeds, comparisons, sweeps and audits, answers of stats --output, or "
        "directories that hold some of these.",
    ),
]
PageOption = Annotated[
    Path | None, typer.Option("--output", help="The page; else report.html, or statement.html (.md writes Markdown).")
]
FiguresOption = Annotated[
    Path | None, typer.Option("--figures", help="Also write every figure into this directory, as SVG and PNG.")
]
PrivateOption = Annotated[
    bool, typer.Option("--private", help="Also show diagnostics on training records, which are NOT PRIVATE.")
]
TitleOption = Annotated[str | None, typer.Option("--title", help="The title of the page.")]
StatementOption = Annotated[
    bool, typer.Option("--statement", help="Write a statement for one owner to sign, without private numbers.")
]
OwnerOption = Annotated[str | None, typer.Option("--owner", help="The owner that the statement is for.")]


def report(
    runs: RunsArgument,
    output: PageOption = None,
    figures: FiguresOption = None,
    private: PrivateOption = False,
    title: TitleOption = None,
    statement: StatementOption = False,
    owner: OwnerOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page about the results of runs, owner by owner.

    A page about an audit, or with --private, is NOT PRIVATE: it says so, and only its owner can read the file.
    """
    from inosgm.reports import read, write

    if statement != (owner is not None):
        raise ValueError("--statement and --owner go together: --statement --owner NAME")
    if owner is not None:
        refuse("does not go with --statement", figures=figures, title=title, private=private or None)
        _state(runs, owner, output or Path("statement.html"), as_json=as_json)
        return
    contents = read(*runs, private=private)
    path = write(contents, output=output or Path("report.html"), figures=figures, title=title)
    show(contents, path, quiet=quiet, as_json=as_json)


def _state(runs: list[str], owner: str, output: Path, *, as_json: bool) -> None:
    """Write the statement for an owner, and print its path."""
    from inosgm.reports import read
    from inosgm.reports.statement import statement

    path = statement(read(*runs), owner).write(output)
    typer.echo(json.dumps({"statement": str(path)}) if as_json else f"written to {path}")


def show(contents: "Contents", path: Path, *, quiet: bool, as_json: bool) -> None:
    """Print the headline and the table of a page, and its path."""
    from inosgm._internal.text import visible
    from inosgm.audit.secret_files import WARNING
    from inosgm.reports.narrative import headline

    if as_json:
        typer.echo(json.dumps(_content(contents, path)))
    elif quiet:
        typer.echo(str(path))
    else:
        typer.echo(
            "\n\n".join(filter(None, [visible(headline(contents).text), contents.table(), f"written to {path}"]))
        )
    if not quiet:
        for line in [*contents.notes, *[WARNING] * contents.secret]:
            typer.echo(line, err=True)


def _content(contents: "Contents", path: Path) -> dict[str, Any]:
    """Return the content of a page."""
    from inosgm.reports.narrative import headline, sentences

    tables, asked = [contents.owners(study) for study in contents.studies], contents.asked
    return {
        "report": str(path),
        "secret": contents.secret,
        "headline": headline(contents).text,
        "sentences": [f"{one.text} {one.evidence}".strip() for one in sentences(contents)],
        "owners": [[dict(zip(table.header, row, strict=True)) for row in table.rows] for table in tables],
        "statistics": [dict(zip(asked.header, row, strict=True)) for row in asked.rows] if asked else [],
        "notes": list(contents.notes),
    }
