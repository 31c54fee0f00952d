"""Sweeps: a grid or a search over keys of a configuration, on a Ray cluster; `python -m ray_jobs.sweep --help`."""

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from inosgm._cli_keys import keys_of
from inosgm._cli_seeds import end, interruptible, refuse
from inosgm._cli_training import DataOption, File, QuietOption, SeedOption, SetOption, configuration
from inosgm.config import TrainingConfig
from inosgm.jobs import Executor, Store
from inosgm.runs.grid import values_from
from inosgm.runs.standings import TABLE, Metric, Sweep
from ray_jobs._options import Address, Attempts, Concurrent, Cpus, Gpus, StoreUri, kept, ray_executor
from ray_jobs.domains import Domain, domain_from
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


class Scheduler(StrEnum):
    """Who stops runs early."""

    asha = "asha"


app = typer.Typer(add_completion=False)


@app.command()
def main(
    file: File,
    store: StoreUri = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="Try each value: optimizer.lr=0.1,0.5. With several keys, all combinations."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            help="Draw values: KEY=uniform:0.1..0.9, =log:0.01..10, =integer:16..64 or =choice:SGD,Adam.",
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="How many times to draw; goes with --search.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs of each point, with the same seeds for all.")] = 1,
    searcher: Annotated[
        str | None,
        typer.Option(
            help="Who chooses points by results: optuna, hyperopt, ... if installed, or package.module:Class."
        ),
    ] = None,
    scheduler: Annotated[Scheduler | None, typer.Option(help="Stop runs early that are worse than others.")] = None,
    first_rung: Annotated[
        int | None, typer.Option(min=1, help="Steps before a run may be stopped; else a ninth of all. For asha.")
    ] = None,
    keep: Annotated[float | None, typer.Option(help="One of so many goes on from each rung; else 3. For asha.")] = None,
    metric: Annotated[Metric, typer.Option(help="What is compared, on held-out records.")] = Metric.balanced_accuracy,
    address: Address = None,
    num_cpus: Cpus = 1,
    num_gpus: Gpus = 0,
    max_concurrent: Concurrent = None,
    attempts: Attempts = 5,
    changes: SetOption = None,
    seed: SeedOption = None,
    data_dir: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Train what differs from a configuration in a few keys, and say what each is worth; the same command goes on."""
    if scheduler is None:
        refuse("goes with --scheduler asha", first_rung=first_rung, keep=keep)
    place = kept(store, f"{file.stem}-sweep")
    made = SweepStudy(
        configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None}),
        keys_of("--grid", grid, values_from),
        search=keys_of("--search", search, domain_from),
        samples=samples,
        seeds=seeds,
        store=place,
        scheduler=None if scheduler is None else Asha(first=first_rung, keep=keep or 3.0),
        searcher=searcher,
        metric=metric,
    )
    if not quiet:
        typer.echo(made.report())
    with interruptible(made.runs, place):
        found = made.run(
            ray_executor(address, num_cpus, num_gpus, max_concurrent), attempts=attempts, progress=not quiet
        )
    typer.echo(found.table(metric))
    typer.echo(f"written to {place}: {TABLE}, results.parquet")
    failed = [(one.point.name, index, line) for one in found.standings for index, line in one.failed.items()]
    end([f"{name}, run {index}: {line}" for name, index, line in failed], place)


if __name__ == "__main__":
    from inosgm.cli import main as run

    run(app)
