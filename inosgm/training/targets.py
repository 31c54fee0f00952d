"""Targets that a loss of classes can take, seen to before the loss meets them: its own message would show them."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inosgm.training.gradients.base import PerRecordLoss
from inosgm.training.gradients.snapshot import Snapshot

AT_ONCE = 2**20
"""How many outputs a loss is given at a time when it is asked about targets."""


def require_classes(loss: Any, per_record: PerRecordLoss, targets: Any, outputs: Any) -> None:
    """Raise for a target that is no class and that the loss refuses; neither the target nor its position is shown.

    A whole number that is no class may be one that the loss takes all the same (`ignore_index`, a regression). Losses
    of torch for classes say so. Any other loss is asked, with outputs of zeros; on another device than the CPU it is
    not, because a loss that refuses an index there ends the process, and torch's message shows no number.

    Args:
        loss: As the user gave it.
        per_record: What `per_record` made of it.
        targets: Those of some or all records. Anything but whole numbers is left to the loss.
        outputs: Of some records; their values are not looked at.

    Raises:
        ValueError: saying which targets there may be.
    """
    if not isinstance(outputs, Tensor) or outputs.ndim < 2:
        return
    strange = _no_classes(targets, outputs.shape[1])
    if not strange.size:
        return
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) or loss in (F.cross_entropy, F.nll_loss):
        ignored = getattr(loss, "ignore_index", -100)
        refused = bool(((strange != ignored) & ((strange < 0) | (strange >= outputs.shape[1]))).any())
    else:
        refused = outputs.device.type == "cpu" and _refuses(per_record, outputs, strange)
    if refused:
        raise ValueError(
            f"targets must be classes 0 to {outputs.shape[1] - 1}, as the model gives {outputs.shape[1]} scores: do "
            "yours start at 1, or is the model for fewer classes?"
        )


def _no_classes(targets: Any, classes: int) -> np.ndarray:
    """Return the distinct targets, whole numbers or arrays of them, that have something in them that is no class."""
    none = np.empty(0, dtype=np.int64)
    if isinstance(targets, Tensor):
        if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            return none
        targets = targets.detach().cpu().numpy()
    values = np.asarray(targets)
    if values.dtype.kind not in "iu" or not values.size or 0 <= values.min() <= values.max() < classes:
        return none
    strange = (values < 0) | (values >= classes)
    return np.unique(values[strange.reshape(len(values), -1).any(axis=1)].astype(np.int64), axis=0)


def _refuses(loss: PerRecordLoss, outputs: Tensor, targets: np.ndarray) -> bool:
    """Say whether a loss refuses some targets, and would not refuse zeros in their place."""
    size = max(1, AT_ONCE // math.prod(outputs.shape[1:]))
    with Snapshot(loss=loss):
        for start in range(0, len(targets), size):
            asked = torch.from_numpy(targets[start : start + size])
            given = outputs.new_zeros((len(asked), *outputs.shape[1:]))
            if not _takes(loss, given, asked) and _takes(loss, given, torch.zeros_like(asked)):
                return True
        return False


def _takes(loss: PerRecordLoss, outputs: Tensor, targets: Tensor) -> bool:
    try:
        with torch.no_grad():
            loss(outputs, targets)
    except Exception:  # whatever the loss raises, and shows
        return False
    return True
