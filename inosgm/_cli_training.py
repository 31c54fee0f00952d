"""The commands that train, evaluate and revise runs."""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm._cli_seeds import (
    AddressOption,
    AttemptsOption,
    ConcurrentOption,
    CpusOption,
    GpusOption,
    ProcessesOption,
    SeedsOption,
    StoreOption,
    executor_of,
    refuse,
    train_seeds,
)

if TYPE_CHECKING:
    from inosgm.config import TrainingConfig

File = Annotated[Path, typer.Argument(help="The configuration of the run, YAML.")]
RunOption = Annotated[
    Path | None, typer.Option("--run", help="The run directory; else the file's `run`, or runs/NAME-OF-THE-FILE.")
]
DataOption = Annotated[Path | None, typer.Option("--data-dir", help="The data directory; else INOSGM_DATA.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="The seed, instead of the file's; with --seeds the root of all.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Set a key of the file: plan.steps=100. As often as you like.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No plan and no progress, only the result.")]


def train(
    file: File,
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    steps: Annotated[int | None, typer.Option(help="Make so many steps now; else all that are left.")] = None,
    changes: SetOption = None,
    quiet: QuietOption = False,
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
    if seeds is not None:
        refuse("goes with one run, not with --seeds", run=run, steps=steps)
        ray = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_concurrent": max_concurrent}
        config = configuration(file, None, data_dir, seed, changes).model_copy(update={"run": None})
        place = store or str(Path("runs") / f"{file.stem}-seeds")
        train_seeds(config, seeds, place, executor_of(processes, address, **ray), attempts=attempts or 5, quiet=quiet)
        return
    several = {"store": store, "processes": processes, "address": address, "attempts": attempts}
    refuse("goes with --seeds", **several, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)
    config = configuration(file, run, data_dir, seed, changes)
    from inosgm import runs

    training = runs.build(config, note=f"{file.name}, seed {config.seed}")
    if not quiet:
        typer.echo(training.plan.report())
    if training.begun_at:
        typer.echo(f"going on from step {training.begun_at} of the run in {config.run}")
    result = runs.train(training, steps=steps, progress=not quiet)
    typer.echo(f"after {result.steps_done} steps")
    typer.echo(result.report())
    typer.echo(f"written to {config.run}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory, or the configuration of a run.")],
    directory: RunOption = None,
    data_dir: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for machines.")] = False,
) -> None:
    """Evaluate the latest checkpoint of a run on the held-out records, owner by owner."""
    from inosgm import runs
    from inosgm.runs.training import configuration_in

    config = _rooted(configuration_in(run), data_dir) if run.is_dir() else configuration(run, directory, data_dir)
    found = runs.evaluate(config)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
        return
    typer.echo(f"{config.run} after {found.steps_done} steps")
    typer.echo(found.report())


def revise(
    file: File,
    budgets: Annotated[Path, typer.Option(help="CSV with the columns owner, epsilon and, if it changes, delta.")],
    run: RunOption = None,
    data_dir: DataOption = None,
    changes: SetOption = None,
    back: Annotated[
        bool, typer.Option("--back", help="Go back, and delete what came later, if an owner has spent more.")
    ] = False,
) -> None:
    """Give owners of a run new budgets: it gets a new plan, after going back if somebody has spent more."""
    config = configuration(file, run, data_dir, None, changes)
    from inosgm import runs

    before = runs.evaluate(config).steps_done
    training = runs.revise(config, *_budgets(budgets), back=back)
    now = training.trainer.steps_done
    went = f"went back from step {before} to step {now}" if now < before else f"is at step {now}"
    typer.echo(training.plan.report())
    typer.echo(f"{config.run} {went} and follows this plan from there: `train` goes on with it")


def configuration(
    file: Path, run: Path | None, data_dir: Path | None, seed: int | None = None, changes: list[str] | None = None
) -> "TrainingConfig":
    """Read a file, with what the command line says instead, and a run directory in any case."""
    from inosgm.config import TrainingConfig

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
