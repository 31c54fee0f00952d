"""What a model says about records that need no protection."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm.records import records_in
from inosgm.sgd.batches import batch_of
from inosgm.sgd.gradients.base import PerRecordLoss, apply
from inosgm.sgd.logical import parts_of
from inosgm.sgd.metrics import Evaluation, evaluation


def evaluated(model: nn.Module, loss: PerRecordLoss, data: Any, owners: Any, like: Tensor, most: int) -> Evaluation:
    """Evaluate a model in evaluation mode, so many records at a time, and leave it in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    losses, predictions, targets = [], [], []
    model.eval()
    try:
        with torch.no_grad():
            for positions in parts_of(np.arange(records_in(data)), most):
                inputs, wanted = batch_of(data, positions, like)
                outputs = apply(model, inputs)
                losses.append(loss(outputs, wanted))
                predictions.append(_predicted(outputs, wanted))
                targets.append(wanted)
    finally:
        for module, mode in modes.items():
            module.training = mode
    classified = all(prediction is not None for prediction in predictions)
    return evaluation(
        _numpy(losses),
        _numpy(predictions) if classified else None,
        _numpy(targets) if classified else None,
        owners=owners,
    )


def _predicted(outputs: Any, targets: Any) -> Tensor | None:
    """Return classes: the largest of several outputs, the sign of a single one; None where targets are no classes."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or targets.is_floating_point():
        binary = isinstance(targets, Tensor) and bool(((targets == 0) | (targets == 1)).all())
        if not isinstance(outputs, Tensor) or not binary or outputs.shape != targets.shape:
            return None
    if outputs.shape == targets.shape:
        return (outputs > 0).long().flatten() if outputs.numel() == outputs.shape[0] else None
    if outputs.ndim == targets.ndim + 1 and targets.ndim == 1:
        return (outputs > 0).long().flatten() if outputs.shape[1] == 1 else outputs.argmax(dim=1)
    return None


def _numpy(parts: list[Any]) -> np.ndarray:
    return (
        torch.cat([part.flatten().cpu() for part in parts])
        .to(torch.float64 if parts[0].is_floating_point() else torch.int64)
        .numpy()
    )
