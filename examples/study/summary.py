"""Sums up a setting: tables, figures, and the page that shows them."""

import csv
from collections.abc import Iterable
from pathlib import Path

from examples.study import owner_ends, tables
from examples.study.cases import Case, Design
from examples.study.choice import finals
from examples.study.figures import draw
from examples.study.pages import fill
from examples.study.runner import place, result
from examples.study.tables import Results


def summarise(design: Design, results: Path, out: Path, pages: Path | None = None) -> None:
    """Write tables (Markdown and CSV) and figures of a setting, of as many seeds as have been run.

    Args:
        design: What was run.
        results: Where the results are.
        out: Where tables and figures go.
        pages: A directory where figures and the CSV file go too, and where the page SETTING.md, if it exists, has
            markers for tables.
    """
    name = design.setting.lower()
    tuned = {arm: _read(finals(design, arm, results), results) for arm in design.arms()}
    kinds = {"tuned": tuned} | {
        f"clip{point[0]:g}-rate{point[1]:g}": {arm: _read(design.at(point, arm), results) for arm in design.arms()}
        for point in design.fixed
    }
    chosen = {case: result(case, results) for case in design.tuning()}
    counted = {one["id"]: one for kind in kinds.values() for some in kind.values() for one in some}
    texts = {
        "owners": tables.owners(tuned),
        "tuning": tables.tuning(design, chosen),
        "plans": tables.plans(tuned),
        "time": tables.times([*chosen.values()], [*counted.values()]),
    }
    for kind, found in kinds.items():
        texts |= {kind: tables.ends(found), f"{kind} differences": tables.differences(design, found)}
    for directory in filter(None, (out, pages)):
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(tables.numbers(kinds))
        owner_ends.draw(directory / f"{name}.csv", design.plans[-1][1].upper())
        for kind, found in kinds.items():
            for plan in dict.fromkeys(plan for plan, _ in design.plans):
                draw(design, plan, found, directory / f"{name}-{plan}-{kind}.svg")
    everything = "\n\n".join(f"## {title}\n\n{text}" for title, text in texts.items())
    (out / "tables.md").write_text(everything + "\n", encoding="utf-8")
    page = pages / f"{name}.md" if pages else None
    if page and page.exists():
        page.write_text(fill(page.read_text(encoding="utf-8"), texts), encoding="utf-8")


def _read(cases: Iterable[Case], results: Path) -> Results:
    """Return the results of those cases that have been run."""
    return [result(case, results) for case in cases if place(case, results).exists()]
