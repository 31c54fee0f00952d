"""Batches of inputs and targets: tensors, or tuples, lists and dicts of tensors, whose first axis is the record."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from inosgm._internal.trees import tree_leaves, tree_map


def size(batch: Any) -> int:
    """Count the records of a batch."""
    return int(tree_leaves(batch)[0].shape[0])


def rows(batch: Any, index: Any) -> Any:
    """Pick records by a slice, a mask or positions; what is not a tensor stays as it is."""
    return tree_map(lambda column: column[index] if isinstance(column, Tensor) else column, batch)


def form(batch: Any) -> str:
    """Describe a record by types and shapes."""
    return ", ".join(f"{str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape[1:])}" for leaf in tree_leaves(batch))


def detached(outputs: Any) -> Any:
    """Cut outputs of a model off from what made them; what is not a tensor stays as it is."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, outputs)


def made_up(like: Any, records: int, generator: torch.Generator) -> Any:
    """Make up records with the form of a batch: numbers uniform in (0, 1), or 0 and 1 where they are whole."""

    def column(form: Tensor) -> Tensor:
        shape = (records, *form.shape[1:])
        if form.is_floating_point() or form.is_complex():
            values = torch.rand(shape, generator=generator)
        else:
            values = torch.randint(0, 2, shape, generator=generator)
        return values.to(form.device, form.dtype)

    return tree_map(column, like)


def varied(like: Any, records: int, generator: torch.Generator, *, codes: int = 2) -> Any:
    """Make up records of three kinds in any order: as `made_up` does; with zeros from some position on; and far out.

    The latter are numbers from -10 to 10, or below `codes` where they are whole.
    """
    kind = torch.randperm(records, generator=generator) % 3

    def column(form: Tensor) -> Tensor:
        values: Tensor = made_up(form, records, generator)
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


def telling_size(batch: Any, others: Iterable[Tensor]) -> int:
    """Return a number of records that no other axis of the batch, and none of other tensors, could be taken for."""
    taken = {length for column in tree_leaves(batch) for length in column.shape[1:]}
    taken.update(length for tensor in others for length in tensor.shape)
    return next(number for number in range(4, len(taken) + 5) if number not in taken)
