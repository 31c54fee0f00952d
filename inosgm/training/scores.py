"""Scores, by which a batch is ordered: the loss, or a function of the user's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inosgm.training.gradients.base import Engine
from inosgm.training.gradients.batches import rows, synthetic
from inosgm.training.gradients.randomness import foreign_state, random_state, same_state
from inosgm.training.gradients.record_order import moves_records

Score = Callable[[Any, Any, Tensor], Tensor]
"""(outputs, targets, losses) -> one number per record."""


def scored(score: Score, outputs: Any, targets: Any, losses: Tensor) -> Tensor:
    """Return the score of each record.

    Raises:
        ValueError: when the score gives something else.
    """
    with torch.no_grad():
        scores = torch.as_tensor(score(outputs, targets, losses), device=losses.device)
    if scores.shape != losses.shape:
        raise ValueError("score must give one number per record, in the shape of the losses that it is given")
    return scores


def refuse_mixing_scores(score: Score, engine: Engine, inputs: Any, targets: Any, *, in_parts: bool) -> None:
    """Raise if a score looks at other records than the one it scores, as far as synthetic records tell.

    Where a batch is run in parts, raise as well if a score draws random numbers: records of a part could share them,
    and which records these are depends on who else was drawn.

    Raises:
        ValueError: saying so.
    """
    inputs, targets = synthetic((inputs, targets), 6, torch.Generator().manual_seed(0))
    found = engine.gradients(inputs, targets)
    batch = found.outputs, targets, found.losses
    together = scored(score, *batch)
    # twice, because another thread may draw meanwhile
    if in_parts and (_repeats_differ(score, batch) or all(_draws(score, batch, engine.device) for _ in range(2))):
        raise ValueError(
            "score must not draw random numbers with max_physical_batch: records of one part could share them; take "
            "order=RandomOrder() for a random order, or leave max_physical_batch out"
        )
    for place in range(6):
        alone = scored(score, *rows(batch, slice(place, place + 1)))
        if not torch.allclose(alone.double(), together[place : place + 1].double(), rtol=1e-4, equal_nan=True):
            raise ValueError(
                "score must look at one record at a time, but that of a synthetic record changes with others in the "
                "batch: do not rank, standardise or compare within a batch"
            )
    if _goes_by_place(score, rows(batch, [0] * 6)):
        raise ValueError(
            "score must look at one record at a time, but that of a synthetic record changes with its place in the "
            "batch: do not draw from a seed that is always the same; take order=RandomOrder() for a random order"
        )


def safe_score(score: Score, engine: Engine, inputs: Any, targets: Any) -> Score:
    """Return a score that is given one record at a time, unless it calls nothing that looks at several.

    Synthetic records need not show that a score looks at others: `losses / losses.max().clamp(min=100)` and
    `-losses if (losses > 20).any() else losses` do so where a real record has a large loss.
    """
    inputs, targets = synthetic((inputs, targets), 1, torch.Generator().manual_seed(0))
    found = engine.gradients(inputs, targets)
    return OneAtATime(score) if moves_records(_Scoring(score), (found.outputs, found.losses), targets) else score


@dataclass(frozen=True, eq=False)
class OneAtATime:
    """A score that is given every record by itself."""

    score: Score

    def __call__(self, outputs: Any, targets: Any, losses: Tensor) -> Tensor:
        """Return the score of each record."""
        batch = outputs, targets, losses
        if not losses.numel():
            return scored(self.score, *batch)
        return torch.cat([scored(self.score, *rows(batch, slice(k, k + 1))) for k in range(losses.numel())])


@dataclass(frozen=True, eq=False)
class _Scoring:
    """A score in the form of what `moves_records` watches."""

    score: Score

    def run(self, inputs: Any, targets: Any) -> Tensor:
        """Return the scores of outputs and losses."""
        outputs, losses = inputs
        return scored(self.score, outputs, targets, losses)


def _draws(score: Score, batch: Any, device: torch.device) -> bool:
    """Say whether a score draws from a global generator of torch, Python or numpy."""
    before, foreign = random_state(device), foreign_state()
    scored(score, *batch)
    return foreign != foreign_state() or not same_state(before, random_state(device))


def _repeats_differ(score: Score, batch: Any) -> bool:
    """Say whether a score gives other numbers when it is asked again, be they drawn from wherever."""
    first, *others = (scored(score, *batch) for _ in range(5))
    return not all(_same(first, other) for other in others)


def _goes_by_place(score: Score, copies: Any) -> bool:
    """Say whether a score gives copies of one record numbers that differ, and the same ones when it is asked again."""
    first, again = (scored(score, *copies) for _ in range(2))
    return _same(first, again) and not _same(first, first[:1].expand_as(first))


def _same(one: Tensor, other: Tensor) -> bool:
    """Say whether scores are equal, but for a few roundings."""
    rounding = 4 * torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0
    return torch.allclose(one.double(), other.double(), rtol=rounding, atol=0, equal_nan=True)
