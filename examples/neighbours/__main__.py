"""Compare all methods on all settings, and write it up: python -m examples.neighbours --data-dir DIR"""

import argparse
import json
import os
import time
from pathlib import Path

from examples.neighbours.designs import EMBEDDED, METHOD_NAMES, SETTINGS, SMALL, STUDY
from examples.neighbours.numbers import numbers_of
from examples.neighbours.tables import table
from examples.study.pages import fill
from inosgm.jobs import ProcessExecutor, SerialExecutor
from inosgm.runs import compare

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
    found = []
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
        found.append(numbers_of(setting, comparison))
        print(f"## {name}\n\n{table(found[-1])}\n\n{time.monotonic() - begun:.0f} s\n", flush=True)
        write(found, options.out)
    if options.pages:
        write(found, options.pages)


def write(found: list[dict[str, object]], directory: Path) -> None:
    """Write the numbers of some settings, and tables of them: into the page that is there, or one of their own."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / NUMBERS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    tables = {str(one["setting"]): table(one) for one in found}
    page = directory / PAGE
    empty = "".join(f"## {name}\n\n<!-- {name} --><!-- end -->\n\n" for name in tables)
    page.write_text(fill(page.read_text(encoding="utf-8") if page.exists() else empty, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
