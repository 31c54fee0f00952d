"""`inosgm revise`: give owners of a run new budgets."""

import csv
import json
from pathlib import Path
from typing import Annotated

import typer

from inosgm.cli.configuration import configuration
from inosgm.cli.options import DataOption, File, JsonOption, QuietOption, RunOption, SeedOption, SetOption
from inosgm.cli.output import Output


def revise(
    file: File,
    budgets: Annotated[Path, typer.Option(help="CSV with the columns owner, epsilon and, if it changes, delta.")],
    run: RunOption = None,
    data_dir: DataOption = None,
    seed: SeedOption = None,
    changes: SetOption = None,
    back: Annotated[
        bool,
        typer.Option("--back", help="If an owner has spent more, return to an earlier step and delete later ones."),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give owners of a run new budgets: it gets a new plan, from an earlier step if an owner has spent more."""
    from inosgm import experiments

    config = configuration(file, run, data_dir, seed, changes)
    before = experiments.evaluate(config).steps_done
    training = experiments.revise(config, *_budgets(budgets), back=back)
    now, plan = training.trainer.steps_done, training.plan
    moved = f"went back from step {before} to step {now}" if now < before else f"is at step {now}"
    out = Output(as_json=as_json, quiet=quiet)
    about = {"run": config.run, "from": before, "steps": now}
    out.result(plan.report, lambda: {**about, "plan": json.loads(plan.to_json())})
    out.note(f"{config.run} {moved} and follows this plan from there: `train` resumes it")


def _budgets(path: Path) -> tuple[dict[str | int, float], dict[str | int, float]]:
    """Read the new epsilons and deltas, a row per owner; no deltas if the file has none."""
    from inosgm.owners import Owners

    with path.open(encoding="utf-8", newline="") as file:
        has_delta = "delta" in next(csv.reader(file), [])
    # Without a column, any delta makes valid owners: it is not used.
    owners = Owners.from_csv(path, delta="delta" if has_delta else 0.5, records=None)
    epsilon, delta = (dict(zip(owners.labels, part.tolist(), strict=True)) for part in (owners.epsilon, owners.delta))
    return epsilon, delta if has_delta else {}
