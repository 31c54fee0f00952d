"""Sweeps: a grid or a search over keys of a configuration, on a Ray cluster; `python -m ray_jobs.sweep --help`."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from inosgm.cli.program import program
from inosgm.cli.sweep import sweep as command
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.standings import Metric, Sweep
from inosgm.jobs import Executor, Store
from ray_jobs.domains import Domain
from ray_jobs.entry_points import application, on_ray
from ray_jobs.sweeping import SweepStudy
from ray_jobs.tuning import Asha


def sweep(
    config: TrainingConfig,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    search: Mapping[str, Domain] | None = None,
    samples: int | None = None,
    seeds: int = 1,
    store: Store | str | os.PathLike[str],
    executor: Executor | None = None,
    scheduler: Asha | None = None,
    searcher: str | None = None,
    metric: Metric = Metric.balanced_accuracy,
    attempts: int = 5,
    progress: bool = True,
) -> Sweep:
    """Train configurations that differ from one in a few keys, with the same seeds, and say what each is worth.

    The same call goes on with what is left. Another grid adds points to the store; what is done is not done again.

    **Guarantee.** Each run is charged once, before it begins, and keeps the budgets by itself; with a `ledger:` in the
    configuration all runs together keep those of the ledger, and none begins unless it can pay for all when this is
    called; what others charge to it meanwhile may leave too little for the last ones, which then fail. The best point
    is chosen by results: whoever publishes it has published something about all runs. A run that is stopped early stays
    charged in full.

    Args:
        config: What points differ from. Its `seed` is the root of all seeds; its `run` is not used.
        grid: Values by path of key; all combinations are tried.
        search: What a key may be, by path; combinations of such values are drawn, each for every point of the grid.
        samples: How many times to draw.
        seeds: How many runs of each point, with the same seeds for all. First seeds come before second ones.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store. It belongs to
            sweeps of one configuration.
        executor: Who works: `RayExecutor()` if not given. With a scheduler or a searcher it is one.
        scheduler: Who stops runs early, by Ray Tune; nobody if not given.
        searcher: Who chooses points by what came of others, by Ray Tune: optuna, hyperopt, ... if that is installed, or
            "package.module:Class" of your own. Without one they are drawn at random, a function of the seed.
        metric: What scheduler and searcher go by, on the held-out records.
        attempts: How many attempts of a run may fail before it is given up.
        progress: Say first what the sweep costs, and show how far it has got.

    Returns:
        What the points in the store came to.

    Raises:
        ValueError: listing all that is wrong with any point; for a sweep that cannot be; for a store of something else.
        BudgetExceeded: if the ledger cannot pay for all runs.
        Interrupted: after Ctrl-C, when everything that was running has saved how far it had got.
    """
    made = SweepStudy(
        config,
        grid,
        search=search,
        samples=samples,
        seeds=seeds,
        store=store,
        scheduler=scheduler,
        searcher=searcher,
        metric=metric,
    )
    if progress:
        print(made.report(), file=sys.stderr)
    return made.run(executor, attempts=attempts, progress=progress)


app = application(on_ray(command))

if __name__ == "__main__":
    program(app)
