"""The command that makes a plan."""

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inosgm.cli.options import DeltaOption, JsonOption, QuietOption
from inosgm.cli.output import Output

if TYPE_CHECKING:
    from inosgm.planning.plan import Plan


class Method(StrEnum):
    """How a plan tells owners apart."""

    sample = "sample"
    scale = "scale"
    blend = "blend"
    uniform = "uniform"


class Accounting(StrEnum):
    """Who works out what steps cost."""

    pld = "pld"
    rdp = "rdp"


def plan(
    owners: Annotated[
        Path,
        typer.Argument(
            help="CSV with the columns owner, epsilon, delta: a row per record, or per owner with a column records."
        ),
    ],
    steps: Annotated[int, typer.Option(help="How many releases.")],
    expected_batch: Annotated[float, typer.Option(help="Expected number of records in a batch.")],
    clip_norm: Annotated[float, typer.Option(help="Mean sensitivity of a record.")] = 1.0,
    method: Annotated[
        Method,
        typer.Option(help="Let rates differ (sample), sensitivities (scale), both (blend), or nothing (uniform)."),
    ] = Method.sample,
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
    """Say what budgets buy, per owner, and write the plan as JSON."""
    from inosgm.accounting import ACCOUNTANTS
    from inosgm.owners import Owners
    from inosgm.planning import planners as planning

    if output is None and not as_json:
        output = Path("plan.json")
    if output is not None and output.resolve() == owners.resolve():
        raise ValueError(f"--output {output} would overwrite the owners: choose another file")
    if output is not None and not output.parent.is_dir():
        raise FileNotFoundError(f"--output {output}: there is no directory {output.parent}")
    if (method is Method.blend) != (weight is not None):
        raise ValueError("--weight goes with --method blend, and a blend needs one")
    methods: dict[Method, Callable[..., Plan]] = {
        Method.sample: planning.plan_sample,
        Method.scale: planning.plan_scale,
        Method.blend: partial(planning.plan_blend, weight=weight or 0.0),
        Method.uniform: planning.plan_uniform,
    }
    made = methods[method](
        Owners.from_csv(owners, delta="delta" if delta is None else delta),
        steps=steps,
        expected_batch=expected_batch,
        clip_norm=clip_norm,
        accountant=ACCOUNTANTS[accountant],
    )
    out = Output(as_json=as_json, quiet=quiet)
    out.result(made.report, lambda: json.loads(made.to_json()))
    if output is not None:
        output.write_text(made.to_json() + "\n", encoding="utf-8")
        out.note(f"written to {output}")
