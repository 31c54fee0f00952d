"""One run on several processes of this machine, which compute the shards of each batch."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from inosgm._internal.scratch import scratch_directory
from inosgm.experiments.building import build
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.training import train
from inosgm.training.group_gradients import LeaderFailed
from inosgm.training.workers import Workers


@contextmanager
def worker_processes(config: TrainingConfig, number: int, *, steps: int | None = None) -> Iterator[Workers]:
    """Start processes that train a run together with this one, which leads; each computes with one thread.

    Args:
        config: The run.
        number: How many processes, this one included.
        steps: How many steps this one is going to make; all that are left if not given.

    Returns:
        The group, for `build`. What is built of it must be trained before the block ends.
    """
    context, threads = get_context("spawn"), torch.get_num_threads()
    keyless = config.model_copy(update={"key": None})  # one that follows needs no secret
    with scratch_directory("workers") as folder:
        meeting = f"file://{Path(folder, 'meeting')}"
        others: list[Any] = [
            context.Process(target=_follow, args=(keyless, rank, number, meeting, steps), daemon=True)
            for rank in range(1, number)
        ]
        try:
            for process in others:
                process.start()
            torch.set_num_threads(1)  # sums are repeated bit for bit only with one number of threads
            dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=number)
            yield Workers(shards=number)
        finally:
            torch.set_num_threads(threads)
            if dist.is_initialized():
                dist.destroy_process_group()
            for process in others:
                process.kill()  # one that follows keeps nothing
                process.join()


def train_in_group(
    config: TrainingConfig, shards: int, *, threads: int = 1, steps: int | None = None, note: str = ""
) -> None:
    """Train a run as one rank of the process group that this process is in.

    Args:
        config: The run, the same on every rank.
        shards: Into how many shards batches are cut, if the run has not begun.
        threads: With how many threads this process computes from now on.
        steps: How many steps to make, on rank 0; all that are left if not given.
        note: What the ledger says about it.
    """
    torch.set_num_threads(threads)
    train(build(config, note=note, workers=Workers(shards=shards)), steps=steps)


def _follow(config: TrainingConfig, rank: int, number: int, meeting: str, steps: int | None) -> None:
    """Train as a rank that follows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, and the leader decides
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=number)
    with suppress(LeaderFailed):  # which prints its own error
        train_in_group(config, number, steps=steps)
