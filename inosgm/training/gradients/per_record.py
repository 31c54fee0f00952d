"""The gradients of one parameter, one per record, in the form that is cheapest to keep: rows, or factors of them.

Throughout, `inputs` are the inputs of a layer and `output_grads` the derivatives of the loss by its output. A layer
that works on T positions of a record (pixels, words, steps of time) has inputs (n, T, d) and output_grads (n, T, p).
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from inosgm.training.gradients.precision import WIDE, product_unit, require_wide

CHUNK = 2**20
"""Bytes of scratch memory that a rule uses at a time: 1 MiB fits the cache of a processor core."""

TOUCH = 16
"""Multiplications that take as long as writing a number of an array and reading it twice: measured on CPUs."""

TINY = torch.finfo(torch.float32).tiny
"""The value that a square counts as when it underflows, so that norms are never below the true ones."""

BLOCK = 2**11
"""Largest number of squares that are added up in float32: longer rows lose digits, so they go by blocks."""


class PerRecord(ABC):
    """The gradients of one parameter, one per record."""

    @abstractmethod
    def factors(self) -> tuple[Tensor, ...]:
        """Return matrices with one row per record; the product of the lengths of its rows is the norm of a record.

        The product is below the true norm by the rounding error of one sum at most.
        """

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of weights_k g_k."""

    @abstractmethod
    def rows(self) -> Tensor:
        """Return all gradients as one tensor whose first axis is the record."""

    @abstractmethod
    def take(self, kept: Tensor) -> "PerRecord":
        """Return the gradients of some records."""

    def prefers_gram(self, members: int = 1) -> bool:
        """Say whether units of so many records keep this form rather than rows; a form without a choice says so."""
        return True

    def cheapest(self) -> "PerRecord":
        """Return the form that gives norms and a weighted sum in the fewest operations."""
        return self if self.prefers_gram() else Rows(self.rows())


