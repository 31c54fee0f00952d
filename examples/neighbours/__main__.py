"""Compare all methods on all settings, and write it up: python -m examples.neighbours --data-dir DIR"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from examples.neighbours.designs import EMBEDDED, METHOD_NAMES, SETTINGS, SMALL, STUDY
from examples.neighbours.numbers import numbers_of
from examples.neighbours.tables import agreement, table
from examples.study.pages import fill
from inosgm.experiments import compare
from inosgm.jobs import ProcessExecutor, SerialExecutor

PAGE, NUMBERS = "neighbours.md", "neighbours.json"


def main(arguments: list[str] | None = None) -> None:
    """Tune, run, and write tables; the same command goes on with what was stopped."""
    parser = argparse.ArgumentParser(prog="python -m examples.neighbours", description="What is each method worth?")
    parser.add_argument("--data-dir", default=os.environ.get("INOSGM_DATA"), help="the data directory, with MNIST")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--embedded", action="store_true", help="5,000 images of MNIST instead, which need no files")
    size.add_argument("--small", action="store_true", help="a few steps on digits, to see that it works")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="which settings")
    parser.add_argument("--methods", nargs="+", choices=METHOD_NAMES, default=METHOD_NAMES, help="which methods")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs of each method that count")
    parser.add_argument("--processes", type=int, default=2, help="how many runs at once, of one thread each")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/neighbours"), help="where runs, numbers, tables are kept"
    )
    parser.add_argument("--pages", type=Path, help=f"also put numbers there, and tables into the {PAGE} that is there")
    options = parser.parse_args(arguments)
    chosen = SMALL if options.small else EMBEDDED if options.embedded else STUDY
    for name in options.settings:
        setting, begun = SETTINGS[name], time.monotonic()
        comparison = compare(
            chosen.configs(setting, options.methods, options.data_dir),
            seeds=options.seeds,
            tune={"optimizer.lr": chosen.rates},
            metric=setting.metric,
            store=options.out / name.lower(),
            executor=ProcessExecutor(options.processes) if options.processes > 1 else SerialExecutor(),
        )
        found = numbers_of(setting, comparison)
        print(
            f"## {name}\n\n{table(found)}\n\n{agreement(found)}\n\n{time.monotonic() - begun:.0f} s\n",
            flush=True,
        )
        for directory in filter(None, (options.out, options.pages)):
            write([found], directory)


def write(found: list[dict[str, Any]], directory: Path) -> None:
    """Write numbers beside those of other settings, and tables of all: into the page, if it is there."""
    directory.mkdir(parents=True, exist_ok=True)
    numbers, page = directory / NUMBERS, directory / PAGE
    known = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else []
    every = list({one["setting"]: one for one in (*known, *found)}.values())
    numbers.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    if page.exists():
        page.write_text(fill(page.read_text(encoding="utf-8"), texts_of(every)), encoding="utf-8")


def texts_of(found: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tables of some settings, by the markers of the page."""
    tables = {one["setting"]: table(one) for one in found}
    return tables | {f"{one['setting']} against its paper": agreement(one) for one in found}


if __name__ == "__main__":
    main()
