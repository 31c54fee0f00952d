"""Options that all commands on a Ray have in common."""

import os
from typing import Annotated, Any

import typer

from ray_jobs.executor import RayExecutor

IN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable by which a process can tell that `ray job submit` has started it."""

StoreUri = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Where jobs are kept: a path that all nodes see, or a URI such as s3://bucket/runs; else runs/NAME-...",
    ),
]
Address = Annotated[
    str | None, typer.Option(help="Where Ray is; else RAY_ADDRESS, one that runs here, or one that is started: local.")
]


def ray_executor(**options: Any) -> RayExecutor:
    """Return who works, given those options that were given."""
    return RayExecutor(**{name: value for name, value in options.items() if value is not None})


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
