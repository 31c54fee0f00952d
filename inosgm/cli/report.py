"""`inosgm report`: write one HTML page about runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.options import JsonOption, QuietOption

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
PageOption = Annotated[Path, typer.Option("--output", help="The page, HTML.")]
FiguresOption = Annotated[
    Path | None, typer.Option("--figures", help="Also write every figure into this directory, as SVG and PNG.")
]
PrivateOption = Annotated[
    bool, typer.Option("--private", help="Also show diagnostics on training records, which are NOT PRIVATE.")
]
TitleOption = Annotated[str | None, typer.Option("--title", help="The title of the page.")]


def report(
    runs: RunsArgument,
    output: PageOption = Path("report.html"),
    figures: FiguresOption = None,
    private: PrivateOption = False,
    title: TitleOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page about the results of runs, owner by owner.

    A page about an audit, or with --private, is NOT PRIVATE: it says so, and only its owner can read the file.
    """
    from inosgm.reports import read, write

    contents = read(*runs, private=private)
    show(contents, write(contents, output=output, figures=figures, title=title), quiet=quiet, as_json=as_json)


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
