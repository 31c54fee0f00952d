"""The gradients of a convolution's weight: one per record, from windows of the input."""

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inosgm.training.gradients.per_record import PerRecord, chunks, gram_squares, prefer_gram
from inosgm.training.gradients.precision import convolution_unit, product_unit


@dataclass(frozen=True, eq=False)
class Windows(PerRecord):
    """Gradients of the weight of a convolution: inputs (n, C, *size), output_grads (n, p, *size of the output)."""

    inputs: Tensor
    output_grads: Tensor
    weight: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, module: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor, output_grads: Tensor) -> "Windows":
        """Return the gradients for a module; inputs are padded here if padding is not the same zeros on both sides."""
        padding: tuple[int, ...] = (0,) * (inputs.ndim - 2)
        if module.padding_mode != "zeros" or module.padding == "same":
            mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
            inputs = F.pad(inputs, module._reversed_padding_repeated_twice, mode=mode)
        elif not isinstance(module.padding, str):
            padding = tuple(module.padding)
        dtype = torch.promote_types(output_grads.dtype, torch.float32)  # half precision is too coarse for sums
        inputs, output_grads, weight = inputs.to(dtype), output_grads.to(dtype), module.weight.detach().to(dtype)
        return cls(inputs, output_grads, weight, module.stride, padding, module.dilation, module.groups)

    def factors(self) -> tuple[Tensor, ...]:
        """Return norms from Gram matrices over the positions of the output."""
        squares = self.output_grads.new_empty(self.output_grads.shape[0], dtype=torch.float64)
        scratch = self.groups * self._positions * (self._width + 2 * self._positions) * 4
        units = product_unit(self.output_grads), convolution_unit(self.output_grads)
        for part, windows, output_grads in self._parts(scratch):
            squares[part] = gram_squares(windows, output_grads, *units).view(-1, self.groups).sum(1)
        return (squares.sqrt_()[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the ordinary gradient of a convolution for weighted output_grads."""
        output_grads = self.output_grads * weights.to(self.output_grads.dtype).view(
            -1, *[1] * (self.output_grads.ndim - 1)
        )
        none = [0] * len(self.stride)
        settings = self.stride, self.padding, self.dilation, False, none, self.groups, [False, True, False]
        gradient: Tensor = torch.ops.aten.convolution_backward(output_grads, self.inputs, self.weight, None, *settings)[
            1
        ]
        return gradient

    def rows(self) -> Tensor:
        """Return the product of windows and output gradients of each record."""
        n, (height, depth, *kernel) = self.output_grads.shape[0], self.weight.shape
        rows = self.output_grads.new_empty(n * self.groups, height // self.groups, self._width)
        for part, windows, output_grads in self._parts(self.groups * self._positions * self._width * 4):
            out = rows[part.start * self.groups : part.start * self.groups + windows.shape[0]]
            torch.bmm(output_grads.transpose(1, 2), windows, out=out)
        return rows.view(n, height, *kernel, depth).movedim(-1, 2)

    def take(self, kept: Tensor) -> "Windows":
        """Return the gradients of some records."""
        return replace(self, inputs=self.inputs[kept], output_grads=self.output_grads[kept])

    def prefers_gram(self, members: int = 1) -> bool:
        """Say whether Gram matrices take fewer operations than rows."""
        return prefer_gram(members * self._positions, self._width, self.weight.shape[0] // self.groups)

    @property
    def _positions(self) -> int:
        return math.prod(self.output_grads.shape[2:])

    @property
    def _width(self) -> int:
        return math.prod(self.weight.shape[1:])

    def _parts(self, scratch: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield windows (records * groups, T, width) and output_grads (records * groups, T, height) of a few records.

        The windows of one turn overwrite those of the turn before.
        """
        n, groups, depth, positions = self.output_grads.shape[0], self.groups, self.weight.shape[1], self._positions
        kernel, size = self.weight.shape[2:], self.output_grads.shape[2:]
        inputs, padded = self.inputs.movedim(1, -1), None
        windows = inputs.new_empty(0)
        for part in chunks(n, scratch):
            given = inputs[part]
            records = given.shape[0]
            if any(self.padding):
                if padded is None:
                    sides = (side + 2 * by for side, by in zip(given.shape[1:-1], self.padding, strict=True))
                    padded = given.new_zeros(records, *sides, given.shape[-1])
                inner = tuple(slice(by, by + side) for side, by in zip(given.shape[1:-1], self.padding, strict=True))
                padded[(slice(records), *inner)] = given
                given = padded[:records]
            else:
                given = given.contiguous()
            first, *steps, _ = given.stride()
            strides = [first, depth, *map(operator.mul, steps, self.stride), *map(operator.mul, steps, self.dilation)]
            view = given.as_strided((records, groups, *size, *kernel, depth), (*strides, 1))
            if not windows.numel():
                windows = torch.empty_like(view, memory_format=torch.contiguous_format)
            windows[:records] = view
            output_grads = self.output_grads[part].reshape(records * groups, -1, positions).transpose(1, 2)
            yield part, windows[:records].view(records * groups, positions, self._width), output_grads


@dataclass(frozen=True, eq=False)
class WindowsOfUnits(PerRecord):
    """Gradients of the weight of a convolution for units, whose positions are those of all their records.

    Args:
        windows: The gradients of the records, unit by unit; a unit with fewer records than others has zeros.
        members: The number of records of each unit, those without values included.
    """

    windows: Windows
    members: int

    def factors(self) -> tuple[Tensor, ...]:
        """Return norms from Gram matrices over the positions of all records of a unit."""
        grads, groups = self.windows.output_grads, self.windows.groups
        squares = grads.new_empty(self._count, dtype=torch.float64)
        scratch = groups * self._positions * (self.windows._width + 2 * self._positions) * 4
        exactness = product_unit(grads), convolution_unit(grads)
        for part, windows, output_grads in self._parts(scratch):
            squares[part] = gram_squares(windows, output_grads, *exactness).view(-1, groups).sum(1)
        return (squares.sqrt_()[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the ordinary gradient of a convolution, in which the records of a unit have its weight."""
        return self.windows.weighted_sum(weights.repeat_interleave(self.members))

    def rows(self) -> Tensor:
        """Return the product of windows and output gradients of each unit."""
        (height, depth, *kernel), groups, width = self.windows.weight.shape, self.windows.groups, self.windows._width
        rows = self.windows.output_grads.new_empty(self._count * groups, height // groups, width)
        for part, windows, output_grads in self._parts(groups * self._positions * width * 4):
            out = rows[part.start * groups : part.start * groups + windows.shape[0]]
            torch.bmm(output_grads.transpose(1, 2), windows, out=out)
        return rows.view(self._count, height, *kernel, depth).movedim(-1, 2)

    def take(self, kept: Tensor) -> "WindowsOfUnits":
        """Return the gradients of some units."""
        members = torch.arange(self.members, device=kept.device)
        return replace(self, windows=self.windows.take((kept[:, None] * self.members + members).flatten()))

    @property
    def _count(self) -> int:
        return int(self.windows.output_grads.shape[0]) // self.members

    @property
    def _positions(self) -> int:
        return self.members * self.windows._positions

    def _parts(self, scratch: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield windows (units * groups, T, width) and output_grads (units * groups, T, height) of a few units."""
        for part in chunks(self._count, scratch):
            records = slice(part.start * self.members, part.stop * self.members)
            some = replace(
                self.windows, inputs=self.windows.inputs[records], output_grads=self.windows.output_grads[records]
            )
            ((_, windows, output_grads),) = some._parts(0)
            yield part, self._joined(windows), self._joined(output_grads)

    def _joined(self, values: Tensor) -> Tensor:
        """Return (records * groups, T, d) as (units * groups, members * T, d)."""
        groups, (_, positions, width) = self.windows.groups, values.shape
        apart = values.reshape(-1, self.members, groups, positions, width).transpose(1, 2)
        return apart.reshape(-1, self.members * positions, width)
