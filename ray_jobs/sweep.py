"""Sweeps: a grid or a search over keys of a configuration, on a Ray cluster; `python -m ray_jobs.sweep --help`."""

from collections.abc import Mapping, Sequence
from typing import Any

from inosgm.cli.program import program
from inosgm.cli.sweep import sweep as command
from inosgm.experiments import sweeps
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.sweep_results import Sweep
from inosgm.jobs import Executor
from ray_jobs.entry_points import application, on_ray
from ray_jobs.executor import RayExecutor
from ray_jobs.tuning import Asha, RayTuner


def sweep(
    config: TrainingConfig,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    executor: Executor | None = None,
    scheduler: Asha | None = None,
    searcher: str | None = None,
    **options: Any,
) -> Sweep:
    """Sweep keys of a configuration on a Ray cluster, as `inosgm.experiments.sweep` does with any executor.

    Args:
        config: The configuration that points differ from.
        grid: Values by path of key; all combinations are tried.
        executor: Runs the jobs: `RayExecutor()` if not given; with a scheduler or a searcher it must be one.
        scheduler: Stops runs early, by Ray Tune; no run is stopped if not given.
        searcher: Chooses points by the results of others; see `RayTuner`.
        options: Those of `inosgm.experiments.sweep`: `store` and, where needed, `search`, `samples`, `seeds`, ...
    """
    tuner = None if scheduler is None and searcher is None else RayTuner(scheduler=scheduler, searcher=searcher)
    return sweeps.sweep(config, grid, executor=RayExecutor() if executor is None else executor, tuner=tuner, **options)


app = application(on_ray(command))

if __name__ == "__main__":
    program(app)
