"""Batches for a model out of whatever holds the records: gathered by index, never copied whole."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from inosgm._tree import tree_map
from inosgm.records import gather


def as_data(parts: tuple[Any, ...]) -> Any:
    """Return (inputs, targets) as a tuple of columns, or a map-style data set as it is.

    Raises:
        TypeError: for anything else.
    """
    if len(parts) == 1 and isinstance(parts[0], tuple) and len(parts[0]) == 2:
        parts = parts[0]
    if len(parts) == 2:
        return parts[0], _column(parts[1])
    if len(parts) == 1 and isinstance(parts[0], TensorDataset) and len(parts[0].tensors) == 2:
        return tuple(parts[0].tensors)
    mapped = len(parts) == 1 and hasattr(parts[0], "__getitem__") and hasattr(parts[0], "__len__")
    if not mapped or isinstance(parts[0], IterableDataset | Tensor | np.ndarray | dict | list | tuple):
        raise TypeError(
            f"data must be inputs and targets, fit(x, y), or one map-style Dataset of such pairs, got "
            f"{', '.join(type(part).__name__ for part in parts) or 'nothing'}: records are sampled by index"
        )
    return parts[0]


def _column(targets: Any) -> Any:
    """Return targets in a form that is gathered at once: lists as arrays.

    Raises:
        TypeError: for text.
    """
    column = np.asarray(targets) if isinstance(targets, list) else targets
    if getattr(getattr(column, "dtype", None), "kind", "") in ("U", "S", "O", "T"):
        raise TypeError(
            "targets must be numbers: names, labels = np.unique(targets, return_inverse=True) numbers the classes"
        )
    return column


def batch_of(data: Any, positions: np.ndarray, like: Tensor) -> tuple[Any, Any]:
    """Return inputs and targets of the records at the positions: on the device of `like`, numbers in its precision.

    Whole numbers stay as they are in inputs, and become int64 in targets, where losses expect class numbers.
    """
    if isinstance(data, tuple):
        inputs, targets = (gather(column, positions) for column in data)
    else:
        inputs, targets = _collated(data, positions)
    return tree_map(lambda leaf: _tensor(leaf, like), inputs), tree_map(lambda leaf: _target(leaf, like), targets)


def _collated(data: "Dataset[Any]", positions: np.ndarray) -> tuple[Any, Any]:
    """Pick the records of a data set one by one, or all at once where it can do that."""
    indices = positions.tolist()
    many = getattr(data, "__getitems__", None)
    records = many(indices) if many is not None else [data[index] for index in indices]
    if not records or not isinstance(records[0], tuple | list) or len(records[0]) != 2:
        raise TypeError("a Dataset must give pairs of inputs and target")
    inputs, targets = default_collate(records)
    return inputs, targets


def _tensor(leaf: Any, like: Tensor) -> Tensor:
    array = leaf.to_numpy() if hasattr(leaf, "to_numpy") else leaf  # pandas
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None, non_blocking=True)


def _target(leaf: Any, like: Tensor) -> Tensor:
    tensor = _tensor(leaf, like)
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    return tensor.long() if whole else tensor
