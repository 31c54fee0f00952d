"""The commands that train, evaluate and revise runs."""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.options import (
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    DataOption,
    File,
    FileOrRun,
    GpusOption,
    JsonOption,
    ProcessesOption,
    QuietOption,
    RunOption,
    SeedOption,
    SeedsOption,
    SetOption,
    StoreOption,
    Voice,
    executor_of,
    refuse,
)
from inosgm.cli.seeds import train_seeds

if TYPE_CHECKING:
    from inosgm.experiments.config import TrainingConfig


def train(
    file: File,
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    steps: Annotated[int | None, typer.Option(min=0, help="Make so many steps now; else all that are left.")] = None,
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
    """Train a model with per-owner budgets; the same command goes on with a run, or with many, that were stopped."""
    voice = Voice(as_json=as_json, quiet=quiet)
    if seeds is not None:
        refuse("goes with one run, not with --seeds", run=run, steps=steps)
        ray = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrent": max_concurrent}
        config = configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None})
        place = store or str(Path("runs") / f"{file.stem}-seeds")
        train_seeds(config, seeds, place, executor_of(processes, address, **ray), attempts=attempts or 5, voice=voice)
        return
    several = {"store": store, "processes": processes, "address": address, "attempts": attempts}
    refuse("goes with --seeds", **several, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
    config = configuration(file, run, data_dir, seed, changes)
    from inosgm import experiments as runs

    training = runs.build(config, note=f"{file.name}, seed {config.seed}")
    voice.tell(training.plan_report())
    if training.begun_at:
        voice.tell(f"going on from step {training.begun_at} of the run in {config.run}")
    try:
        result = runs.train(training, steps=steps, progress=not quiet)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: what is done is kept in {config.run}, and the same command goes on with it", err=True)
        raise typer.Exit(130) from None
    voice.result(
        lambda: f"after {result.steps_done} steps\n{result.report()}", lambda: {"run": config.run, **result.to_dict()}
    )
    voice.tell(f"written to {config.run}")


def evaluate(
    file: FileOrRun,
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the latest checkpoint of a run on the held-out records, owner by owner."""
    if file.is_dir():
        from inosgm.experiments.training import configuration_in

        refuse("goes with a configuration, not with a run directory", run=run, seed=seed, set=changes)
        config = _rooted(configuration_in(file), data_dir)
    else:
        config = configuration(file, run, data_dir, seed, changes)
    from inosgm import experiments as runs

    found = runs.evaluate(config)
    Voice(as_json=as_json, quiet=quiet).result(
        lambda: f"{config.run} after {found.steps_done} steps\n{found.report()}",
        lambda: {"run": config.run, **found.to_dict()},
    )


def revise(
    file: File,
    budgets: Annotated[Path, typer.Option(help="CSV with the columns owner, epsilon and, if it changes, delta.")],
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
    back: Annotated[
        bool, typer.Option("--back", help="Go back, and delete what came later, if an owner has spent more.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give owners of a run new budgets: it gets a new plan, after going back if somebody has spent more."""
    config = configuration(file, run, data_dir, seed, changes)
    from inosgm import experiments as runs

    before = runs.evaluate(config).steps_done
    training = runs.revise(config, *_budgets(budgets), back=back)
    now, plan = training.trainer.steps_done, training.plan
    went = f"went back from step {before} to step {now}" if now < before else f"is at step {now}"
    voice = Voice(as_json=as_json, quiet=quiet)
    about = {"run": config.run, "from": before, "steps": now}
    voice.result(plan.report, lambda: {**about, "plan": json.loads(plan.to_json())})
    voice.tell(f"{config.run} {went} and follows this plan from there: `train` goes on with it")


def configuration(
    file: Path, run: Path | None, data_dir: Path | None, seed: int | None = None, changes: list[str] | None = None
) -> "TrainingConfig":
    """Read a file, with what the command line says instead, and a run directory in any case."""
    from inosgm.experiments.config import TrainingConfig

    changes = [*(changes or []), *([] if seed is None else [f"seed={seed}"])]
    config = TrainingConfig.from_yaml(file, changes)
    folder = str(run) if run is not None else config.run or str(Path("runs") / file.stem)
    return _rooted(config.model_copy(update={"run": folder}), data_dir)


def _rooted(config: "TrainingConfig", data_dir: Path | None) -> "TrainingConfig":
    """Return the configuration with another data directory, if there is one."""
    if data_dir is None:
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"root": str(data_dir)})})


def _budgets(path: Path) -> tuple[dict[str | int, float], dict[str | int, float]]:
    """Read new budgets, a row per owner."""
    from inosgm.owners import Owners

    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file), [])
    owners = Owners.from_csv(path, delta="delta" if "delta" in names else 0.5, records=None)
    epsilon, delta = (dict(zip(owners.labels, part.tolist(), strict=True)) for part in (owners.epsilon, owners.delta))
    return epsilon, delta if "delta" in names else {}
