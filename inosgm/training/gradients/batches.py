"""Batches of inputs and targets: tensors, or tuples, lists and dicts of tensors, whose first axis is the record."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from inosgm._internal.trees import tree_leaves, tree_map


def size(batch: Any) -> int:
    """Return the number of records of a batch, by its first tensor."""
    if isinstance(batch, Tensor):  # the usual case, without the cost of a walk
        return len(batch)
    return int(next(tensors_in(batch)).shape[0])


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested lists, tuples and dicts."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def rows(batch: Any, index: Any) -> Any:
    """Pick records by a slice, a mask or positions; objects that are not tensors stay as they are."""
    return tree_map(lambda column: column[index] if isinstance(column, Tensor) else column, batch)


def form(batch: Any) -> str:
    """Return the types and shapes of one record as text."""
    return ", ".join(f"{str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape[1:])}" for leaf in tree_leaves(batch))


def detached(outputs: Any) -> Any:
    """Detach the tensors among the outputs of a model; other objects stay as they are."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, outputs)


def synthetic(like: Any, records: int, generator: torch.Generator) -> Any:
    """Return random records with the form of a batch: floats uniform in (0, 1), integers 0 or 1."""

    def column(form: Tensor) -> Tensor:
        shape = (records, *form.shape[1:])
        if form.is_floating_point() or form.is_complex():
            values = torch.rand(shape, generator=generator)
        else:
            values = torch.randint(0, 2, shape, generator=generator)
        return values.to(form.device, form.dtype)

    return tree_map(column, like)


def varied_synthetic(like: Any, records: int, generator: torch.Generator, *, codes: int = 2) -> Any:
    """Return records of three kinds in random order: as `synthetic` gives them, padded with zeros, and extreme.

    Extreme records have floats in (-10, 10), or integers below `codes`.
    """
    kind = torch.randperm(records, generator=generator) % 3

    def column(form: Tensor) -> Tensor:
        values: Tensor = synthetic(form, records, generator)
        for record in range(records):
            end = torch.randint(max((1, *form.shape[1:2])), (), generator=generator) + 1
            if kind[record] == 1 and form.ndim > 1:
                values[record, end:] = 0
            elif kind[record] == 2 and (form.is_floating_point() or form.is_complex()):
                values[record] = 20 * values[record] - 10
            elif kind[record] == 2 and form.dtype != torch.bool:
                values[record] = torch.randint(codes, form.shape[1:], generator=generator)
        return values

    return tree_map(column, like)


def unambiguous_size(batch: Any, others: Iterable[Tensor]) -> int:
    """Return a number of records that is the length of no other axis, neither of the batch nor of other tensors.

    An axis of this length is then known to be the one of the records.
    """
    taken = {length for column in tree_leaves(batch) for length in column.shape[1:]}
    taken.update(length for tensor in others for length in tensor.shape)
    return next(number for number in range(4, len(taken) + 5) if number not in taken)