@dataclass(frozen=True, eq=False)
class Rows(PerRecord):
    """Gradients in one tensor (n, ...), in float32 or float64."""

    values: Tensor

    def __post_init__(self) -> None:
        require_wide(self.values)

    def factors(self) -> tuple[Tensor, ...]:
        """Return short rows as they are, and the lengths of long ones while they are still in the processor's cache."""
        return (self.values if self.values.ndim == 2 else _lengths(_flat(self.values))[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return weights times rows, multiplied in the order in which rows lie in memory."""
        total = like(self.values, weights) @ _flat(self.values)
        if self.values.ndim == 2:
            return total
        order = _memory_order(self.values)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        return total.view([self.values.shape[axis + 1] for axis in order]).permute(inverse)

    def rows(self) -> Tensor:
        """Return the tensor."""
        return self.values

    def take(self, kept: Tensor) -> "Rows":
        """Return the rows of some records."""
        return Rows(self.values[kept])


@dataclass(frozen=True, eq=False)
class Single(PerRecord):
    """Gradients of a matrix used at one position, output_grads inputs^T: inputs (n, d), output_grads (n, p)."""

    inputs: Tensor
    output_grads: Tensor

    def factors(self) -> tuple[Tensor, ...]:
        """Return inputs and output_grads: the norm is |inputs| |output_grads|."""
        return wide(self.inputs), wide(self.output_grads)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return one product of matrices."""
        output_grads = wide(self.output_grads)
        return (output_grads * like(output_grads, weights)[:, None]).t() @ wide(self.inputs)

    def rows(self) -> Tensor:
        """Return one outer product per record."""
        return self.spread().rows()

    def take(self, kept: Tensor) -> "Single":
        """Return the gradients of some records."""
        return Single(self.inputs[kept], self.output_grads[kept])

    def prefers_gram(self, members: int = 1) -> bool:
        """Say whether Gram matrices take fewer operations than rows; a single record needs neither."""
        return members == 1 or self.spread().prefers_gram(members)

    def spread(self) -> "Outer":
        """Return the same with an axis for positions."""
        return Outer(self.inputs[:, None], self.output_grads[:, None])


@dataclass(frozen=True, eq=False)
class Outer(PerRecord):
    """Gradients of a matrix that was used at T positions, sum_t output_grads_t inputs_t^T: (n, T, d) and (n, T, p)."""

    inputs: Tensor
    output_grads: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Self:
        """Return the sum of several, by concatenating their positions."""
        return cls(torch.cat([part.inputs for part in parts], 1), torch.cat([part.output_grads for part in parts], 1))

    def factors(self) -> tuple[Tensor, ...]:
        """Return norms from Gram matrices over the positions, without computing a gradient."""
        n, positions, _ = self.inputs.shape
        squares = self.inputs.new_empty(n, dtype=torch.float64)
        unit = product_unit(self.inputs)
        for part in chunks(n, 2 * positions**2 * 4):
            squares[part] = gram_squares(wide(self.inputs[part]), wide(self.output_grads[part]), unit, unit)
        return (squares.sqrt_()[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return one product of matrices."""
        inputs, output_grads = wide(self.inputs), wide(self.output_grads)
        weighted = output_grads * like(output_grads, weights)[:, None, None]
        return weighted.flatten(0, 1).t() @ inputs.flatten(0, 1)

    def rows(self) -> Tensor:
        """Return one product of matrices per record."""
        return torch.bmm(wide(self.output_grads).transpose(1, 2), wide(self.inputs))

    def take(self, kept: Tensor) -> "Outer":
        """Return the gradients of some records."""
        return Outer(self.inputs[kept], self.output_grads[kept])

    def prefers_gram(self, members: int = 1) -> bool:
        """Say whether Gram matrices take fewer operations than rows."""
        _, positions, width = self.inputs.shape
        return prefer_gram(members * positions, width, self.output_grads.shape[2])


@dataclass(frozen=True, eq=False)
class Lookups(PerRecord):
    """Gradients of a table of which each record looked up rows, given indices (n, T) and output_grads (n, T, d)."""

    indices: Tensor
    output_grads: Tensor
    size: int

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Self:
        """Return the sum of several, by concatenating their lookups."""
        indices, output_grads = (
            torch.cat([getattr(part, name) for part in parts], 1) for name in ("indices", "output_grads")
        )
        return cls(indices, output_grads, parts[0].size)

    def factors(self) -> tuple[Tensor, ...]:
        """Return norms: sums over the lookups of one row by one record, squared and added up."""
        distinct, sums = self._sums
        squares = sums.new_zeros(self.indices.shape[0], dtype=torch.float64)
        records = torch.div(distinct, self.size, rounding_mode="floor")
        return (squares.index_add_(0, records, _lengths(sums).double().square_()).sqrt_()[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return a table with the weighted gradients added to the rows that were looked up.

        Lookups of one row by one record may cancel. They are added up before other records are, as for the norm: one by
        one, they could be so long that the gradients of others are lost in the rounding.
        """
        distinct, sums = self._sums
        records = torch.div(distinct, self.size, rounding_mode="floor")
        weighted = sums * like(sums, weights)[records, None]
        return sums.new_zeros(self.size, sums.shape[1]).index_add_(0, distinct - records * self.size, weighted)

    def rows(self) -> Tensor:
        """Return a whole table per record."""
        n, output_grads = self.indices.shape[0], wide(self.output_grads).flatten(0, 1)
        table = output_grads.new_zeros(n * self.size, output_grads.shape[1])
        return table.index_add_(0, self._keys(), output_grads).view(n, self.size, -1)

    def take(self, kept: Tensor) -> "Lookups":
        """Return the gradients of some records."""
        return Lookups(self.indices[kept], self.output_grads[kept], self.size)

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor]:
        """The pairs of a record and a row that it has looked up, and the gradient of each pair."""
        distinct, places = torch.unique(self._keys(), return_inverse=True)
        output_grads = wide(self.output_grads).flatten(0, 1)
        return distinct, output_grads.new_zeros(distinct.numel(), output_grads.shape[1]).index_add_(
            0, places, output_grads
        )

    def _keys(self) -> Tensor:
        """Return one integer for each pair of a record and a row of the table."""
        records = torch.arange(self.indices.shape[0], device=self.indices.device)
        return (records[:, None] * self.size + self.indices).flatten()


@dataclass(frozen=True, eq=False)
class PulledBack(PerRecord):
    """Gradients of a parameter, given those of a tensor that was computed from parameters alone.

    Args:
        values: The gradients of the tensor, (n, *its shape).
        tensor: The tensor, with its graph.
        parameter: The parameter.
        moved: Whether the tensor holds entries of the parameter, each at most once: lengths then stay the same.
    """

    values: Tensor
    tensor: Tensor
    parameter: Tensor
    moved: bool

    def factors(self) -> tuple[Tensor, ...]:
        """Return the lengths of the gradients of the tensor, or of the parameter."""
        return (_lengths((self.values if self.moved else self.rows()).flatten(1))[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum for the tensor, pulled back once."""
        summed = (like(self.values, weights) @ self.values.flatten(1)).view(self.tensor.shape)
        (pulled,) = torch.autograd.grad(self.tensor, self.parameter, like(self.tensor, summed), retain_graph=True)
        return pulled

    def rows(self) -> Tensor:
        """Return the gradients, pulled back one by one."""
        rows = like(self.tensor, self.values)
        (pulled,) = torch.autograd.grad(self.tensor, self.parameter, rows, retain_graph=True, is_grads_batched=True)
        return pulled

    def take(self, kept: Tensor) -> "PulledBack":
        """Return the gradients of some records."""
        return PulledBack(self.values[kept], self.tensor, self.parameter, self.moved)

    def cheapest(self) -> PerRecord:
        """Return rows, unless lengths and sums are known without them."""
        return self if self.moved else Rows(self.rows())


@dataclass(frozen=True, eq=False)
class TiedTable(PerRecord):
    """Gradients of a table that is also a matrix, as that of a language model: looked up and multiplied with.

    Row i of the table gets the gradients of the lookups of i, and output_grads[i] inputs from the product.
    """

    lookups: Lookups
    product: Outer

    def factors(self) -> tuple[Tensor, ...]:
        """Return norms from both norms and the product of both gradients, without a table per record.

        With lookups (i_s, h_s) and positions (a_t, g_t), the gradients are sum_s e_{i_s} h_s^T and sum_t g_t a_t^T, and
        their product is sum_{s,t} g_t[i_s] (h_s . a_t). Both may cancel. A dot product of d numbers is off by at most
        d u |h_s||a_t|, u being half a unit in the last place, and a sum over S lookups by S u sum_s |h_s|: what the
        square can be off by is added, as in `gram_squares`.
        """
        unit, product = product_unit(self.product.inputs), self.product
        (own,), (looked_up,) = product.factors(), self.lookups.factors()
        squares = own[:, 0].square() + looked_up[:, 0].square()
        positions, width = product.inputs.shape[1:]
        for part in chunks(squares.shape[0], 3 * positions * self.lookups.indices.shape[1] * 4):
            inputs, grads = wide(product.inputs[part]), wide(product.output_grads[part])
            table_grads = wide(self.lookups.output_grads[part])
            picked = grads.gather(2, self.lookups.indices[part][:, None, :].expand(-1, positions, -1))
            cross = (picked * torch.bmm(inputs, table_grads.transpose(1, 2))).sum((1, 2), dtype=torch.float64)
            one = (_position_lengths(inputs) * _position_lengths(grads)).sum(1)
            two = _position_lengths(table_grads).sum(1)
            lookups = (table_grads != 0).any(2).sum(1)  # not those of nobody, with which a unit is padded
            rounding = unit * two * (2 * (width + 2) * one + 2 * (width + lookups) * two)
            squares[part] = (squares[part] + 2 * cross).clamp_(min=0) + rounding
        return (squares.sqrt_()[:, None],)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of both."""
        return self.lookups.weighted_sum(weights) + self.product.weighted_sum(weights)

    def rows(self) -> Tensor:
        """Return a whole table per record."""
        return self.lookups.rows() + self.product.rows()

    def take(self, kept: Tensor) -> "TiedTable":
        """Return the gradients of some records."""
        return TiedTable(self.lookups.take(kept), self.product.take(kept))


def total(parts: Sequence[PerRecord]) -> PerRecord:
    """Return the sum of the gradients that a parameter gets from several uses."""
    if len(parts) == 1:
        return parts[0]
    parts = [part.spread() if isinstance(part, Single) else part for part in parts]
    joined: list[PerRecord] = []
    for kind in (Outer, Lookups):
        same = [part for part in parts if isinstance(part, kind)]
        joined += [kind.joined(same)] if same else []
    if len(joined) == 1 and len({type(part) for part in parts}) == 1:
        return joined[0]
    product, lookups = (next((part for part in joined if isinstance(part, kind)), None) for kind in (Outer, Lookups))
    if product and lookups and {type(part) for part in parts} == {Outer, Lookups}:
        assert isinstance(product, Outer)
        assert isinstance(lookups, Lookups)
        return TiedTable(lookups, product)
    rows = parts[0].rows()
    for part in parts[1:]:
        rows = rows + part.rows()
    return Rows(rows)


def norms_of(parts: Sequence[tuple[Tensor, ...]]) -> Tensor:
    """Return the norm of each record over several parameters in float64, given the factors of each parameter.

    A matrix that is a factor of two parameters, such as a weight and its bias, is measured once. Squares that underflow
    count as `TINY`.
    """
    matrices = {id(rows): rows for factors in parts for rows in factors}
    lengths = [_norms(rows) for rows in matrices.values()]
    numbers: Any = torch.stack(lengths).double()
    on_cpu = numbers.device.type == "cpu"
    numbers = numbers.numpy() if on_cpu else numbers  # numpy is faster for small arrays
    with np.errstate(over="ignore", invalid="ignore"):  # a record with such a norm gets weight 0
        squares = numbers * numbers + max(rows.shape[1] for rows in matrices.values()) * TINY
        square = dict(zip(matrices, squares, strict=True))
        products = [reduce(operator.mul, [square[id(rows)] for rows in factors]) for factors in parts]
        total = reduce(operator.add, products)
        return torch.from_numpy(np.sqrt(total)) if on_cpu else total.sqrt_()


def prefer_gram(positions: int, width: int, height: int) -> bool:
    """Return whether Gram matrices over T positions take fewer operations than height x width gradients.

    Both ways multiply T * height * width numbers, one for the weighted sum, the other for the rows; beside that, one
    multiplies T^2 (height + width) numbers, the other writes every row and reads it twice.

    Gram matrices give longer norms than rows, by what cancellation may hide. The choice must therefore depend on
    nothing but the record, or unit: if the size of a batch decided, one more record could change the norms of all.
    """
    return positions**2 * (height + width) < TOUCH * height * width


def gram_squares(inputs: Tensor, output_grads: Tensor, unit: float, summed: float) -> Tensor:
    """Return sum_{t,s} (a_t . a_s)(g_t . g_s), plus the rounding error that it and the sum of gradients may have.

    Where the positions of a record cancel, the sum is a small difference of large numbers. A dot product of d numbers
    is off by at most d u |a_t||a_s|, u being half a unit in the last place, so the whole sum by at most
    (d + p + 1) u (sum_t |a_t||g_t|)^2; added to the result, it keeps a record from looking shorter than it is.

    Products below the least normal number m may be lost: a dot product is off by d m, and the whole sum by at most
    (sum_t b_t)^2 - (sum_t |a_t||g_t|)^2 with b_t^2 = (|a_t|^2 + d m) (|g_t|^2 + p m), since by Cauchy-Schwarz
    sqrt((x + e) (y + e)) >= sqrt(x y) + e. That is added as well.

    Args:
        inputs: (n, T, d).
        output_grads: (n, T, p).
        unit: Half a unit in the last place of the products here.
        summed: The same of the products that make the weighted sum. They are off by at most
            (2 u + u^2) sum_t |a_t||g_t|, which is within what is added here if they are no coarser.
    """
    first, second = torch.bmm(inputs, inputs.transpose(1, 2)), torch.bmm(output_grads, output_grads.transpose(1, 2))
    lost = torch.finfo(inputs.dtype).tiny
    one, two = _diagonal(first), _diagonal(second)
    kept = (one * two).sqrt().sum(1)
    lengths = ((one + inputs.shape[2] * lost) * (two + output_grads.shape[2] * lost)).sqrt().sum(1)
    computed = (first * second).sum((1, 2), dtype=torch.float64)
    width = inputs.shape[2] + output_grads.shape[2] + 1
    squares = computed.clamp(min=0) + width * unit * lengths.square() + (lengths.square() - kept.square())
    return squares if summed <= unit else (squares.sqrt() + 3 * summed * lengths).square()


def chunks(records: int, bytes_each: int) -> Iterator[slice]:
    """Yield slices of records, each of which needs at most `CHUNK` bytes of scratch memory."""
    size = max(1, CHUNK // max(1, bytes_each))
    return (slice(begin, begin + size) for begin in range(0, records, size))


def _diagonal(grams: Tensor) -> Tensor:
    return grams.diagonal(dim1=1, dim2=2).double()


def _norms(rows: Tensor) -> Tensor:
    """Return the norm of each row, to a few roundings.

    torch adds up squares in several lanes if they are contiguous in memory, and one by one otherwise, which loses
    digits; long rows go by blocks.
    """
    norms: Tensor
    rows = rows.contiguous() if rows.stride(1) > 1 else rows
    if rows.shape[1] <= BLOCK or rows.dtype == torch.float64:
        norms = torch.linalg.vector_norm(rows, dim=1)
        return norms
    whole = rows.shape[1] // BLOCK * BLOCK
    blocks = torch.linalg.vector_norm(rows[:, :whole].view(rows.shape[0], whole // BLOCK, BLOCK), dim=2)
    rest = torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True)
    norms = torch.linalg.vector_norm(torch.cat([blocks, rest], 1), dim=1, dtype=torch.float64)
    return norms.to(rows.dtype)


def _lengths(rows: Tensor) -> Tensor:
    """Return the length of each row; squares that underflow count as the smallest normal number."""
    rows = wide(rows)
    return _norms(rows).add_(math.sqrt(rows.shape[1] * torch.finfo(rows.dtype).tiny))


def _position_lengths(values: Tensor) -> Tensor:
    """Return the length of each vector (n, T, d), in float64."""
    return _lengths(values.reshape(-1, values.shape[2])).double().view(values.shape[:2])


def wide(values: Tensor) -> Tensor:
    """Return values in float32 or better."""
    return values if values.dtype in WIDE else values.float()


def like(other: Tensor, values: Tensor) -> Tensor:
    """Return values in the precision of another tensor."""
    return values if values.dtype == other.dtype else values.to(other.dtype)  # asking costs less than `to`


def _memory_order(values: Tensor) -> list[int]:
    """Return the axes of one record from the outermost to the innermost in memory."""
    return sorted(range(values.ndim - 1), key=lambda axis: -values.stride(axis + 1))


def _flat(values: Tensor) -> Tensor:
    """Return one row per record, its axes in memory order, so that nothing is copied."""
    if values.ndim == 2:
        return values
    if values.ndim == 1:  # of a parameter that is one number
        return values[:, None]
    return values.permute(0, *(axis + 1 for axis in _memory_order(values))).flatten(1)
