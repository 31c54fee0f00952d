"""Options that commands share: the same name, the same meaning and the same words in every help text."""

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from inosgm.jobs import Executor

ANY_RAY = ""
"""The --address of the entry points of `ray_jobs`: the Ray of RAY_ADDRESS, one that runs here, or a new one."""

IN_SUBMITTED_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable that `ray job submit` sets for the process that it starts."""

ATTEMPTS = 5
"""How often a job may fail before it fails permanently: a lost worker is common, the same error five times is a bug."""


def complete_keys(incomplete: str) -> list[str]:
    """Return what a shell proposes for a key of a configuration: the paths that begin like a word.

    >>> complete_keys("plan.step"), complete_keys("optimizer.l")
    (['plan.steps='], ['optimizer.lr='])
    """
    from inosgm.experiments.config import TrainingConfig
    from inosgm.experiments.config.problems import paths

    return [f"{path}=" for path in paths(TrainingConfig) if f"{path}=".startswith(incomplete)]


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
    typer.Option("--set", autocompletion=complete_keys, help="Set a key of the file: plan.steps=100. Repeatable."),
]
DeltaOption = Annotated[
    float | None, typer.Option("--delta", help="One delta for all owners, instead of a column of the CSV.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the result: no costs before, no progress.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and everything else on stderr.")]

SeedsOption = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Train this many runs, whose seeds follow from the file's.")
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Where jobs are kept, a path or a URI such as s3://...; else runs/NAME-..."),
]
ProcessesOption = Annotated[int | None, typer.Option("--processes", min=1, help="Work in this many processes.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Work on Ray: auto, local, or the address of a cluster.")
]
CpusOption = Annotated[float | None, typer.Option("--num-cpus", min=0, help="CPUs, and threads, of a worker on Ray.")]
GpusOption = Annotated[float | None, typer.Option("--num-gpus", min=0, help="GPUs of a worker on Ray.")]
ConcurrentOption = Annotated[
    int | None, typer.Option("--max-concurrent", min=1, help="The largest number of workers on Ray at once.")
]
AttemptsOption = Annotated[
    int | None, typer.Option("--attempts", min=1, help="A job fails permanently after this many failures; else 5.")
]


WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Train one run on this many workers: processes here, or of Ray (--address)."),
]


class Measure(StrEnum):
    """The metric that points are compared by: the names of `sweep_results.Metric`, which help texts do not import."""

    balanced_accuracy = "balanced_accuracy"
    accuracy = "accuracy"
    worst_owner = "worst_owner"


MetricOption = Annotated[Measure, typer.Option("--metric", help="What points are compared by, on held-out records.")]


def assignments(option: str, texts: Sequence[str] | None, read: Callable[[str], Any]) -> dict[str, Any]:
    """Parse the values KEY=... of an option, each of them with `read`."""
    parsed: dict[str, Any] = {}
    for text in texts or []:
        path, sign, rest = text.partition("=")
        if not sign or not path:
            raise ValueError(f"{option} takes a key and values, such as optimizer.lr=..., got {text!r}")
        if path in parsed:
            raise ValueError(f"{option} {text}: {path} is there twice")
        try:
            parsed[path] = read(rest)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{option} {text}: {error}") from None
    return parsed


def refuse(why: str, **options: Any) -> None:
    """Raise for the first option that was given where it has no meaning."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def executor_of(processes: int | None, address: str | None, *, of_tables: bool = False, **ray: Any) -> "Executor":
    """Return the executor that options ask for: this process, several, or a Ray."""
    from inosgm.jobs import ProcessExecutor, SerialExecutor
    from inosgm.jobs.clusters import ray_executor

    if address is None:
        refuse("goes with --address", **ray)
        return SerialExecutor() if processes is None else ProcessExecutor(processes)
    refuse("does not go with --address, which has workers of its own", processes=processes)
    return ray_executor(of_tables=of_tables, address=address or None, **ray)


def store_of(store: str | None, name: str) -> str:
    """Return the place of a store, `runs/NAME` if none is given.

    Raises:
        ValueError: for a relative path in a job that `ray job submit` has started: Ray deletes the job's directory.
    """
    store = store or str(Path("runs", name))
    if IN_SUBMITTED_JOB in os.environ and "://" not in store and not os.path.isabs(store):
        raise ValueError(
            f"--store must be a whole path or a URI in a submitted job, got {store}: the job's directory is deleted"
        )
    return store
