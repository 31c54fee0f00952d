"""`inosgm sweep`: a grid or a search over keys of a configuration."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.configuration import configuration_of_jobs
from inosgm.cli.options import (
    ATTEMPTS,
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
    assignments,
    complete_keys,
    executor_of,
    refuse,
    store_of,
)
from inosgm.cli.output import Output, end_if_failed, interruptible_runs

if TYPE_CHECKING:
    from inosgm.experiments.sweeps import Tuner


class Scheduler(StrEnum):
    """The schedulers of Ray Tune that stop runs early."""

    asha = "asha"


def sweep(
    file: File,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            autocompletion=complete_keys,
            help="Try each value: optimizer.lr=0.1,0.5. With several keys, all combinations.",
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            autocompletion=complete_keys,
            help="Draw values: KEY=uniform:0.1..0.9, =log:0.01..10, =integer:16..64 or =choice:SGD,Adam.",
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="How many times to draw; goes with --search.")] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Train this many runs of each point, with the same seeds for all.")
    ] = 1,
    searcher: Annotated[
        str | None,
        typer.Option(
            help="Choose points by results: optuna, hyperopt, ... if installed, or package.module:Class. Needs Ray."
        ),
    ] = None,
    scheduler: Annotated[
        Scheduler | None, typer.Option(help="Stop runs early that are worse than others. Needs Ray.")
    ] = None,
    first_rung: Annotated[
        int | None, typer.Option(min=1, help="Steps before a run may be stopped; else a ninth of all. For asha.")
    ] = None,
    keep: Annotated[
        float | None, typer.Option(help="One of this many runs continues from each rung; else 3. For asha.")
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
    """Train configurations that differ in a few keys, and print what each achieves; the same command resumes."""
    if scheduler is None:
        refuse("goes with --scheduler asha", first_rung=first_rung, keep=keep)
    executor = executor_of(processes, address, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
    if not executor.elsewhere:
        refuse("needs Ray, whose Tune decides: add --address local, or auto", searcher=searcher, scheduler=scheduler)
    place = store_of(store, f"{file.stem}-sweep")
    from inosgm.experiments.domains import domain_from
    from inosgm.experiments.grid import values_from
    from inosgm.experiments.sweep_results import TABLE, Metric
    from inosgm.experiments.sweeps import SweepStudy

    by = Metric(metric.value)
    study = SweepStudy(
        configuration_of_jobs(file, data_dir, seed, changes),
        assignments("--grid", grid, values_from),
        search=assignments("--search", search, domain_from),
        samples=samples,
        seeds=seeds,
        store=place,
        tuner=None if scheduler is None and searcher is None else _tuner(scheduler, searcher, first_rung, keep),
        metric=by,
    )
    out = Output(as_json=as_json, quiet=quiet)
    out.note(study.announcement())
    with interruptible_runs(study.runs, place):
        result = study.run(executor, attempts=attempts or ATTEMPTS, progress=not quiet)
    out.result(lambda: result.table(by), lambda: {"store": place, **result.to_dict(by)})
    out.note(f"written to {place}: {TABLE}, results.parquet")
    failed = [(one.point.name, index, line) for one in result.standings for index, line in one.failed.items()]
    end_if_failed([f"{name}, run {index}: {line}" for name, index, line in failed], place)


def _tuner(scheduler: Scheduler | None, searcher: str | None, first: int | None, keep: float | None) -> "Tuner":
    from inosgm.jobs.clusters import ray_module

    tuning = ray_module("ray_jobs.tuning")
    asha = None if scheduler is None else tuning.Asha(first=first, **({} if keep is None else {"keep": keep}))
    tuner: Tuner = tuning.RayTuner(scheduler=asha, searcher=searcher)
    return tuner
