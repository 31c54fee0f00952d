"""The confidence of a model in records: the scores from which membership is inferred."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal.records import records_in
from inosgm.training.batches import batch_of
from inosgm.training.gradients.base import apply
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.logit_adjustment import AdjustedLoss
from inosgm.training.losses import per_record
from inosgm.training.microbatches import parts_of
from inosgm.training.predictions import as_numpy, evaluating

AT_ONCE = 1024
"""Number of records in a batch for scoring: enough to keep a processor busy, with little memory."""


def confidences(model: nn.Module, loss: nn.Module, data: Any, like: Tensor) -> np.ndarray:
    """Return the confidence of a model in each record, float32. NOT PRIVATE.

    Args:
        model: The model, which is run in evaluation mode.
        loss: The loss that it was trained with; see `scores`.
        data: Inputs and targets.
        like: A parameter of the model.
    """
    chunks = [np.empty(0, dtype=np.float32)]
    with Snapshot(model=model, loss=loss), evaluating(model), torch.no_grad():
        for positions in parts_of(np.arange(records_in(data)), AT_ONCE):
            inputs, targets = batch_of(data, positions, like)
            chunks.append(as_numpy(scores(apply(model, inputs), targets, loss)).astype(np.float32))
    return np.concatenate(chunks)


def scores(outputs: Tensor, targets: Tensor, loss: Callable[..., Any]) -> Tensor:
    """Return one number per record: the log odds that a classifier gives to the true class, or else minus the loss.

    Outputs of an adjusted model are corrected already. Its loss shifts them for training; a score does without that.

    The log odds are log p - log(1 - p), written as the output of the true class minus the logsumexp of the others, so
    that they stay exact where p is 1 in floating point. They are positive where the true class gets more than half.

    >>> scores(torch.tensor([[90.0, 0.0, 0.0]]), torch.tensor([0]), nn.CrossEntropyLoss())
    tensor([89.3069])
    """
    if isinstance(loss, AdjustedLoss):
        return scores(outputs, targets, loss.loss)
    if isinstance(loss, nn.CrossEntropyLoss) and outputs.ndim == 2 and targets.ndim == 1 and outputs.shape[1] > 1:
        true = outputs.gather(1, targets[:, None])
        others = outputs.scatter(1, targets[:, None], -torch.inf)
        return (true - others.logsumexp(1, keepdim=True))[:, 0]
    if isinstance(loss, nn.BCEWithLogitsLoss) and outputs.numel() == outputs.shape[0]:
        return (outputs * (2 * targets.reshape(outputs.shape) - 1)).reshape(-1)
    return -per_record(loss)(outputs, targets)
