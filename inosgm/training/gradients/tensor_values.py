"""The values of tensors at one moment, to compare with and to restore."""

import ctypes
import os
from collections.abc import Sequence
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor

_version = attrgetter("_version")

# bits are compared as integers: NaN equals itself, and 0 differs from -0
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# memcmp is many times faster than torch.equal, and runs around every pass of a training step
_compare_memory = (ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)).memcmp
_compare_memory.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


class TensorValues:
    """Copies of tensors, in memory that is allocated once.

    A tensor has changed if its values differ in any bit, however they were written, or if torch has counted a write.
    Other memory with the same values is no change. For tensors without memory of their own, such as sparse ones,
    torch's count of writes alone decides.

    Args:
        tensors: Different tensors.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self._counted = [tensor for tensor in tensors if not tensor.is_inference()]
        self._readable = [tensor for tensor in tensors if readable(tensor)]
        self._opaque = [tensor for tensor in self._counted if not readable(tensor)]
        self._clones: list[Tensor] = []
        self._locate()

    def of(self, tensors: Sequence[Tensor]) -> bool:
        """Return whether these are the tensors."""
        return len(tensors) == len(self.tensors) and all(map(is_, tensors, self.tensors))

    def take(self) -> None:
        """Copy the values."""
        if list(map(Tensor.data_ptr, self._readable)) != self._addresses:
            self._locate()
        if self._copies:
            torch._foreach_copy_(self._copies, self._views)
        if self._opaque and not (self._clones and self.unwritten()):
            self._clones = [tensor.detach().clone() for tensor in self._opaque]
        self._versions = list(map(_version, self._counted))

    def unwritten(self) -> bool:
        """Return whether torch has counted no write: a quick check that misses writes through `.data`."""
        return list(map(_version, self._counted)) == self._versions

    def changed(self) -> Tensor | None:
        """Return the first tensor that has changed, if there is one."""
        if self.unwritten() and list(map(_form, self._readable)) == self._forms and self._same_memory():
            return None
        versions = dict(zip(map(id, self._counted), self._versions, strict=True))
        forms = dict(zip(map(id, self._readable), zip(self._forms, self._copies, strict=True), strict=True))
        for tensor in self.tensors:
            form, copy = forms.get(id(tensor), ((), None))
            moved = copy is not None and _form(tensor) != form
            counted = versions.get(id(tensor), 0) != (0 if tensor.is_inference() else tensor._version)
            if (counted and not moved) or (copy is not None and not same_bits(_unexpanded(tensor.data), copy)):
                return tensor
        return None

    def restore(self) -> None:
        """Give the tensors back their original memory and values."""
        columns = self._readable, self._data, self._views, self._forms, self._copies
        for tensor, memory, view, form, copy in zip(*columns, strict=True):
            if _form(tensor) != form:
                tensor.data = memory
            if not same_bits(view, copy):
                view.copy_(copy)  # torch does not count writes through the view
        versions = dict(zip(map(id, self._counted), self._versions, strict=True))
        for tensor, clone in zip(self._opaque, self._clones, strict=True):
            if tensor._version != versions[id(tensor)]:
                tensor.data = clone

    def _locate(self) -> None:
        """Record where the tensors are, and allocate memory for their values."""
        self._views = [_unexpanded(tensor.data) for tensor in self._readable]
        self._data = [tensor.data for tensor in self._readable]
        self._copies = [torch.empty_like(view) for view in self._views]
        self._forms, self._addresses = list(map(_form, self._readable)), list(map(Tensor.data_ptr, self._readable))
        self._versions = list(map(_version, self._counted))
        pairs = list(zip(self._views, self._copies, strict=True))
        near = [one.device.type == "cpu" and one.stride() == other.stride() for one, other in pairs]
        self._spans = [
            (one.data_ptr(), other.data_ptr(), one.numel() * one.element_size())
            for (one, other), is_near in zip(pairs, near, strict=True)
            if is_near
        ]
        self._elsewhere = [pair for pair, is_near in zip(pairs, near, strict=True) if not is_near]

    def _same_memory(self) -> bool:
        if any(_compare_memory(*span) for span in self._spans):
            return False
        if not self._elsewhere:
            return True
        differences = [torch.ne(_bits(one), _bits(other)).any() for one, other in self._elsewhere]
        # stacked, so that a GPU is waited for once
        return not bool(torch.stack([each.to(differences[0].device) for each in differences]).any())


def readable(tensor: Tensor) -> bool:
    """Return whether a tensor has memory of its own that can be compared."""
    try:
        has_memory = bool(tensor.data_ptr()) or not tensor.numel()
        return tensor.layout is torch.strided and not tensor.is_quantized and has_memory
    except RuntimeError:  # a wrapper around other tensors
        return False


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether tensors are equal bit by bit: NaN equals itself, and 0 does not equal -0."""
    return one.dtype == other.dtype and torch.equal(_bits(one), _bits(other))


def _unexpanded(values: Tensor) -> Tensor:
    """Return values without repetitions in the same memory, which `expand` makes."""
    if 0 not in values.stride():
        return values
    return values[tuple(slice(None if stride else 1) for stride in values.stride())]


def _bits(values: Tensor) -> Tensor:
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return values.view(_WHOLE[values.element_size()])


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
