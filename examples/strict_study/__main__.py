"""Run the study: python -m examples.strict_study --data-dir DIR --out runs/strict --pages docs/results"""

import argparse
import os
from pathlib import Path

import torch

from examples.strict_study.earlier import chosen_points
from examples.strict_study.extras import extras
from examples.strict_study.page import write
from examples.strict_study.points import methods
from examples.strict_study.runs import Runs
from examples.strict_study.tasks import TASKS
from examples.strict_study.tradeoffs import paths
from examples.strict_study.tuning import choose, tune


def main() -> None:
    """Tune and run one task after another; finished runs are not run again."""
    parser = argparse.ArgumentParser(prog="python -m examples.strict_study", description="Who serves strict owners?")
    parser.add_argument("--data-dir", default=os.environ.get("INOSGM_DATA"), help="the data directory")
    parser.add_argument("--out", type=Path, default=Path("runs/strict"), help="where finished runs and features go")
    parser.add_argument("--tasks", nargs="*", choices=list(TASKS), default=list(TASKS), help="which tasks")
    parser.add_argument("--without-asc", action="store_true", help="leave out ASC, whose runs take longest")
    parser.add_argument("--chosen", type=Path, help="the csv of an earlier study: its methods are not tuned again")
    parser.add_argument("--paths", action="store_true", help="also run what the balance-utility picture shows")
    parser.add_argument("--extras", action="store_true", help="also measure averages, blends and other offsets")
    parser.add_argument("--pages", type=Path, help="write tables, figures and csv into this directory")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.tasks:
        task = TASKS[name]
        runs = Runs(task, options.out / f"{name}.jsonl", options.data_dir, options.out / "features")
        some = [method for method in methods(task) if not (options.without_asc and method.plan == "asc")]
        known = chosen_points(options.chosen, name, some) if options.chosen else {}
        runs.tuning.finish(known.values(), runs.tuning.task.tuning_seeds)
        choices = {method.name: choose(runs.tuning, method) for method in some if method.name in known}
        choices |= tune(runs.tuning, [method for method in some if method.name not in known])
        print(name, {method: (choice.point, choice.after) for method, choice in choices.items()}, flush=True)
        runs.finish([choice.point for choice in choices.values()], task.seeds)
        if options.paths:
            runs.finish(paths(choices), task.seeds[:3])
        if options.extras:
            extras(runs, choices)
    if options.pages is not None:
        write(options.out, options.pages)


if __name__ == "__main__":
    main()
