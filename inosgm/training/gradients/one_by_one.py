"""One backward pass per record: slow, and correct for every model that torch can differentiate."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients
from inosgm.training.gradients.batches import detached, rows, size
from inosgm.training.gradients.instantiated import Instantiated, no_gradients
from inosgm.training.gradients.randomness import RandomState, random_state, set_random_state

KEPT_BYTES = 2**28
"""Most bytes of gradients that are kept (256 MiB): of a larger batch, every record is run again for the sum."""


class OneByOne(Engine):
    """An engine that runs every record separately; the other engines are compared with it.

    If the gradients of all records take more than 256 MiB, none is kept: records are run for their norms, and again
    for the weighted sum, with the same random numbers.
    """

    def gradients(self, inputs: Any, targets: Any) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all."""
        records = size(inputs)
        if not records:
            return no_gradients(self, inputs, targets)
        one = sum(parameter.numel() * parameter.element_size() for parameter in self.parameters)
        if records * one > KEPT_BYTES:
            return _RunTwice(self, inputs, targets)
        per_parameter = [parameter.new_empty((records, *parameter.shape)) for parameter in self.parameters]
        losses, outputs = [], []
        for record in range(records):
            gradient, loss, output = self.one(inputs, targets, record)
            for kept, new in zip(per_parameter, gradient, strict=True):
                kept[record] = new
            losses.append(loss)
            outputs.append(output)
        return Instantiated(per_parameter, torch.cat(losses), tree_map(_joined, *outputs))

    def one(self, inputs: Any, targets: Any, record: int) -> tuple[list[Tensor], Tensor, Any]:
        """Return the gradient, the loss and the output of one record of a batch."""
        alone = slice(record, record + 1)
        loss, output = self.run(rows(inputs, alone), rows(targets, alone))
        return self.backward(loss, torch.ones_like(loss)), loss.detach(), detached(output)


class _RunTwice(Gradients):
    """Norms by one pass over the records, and a weighted sum by another: only one gradient is held at a time."""

    def __init__(self, engine: OneByOne, inputs: Any, targets: Any) -> None:
        self._engine, self._batch = engine, (inputs, targets)
        self._states = list[RandomState]()
        losses, outputs, norms = [], [], []
        for record in range(size(inputs)):
            self._states.append(random_state(engine.device))
            gradient, loss, output = engine.one(inputs, targets, record)
            norms.append(_norm(gradient))
            losses.append(loss)
            outputs.append(output)
        self._norms, self.losses = torch.stack(norms), torch.cat(losses)
        self.outputs = tree_map(_joined, *outputs)

    def norms(self) -> Tensor:
        """Return the norm of each record's gradient over all parameters, in float64."""
        return self._norms

    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weights_k g_k; a gradient that is longer than before is cut to its norm."""
        if weights.shape != self._norms.shape:
            raise ValueError("weights must be one number per record of the batch")
        engine, total = self._engine, [torch.zeros_like(parameter) for parameter in self._engine.parameters]
        after = random_state(engine.device)
        weights = torch.where(self._norms.isfinite(), weights.to(torch.float64), 0)
        try:
            for record, (weight, claimed) in enumerate(zip(weights.tolist(), self._norms.tolist(), strict=True)):
                if weight == 0:
                    continue
                set_random_state(self._states[record], engine.device)
                gradient, _, _ = engine.one(*self._batch, record)
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
