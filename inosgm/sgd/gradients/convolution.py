"""The gradients of a convolution's weight: one per record, from windows of the input."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inosgm.sgd.gradients.per_record import PerRecord, Rows, chunks, gram_squares, prefer_gram, volume


@dataclass(frozen=True, eq=False)
class Windows(PerRecord):
    """Gradients of the weight of a convolution: inputs (n, C, *size), slopes (n, p, *size of the output)."""

    inputs: Tensor
    slopes: Tensor
    weight: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, module: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor, slopes: Tensor) -> "Windows":
        """Read the numbers off a module, and pad where padding is not plain zeros on both sides."""
        padding: tuple[int, ...] = (0,) * (inputs.ndim - 2)
        if module.padding_mode != "zeros" or module.padding == "same":
            mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
            inputs = F.pad(inputs, module._reversed_padding_repeated_twice, mode=mode)
        elif not isinstance(module.padding, str):
            padding = tuple(module.padding)
        dtype = torch.promote_types(slopes.dtype, torch.float32)  # half precision is too coarse for sums
        inputs, slopes, weight = inputs.to(dtype), slopes.to(dtype), module.weight.detach().to(dtype)
        return cls(inputs, slopes, weight, module.stride, padding, module.dilation, module.groups)

    def squares(self) -> Tensor:
        """Return squares by Gram matrices over the positions of the output."""
        n, groups = self.slopes.shape[0], self.groups
        result = self.slopes.new_empty(n, dtype=torch.float64)
        scratch = groups * self._positions * (self._width + 2 * self._positions) * 4
        for part, windows, slopes in self._parts(scratch):
            result[part] = gram_squares(windows, slopes).view(-1, groups).sum(1)
        return result

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the ordinary gradient of a convolution for weighted slopes."""
        slopes = self.slopes * weights.to(self.slopes.dtype).view(-1, *[1] * (self.slopes.ndim - 1))
        none = [0] * len(self.stride)
        settings = self.stride, self.padding, self.dilation, False, none, self.groups, [False, True, False]
        gradient: Tensor = torch.ops.aten.convolution_backward(slopes, self.inputs, self.weight, None, *settings)[1]
        return gradient

    def rows(self) -> Tensor:
        """Multiply windows and slopes of each record."""
        n, (height, depth, *kernel) = self.slopes.shape[0], self.weight.shape
        rows = self.slopes.new_empty(n * self.groups, height // self.groups, self._width)
        for part, windows, slopes in self._parts(self.groups * self._positions * self._width * 4):
            out = rows[part.start * self.groups : part.start * self.groups + windows.shape[0]]
            torch.bmm(slopes.transpose(1, 2), windows, out=out)
        return rows.view(n, height, *kernel, depth).movedim(-1, 2)

    def take(self, kept: Tensor) -> "Windows":
        """Pick records."""
        return replace(self, inputs=self.inputs[kept], slopes=self.slopes[kept])

    def cheapest(self) -> PerRecord:
        """Make rows unless Gram matrices are smaller work."""
        if prefer_gram(self._positions, self._width, self.weight.shape[0] // self.groups):
            return self
        return Rows(self.rows())

    @property
    def _positions(self) -> int:
        return volume(self.slopes.shape[2:])

    @property
    def _width(self) -> int:
        return volume(self.weight.shape[1:])

    def _parts(self, scratch: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield windows (records * groups, T, width) and slopes (records * groups, T, height) of a few records."""
        sides = [side for padding in reversed(self.padding) for side in (padding, padding)]
        kernel, size = self.weight.shape[2:], self.slopes.shape[2:]
        for part in chunks(self.slopes.shape[0], scratch):
            inputs = F.pad(self.inputs[part].movedim(1, -1), [0, 0, *sides]).contiguous()
            n, groups, depth = inputs.shape[0], self.groups, self.weight.shape[1]
            steps = inputs.stride()[1:-1]
            windows = inputs.as_strided(
                (n, groups, *size, *kernel, depth),
                (
                    inputs.stride(0),
                    depth,
                    *(step * by for step, by in zip(steps, self.stride, strict=True)),
                    *(step * by for step, by in zip(steps, self.dilation, strict=True)),
                    1,
                ),
            ).reshape(n * groups, volume(size), volume(kernel) * depth)
            slopes = self.slopes[part].reshape(n * groups, -1, volume(size)).transpose(1, 2)
            yield part, windows, slopes
