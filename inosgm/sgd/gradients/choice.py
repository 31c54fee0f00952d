"""Which engine for which model: the fastest one that is seen to be right."""

from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from inosgm.sgd.gradients.base import Engine, Gradients, PerRecordLoss
from inosgm.sgd.gradients.batches import made_up, telling_size
from inosgm.sgd.gradients.bookkeeping import BookKeeping
from inosgm.sgd.gradients.functional import Functional
from inosgm.sgd.gradients.mixing import mixes_records, refuse_mixing
from inosgm.sgd.gradients.one_by_one import OneByOne
from inosgm.sgd.gradients.trial import quieted, trial


def engine_for(
    model: nn.Module, loss: PerRecordLoss, inputs: Any, targets: Any, *, autocast: torch.dtype | None = None
) -> Engine:
    """Return the fastest engine that gives the gradients of one backward pass per record, tried on made-up records.

    Of inputs and targets only the form is looked at, so that the choice says nothing about the data. The model is
    tried in training mode, and left as it was.

    Args:
        model: Any module that treats records apart.
        loss: Takes outputs and targets, gives one loss per record, as `per_record` makes it.
        inputs: A batch, or all inputs: a tensor, or a tuple, list or dict of the model's arguments.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.

    Returns:
        A BookKeeping, Functional or OneByOne engine.

    Raises:
        ValueError: for a model or a loss that mixes records. What they raise on made-up records is passed on.
    """
    refuse_mixing(model)
    try:
        how = mixes_records(model, loss, inputs, targets)
        if how is not None:
            raise ValueError(f"model and loss must treat records apart, but {how}")
        kind = _fastest(model, loss, (inputs, targets), autocast)
    except Exception as error:  # whatever model and loss raise
        error.add_note(
            "(tried on made-up records of the form of the data: floats uniform in (0, 1), whole numbers 0 or 1; a "
            "model that cannot take them needs an engine of your choice, and your word that it treats records apart)"
        )
        raise
    return kind(model, loss, autocast=autocast)


def _fastest(model: nn.Module, loss: PerRecordLoss, like: Any, autocast: torch.dtype | None) -> type[Engine]:
    with trial(model):
        batch = made_up(like, telling_size(like, model.parameters()), torch.Generator().manual_seed(0))
        plain = OneByOne(model, loss)
        with quieted(model, lambda: plain.run(*batch)) as quiet:
            expected = plain.gradients(*batch)
            kinds: tuple[type[Engine], ...] = (BookKeeping, Functional)
            for kind in kinds:
                try:
                    # other random numbers cannot be compared; a function mapped over records is right by construction
                    right = _agrees(kind(model, loss), batch, expected) if quiet else kind is Functional
                    kind(model, loss, autocast=autocast).gradients(*batch).norms()
                except Exception:  # what an engine cannot do, the next one may
                    continue
                if right:
                    return kind
    return OneByOne


def _agrees(engine: Engine, batch: Any, expected: Gradients) -> bool:
    """Say whether an engine finds the losses, norms and sums that were expected, up to rounding."""
    inputs, targets = batch
    found = engine.gradients(inputs, targets)
    norms = expected.norms()
    weights = torch.where(norms.isfinite(), torch.linspace(0, 1, len(norms)).to(norms), 0)
    total = expected.weighted_sum(weights)
    size = max(float(part.abs().max()) for part in total if part.numel())
    return (
        bool((weights > 0).any())
        and _close(found.losses, expected.losses)
        and _close(found.norms(), norms.to(expected.losses.dtype))
        and all(map(_close, found.weighted_sum(weights), total, repeat(size)))
        and all(map(_close, engine.weighted_sum(inputs, targets, weights), total, repeat(size)))
    )


def _close(found: Tensor, expected: Tensor, size: float = 0.0) -> bool:
    """Say whether numbers agree to half of their digits, those that are small beside `size` to fewer."""
    precision = torch.finfo(expected.dtype).eps ** 0.5
    largest = float(expected.abs().nan_to_num(0, 0).amax()) if expected.numel() else 0.0
    atol = precision * max(largest, 0.01 * size)
    return torch.allclose(found.to(expected.dtype), expected, rtol=precision, atol=atol, equal_nan=True)
