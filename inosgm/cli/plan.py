"""`inosgm plan`: compute what budgets buy."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.options import DeltaOption, JsonOption, QuietOption
from inosgm.cli.output import Output

if TYPE_CHECKING:
    from inosgm.methods.method import Method


class Accounting(StrEnum):
    """The accountants."""

    pld = "pld"
    rdp = "rdp"


def plan(
    owners: Annotated[
        Path,
        typer.Argument(
            help="CSV with the columns owner, epsilon, delta: a row per record, or per owner with a column records."
        ),
    ],
    steps: Annotated[int, typer.Option(help="The number of releases.")],
    expected_batch: Annotated[float, typer.Option(help="Expected number of records in a batch.")],
    clip_norm: Annotated[float, typer.Option(help="Mean sensitivity of a record.")] = 1.0,
    method: Annotated[
        str,
        typer.Option(
            help="Let rates differ (sample), sensitivities (scale), both (blend), or nothing (uniform); or a method of "
            "`inosgm compare`, such as asc, pdp-sgd or individual, with its defaults."
        ),
    ] = "sample",
    weight: Annotated[float | None, typer.Option(help="For a blend: 1 is sample, 0 is scale.")] = None,
    accountant: Annotated[Accounting, typer.Option(help="Exact (pld), or as in the papers (rdp).")] = Accounting.pld,
    delta: DeltaOption = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the plan to this file, as JSON; else to plan.json, and with --json to none."),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what budgets buy, per owner, and write the plan as JSON; for a method with stages, a list of plans."""
    from inosgm.experiments.config.learning import PlanConfig
    from inosgm.owners import Owners

    if output is None and not as_json:
        output = Path("plan.json")
    if output is not None and output.resolve() == owners.resolve():
        raise ValueError(f"--output {output} would overwrite the owners: choose another file")
    if output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"--output {output}: there is no directory {output.parent}")
    if (method == "blend") != (weight is not None):
        raise ValueError("--weight goes with --method blend, and a blend needs one")
    described, options = _described(method)
    options |= {"steps": steps, "expected_batch": expected_batch, "clip_norm": clip_norm, "weight": weight}
    asked = PlanConfig.of({**options, "accountant": accountant.value})
    made = described.plans(asked.with_defaults(), Owners.from_csv(owners, delta="delta" if delta is None else delta))
    texts = [plan.to_json() for plan in made.plans]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    out = Output(as_json=as_json, quiet=quiet)
    out.result(made.report, lambda: json.loads(text))
    if described.warning:
        out.note(f"WARNING: {method}: {described.warning}")
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")
        out.note(f"written to {output}")


def _described(method: str) -> "tuple[Method, dict[str, Any]]":
    """Return the method of a name, and the options of `plan` that it sets."""
    from inosgm.methods.registry import METHODS
    from inosgm.planning.planners import PLANNERS

    if method in PLANNERS:
        return METHODS["dp-sgd" if method == "uniform" else "idp-sgd"], {"method": method}
    known = [name for name in METHODS if not METHODS[name].needs]
    if method not in known:
        raise ValueError(f"--method must be one of {', '.join((*PLANNERS, *known))}, got {method!r}")
    found = METHODS[method]
    return found, {"method": found.plan_methods[0], **found.options}
