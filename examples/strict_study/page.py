"""Writes tables, pictures and the csv of the page docs/results/strict_owners.md."""

import csv
from pathlib import Path

from examples.strict_study import figures
from examples.strict_study.runs import Runs
from examples.strict_study.summary import outcomes
from examples.strict_study.tables import (
    CSV_HEAD,
    as_strict_table,
    contrasts,
    csv_rows,
    extras_table,
    rates_table,
    table,
)
from examples.strict_study.tasks import TASKS
from examples.study.pages import fill

NAME = "strict_owners"
PICTURED = ("cm", "mnist5k")


def write(out: Path, pages: Path) -> None:
    """Fill the page from finished runs, and write its pictures and its csv beside it.

    A part of the page is drawn again only if all its runs are there. Everything else that an earlier study has reported
    stays as it is, also in the csv.

    Args:
        out: Where finished runs are.
        pages: The directory of the page; texts between its markers are replaced.
    """
    texts, pictured, lines = {}, {}, _reported(pages / f"{NAME}.csv")
    for name, task in TASKS.items():
        runs = Runs(task, out / f"{name}.jsonl", None, out)
        found = outcomes(runs)
        if not found or not {line[1] for line in lines.get(name, ())} <= set(found):
            continue
        lines[name] = list(csv_rows(name, found))
        seeds = f"{len(task.seeds)} seeds reported."
        parts = (table(runs, found), contrasts(runs, found), as_strict_table(runs, found), seeds)
        texts[f"{name}-extras"] = extras_table(runs, found)
        if name in PICTURED:
            texts[f"{name}-rates"] = rates_table(runs)
            pictured[name] = (runs, found)
        else:
            parts = (f"### {task.title}", task.note, *parts)
        texts[name] = "\n\n".join(part for part in parts if part)
    if len(pictured) == len(PICTURED):
        figures.balance(pictured, pages / f"{NAME}-balance.svg")
        figures.owners(pictured, pages / f"{NAME}-owners.svg")
    with (pages / f"{NAME}.csv").open("w", encoding="utf-8", newline="") as file:
        rows = (row for name in TASKS for row in lines.get(name, ()))
        csv.writer(file, lineterminator="\n").writerows([CSV_HEAD, *rows])
    page = pages / f"{NAME}.md"
    drawn = {name: text for name, text in texts.items() if text}
    page.write_text(fill(page.read_text(encoding="utf-8"), drawn), encoding="utf-8")


def _reported(file: Path) -> dict[str, list[list[str]]]:
    """Return the lines of each task in the csv of an earlier study."""
    lines: dict[str, list[list[str]]] = {}
    if file.exists():
        for line in list(csv.reader(file.read_text(encoding="utf-8").splitlines()))[1:]:
            lines.setdefault(line[0], []).append(line)
    return lines
