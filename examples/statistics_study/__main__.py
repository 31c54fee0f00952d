"""Run the study and write it up: python -m examples.statistics_study --data-dir DIR --out runs/statistics"""

import argparse
import csv
import os
import time
from pathlib import Path

from examples.statistics_study import measuring
from examples.statistics_study.figures import draw_budgets, draw_ratios
from examples.statistics_study.many_owners import many_owners, run_many
from examples.statistics_study.page import texts
from examples.statistics_study.questions import QUESTIONS
from examples.statistics_study.running import run, run_all
from examples.statistics_study.tables import EMBEDDED, FILED, load
from examples.study.pages import fill

PAGE = "statistics.md"


def main(arguments: list[str] | None = None) -> None:
    """Ask everything, print how long it took, write a CSV file, figures, and tables into the page."""
    parser = argparse.ArgumentParser(prog="python -m examples.statistics_study", description="What do budgets buy?")
    parser.add_argument("--data-dir", default=os.environ.get("INOSGM_DATA"), help="the data directory")
    parser.add_argument("--tables", nargs="+", choices=[*FILED, *EMBEDDED], default=[*FILED, *EMBEDDED])
    parser.add_argument("--releases", type=int, default=200, help="how often every question is asked in every way")
    parser.add_argument("--processes", type=int, default=0, help="how many questions at once; 0 for this process alone")
    parser.add_argument("--out", type=Path, default=Path("runs/statistics"), help="where numbers and figures go")
    parser.add_argument("--pages", type=Path, help=f"also put them into this directory, and tables into its {PAGE}")
    options = parser.parse_args(arguments)
    tables = load(options.tables, options.data_dir)
    if options.processes:
        done = run_all(options.tables, options.data_dir, releases=options.releases, processes=options.processes)
        rows, seconds = done
    else:
        begin = time.process_time()
        asked = [question for question in QUESTIONS if question.table in tables]
        rows, seconds = list(run(asked, tables, releases=options.releases)), time.process_time() - begin
    begin = time.process_time()
    many = list(run_many(tables, options.releases))
    seconds += time.process_time() - begin
    written = {**texts(rows, tables), "many owners": many_owners(many)}
    strictest = {name: min(table.epsilon.values()) for name, table in tables.items()}
    for directory in filter(None, (options.out, options.pages)):
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "statistics.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([measuring.HEAD, *map(measuring.entries, rows)])
        draw_ratios(rows, directory / "statistics-ratios.svg")
        draw_budgets(rows, strictest, directory / "statistics-budgets.svg")
    print("\n\n".join(f"## {title}\n\n{text}" for title, text in written.items()))
    print(f"\n{len(rows)} rows of {options.releases} releases each, {seconds / 60:.1f} minutes of processor time")
    page = options.pages / PAGE if options.pages else None
    if page and page.exists():
        page.write_text(fill(page.read_text(encoding="utf-8"), written), encoding="utf-8")


if __name__ == "__main__":
    main()
