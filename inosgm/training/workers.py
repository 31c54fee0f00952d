"""The ranks that train one model together: who leads, what they tell each other, and how sums are added up.

Rank 0 leads. It alone has the key, the coins, the ledger, the noise and the optimizer; it runs `INOSGM.release` as a
process alone does. The other ranks follow: they compute for the records that they are given, and answer. Everything
that is decided goes through `tell`, so a rank that waits always waits for the same thing.
"""

import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from inosgm._internal import validate as _validate
from inosgm._internal.once import Uncopied
from inosgm.training.process_groups import ranks, refuse_lone_ranks

PATIENCE = timedelta(days=7)
"""How long a rank waits for what the leader tells: an evaluation may take long, and a rank that died is noticed."""

BUCKET = 1 << 22
"""Coordinates that are reduced or broadcast at once: 32 MB of whole numbers, and few calls for many small layers."""


class Failure(Exception):
    """An answer of a rank that could not do what it was told; its own error says why."""


class Workers(Uncopied):
    """The ranks of a torch.distributed process group that train one model together, as one of them sees it.

    Every rank makes one, with the same arguments, after `torch.distributed.init_process_group` and before its trainer;
    in a process without a group it is a group of one. CPUs take the backend gloo, GPUs nccl.

    **Guarantee.** A batch is cut into a fixed number of shards, whatever the number of ranks. A shard is computed by
    one rank, and the sums of shards are added as whole numbers of a public unit. So a step is the same bit for bit on
    any number of ranks with the same kind of processor and number of threads: a killed run resumes on fewer or more of
    them, repeats the sums that it had released before it was killed, and no noise is ever added to two different sums.
    The ledger checks that: a sum that differs is refused before anything of it leaves rank 0.

    Args:
        shards: Into how many shards a batch is cut, the largest number of ranks that can work at once; the number of
            ranks if not given. A run keeps the number with which it was begun.

    Raises:
        RuntimeError: if the process group has no gloo beside its own backend.

    >>> workers = Workers()
    >>> workers.rank, workers.size, workers.leads
    (0, 1, True)
    """

    def __init__(self, shards: int | None = None) -> None:
        self.size = ranks()
        self.rank = dist.get_rank() if self.size > 1 else 0
        self.shards = self.size if shards is None else _validate.count("shards", shards, least=1)
        # its messages are small and on the CPU, whatever the backend of the sums is
        self._messages: Any = dist.new_group(backend="gloo", timeout=PATIENCE) if self.size > 1 else None
        self._listening = self._midway = False
        self.bytes_exchanged = 0
        """Bytes that this rank has handed to collectives, messages included."""

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which has the key, the ledger and the noise."""
        return self.rank == 0

    def require_listening(self) -> None:
        """Raise unless the other ranks wait for what this one tells them.

        Raises:
            RuntimeError: on a rank that does not lead, and outside of `fit`.
        """
        if self.size == 1:
            refuse_lone_ranks()  # a group may have been initialised since
        elif not self._listening:
            raise RuntimeError(
                f"rank {self.rank} of {self.size} cannot make a step by itself: call trainer.fit(..., steps=...) on "
                "every rank, which makes steps together"
            )

    def require_alone(self, what: str) -> None:
        """Raise in a group of several ranks, for something that one process does."""
        if self.size > 1:
            raise RuntimeError(f"{what} in one process: the other ranks of this group of {self.size} do not listen")

    @contextmanager
    def leading(self, last: Callable[[], Any]) -> Iterator[None]:
        """Let the other ranks, which `hear`, wait for what this one tells, until the block ends or fails.

        Args:
            last: Returns what they are told at the end.
        """
        if self.size == 1:
            yield
            return
        self._listening = True
        try:
            yield
        except BaseException:
            if not self._midway:  # else they wait for something else, and see this process end
                self.tell("failed")
            raise
        else:
            self.tell("end", lambda rank: last())
        finally:
            self._listening = False

    def tell(self, name: str, each: Callable[[int], Any] = lambda rank: None) -> None:
        """Tell every other rank what to do, and each what it needs for it."""
        if self.size > 1:
            self._scatter([(name, each(rank) if rank else None) for rank in range(self.size)])

    def hear(self) -> tuple[str, Any]:
        """Return what the leader tells this rank."""
        name, content = self._scatter(None)
        return name, content

    def collect(self, answer: Any) -> list[Any]:
        """Give the leader an answer, an exception if there is none; return to the leader those of all ranks.

        Raises:
            RuntimeError: on the leader, naming the ranks that failed; its own exception if it failed itself.
        """
        if self.size == 1:
            answers = [answer]
        else:
            told = Failure(type(answer).__name__) if isinstance(answer, BaseException) and self.rank else answer
            self.bytes_exchanged += len(pickle.dumps(told)) if self.rank else 0
            answers = [None] * self.size
            dist.gather_object(told, answers if self.leads else None, 0, group=self._messages)
            self._midway = False
        if self.leads:
            if isinstance(answers[0], BaseException):
                raise answers[0]
            failed = {rank: str(told) for rank, told in enumerate(answers) if isinstance(told, Failure)}
            if failed:
                raise RuntimeError(f"workers failed, and their own errors say why: {_listed(failed)}")
        return answers

    def reduce(self, wholes: Sequence[Tensor]) -> list[Tensor]:
        """Add whole numbers (int64) of all ranks; the sums reach the leader alone.

        Whole numbers have one sum, in whatever order a backend adds them.
        """
        if self.size == 1:
            return list(wholes)
        return self._in_buckets(wholes, lambda flat: dist.reduce(flat, 0))

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Write the leader's values into the tensors of every rank."""
        if self.size > 1:
            with torch.no_grad():
                found = self._in_buckets(tensors, lambda flat: dist.broadcast(flat, 0))
                if not self.leads:
                    for tensor, value in zip(tensors, found, strict=True):
                        tensor.copy_(value)

    def shards_of(self, rank: int, shards: int) -> range:
        """Return the shards of a rank, of so many: neighbouring ones, so that ranks have them in their order."""
        return range(rank * shards // self.size, (rank + 1) * shards // self.size)

    def _in_buckets(self, tensors: Sequence[Tensor], exchange: Callable[[Tensor], Any]) -> list[Tensor]:
        """Exchange tensors, neighbouring ones of one type and device together."""
        found: list[Tensor] = []
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in bucket])
            self.bytes_exchanged += flat.numel() * flat.element_size()
            exchange(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in bucket])
            found += [part.reshape(tensor.shape) for part, tensor in zip(parts, bucket, strict=True)]
        return found

    def _scatter(self, messages: list[Any] | None) -> Any:
        mine: list[Any] = [None]
        if messages is not None:
            self.bytes_exchanged += sum(len(pickle.dumps(message)) for message in messages[1:])
        dist.scatter_object_list(mine, messages, 0, group=self._messages)
        return mine[0]

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Mark on the leader that the others compute, and wait for a collective and not for what is told next."""
        self._midway = True
        yield
        self._midway = False


def cut(positions: np.ndarray, shards: int) -> list[np.ndarray]:
    """Cut a batch into so many shards of neighbouring records, whose sizes differ by one at most."""
    return np.array_split(positions, shards)


def fresh_key() -> int:
    """Return a secret from the operating system."""
    return secrets.randbits(128)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        last = bucket[-1] if bucket else tensor
        full = sum(some.numel() for some in bucket) + tensor.numel() > BUCKET
        if bucket and (full or (last.dtype, last.device) != (tensor.dtype, tensor.device)):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _listed(failed: dict[int, str]) -> str:
    return ", ".join(f"rank {rank} ({kind})" for rank, kind in failed.items())
