"""One backward pass per record: slow, and correct for every model that torch can differentiate."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients
from inosgm.training.gradients.batches import detached, rows, size
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.instantiated import Instantiated, no_gradients
from inosgm.training.gradients.randomness import RandomState, random_state, set_random_state

KEPT_BYTES = 2**28
"""Most bytes of gradients that are kept (256 MiB): of a larger batch, every record is run again for the sum."""


Unit = tuple[range, float]
"""The places of the records of a unit in a batch, and the factor of their gradients."""


class OneByOne(Engine):
    """An engine that runs every record separately; the other engines are compared with it.

    If the gradients of all records take more than 256 MiB, none is kept: records are run for their norms, and again
    for the weighted sum, with the same random numbers.
    """

    def gradients(self, inputs: Any, targets: Any, groups: Groups | None = None) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all; those of units if there are groups."""
        records = size(inputs)
        if not records:
            return no_gradients(self, inputs, targets)
        units = _units(records, groups)
        one = sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)
        if len(units) * one > KEPT_BYTES:
            return _RunTwice(self, inputs, targets, units)
        per_parameter = [parameter.new_empty((len(units), *parameter.shape)) for parameter in self.parameters]
        losses, outputs = list[Tensor](), list[Any]()
        for place, unit in enumerate(units):
            gradient, some_losses, some_outputs = self.unit(inputs, targets, unit)
            for kept, new in zip(per_parameter, gradient, strict=True):
                kept[place] = new
            losses += some_losses
            outputs += some_outputs
        return Instantiated(per_parameter, torch.cat(losses), tree_map(_joined, *outputs))

    def unit(
        self, inputs: Any, targets: Any, unit: Unit, before: Callable[[int], None] = lambda record: None
    ) -> tuple[list[Tensor], list[Tensor], list[Any]]:
        """Return the gradient of a unit, and the loss and the output of each of its records.

        Args:
            inputs: The inputs of the batch.
            targets: The targets of the batch.
            unit: The unit.
            before: Called with the place of each record before it is run.
        """
        records, share = unit
        total, losses, outputs = list[Tensor](), [], []
        for record in records:
            before(record)
            gradient, loss, output = self.one(inputs, targets, record)
            if total:
                for whole, new in zip(total, gradient, strict=True):
                    whole.add_(new, alpha=share)
            else:
                total = gradient if share == 1 else [share * new for new in gradient]
            losses.append(loss)
            outputs.append(output)
        return total, losses, outputs

    def one(self, inputs: Any, targets: Any, record: int) -> tuple[list[Tensor], Tensor, Any]:
        """Return the gradient, the loss and the output of one record of a batch."""
        alone = slice(record, record + 1)
        loss, output = self.run(rows(inputs, alone), rows(targets, alone))
        return self.backward(loss, torch.ones_like(loss)), loss.detach(), detached(output)


def _units(records: int, groups: Groups | None) -> list[Unit]:
    """Return the units of a batch; every record is one if there are no groups."""
    if groups is None:
        return [(range(record, record + 1), 1.0) for record in range(records)]
    ends = np.cumsum(groups.sizes).tolist()
    begins = [0, *ends[:-1]]
    return [(range(*ends_of), share) for *ends_of, share in zip(begins, ends, groups.shares.tolist(), strict=True)]


class _RunTwice(Gradients):
    """Norms by one pass over the records, and a weighted sum by another: only one gradient is held at a time."""

    def __init__(self, engine: OneByOne, inputs: Any, targets: Any, units: list[Unit]) -> None:
        self._engine, self._batch, self._units = engine, (inputs, targets), units
        self._states = list[RandomState]()
        losses, outputs, norms = list[Tensor](), list[Any](), []
        for unit in units:
            gradient, some_losses, some_outputs = engine.unit(
                inputs, targets, unit, lambda _: self._states.append(random_state(engine.device))
            )
            norms.append(_norm(gradient))
            losses += some_losses
            outputs += some_outputs
        self._norms, self.losses = torch.stack(norms), torch.cat(losses)
        self.outputs = tree_map(_joined, *outputs)

    def norms(self) -> Tensor:
        """Return the norm of each record's, or unit's, gradient over all parameters, in float64."""
        return self._norms

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weights_k g_k; a gradient that is longer than before is cut to its norm."""
        if weights.shape != self._norms.shape:
            raise ValueError("weights must be one number per record of the batch")
        engine, total = self._engine, [torch.zeros_like(parameter) for parameter in self._engine.parameters]
        after = random_state(engine.device)
        weights = torch.where(self._norms.isfinite(), weights.to(torch.float64), 0)
        try:
            for unit, weight, claimed in zip(self._units, weights.tolist(), self._norms.tolist(), strict=True):
                if weight == 0:
                    continue
                gradient, _, _ = engine.unit(
                    *self._batch, unit, lambda record: set_random_state(self._states[record], engine.device)
                )
                now = float(_norm(gradient))
                if not math.isfinite(now):
                    continue
                share = weight * min(1.0, claimed / now) if now else weight
                for whole, part in zip(total, gradient, strict=True):
                    whole.add_(part, alpha=share)
        finally:
            set_random_state(after, engine.device)
        return total

    def rows(self) -> Iterator[Tensor]:
        """Yield the gradient of each record as a row over all parameters, in float64."""
        after = random_state(self._engine.device)
        try:
            for record, state in enumerate(self._states):
                set_random_state(state, self._engine.device)
                gradient, _, _ = self._engine.one(*self._batch, record)
                yield torch.cat([part.reshape(1, -1).to(torch.float64) for part in gradient], dim=1)
        finally:
            set_random_state(after, self._engine.device)


def _norm(gradient: list[Tensor]) -> Tensor:
    """Return the norm of a gradient in float64."""
    norms = [torch.linalg.vector_norm(part, dtype=torch.float64) for part in gradient]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def _joined(*leaves: Any) -> Any:
    return torch.cat(leaves) if isinstance(leaves[0], Tensor) else leaves[0]
