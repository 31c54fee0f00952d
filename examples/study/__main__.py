"""Run the study and sum it up: python -m examples.study --data-dir DIR --out runs/study"""

import argparse
import os
from pathlib import Path

from examples.study.choice import all_finals
from examples.study.designs import FULL, QUICK, STUDY
from examples.study.runner import run
from examples.study.summary import summarise


def main() -> None:
    """Tune, run, sum up, setting by setting; what has been run is not run again."""
    parser = argparse.ArgumentParser(prog="python -m examples.study", description="Does INO-SGD do what it should?")
    parser.add_argument("--data-dir", default=os.environ.get("INOSGM_DATA"), help="the data directory")
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="where results and summaries go")
    parser.add_argument("--settings", nargs="+", choices=list(STUDY), default=list(STUDY), help="which settings")
    parser.add_argument("--processes", type=int, default=2, help="how many runs at once, of one thread each")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few steps of everything, to see that it works")
    size.add_argument("--full", action="store_true", help="without the cuts that made the published study fit")
    parser.add_argument("--summary-only", action="store_true", help="sum up what has been run")
    parser.add_argument("--pages", type=Path, help="also put tables and figures into the pages of this directory")
    options = parser.parse_args()
    designs = QUICK if options.quick else FULL if options.full else STUDY
    results = options.out / "results"
    for name in options.settings:
        design = designs[name]
        if not options.summary_only:
            run(design.tuning(), results, options.data_dir, options.processes)
            run(all_finals(design, results), results, options.data_dir, options.processes)
        summarise(design, results, options.out / name, options.pages)


if __name__ == "__main__":
    main()
