"""`inosgm train`: train a model with per-owner budgets, once or with many seeds."""

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
    executor_of,
    refuse,
    store_of,
)
from inosgm.cli.output import Output, end_if_failed, interruptible, interruptible_runs

if TYPE_CHECKING:
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
) -> None:
    """Train a model with per-owner budgets; the same command resumes a run, or many, that were stopped."""
    out = Output(as_json=as_json, quiet=quiet)
    ray: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrent": max_concurrent}
    if seeds is not None:
        refuse("goes with one run, not with --seeds", run=run, steps=steps)
        config = configuration_of_jobs(file, data_dir, seed, changes)
        place = store_of(store, f"{file.stem}-seeds")
        _train_seeds(config, seeds, place, executor_of(processes, address, **ray), attempts or ATTEMPTS, out)
        return
    refuse("goes with --seeds", store=store, processes=processes, address=address, attempts=attempts, **ray)
    from inosgm import experiments

    config = configuration(file, run, data_dir, seed, changes)
    training = experiments.build(config, note=f"{file.name}, seed {config.seed}")
    out.note(training.plan_report())
    if training.begun_at:
        out.note(f"resuming from step {training.begun_at} of the run in {config.run}")
    elif warning := training.warning():
        out.note(warning)
    with interruptible(lambda _: f"finished steps are kept in {config.run}, and the same command resumes"):
        result = experiments.train(training, steps=steps, progress=not quiet)
    out.result(
        lambda: f"after {result.steps_done} steps\n{result.report()}", lambda: {"run": config.run, **result.to_dict()}
    )
    out.note(f"written to {config.run}")


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
