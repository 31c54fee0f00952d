"""Writes tables, pictures and the csv of the page docs/results/strict_owners.md."""

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

    Args:
        out: Where finished runs are.
        pages: The directory of the page; texts between its markers are replaced.
    """
    texts, lines, pictured, others = {}, [CSV_HEAD], {}, []
    for name, task in TASKS.items():
        file = out / f"{name}.jsonl"
        runs = Runs(task, file, None, out)
        found = outcomes(runs)
        if not found:
            continue
        count = f"{len(runs.all())} runs, {len(task.seeds)} seeds reported."
        parts = (table(runs, found), contrasts(runs, found), as_strict_table(runs, found), count)
        texts[name] = "\n\n".join(part for part in parts if part)
        if name not in PICTURED:
            others += [f"### {task.title}", task.note, texts.pop(name)]
        if any(row["point"].get("averaging") for row in runs.all()):
            texts[f"{name}-extras"] = extras_table(runs, found)
        lines += csv_rows(name, found)
        if name in PICTURED:
            texts[f"{name}-rates"] = rates_table(runs)
            pictured[name] = (runs, found)
    texts["others"] = "\n\n".join(others)
    if pictured:
        figures.balance(pictured, pages / f"{NAME}-balance.svg")
        figures.owners(pictured, pages / f"{NAME}-owners.svg")
    (pages / f"{NAME}.csv").write_text("".join(",".join(line) + "\n" for line in lines), encoding="utf-8")
    page = pages / f"{NAME}.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), texts), encoding="utf-8")
