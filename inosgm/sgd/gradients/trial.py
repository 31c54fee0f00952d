"""Trying a model on made-up records without leaving a trace of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from inosgm.sgd.gradients.randomness import random_state, same_state


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Put a model into training mode; in the end its modes, its buffers and torch's generators are what they were."""
    buffers = [(module, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    values = [(buffer, buffer.clone()) for _, _, buffer in buffers if buffer is not None]
    cuda = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
    with torch.random.fork_rng(cuda), _modes(model):
        try:
            model.train()
            yield
        finally:
            for module, name, buffer in buffers:
                module._buffers[name] = buffer
            for buffer, value in values:
                buffer.detach().copy_(value)


@contextmanager
def quieted(model: nn.Module, run: Callable[[], Any]) -> Iterator[bool]:
    """Silence the randomness of a model as gently as will do, and say whether it worked.

    Nothing is changed where `run` draws no random numbers; otherwise dropout layers are put into evaluation mode; and
    if that is not enough, because dropout happens inside of other layers, the whole model.
    """
    dropouts = [module for module in model.modules() if isinstance(module, _DropoutNd)]
    with _modes(model):
        for silence in (list[nn.Module](), dropouts, list(model.modules())):
            for module in silence:
                module.training = False
            if not draws(model, run):
                yield True
                return
        yield False


@contextmanager
def in_double(model: nn.Module) -> Iterator[None]:
    """Have parameters and buffers in float64 for a while, and then the very tensors that they were."""
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    values = [tensor.data for tensor in tensors]
    try:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value.double()
        yield
    finally:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value


def draws(model: nn.Module, run: Callable[[], Any]) -> bool:
    """Say whether a run draws from torch's generators."""
    device = next(model.parameters()).device
    before = random_state(device)
    run()
    return not same_state(before, random_state(device))


@contextmanager
def _modes(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
