"""The command that sweeps keys of a configuration, here and on a Ray."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.completion import keys
from inosgm.cli.keys import keys_of
from inosgm.cli.options import (
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
    File,
    GpusOption,
    JsonOption,
    Measure,
    MetricOption,
    ProcessesOption,
    QuietOption,
    SeedOption,
    SetOption,
    StoreOption,
    Voice,
    executor_of,
    refuse,
)
from inosgm.cli.seeds import end, interruptible
from inosgm.cli.training import configuration

if TYPE_CHECKING:
    from inosgm.experiments.standings import Metric
    from inosgm.jobs import Executor
    from ray_jobs.sweeping import SweepStudy
    from ray_jobs.tuning import Asha

Workers = Callable[..., "Executor"]
Kept = Callable[[str | None, str], str]


class Scheduler(StrEnum):
    """Who stops runs early."""

    asha = "asha"


def command(workers: Workers, kept: Kept) -> Callable[..., None]:
    """Return the command.

    Args:
        workers: Says who works, given the options about that.
        kept: Returns the store, from the one that is given and a name for one that is not.
    """

    def sweep(
        file: File,
        grid: Annotated[
            list[str] | None,
            typer.Option(
                "--grid",
                autocompletion=keys,
                help="Try each value: optimizer.lr=0.1,0.5. With several keys, all combinations.",
            ),
        ] = None,
        search: Annotated[
            list[str] | None,
            typer.Option(
                "--search",
                autocompletion=keys,
                help="Draw values: KEY=uniform:0.1..0.9, =log:0.01..10, =integer:16..64 or =choice:SGD,Adam.",
            ),
        ] = None,
        samples: Annotated[int | None, typer.Option(min=1, help="How many times to draw; goes with --search.")] = None,
        seeds: Annotated[
            int, typer.Option("--seeds", min=1, help="Train so many runs of each point, with the same seeds for all.")
        ] = 1,
        searcher: Annotated[
            str | None,
            typer.Option(
                help="Who chooses points by results: optuna, hyperopt, ... if installed, or package.module:Class. "
                "Needs Ray."
            ),
        ] = None,
        scheduler: Annotated[
            Scheduler | None, typer.Option(help="Stop runs early that are worse than others. Needs Ray.")
        ] = None,
        first_rung: Annotated[
            int | None, typer.Option(min=1, help="Steps before a run may be stopped; else a ninth of all. For asha.")
        ] = None,
        keep: Annotated[
            float | None, typer.Option(help="One of so many goes on from each rung; else 3. For asha.")
        ] = None,
        metric: MetricOption = Measure.balanced_accuracy,
        store: StoreOption = None,
        changes: SetOption = None,
        seed: SeedOption = None,
        data_dir: DataOption = None,
        quiet: QuietOption = False,
        as_json: JsonOption = False,
        processes: ProcessesOption = None,
        address: AddressOption = None,
        num_cpus: CpusOption = None,
        num_gpus: GpusOption = None,
        max_concurrent: ConcurrentOption = None,
        attempts: AttemptsOption = None,
    ) -> None:
        """Train what differs from a configuration in a few keys, and say what each is worth; the command goes on."""
        if scheduler is None:
            refuse("goes with --scheduler asha", first_rung=first_rung, keep=keep)
        ray = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrent": max_concurrent}
        executor = workers(processes=processes, address=address, **ray)
        if not executor.elsewhere:
            refuse(
                "needs Ray, whose Tune decides: add --address local, or auto", searcher=searcher, scheduler=scheduler
            )
        place = kept(store, f"{file.stem}-sweep")
        from inosgm.experiments.grid import values_from
        from inosgm.experiments.standings import Metric
        from ray_jobs.domains import domain_from
        from ray_jobs.sweeping import SweepStudy

        made = SweepStudy(
            configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None}),
            keys_of("--grid", grid, values_from),
            search=keys_of("--search", search, domain_from),
            samples=samples,
            seeds=seeds,
            store=place,
            scheduler=None if scheduler is None else _asha(first_rung, keep),
            searcher=searcher,
            metric=Metric(metric.value),
        )
        _run(made, Metric(metric.value), place, executor, attempts or 5, Voice(as_json=as_json, quiet=quiet))

    return sweep


def _run(made: "SweepStudy", metric: "Metric", place: str, executor: "Executor", attempts: int, voice: Voice) -> None:
    """Do a sweep and say what it came to; end with 130 if interrupted, with 1 if a run has failed."""
    from inosgm.experiments.standings import TABLE

    voice.tell(made.report())
    with interruptible(made.runs, place):
        found = made.run(executor, attempts=attempts, progress=not voice.quiet)
    voice.result(lambda: found.table(metric), lambda: {"store": place, **found.to_dict(metric)})
    voice.tell(f"written to {place}: {TABLE}, results.parquet")
    failed = [(one.point.name, index, line) for one in found.standings for index, line in one.failed.items()]
    end([f"{name}, run {index}: {line}" for name, index, line in failed], place)


def _asha(first: int | None, keep: float | None) -> "Asha":
    from inosgm.jobs.clusters import ray_module

    asha: Asha = ray_module("ray_jobs.tuning:Asha")(first=first, keep=3.0 if keep is None else keep)
    return asha


def _here(store: str | None, name: str) -> str:
    return store or str(Path("runs") / name)


sweep = command(executor_of, _here)
