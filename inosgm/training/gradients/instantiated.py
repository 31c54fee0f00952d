"""Gradients with one row per record: for engines that have nothing smaller to keep."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients
from inosgm.training.gradients.batches import detached, rows
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.precision import require_wide, without_autocast


class Instantiated(Gradients):
    """Gradients as one tensor per parameter whose first axis is the record.

    A record whose gradient is not finite keeps its norm, and is cleared before anything is summed.
    """

    reruns = False

    def __init__(self, per_parameter: Sequence[Tensor], losses: Tensor, outputs: Any) -> None:
        for gradients in per_parameter:
            require_wide(gradients)
        self._per_parameter, self.losses, self.outputs = per_parameter, losses, outputs

    def grouped(self, groups: Groups | None) -> "Instantiated":
        """Return the gradients of units, if there are groups."""
        if groups is None:
            return self
        shares = groups.shares
        per_unit = [groups.summed(gradients) for gradients in self._per_parameter]
        for gradients in per_unit:
            gradients *= shares.to(gradients.dtype).view(-1, *[1] * (gradients.ndim - 1))
        return Instantiated(per_unit, self.losses, self.outputs)

    @cached_property
    def _norms(self) -> Tensor:
        count, device = self._per_parameter[0].shape[0], self.losses.device
        squares = torch.zeros(count, dtype=torch.float64, device=device)
        for flat in map(_flat, self._per_parameter):
            squares += torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).square()
        broken = ~squares.isfinite()
        if bool(broken.any()):
            for gradients in self._per_parameter:
                gradients[broken] = 0
        return squares.sqrt()

    def norms(self) -> Tensor:
        """Return the norm of each record's gradient over all parameters, in float64."""
        return self._norms

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weights_k g_k, one tensor per trainable parameter; weight 0 leaves a record out."""
        weights = torch.as_tensor(weights, device=self._norms.device)
        if weights.shape != self._norms.shape:
            raise ValueError("weights must be one number per record of the batch")  # whose size is private
        with without_autocast(weights.device):
            return [
                (weights.to(gradients.dtype) @ _flat(gradients)).reshape(gradients.shape[1:])
                for gradients in self._per_parameter
            ]

    def rows(self) -> Iterator[Tensor]:
        """Yield the gradients of all records as rows over all parameters, in float64."""
        yield torch.cat([_flat(gradients).to(torch.float64) for gradients in self._per_parameter], dim=1)


def no_gradients(engine: Engine, inputs: Any, targets: Any) -> Gradients:
    """Return the gradients of an empty batch, by a run on one record of zeros: many models fail on an empty batch."""

    def zero_record(leaf: Any) -> Any:
        return leaf.new_zeros((1, *leaf.shape[1:])) if isinstance(leaf, Tensor) else leaf

    losses, outputs = engine.run(*tree_map(zero_record, (inputs, targets)))
    none = [parameter.new_zeros((0, *parameter.shape)) for parameter in engine.parameters]
    return Instantiated(none, losses[:0].detach(), rows(detached(outputs), slice(0)))


def _flat(gradients: Tensor) -> Tensor:
    return gradients.reshape(gradients.shape[0], math.prod(gradients.shape[1:]))
