"""One run on the workers of a Ray cluster, by Ray Train."""

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import ray.train
from ray.train.torch import TorchConfig, TorchTrainer

from inosgm._internal.imports import add_cwd_to_path
from inosgm.experiments import directory
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.training import configuration_in
from inosgm.experiments.worker_processes import train_in_group
from inosgm.training.run import Run, RunFiles
from ray_jobs.capacity import Request
from ray_jobs.connection import connect
from ray_jobs.nodes import living

STATE = "ray_train"
"""The folder of a run directory in which Ray Train keeps its own state while it trains; no record, no key."""


def train_on_ray(
    config: TrainingConfig,
    workers: int,
    *,
    address: str | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    attempts: int = 5,
    steps: int | None = None,
    note: str = "",
) -> None:
    """Train one run on up to so many workers of a Ray cluster, until all its steps are made.

    Ray Train starts as many workers as the cluster has room for, at least one. If a worker or its node dies, the group
    begins again at the last checkpoint of the run directory, with as many workers as there are then. Batches are cut
    into as many shards as `workers` in any case, so the steps have the same bits and are charged once.

    Args:
        config: The run; its directory must be one that all nodes see, and so must the files that it names.
        workers: The largest number of workers; a run that has begun keeps its number of shards.
        address: As for `RayExecutor`, like the next two.
        num_cpus: CPUs and threads of a worker; 1 if not given.
        num_gpus: GPUs of a worker; none if not given. With GPUs sums go through nccl, without through gloo.
        attempts: How often the group may begin before it fails permanently.
        steps: How many steps to make now; all that are left if not given.
        note: What the ledger says about it.

    Raises:
        ValueError: for a run without a directory, with a key, or with workers that no node can hold.
        ConnectionError: if there is no Ray at the address.
    """
    if config.run is None:
        raise ValueError("run: must be a directory that all nodes see")
    if config.key is not None:
        raise ValueError("key: would pass through Ray, where others may read it: leave it out, the run makes its own")
    request = Request(num_cpus=1 if num_cpus is None else num_cpus, num_gpus=num_gpus or 0)
    folder = Path(config.run).absolute()
    with Run(folder):
        directory.require_same(config)
        directory.remember(config)
    target = None if steps is None else _steps_done(folder) + steps
    number: Any = (1, workers) if workers > 1 else 1  # the types of Ray do not know that Ray takes both
    leave = connect(address)
    try:
        request.check(living())
        TorchTrainer(
            _train_here,
            train_loop_config={
                "run": str(folder),  # workers read the configuration there: it names owners
                "directory": os.getcwd(),
                "shards": workers,
                "threads": request.threads,
                "target": target,
                "note": note,
            },
            torch_config=TorchConfig(backend="nccl" if request.num_gpus else "gloo"),
            scaling_config=ray.train.ScalingConfig(
                num_workers=number,
                use_gpu=bool(request.num_gpus),
                resources_per_worker=request.amounts,
            ),
            run_config=ray.train.RunConfig(
                name=uuid.uuid4().hex,
                storage_path=str(folder / STATE),
                failure_config=ray.train.FailureConfig(max_failures=attempts - 1),
            ),
        ).fit()
    finally:
        leave()
    shutil.rmtree(folder / STATE, ignore_errors=True)


def _train_here(given: dict[str, Any]) -> None:
    """Train as one worker of the group, from the last checkpoint of the run directory."""
    os.chdir(given["directory"])  # where the command was started, whose modules a configuration may name
    add_cwd_to_path()
    config = configuration_in(given["run"])
    left = None if given["target"] is None else max(0, given["target"] - _steps_done(Path(given["run"])))
    train_in_group(config, given["shards"], threads=given["threads"], steps=left, note=given["note"])


def _steps_done(folder: Path) -> int:
    """Return the number of steps at the latest checkpoint of a run directory."""
    latest = RunFiles(folder).latest()
    return 0 if latest is None else latest.step
