"""Records that become a batch in a way of their own: a `collate_fn`, or a batch that `losses` is given as a whole."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import default_collate

from inosgm._internal.records import form_of, gather, records_in
from inosgm._internal.trees import tree_leaves

LABELS = ("labels", "label")
"""The names under which the items of a data set hold what the loss compares with, as in Hugging Face's data sets."""

Collate = Callable[[list[Any]], Any]
"""(a list of records) -> a batch: tensors whose first axis is the record, alone or in tuples, lists and dicts."""


@dataclass(frozen=True, eq=False)
class CollatedRecords:
    """Records, and how some of them become a batch.

    Attributes:
        records: Columns, or a map-style data set.
        collate: Makes a batch of a list of records of a data set.
        whole: Whether a batch is given to `losses` as it is, or is split into inputs and targets.
    """

    records: Any
    collate: Collate = default_collate
    whole: bool = False

    def __len__(self) -> int:
        return records_in(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index]

    @property
    def in_columns(self) -> bool:
        """Whether records are rows of columns, which need no collating."""
        return isinstance(self.records, dict | tuple | Tensor | np.ndarray) or hasattr(self.records, "iloc")

    def record_form(self) -> Any:
        """Describe the data apart from its records."""
        return form_of(self.records), self.collate, self.whole

    def batch(self, positions: np.ndarray, pick: Callable[[Any, list[int]], list[Any]]) -> Any:
        """Return the batch of the records at some positions, tensors not yet converted.

        Raises:
            TypeError: for a batch of other things than numbers.
            ValueError: for a batch whose first axis is not that of the records.
        """
        if self.in_columns:
            return gather(self.records, positions)
        return self.collated(pick(self.records, positions.tolist()))

    def collated(self, items: list[Any]) -> Any:
        """Return a list of records as a batch."""
        batch = plain(collated(items, self.collate))
        leaves = tree_leaves(batch)
        strange = next((leaf for leaf in leaves if not isinstance(leaf, Tensor | np.ndarray)), None)
        if strange is not None or not leaves:
            raise TypeError(
                "a batch must hold tensors, alone or in tuples, lists and dicts, and holds "
                f"{'nothing' if not leaves else type(strange).__name__}: let the Dataset or collate_fn leave out what "
                "the model does not compute with"
            )
        if any(leaf.ndim == 0 or leaf.shape[0] != len(items) for leaf in leaves):
            raise ValueError(
                "collate_fn must give tensors whose first axis is the record, one entry for every record that it is "
                "given, in their order, but another length was found"
            )
        return batch


def collated(items: list[Any], collate: Collate) -> Any:
    """Return a list of records as a batch; an error shows neither their lengths nor their positions."""
    try:
        return collate(items)
    except RuntimeError:
        if collate is not default_collate:
            raise
        raise ValueError(  # torch's message says which record of the batch is how long
            "a Dataset must give records of one shape: pad or crop them, or give collate_fn= a function that pads"
        ) from None


def plain(batch: Any) -> Any:
    """Return a batch with dicts for all kinds of mappings, such as the `BatchEncoding` of Hugging Face."""
    if isinstance(batch, Mapping):
        return {str(name): plain(part) for name, part in batch.items()}
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return type(batch)(plain(part) for part in batch)
    return batch


def inputs_and_targets(batch: Any, whose: str) -> tuple[Any, Any]:
    """Split a batch into the model's inputs and what the loss compares with.

    Args:
        batch: A pair, or a dict in which `labels` are the targets and everything else is a keyword of the model.
        whose: Where the batch comes from, for the error.

    Raises:
        TypeError: for anything else.
    """
    if isinstance(batch, dict):
        name = next((name for name in LABELS if name in batch), None)
        if name is not None and len(batch) > 1:
            return {other: column for other, column in batch.items() if other != name}, batch[name]
        raise TypeError(
            f"{whose} gives dicts with the keys {_names(batch)}, and 'labels', which the loss compares with, is not "
            "among them or is alone: rename it, give pairs (inputs, target), or give losses= a function of model and "
            "batch instead of a loss"
        )
    if isinstance(batch, Sequence) and len(batch) == 2:
        return batch[0], batch[1]
    raise TypeError(
        f"{whose} must give pairs of inputs and target, or dicts with 'labels': for anything else give losses= a "
        "function of model and batch instead of a loss"
    )


def _names(batch: dict[str, Any]) -> str:
    return ", ".join(map(repr, sorted(map(str, batch)))) or "none"
