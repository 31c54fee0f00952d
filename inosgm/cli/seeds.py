"""What `train --seeds` does, for every command that trains many runs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from inosgm.cli.options import Voice

if TYPE_CHECKING:
    from inosgm.experiments.config import TrainingConfig
    from inosgm.jobs import Executor


def train_seeds(
    config: "TrainingConfig", seeds: int, store: str, executor: "Executor", *, attempts: int, voice: Voice
) -> None:
    """Train many runs, say what they came to, and end with 130 if interrupted, with 1 if one has failed."""
    from inosgm import experiments as runs

    study = runs.SeedStudy(config, seeds, store=store)
    voice.tell(study.announcement())
    with interruptible(seeds, store):
        found = study.run(executor, attempts=attempts, progress=not voice.quiet)
    if found.outcome.done:
        summary = found.write()
        voice.result(summary.table, lambda: {"store": store, **summary.to_dict()})
        voice.tell(f"written to {store}: results.parquet, summary.parquet, summary.svg")
    end([f"run {study.store.spec(job).index}, job {job}: {line}" for job, line in found.outcome.failed.items()], store)


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
