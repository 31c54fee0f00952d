"""`inosgm train`: train a model with per-owner budgets, once or with many seeds."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.configuration import configuration, configuration_of_jobs
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
    ProcessesOption,
    QuietOption,
    RunOption,
    SeedOption,
    SeedsOption,
    SetOption,
    StoreOption,
    WorkersOption,
    executor_of,
    refuse,
    store_of,
)
from inosgm.cli.output import Output, end_if_failed, interruptible, interruptible_runs

if TYPE_CHECKING:
    from inosgm.experiments import Evaluated, Training
    from inosgm.experiments.config import TrainingConfig
    from inosgm.jobs import Executor


def train(
    file: File,
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Make this many steps now; else all that remain.")] = None,
    changes: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    seeds: SeedsOption = None,
    store: StoreOption = None,
    processes: ProcessesOption = None,
    address: AddressOption = None,
    num_cpus: CpusOption = None,
    num_gpus: GpusOption = None,
    max_concurrent: ConcurrentOption = None,
    attempts: AttemptsOption = None,
    workers: WorkersOption = None,
) -> None:
    """Train a model with per-owner budgets; the same command resumes a run, or many, that were stopped."""
    out = Output(as_json=as_json, quiet=quiet)
    ray: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrent": max_concurrent}
    if seeds is not None:
        refuse("goes with one run, not with --seeds", run=run, steps=steps, workers=workers)
        config = configuration_of_jobs(file, data_dir, seed, changes)
        place = store_of(store, f"{file.stem}-seeds")
        _train_seeds(config, seeds, place, executor_of(processes, address, **ray), attempts or ATTEMPTS, out)
        return
    refuse("goes with --seeds", store=store, processes=processes, max_concurrent=max_concurrent)
    if workers is None or address is None:
        wanted = "goes with --seeds, or with --workers and --address"
        refuse(wanted, address=address, attempts=attempts, num_cpus=num_cpus, num_gpus=num_gpus)
    config = configuration(file, run, data_dir, seed, changes)
    note = f"{file.name}, seed {config.seed}"
    with interruptible(lambda _: f"finished steps are kept in {config.run}, and the same command resumes"):
        if workers is None or address is None:
            result: Evaluated = _train_here(config, workers or 1, steps, note, out)
        else:
            given = {"num_cpus": num_cpus, "num_gpus": num_gpus, "attempts": attempts or ATTEMPTS}
            result = _train_on_ray(config, workers, address or None, steps, note, out, **given)
    out.result(
        lambda: f"after {result.steps_done} steps\n{result.report()}", lambda: {"run": config.run, **result.to_dict()}
    )
    out.note(f"written to {config.run}")


def _train_here(config: "TrainingConfig", workers: int, steps: int | None, note: str, out: Output) -> "Evaluated":
    """Train one run in this process, and in others beside it if there are several workers."""
    from inosgm import experiments
    from inosgm.experiments.worker_processes import worker_processes

    with nullcontext() if workers == 1 else worker_processes(config, workers, steps=steps) as group:
        training = experiments.build(config, note=note, workers=group)
        _announce(training, out)
        return experiments.train(training, steps=steps, progress=not out.quiet)


def _train_on_ray(
    config: "TrainingConfig", workers: int, address: str | None, steps: int | None, note: str, out: Output, **given: Any
) -> "Evaluated":
    """Train one run on workers of a Ray cluster, and evaluate it here."""
    from inosgm import experiments
    from inosgm.jobs.clusters import ray_module

    training = experiments.build(config, note=note)
    training.check()  # mistakes are found here, before a cluster begins
    _announce(training, out)
    train_on_ray = ray_module("ray_jobs.training:train_on_ray")
    train_on_ray(config, workers, address=address, steps=steps, note=note, **given)
    return experiments.evaluate(config, source=training.source)


def _announce(training: "Training", out: Output) -> None:
    """Print the plan, and where a run resumes."""
    out.note(training.plan_report())
    if training.begun_at:
        out.note(f"resuming from step {training.begun_at} of the run in {training.config.run}")
    elif warning := training.warning():
        out.note(warning)


def _train_seeds(
    config: "TrainingConfig", seeds: int, store: str, executor: "Executor", attempts: int, out: Output
) -> None:
    """Train many runs and print their summary; end with 130 if interrupted, with 1 if one failed permanently."""
    from inosgm import experiments

    study = experiments.SeedStudy(config, seeds, store=store)
    out.note(study.announcement())
    with interruptible_runs(seeds, store):
        result = study.run(executor, attempts=attempts, progress=not out.quiet)
    if result.outcome.done:
        summary = result.write()
        out.result(summary.table, lambda: {"store": store, **summary.to_dict()})
        out.note(f"written to {store}: results.parquet, summary.parquet, summary.svg")
    failed = result.outcome.failed
    end_if_failed([f"run {study.store.spec(job).index}, job {job}: {line}" for job, line in failed.items()], store)
