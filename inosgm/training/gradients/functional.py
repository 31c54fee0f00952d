"""Per-record gradients by torch.func: for any model that is a function of its parameters and one record."""

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from inosgm._internal.trees import tree_map
from inosgm.training.gradients.base import Engine, Gradients, apply
from inosgm.training.gradients.batches import detached, size
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.instantiated import Instantiated, no_gradients

SLOW = "There is a performance drop"
"""The warning of torch about a function that it runs in a loop over the records."""


class Functional(Engine):
    """An engine that maps the gradient of one record over the batch.

    Every record gets random numbers of its own, and buffers are read but never changed. torch raises where the
    model cannot be mapped: control flow that depends on values, nn.GRU, `.item()`.

    Attributes:
        looped: Whether torch was seen to run a function in a loop over the records, because it cannot map it.
    """

    looped = False

    def gradients(self, inputs: Any, targets: Any, groups: Groups | None = None) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all; those of units if there are groups."""
        if not size(inputs):
            return no_gradients(self, inputs, targets)
        as_batch, as_record = (partial(function, dim=0) for function in (torch.unsqueeze, torch.squeeze))
        buffers = {name: buffer.detach().clone() for name, buffer in self._model.named_buffers()}

        def loss(trained: dict[str, Tensor], record: Any, target: Any) -> tuple[Tensor, tuple[Tensor, Any]]:
            def model(*arguments: Any, **named: Any) -> Any:
                return functional_call(self._model, {**trained, **buffers}, arguments, named)

            outputs = apply(model, tree_map(as_batch, record))
            losses = self._loss(outputs, tree_map(as_batch, target))
            return losses.sum(), (losses.squeeze(0), tree_map(as_record, outputs))

        trained = {name: value.detach() for name, value in self._model.named_parameters() if value.requires_grad}
        mapped = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0), randomness="different")
        with self._precision(), warnings.catch_warnings(record=True) as said:
            warnings.filterwarnings("always", SLOW)
            gradients, (losses, outputs) = mapped(trained, inputs, targets)
        for each in said:
            if str(each.message).startswith(SLOW):
                self.looped = True
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return Instantiated(list(gradients.values()), losses.detach(), detached(outputs)).grouped(groups)
