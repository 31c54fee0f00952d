"""Evaluation of a model on records that need no protection."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal.records import records_in
from inosgm.training.batches import batch_of
from inosgm.training.gradients.base import PerRecordLoss, apply
from inosgm.training.gradients.batches import form
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.metrics import Evaluation, evaluation, predicted
from inosgm.training.microbatches import parts_of


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its modules back into the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def evaluated(model: nn.Module, loss: PerRecordLoss, data: Any, owners: Any, like: Tensor, most: int) -> Evaluation:
    """Evaluate a model, so many records at a time.

    Raises:
        ValueError: for no record at all, and for a model that writes to itself meanwhile, which is put back as it was.
    """
    losses, predictions, targets = [], [], []
    with Snapshot(model=model, loss=loss), evaluating(model), torch.no_grad():
        for positions in parts_of(np.arange(records_in(data)), most):
            inputs, wanted = batch_of(data, positions, like)
            try:
                outputs = apply(model, inputs)
                losses.append(as_numpy(loss(outputs, wanted)))
            except Exception as error:  # whatever model and loss raise
                error.add_note(f"(a record to evaluate has inputs {form(inputs)} and targets {form(wanted)})")
                raise
            targets.append(as_numpy(wanted))
            predictions.append(predicted(as_numpy(outputs), targets[-1]))
    known = [some for some in predictions if some is not None]
    if not losses:
        raise ValueError("data must hold at least one record")
    if len(known) < len(predictions):
        return evaluation(np.concatenate(losses), None, None, owners=owners)
    true = np.concatenate([some.reshape(-1) for some in targets])
    return evaluation(np.concatenate(losses), np.concatenate(known), true, owners=owners)


def as_numpy(value: Any) -> Any:
    """Return a tensor as numpy, bfloat16 included, and anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
