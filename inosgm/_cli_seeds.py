"""What `train --seeds` does, for every command that trains many runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from inosgm.config import TrainingConfig
    from inosgm.jobs import Executor

SeedsOption = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Train so many runs, whose seeds follow from the file's.")
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Where runs are kept, a path or a URI such as s3://...; else runs/NAME-seeds."),
]
ProcessesOption = Annotated[int | None, typer.Option("--processes", min=1, help="Train in so many processes.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Train on Ray: auto, local, or the address of a cluster.")
]
CpusOption = Annotated[float | None, typer.Option("--num-cpus", min=0, help="CPUs, and threads, of a trainer on Ray.")]
GpusOption = Annotated[float | None, typer.Option("--num-gpus", min=0, help="GPUs of a trainer on Ray.")]
ConcurrentOption = Annotated[
    int | None, typer.Option("--max-concurrent", min=1, help="At most so many trainers on Ray at once.")
]
AttemptsOption = Annotated[
    int | None, typer.Option("--attempts", min=1, help="Give a run up after so many failures; else 5.")
]


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
    from ray_jobs import RayExecutor

    return RayExecutor(address=address, **{name: value for name, value in ray.items() if value is not None})


def train_seeds(
    config: "TrainingConfig", seeds: int, store: str, executor: "Executor", *, attempts: int, quiet: bool
) -> None:
    """Train many runs, say what they came to, and end with 130 if interrupted, with 1 if one has failed."""
    from inosgm import runs

    study = runs.Study(config, seeds, store=store)
    if not quiet:
        left = study.left()
        typer.echo(study.report() if left else f"all {seeds} runs are done: nothing more is charged")
    with interruptible(seeds, store):
        found = study.run(executor, attempts=attempts, progress=not quiet)
    if found.outcome.done:
        typer.echo(found.write().table())
        typer.echo(f"written to {store}: results.parquet, summary.parquet, summary.svg")
    end([f"run {study.index(job)}, job {job}: {line}" for job, line in found.outcome.failed.items()], store)


@contextmanager
def interruptible(runs: int, store: str) -> Iterator[None]:
    """End with 130 if what is done here is interrupted."""
    from inosgm.jobs import Interrupted

    try:
        yield
    except Interrupted as stop:
        left = f"{len(stop.outcome.left)} of {runs} runs are left in {store}"
        typer.echo(f"interrupted: {left}; the same command goes on with them", err=True)
        raise typer.Exit(130) from None


def end(failed: Sequence[str], store: str) -> None:
    """Say which runs have failed, and end with 1 if any has."""
    for line in failed:
        typer.echo(f"failed: {line}", err=True)
    if failed:
        typer.echo(f"why, in full: inosgm jobs status {store} --tracebacks", err=True)
        raise typer.Exit(1)
