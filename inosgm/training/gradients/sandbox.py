"""Running a model on synthetic records so that model and generators are restored afterwards."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import TorchDispatchMode

from inosgm.training.gradients.batches import rows, synthetic, varied_synthetic
from inosgm.training.gradients.compiled import is_compiled, uncompiled
from inosgm.training.gradients.randomness import random_state, same_state
from inosgm.training.gradients.snapshot import Snapshot

Result = TypeVar("Result")


@contextmanager
def sandbox(model: nn.Module, **others: Any) -> Iterator[None]:
    """Put a model into training mode, and restore it completely at the end, as well as torch's generators.

    Parameters and buffers are then the same objects in the same memory, with their values and version counters, and
    attributes of modules are what they were. The same holds for `others`, such as the loss.
    """
    snapshot = Snapshot(model=model, **others)
    cuda = sorted({tensor.device.index for tensor in model.parameters() if tensor.device.type == "cuda"})
    with torch.random.fork_rng(cuda), uncompiled(is_compiled(model)), ExitStack() as counts:
        snapshot.take()
        for tensor in snapshot.tensors:
            if not tensor.is_inference():  # which has no count
                counts.enter_context(_unsafe_preserve_version_counter(tensor))
        try:
            model.train()
            yield
        finally:
            snapshot.restore(everything=True)


@contextmanager
def without_randomness(model: nn.Module, run: Callable[[], Any]) -> Iterator[bool]:
    """Switch off the randomness of a model with the smallest change that is enough, and yield whether it worked.

    If `run` draws no random numbers, nothing changes. Otherwise dropout keeps everything; and if a model still draws,
    it is put into evaluation mode, in which it may compute something else.
    """
    with ExitStack() as stack:
        quiet = not draws(model, run)
        if not quiet:
            stack.enter_context(_NothingDropped())  # type: ignore[no-untyped-call]
            quiet = not draws(model, run)
        if not quiet:
            stack.enter_context(_modes(model))
            for module in model.modules():
                module.training = False
            quiet = not draws(model, run)
        yield quiet


class _NothingDropped(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes dropout keep everything, in layers, in functions, and inside of recurrent layers and attention.

    Dropout draws a mask of 0 and 1, and divides it by the share of 1.
    """

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op is torch.ops.aten.bernoulli_.float:
            return args[0].fill_(1)
        if op is torch.ops.aten.bernoulli.p:  # the form of dropout under vmap
            return torch.ones_like(args[0])
        if op is torch.ops.aten.native_dropout.default:
            return args[0] / (1 - args[1]), torch.ones_like(args[0], dtype=torch.bool)
        return op(*args, **(kwargs or {}))


@contextmanager
def perturbed(model: nn.Module) -> Iterator[None]:
    """Move the parameters away from 0 for a while, by the same noise each time: a factor 0 would hide an error."""
    generator = torch.Generator().manual_seed(0)

    def move(value: Tensor) -> Tensor:
        usual = max(1, math.prod(value.shape[1:])) ** -0.5
        # a tenth of the usual size of an initial weight, or of the weights: visible, and within the range of training
        size = 0.1 * max(usual, float(value.square().mean().sqrt()))
        noise = size * torch.randn(value.shape, generator=generator).to(value)
        # the sign stays, because some parameters must not be negative
        return value + torch.where(value == 0, noise, noise.copysign(value))

    with _altered([parameter for parameter in model.parameters() if parameter.is_floating_point()], move):
        yield


@contextmanager
def in_double(model: nn.Module) -> Iterator[None]:
    """Convert parameters and buffers to float64 for a while."""
    tensors = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()]
    with _altered(tensors, Tensor.double):
        yield


def varied_batches(model: nn.Module, run: Callable[..., Any], like: Any, records: int, batches: int) -> list[Any]:
    """Return synthetic batches with the most varied inputs that the model accepts, or none if it accepts nothing."""
    most = partial(varied_synthetic, codes=10)
    on_cpu = device_of(model).type == "cpu"  # on a GPU, an index out of range ends the process
    for kind in (most, varied_synthetic, synthetic) if on_cpu else (varied_synthetic, synthetic):
        generator = torch.Generator().manual_seed(1)
        made = [(kind(like[0], records, generator), synthetic(like[1], records, generator)) for _ in range(batches)]
        try:
            for batch in made:
                run(*batch)
        except Exception:  # values that the model refuses
            continue
        return made
    return []


def run_on_synthetic(run: Callable[[Any], Result], like: Any, records: int) -> Result:
    """Return the result of a run on synthetic records of the form of a batch.

    If the run raises, return its result on the first record of the batch, for models that reject synthetic records.
    Call it inside of a `sandbox`, which undoes writes.
    """
    try:
        return run(synthetic(like, records, torch.Generator().manual_seed(0)))
    except Exception:  # values that the model refuses
        return run(rows(like, slice(1)))


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model, by its first parameter or buffer; the CPU if it has neither."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def draws(model: nn.Module, run: Callable[[], Any]) -> bool:
    """Return whether a run draws from torch's generators."""
    device = device_of(model)
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


@contextmanager
def _altered(tensors: list[Tensor], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Give tensors other values for a while, and then the original memory."""
    values = [tensor.data for tensor in tensors]
    try:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = change(value)
        yield
    finally:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value
