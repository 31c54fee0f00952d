"""Refusal of the usual ways to train one model on several workers, which are wrong for a private sum."""

import sys
from collections.abc import Iterator

import torch.distributed
from torch import nn

WRAPPERS = (
    ("torch.nn.parallel", "DistributedDataParallel"),
    ("torch.distributed.fsdp", "FullyShardedDataParallel"),
    ("torch.distributed.fsdp", "FSDPModule"),
)
"""Classes of modules that average or shard gradients across ranks, by module and name."""


def ranks() -> int:
    """Return the number of ranks of the process group of torch.distributed; 1 if there is none."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return 1


def refuse_wrapped(model: nn.Module) -> None:
    """Raise for a model that averages or shards its gradients across ranks.

    DistributedDataParallel averages the gradients of ranks in the backward pass, before records are clipped, and FSDP
    leaves each rank with a part of each record's gradient, whose norm is not the record's.

    Raises:
        TypeError: for a model that is wrapped, or has a wrapped module.
    """
    kinds = tuple(_wrappers())
    for name, module in model.named_modules():
        if isinstance(module, kinds):
            kind = next(kind for kind in kinds if isinstance(module, kind)).__name__
            raise TypeError(
                f"model must not be wrapped for several ranks, and {name or 'it'} is a {kind}, which mixes gradients "
                "of records across ranks before they are clipped: give the module that was wrapped"
            )


def refuse_lone_ranks() -> None:
    """Raise in a process group of several ranks, each of which would train a model of its own.

    Raises:
        RuntimeError: if a process group with more than one rank is initialised.
    """
    number = ranks()
    if number > 1:
        raise RuntimeError(
            f"torch.distributed has a process group of {number} ranks, and a trainer in each would train a model "
            "of its own and pay for it: give workers=Workers() on every rank to train one model together"
        )


def _wrappers() -> Iterator[type]:
    """Return the classes that wrap models; a module that nobody has imported has wrapped nothing."""
    for module, name in WRAPPERS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind
