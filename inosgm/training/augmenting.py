"""Random transforms of inputs, applied to one record at a time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Augment = Callable[[Tensor], Tensor]
"""The input of ONE record, without an axis for records -> an input of the same shape, changed at random."""


def augmented(inputs: Any, augment: Augment) -> Tensor:
    """Return the inputs of a batch, each transformed by itself: no record sees another one.

    Raises:
        TypeError: for inputs that are not one tensor.
        ValueError: for a transform that changes the shape.
    """
    if not isinstance(inputs, Tensor):
        raise TypeError(
            "augment needs inputs that are one tensor: let the Dataset augment records itself, and give views alone"
        )
    if not len(inputs):
        return inputs
    with torch.no_grad():
        rows = [augment(record.clone()) for record in inputs]
    if any(not isinstance(row, Tensor) or row.shape != inputs.shape[1:] for row in rows):
        raise ValueError(f"augment must return a tensor of the shape of its input, {tuple(inputs.shape[1:])}")
    return torch.stack(rows).to(inputs.device, inputs.dtype)
