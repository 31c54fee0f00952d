"""Batches for a model out of whatever holds the records: gathered by index, never copied whole."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from inosgm._internal.records import gather
from inosgm._internal.trees import tree_leaves, tree_map
from inosgm.training.collating import Collate, CollatedRecords, collated, inputs_and_targets, plain
from inosgm.training.gradients.randomness import foreign_state, keep_foreign_state


def as_data(parts: tuple[Any, ...], *, collate_fn: Collate | None = None, whole: bool = False) -> Any:
    """Return (inputs, targets) as a tuple of columns, a map-style data set as it is, or `CollatedRecords`.

    Args:
        parts: What a caller has given: inputs and targets, one dict of columns, or one map-style data set.
        collate_fn: Makes a batch of records of a data set.
        whole: Whether batches are given to `losses` as they are.

    Raises:
        TypeError: for anything else.
    """
    if len(parts) == 1 and isinstance(parts[0], tuple) and (whole or len(parts[0]) == 2):
        parts = parts[0]
    _refuse_loaders_and_lists(parts)
    if len(parts) == 1 and is_data_set(parts[0]):
        return _as_data_set(parts[0], collate_fn, whole)
    if len(parts) > 1:
        _refuse_data_sets(parts)
    if collate_fn is not None:
        raise TypeError(
            "collate_fn makes a batch of the records of a map-style Dataset, and the data is in columns, which need "
            "none: leave collate_fn out, or give one Dataset"
        )
    parts = tuple(dict(part) if isinstance(part, Mapping) else part for part in parts)
    if whole and parts:
        return CollatedRecords(parts[0] if len(parts) == 1 else (parts[0], *map(_column, parts[1:])), whole=True)
    if len(parts) == 1 and isinstance(parts[0], dict):
        parts = inputs_and_targets(parts[0], "the data")
    if len(parts) == 2:
        return parts[0], _column(parts[1])
    raise TypeError(
        f"data must be inputs and targets, fit(x, y), or one map-style Dataset of such pairs, got "
        f"{', '.join(type(part).__name__ for part in parts) or 'nothing'}: records are sampled by index"
    )


def _as_data_set(records: Any, collate_fn: Collate | None, whole: bool) -> Any:
    """Return a map-style data set, with what makes batches of its records if that is not the default."""
    if whole or collate_fn is not None:
        return CollatedRecords(records, default_collate if collate_fn is None else collate_fn, whole)
    if isinstance(records, TensorDataset) and len(records.tensors) == 2:
        return tuple(records.tensors)
    return records


def is_data_set(part: Any) -> bool:
    """Say whether something is a map-style data set: one of torch, of another library, or a list of dicts or tuples."""
    if isinstance(part, list):
        return bool(part) and isinstance(part[0], Mapping | tuple)
    columns = isinstance(part, IterableDataset | Tensor | np.ndarray | Mapping | tuple | str) or hasattr(part, "iloc")
    return not columns and hasattr(part, "__getitem__") and hasattr(part, "__len__")


def _refuse_loaders_and_lists(parts: tuple[Any, ...]) -> None:
    """Raise for what people have at hand in a loop of their own, and records cannot be sampled from."""
    for part in parts:
        if isinstance(part, DataLoader):
            raise TypeError(
                "data must be a map-style Dataset, got a DataLoader, which draws batches in its own way: pass "
                "loader.dataset, and collate_fn=loader.collate_fn to the Trainer if you gave the loader one; the plan "
                "says how large batches are"
            )
        if isinstance(part, list) and part and isinstance(part[0], Tensor | np.ndarray) and part[0].ndim:
            stack = "torch.stack" if isinstance(part[0], Tensor) else "np.stack"
            raise TypeError(
                f"data must be tensors or arrays whose first axis is the record, got a list of them: {stack}(x) makes "
                "one of records of one shape; for records of several lengths give a Dataset, and collate_fn= a "
                "function that pads"
            )


def _refuse_data_sets(parts: tuple[Any, ...]) -> None:
    """Raise for a data set among columns: its items hold their targets, or have to."""
    for part in parts:
        # an array of a file, such as one of HDF5, has a shape, and is a column
        if isinstance(part, Dataset) or (part is parts[0] and is_data_set(part) and not hasattr(part, "shape")):
            what = "a list of records" if isinstance(part, list) else f"a data set ({type(part).__name__})"
            raise TypeError(
                f"data must be inputs and targets in columns, fit(x, y), or one map-style Dataset, fit(dataset), got "
                f"{what} and {len(parts) - 1} more: give it alone if its items are pairs of inputs and targets; if "
                "they are inputs only, torch.utils.data.StackDataset(dataset, targets) makes pairs"
            )


def _column(targets: Any) -> Any:
    """Return targets in a form that is gathered at once: lists as arrays.

    Raises:
        TypeError: for text.
    """
    text = isinstance(targets, list) and any(isinstance(one, str | bytes) for one in targets)
    column = np.asarray(targets) if isinstance(targets, list) and not text else targets  # text of any length
    if text or getattr(getattr(column, "dtype", None), "kind", "") in ("U", "S", "O", "T"):
        raise TypeError(
            "targets must be numbers: names, labels = np.unique(targets, return_inverse=True) numbers the classes"
        )
    return column


def picked(data: Any, indices: list[int]) -> list[Any]:
    """Return records of a data set one by one, or all at once where it can do that."""
    many = getattr(data, "__getitems__", None)
    return list(many(indices)) if many is not None else [data[index] for index in indices]


@dataclass
class PickedApart:
    """Returns records of a data set, one at a time if it gives others when it is asked for several at once.

    A data set that gives several records at once (`__getitems__`) may draw one random number for all of them. Records
    of one part of a batch would share such a draw, and which records these are depends on who else is in the batch. Or
    it may compute something from all of them, such as a mean. A data set that is seen to do so is asked for one record
    at a time from then on. Draws from global generators are looked for at every call. Once, records are also compared
    with what the data set gives one at a time, by which numbers from a generator of its own show.

    Attributes:
        in_parts: Whether a batch is run in parts; if not, all its records may share random numbers.
    """

    in_parts: bool = True
    _apart: bool = False
    _compared: bool = False

    def __call__(self, data: Any, indices: list[int]) -> list[Any]:
        """Return the records at some indices."""
        if not self._apart and _at_once(data):
            before, foreign = torch.get_rng_state(), foreign_state()
            with keep_foreign_state() if self.in_parts else nullcontext():
                records = picked(data, indices)
                drew = foreign != foreign_state() or not torch.equal(before, torch.get_rng_state())
                self._apart = self.in_parts if drew else self._gives_others(data, indices, records)
            if not self._apart:
                return records
            torch.set_rng_state(before)
        return _one_by_one(data, indices)

    def _gives_others(self, data: Any, indices: list[int], records: list[Any]) -> bool:
        """Say whether records that were picked at once are others one at a time; asked the first time only."""
        if self._compared or len(indices) < 2:
            return False
        self._compared = True
        repeatable = self.in_parts or not _differ(records, picked(data, indices))
        return repeatable and _differ(records, _one_by_one(data, indices))


def _one_by_one(data: Any, indices: list[int]) -> list[Any]:
    return [record for index in indices for record in picked(data, [index])]


def _differ(some: list[Any], others: list[Any]) -> bool:
    """Say whether records have other values; what has another shape, such as a longer padding, is not compared."""
    try:
        pairs = zip(*(tree_leaves(default_collate(records)) for records in (some, others)), strict=True)
        return any(
            isinstance(one, Tensor)
            and one.shape == other.shape
            and not bool(((one == other) | ((one != one) & (other != other))).all())
            for one, other in pairs
        )
    except Exception:  # records of several shapes, which cannot be put together
        return False


def _at_once(data: Any) -> bool:
    """Say whether a data set has code of its own for several records; a `Subset` passes on what it is a part of."""
    while type(data) is Subset:
        data = data.dataset
    return hasattr(data, "__getitems__")


def batch_of(
    data: Any, positions: np.ndarray, like: Tensor, pick: Callable[[Any, list[int]], list[Any]] = picked
) -> tuple[Any, Any]:
    """Return inputs and targets of the records at the positions: on the device of `like`, numbers in its precision."""
    return converted(data, loaded(data, positions, pick), like)


def loaded(data: Any, positions: np.ndarray, pick: Callable[[Any, list[int]], list[Any]] = picked) -> Any:
    """Return the records at the positions as a batch, as the data has them."""
    if isinstance(data, tuple):
        return tuple(gather(column, positions) for column in data)
    if isinstance(data, CollatedRecords):
        return data.batch(positions, pick)
    return plain(collated(pick(data, positions.tolist()), default_collate))


def converted(data: Any, batch: Any, like: Tensor) -> tuple[Any, Any]:
    """Return a batch as inputs and targets: on the device of `like`, numbers in its precision.

    Whole numbers stay as they are in inputs, and become int64 in targets, where losses expect class numbers. A batch
    that `losses` is given as a whole is the only argument of the model, and stands for the targets as well.
    """
    if isinstance(data, CollatedRecords) and data.whole:
        batch = tree_map(lambda leaf: _entry(leaf, like), batch)
        return (batch,), batch
    whose = "collate_fn" if isinstance(data, CollatedRecords) else "a Dataset"
    inputs, targets = inputs_and_targets(batch, whose)
    return tree_map(lambda leaf: _tensor(leaf, like), inputs), tree_map(lambda leaf: _target(leaf, like), targets)


def is_in_columns(data: Any) -> bool:
    """Say whether records are gathered from columns, and not picked from a data set one by one."""
    return isinstance(data, tuple) or (isinstance(data, CollatedRecords) and data.in_columns)


def _tensor(leaf: Any, like: Tensor) -> Tensor:
    array = leaf.to_numpy() if hasattr(leaf, "to_numpy") else leaf  # pandas
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None, non_blocking=True)


def _target(leaf: Any, like: Tensor) -> Tensor:
    tensor = _tensor(leaf, like)
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    return tensor.long() if whole else tensor


def _entry(leaf: Any, like: Tensor) -> Tensor:
    """Convert a part of a batch of which nobody knows whether it is an input or a target."""
    tensor = _tensor(leaf, like)
    return tensor.long() if tensor.dtype in (torch.int8, torch.int16, torch.int32) else tensor
