"""One backward pass per record: slow, and correct for every model that torch can differentiate."""

from typing import Any

import torch
from torch import Tensor

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients
from inosgm.training.gradients.batches import detached, rows, size
from inosgm.training.gradients.instantiated import Instantiated, no_gradients


class OneByOne(Engine):
    """An engine that runs every record separately; the other engines are compared with it."""

    def gradients(self, inputs: Any, targets: Any) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all."""
        records = size(inputs)
        if not records:
            return no_gradients(self, inputs, targets)
        per_parameter = [parameter.new_empty((records, *parameter.shape)) for parameter in self.parameters]
        losses, outputs = [], []
        for record in range(records):
            alone = slice(record, record + 1)
            loss, output = self.run(rows(inputs, alone), rows(targets, alone))
            gradient = self.backward(loss, torch.ones_like(loss))
            for kept, new in zip(per_parameter, gradient, strict=True):
                kept[record] = new
            losses.append(loss.detach())
            outputs.append(detached(output))
        return Instantiated(per_parameter, torch.cat(losses), tree_map(_joined, *outputs))


def _joined(*leaves: Any) -> Any:
    return torch.cat(leaves) if isinstance(leaves[0], Tensor) else leaves[0]
