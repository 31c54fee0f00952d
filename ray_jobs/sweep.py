"""Sweeps: a grid or a search over keys of a configuration, on a Ray cluster; `python -m ray_jobs.sweep --help`."""

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from inosgm.cli.options import refuse
from inosgm.cli.sweep import command
from inosgm.experiments import sweeps
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.standings import Sweep
from inosgm.jobs import Executor
from ray_jobs._options import kept, ray_executor
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
        config: What points differ from.
        grid: Values by path of key; all combinations are tried.
        executor: Who works: `RayExecutor()` if not given. With a scheduler or a searcher it is one.
        scheduler: Who stops runs early, by Ray Tune; nobody if not given.
        searcher: Who chooses points by the results of others; see `RayTuner`.
        options: Those of `inosgm.experiments.sweep`: `store` and, where needed, `search`, `samples`, `seeds`, ...
    """
    tuner = None if scheduler is None and searcher is None else RayTuner(scheduler=scheduler, searcher=searcher)
    return sweeps.sweep(config, grid, executor=RayExecutor() if executor is None else executor, tuner=tuner, **options)


def _workers(processes: int | None, **ray: Any) -> RayExecutor:
    """Return who works: a Ray, wherever it is found."""
    refuse("does not go with Ray, which has workers of its own: --max-concurrent", processes=processes)
    return ray_executor(**ray)


app = typer.Typer(add_completion=False)
app.command()(command(_workers, kept))

if __name__ == "__main__":
    from inosgm.cli.program import program as run

    run(app)
