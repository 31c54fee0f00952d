"""Options that all commands on a Ray have in common."""

import os
from typing import Annotated

import typer

from ray_jobs.executor import RayExecutor

IN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable by which a process can tell that `ray job submit` has started it."""

StoreUri = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where runs are kept: a path that all nodes see, or a URI such as s3://bucket/runs; else runs/NAME-...",
    ),
]
Address = Annotated[
    str | None, typer.Option(help="Where Ray is; else RAY_ADDRESS, one that runs here, or one that is started: local.")
]
Cpus = Annotated[float, typer.Option(min=0, help="CPUs, and threads, of a trainer.")]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs of a trainer.")]
Concurrent = Annotated[int | None, typer.Option(min=1, help="At most so many trainers at once.")]
Attempts = Annotated[int, typer.Option(min=1, help="Give a run up after so many failures.")]


def ray_executor(address: str | None, num_cpus: float, num_gpus: float, max_concurrent: int | None) -> RayExecutor:
    """Return who works."""
    return RayExecutor(address=address, num_cpus=num_cpus, num_gpus=num_gpus, max_concurrent=max_concurrent)


def kept(store: str | None, name: str) -> str:
    """Return the place of a store, `runs/NAME` if none is given, unless it would be lost with a submitted job.

    Raises:
        ValueError: for a relative path in a job that `ray job submit` has started.
    """
    store = store or os.path.join("runs", name)
    if IN_JOB in os.environ and "://" not in store and not os.path.isabs(store):
        raise ValueError(
            f"--store must be a whole path or a URI in a submitted job, got {store}: the job's directory is deleted"
        )
    return store
