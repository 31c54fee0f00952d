"""`inosgm compare`: train methods on the same data and print one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.configuration import configuration_of_jobs
from inosgm.cli.options import (
    ATTEMPTS,
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
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
    store_of,
)
from inosgm.cli.output import Output, end_if_failed, interruptible_runs
from inosgm.methods.registry import METHODS, USUAL

if TYPE_CHECKING:
    from inosgm.experiments import Comparison
    from inosgm.experiments.config import TrainingConfig

MethodsOption = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help=f"Which, with commas, of {', '.join(METHODS)}; or all. Of one file else {', '.join(USUAL)}. All are "
        "without methods that have another guarantee, such as azb-weak, which breaks budgets: name them as well "
        "(all,azb-weak).",
    ),
]
TuneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tune",
        autocompletion=complete_keys,
        help="Try these values for each method, run the best: optimizer.lr=1,3,9. Repeatable.",
    ),
]


def compare(
    files: Annotated[list[Path], typer.Argument(help="A configuration whose methods are compared, or several.")],
    methods: MethodsOption = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Train this many runs of each, with the same seeds for all.")
    ] = 1,
    tune: TuneOption = None,
    tune_seeds: Annotated[int, typer.Option("--tune-seeds", min=1, help="How many runs of each value, to tune.")] = 1,
    metric: MetricOption = Measure.balanced_accuracy,
    store: StoreOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
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
    """Train methods on the same data, owners and seeds, each tuned alike, and print one table.

    The same command resumes a comparison that was stopped. Every run keeps the budgets by itself, and all together
    spend more: the cost to each owner is printed before the first run begins.
    """
    from inosgm.experiments import ComparisonStudy
    from inosgm.experiments.grid import values_from
    from inosgm.experiments.sweep_results import Metric

    out = Output(as_json=as_json, quiet=quiet)
    configs = _named(files, changes, seed, data_dir)
    place = store_of(store, f"{'-'.join(dict.fromkeys(file.stem for file in files))}-compare")
    study = ComparisonStudy(
        configs,
        None if methods is None and len(configs) > 1 else _chosen(methods, configs, out),
        seeds=seeds,
        tune=assignments("--tune", tune, values_from),
        tune_seeds=tune_seeds,
        metric=Metric(metric.value),
        store=place,
    )
    executor = executor_of(processes, address, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
    out.note(study.announcement())
    with interruptible_runs(study.runs, place):
        found = study.run(executor, attempts=attempts or ATTEMPTS, progress=not quiet, tell=out.note)
    out.result(found.table, lambda: {"store": place, **found.to_dict()})
    out.note(f"kept in {place}; a page with pictures: inosgm report {place}")
    end_if_failed(_failed(found), place)


def _named(
    files: list[Path], changes: list[str] | None, seed: int | None, data_dir: Path | None
) -> "dict[str, TrainingConfig]":
    """Read the configurations, by the names of their files."""
    if len(set(files)) < len(files):
        raise ValueError(f"files must differ, got {', '.join(map(str, files))}")
    stems = [file.stem for file in files]
    names = [file.stem if stems.count(file.stem) == 1 else str(file) for file in files]
    read = [configuration_of_jobs(file, data_dir, seed, changes) for file in files]
    return dict(zip(names, read, strict=True))


def _chosen(methods: str | None, configs: "dict[str, TrainingConfig]", out: Output) -> list[str]:
    """Return the methods that are asked for; `all` are those that the configuration supports; note the others."""
    from inosgm.experiments.comparison_study import fitting

    if methods is None:
        return list(USUAL)
    named = [name.strip() for name in methods.split(",") if name.strip()]
    if "all" not in named:
        return named
    config, *_ = configs.values()
    names, reasons = fitting(config)
    more = [name for name in named if name != "all" and name not in names]
    for name, reason in reasons.items():
        if name not in more:
            out.note(f"without {name}: {reason}")
    return [*names, *more]


def _failed(found: "Comparison") -> list[str]:
    """Return a line for every run that failed permanently, tuning included."""
    rows: list[tuple[str, Any]] = []
    for name, method in found.methods.items():
        rows += [(f"{name}, {one.point.name}", one.failed) for one in method.tuning]
        rows.append((name, method.failed))
    return [f"{name}, run {index}: {line}" for name, failed in rows for index, line in failed.items()]
