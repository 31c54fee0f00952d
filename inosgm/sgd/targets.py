"""Targets that a loss of classes can take, seen to before anything is spent."""

from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F


def require_classes(loss: Any, targets: Any, outputs: Any) -> None:
    """Raise for a target that is no class, where the loss is torch's for classes; others know their own targets.

    Args:
        loss: As the user gave it.
        targets: Those of all records.
        outputs: Of some records: one score per class.

    Raises:
        ValueError: saying which targets there may be.
    """
    of_classes = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) or loss in (F.cross_entropy, F.nll_loss)
    values = targets.detach().cpu().numpy() if isinstance(targets, Tensor) else np.asarray(targets)
    if not of_classes or not isinstance(outputs, Tensor) or outputs.ndim < 2 or values.dtype.kind not in "iu":
        return
    ignored = values == getattr(loss, "ignore_index", -100)
    if not np.all(ignored | ((values >= 0) & (values < outputs.shape[1]))):
        raise ValueError(
            f"targets must be classes 0 to {outputs.shape[1] - 1}, as the model gives {outputs.shape[1]} scores: do "
            "yours start at 1, or is the model for fewer classes?"
        )
