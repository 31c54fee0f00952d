"""What the order of a batch goes by: the loss, or a function of the user's."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inosgm.sgd.gradients.base import Engine
from inosgm.sgd.gradients.batches import made_up, rows

Score = Callable[[Any, Any, Tensor], Tensor]
"""(outputs, targets, losses) -> one number per record."""


def scored(score: Score | None, outputs: Any, targets: Any, losses: Tensor) -> Tensor:
    """Return one number per record, the loss where there is no score.

    Raises:
        ValueError: when the score gives something else.
    """
    if score is None:
        return losses
    with torch.no_grad():
        scores = torch.as_tensor(score(outputs, targets, losses), device=losses.device)
    if scores.shape != losses.shape:
        raise ValueError("score must give one number per record, in the shape of the losses that it is given")
    return scores


def refuse_mixing_scores(score: Score, engine: Engine, inputs: Any, targets: Any) -> None:
    """Raise if a score looks at other records than the one it scores, as far as made-up records tell.

    Raises:
        ValueError: saying so.
    """
    inputs, targets = made_up((inputs, targets), 6, torch.Generator().manual_seed(0))
    found = engine.gradients(inputs, targets)
    together = scored(score, found.outputs, targets, found.losses)
    for place in range(6):
        alone = scored(score, *rows((found.outputs, targets, found.losses), slice(place, place + 1)))
        if not torch.allclose(alone.double(), together[place : place + 1].double(), rtol=1e-4, equal_nan=True):
            raise ValueError(
                "score must look at one record at a time, but that of a made-up record changes with the others in the "
                "batch: do not rank, standardise or compare within a batch"
            )
