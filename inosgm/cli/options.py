"""Options that commands have in common: the same name, the same meaning, the same words in every help text."""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inosgm.cli.completion import keys

if TYPE_CHECKING:
    from inosgm.jobs import Executor

File = Annotated[Path, typer.Argument(help="The configuration of the run, YAML.")]
FileOrRun = Annotated[Path, typer.Argument(help="The configuration, YAML, or a run directory.")]
RunOption = Annotated[
    Path | None, typer.Option("--run", help="The run directory; else the file's `run`, or runs/NAME-OF-THE-FILE.")
]
DataOption = Annotated[Path | None, typer.Option("--data-dir", help="The data directory; else INOSGM_DATA.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, help="The seed, instead of the file's; with --seeds the root of all.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", autocompletion=keys, help="Set a key of the file: plan.steps=100. As often as you like."),
]
DeltaOption = Annotated[
    float | None, typer.Option("--delta", help="One delta for all owners, instead of a column of the CSV.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Only the result: no costs before, no progress.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The result as JSON, and everything else on stderr.")]

SeedsOption = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Train so many runs, whose seeds follow from the file's.")
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Where jobs are kept, a path or a URI such as s3://...; else runs/NAME-..."),
]
ProcessesOption = Annotated[int | None, typer.Option("--processes", min=1, help="Work in so many processes.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Work on Ray: auto, local, or the address of a cluster.")
]
CpusOption = Annotated[float | None, typer.Option("--num-cpus", min=0, help="CPUs, and threads, of a worker on Ray.")]
GpusOption = Annotated[float | None, typer.Option("--num-gpus", min=0, help="GPUs of a worker on Ray.")]
ConcurrentOption = Annotated[
    int | None, typer.Option("--max-concurrent", min=1, help="At most so many workers on Ray at once.")
]
AttemptsOption = Annotated[
    int | None, typer.Option("--attempts", min=1, help="Give a job up after so many failures; else 5.")
]


class Measure(StrEnum):
    """What points are compared by: the names of `runs.standings.Metric`, which is not imported for a help text."""

    balanced_accuracy = "balanced_accuracy"
    accuracy = "accuracy"
    worst_owner = "worst_owner"


MetricOption = Annotated[Measure, typer.Option("--metric", help="What points are compared by, on held-out records.")]


@dataclass(frozen=True, kw_only=True)
class Voice:
    """How a command speaks: its result goes to stdout, and so does the rest unless the result is JSON.

    Attributes:
        as_json: Whether the result is JSON.
        quiet: Whether there is no rest.
    """

    as_json: bool = False
    quiet: bool = False

    def tell(self, line: str) -> None:
        """Say something that is no result."""
        if not self.quiet:
            typer.echo(line, err=self.as_json)

    def result(
        self,
        text: Callable[[], str],
        values: Callable[[], Mapping[str, Any]],
        *,
        kept: str = "the same command shows the result",
    ) -> None:
        """Say the result, for people or for machines: only one of both is made.

        Where stdout cannot be written to (its reader has ended, its disk is full), the command ends with 1.

        Args:
            text: Makes the result for people.
            values: Makes the result for machines.
            kept: How to see the result later. A result that is kept nowhere, and was paid for, goes to stderr if stdout
                does not take it.
        """
        told = json.dumps(_finite(values()), allow_nan=False) if self.as_json else text()
        try:
            typer.echo(told)
        except OSError as error:
            discard(1)
            if kept and isinstance(error, BrokenPipeError):  # `| head` has all that it wants
                raise typer.Exit(1) from None
            instead = kept or f"the result, which was paid for, is\n{told}"
            typer.echo(f"error: stdout cannot be written to ({(error.strerror or '').lower()}): {instead}", err=True)
            raise typer.Exit(1) from None


def discard(stream: int) -> None:
    """Let nothing more be written to a stream that failed: or else the end of Python writes once more, and fails."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _finite(value: Any) -> Any:
    """Return values with null for numbers that JSON does not have: what was paid for is shown in any case."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def refuse(why: str, **options: Any) -> None:
    """Raise for the first option that was given where it makes no sense."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def executor_of(processes: int | None, address: str | None, **ray: Any) -> "Executor":
    """Return who works: this process, several, or a Ray."""
    from inosgm.jobs import ProcessExecutor, SerialExecutor

    if address is None:
        refuse("goes with --address", **ray)
        return SerialExecutor() if processes is None else ProcessExecutor(processes)
    refuse("does not go with --address, which has workers of its own", processes=processes)
    from inosgm.jobs.clusters import ray_executor

    return ray_executor(address=address, **ray)
