"""Trial of a data set's batches: what becomes of a record must not depend on the records beside it, nor on padding.

A batch of records of several lengths is as long as its longest record. If the loss of a shorter one changed with its
padding, its gradient and its score would depend on who else was drawn, and clipping could not bound what one more
record changes.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from inosgm._internal.trees import tree_leaves, tree_map
from inosgm.training.batches import converted, is_in_columns, picked
from inosgm.training.collating import CollatedRecords
from inosgm.training.gradients.base import PerRecordLoss, apply
from inosgm.training.gradients.batches import rows, synthetic
from inosgm.training.gradients.randomness import foreign_state, keep_foreign_state
from inosgm.training.gradients.sandbox import perturbed, sandbox, without_randomness
from inosgm.training.gradients.tensor_values import same_bits
from inosgm.training.scores import Score, scored

MOST_LOOKED_AT = 32
"""How many records, evenly spread over a data set, are put into a batch before anything is charged."""

SEEDS = range(3)
"""Seeds of the synthetic values with which the loss is tried on padded records."""


def looked_at(records: int) -> list[int]:
    """Return the positions of records that are looked at before anything is charged."""
    positions = np.linspace(0, records - 1, min(records, MOST_LOOKED_AT)).astype(np.int64)
    return list(map(int, np.unique(positions)))


def try_batches(model: nn.Module, loss: PerRecordLoss, score: Score | None, data: Any, like: Tensor) -> None:
    """Raise for a data set whose records cannot be put together, or for a loss that depends on padding.

    Some records are put together as a batch. If `collate_fn` makes records of one length of them, the model runs on
    the shortest record, alone and beside the longest one, with synthetic values in the place of its own.

    Args:
        model: What the engine runs.
        loss: Gives one loss per record.
        score: What the order goes by, if it is not the loss.
        data: As `as_data` returns it; columns are left alone.
        like: A tensor whose device and precision inputs get.

    Raises:
        ValueError: with a remedy; neither a length nor a position is shown.
    """
    if is_in_columns(data) or not len(data):
        return
    source = data if isinstance(data, CollatedRecords) else CollatedRecords(data)
    with torch.random.fork_rng(devices=[]), keep_foreign_state():
        items = [item for index in looked_at(len(data)) for item in picked(source.records, [index])]
        together = source.collated(items)
        if source.collate is default_collate:  # which only stacks records of one shape
            return
        _refuse_random(source, items)
        apart = [source.collated([item]) for item in items]
        for position, alone in enumerate(apart):
            if any(place is None for place in _places(alone, rows(_tensors(together), position))):
                raise ValueError(
                    "collate_fn must make the same of a record whoever is beside it, up to padding at its end or its "
                    "beginning, but made something else of some record in a batch: do not mix, sort or normalise "
                    "records there"
                )
        sizes = [sum(leaf.numel() for leaf in tree_leaves(_tensors(alone))) for alone in apart]
        short, long = int(np.argmin(sizes)), int(np.argmax(sizes))
        if sizes[short] < sizes[long]:
            pair = _tensors(source.collated([items[short], items[long]]))
            run = partial(_losses_and_scores, model, loss, score)
            _refuse_padding(model, loss, score, run, source, _tensors(apart[short]), pair, like)


def _refuse_random(source: CollatedRecords, items: list[Any]) -> None:
    """Raise for a collate_fn that draws: records of a batch would share its numbers."""
    before, foreign = torch.get_rng_state(), foreign_state()
    source.collated(items)
    if foreign != foreign_state() or not torch.equal(before, torch.get_rng_state()):
        raise ValueError(
            "collate_fn must not draw random numbers, which the records of a batch would share: draw in the Dataset, "
            "for each record by itself"
        )


def _refuse_padding(
    model: nn.Module,
    loss: PerRecordLoss,
    score: Score | None,
    run: Callable[[Any, Any], list[Tensor]],
    source: CollatedRecords,
    alone: Any,
    pair: Any,
    like: Tensor,
) -> None:
    """Raise if the first record of a pair has another loss or score than alone."""

    def differ(alone: Any, pair: Any) -> bool:
        one, other = (run(*converted(source, batch, like)) for batch in (alone, pair))
        return any(_differ(a[0], b[0]) for a, b in zip(one, other, strict=True))

    def tried() -> bool:
        """Say whether any synthetic values show a difference; the record's own where the model rejects those."""
        try:
            return any(differ(*_filled(alone, pair, torch.Generator().manual_seed(seed))) for seed in SEEDS)
        except Exception:  # values that the model refuses, such as a length of 0
            return differ(alone, pair)

    with (
        sandbox(model, loss=loss, score=score),
        torch.no_grad(),
        without_randomness(model, lambda: run(*converted(source, pair, like))),
    ):
        dependent = tried()
        if not dependent:
            with perturbed(model):  # a head that is 0 would hide it
                dependent = tried()
    if dependent:
        raise ValueError(
            "the loss and the score of a record must not depend on its padding, but a synthetic record gives something "
            "else beside a longer one: mask padded positions in the model (attention_mask), average over the record's "
            "own positions only, or pad all records to one length"
        )


def _losses_and_scores(
    model: nn.Module, loss: PerRecordLoss, score: Score | None, inputs: Any, targets: Any
) -> list[Tensor]:
    outputs = apply(model, inputs)
    losses = loss(outputs, targets)
    return [losses] if score is None else [losses, scored(score, outputs, targets, losses)]


def _differ(one: Tensor, other: Tensor) -> bool:
    """Say whether two numbers differ by more than sums of another length may be rounded to, as in `mixing`."""
    tolerance = torch.finfo(one.dtype).eps ** 0.5 if one.is_floating_point() else 0.0
    a, b = one.double(), other.double()
    return not torch.allclose(a, b, rtol=0, atol=tolerance * (float(a.abs().nan_to_num(0, 0)) + 1e-3), equal_nan=True)


def _tensors(batch: Any) -> Any:
    return tree_map(torch.as_tensor, batch)


def _places(alone: Any, row: Any) -> list[tuple[slice, ...] | None]:
    """Return where each part of a record that was alone in its batch is in the same record of a longer batch."""
    return [_place(a[0], b) for a, b in zip(tree_leaves(_tensors(alone)), tree_leaves(row), strict=True)]


def _place(short: Tensor, long: Tensor) -> tuple[slice, ...] | None:
    """Return the corner of a tensor in which a smaller one is found; None if there is none."""
    if short.ndim != long.ndim or any(a > b for a, b in zip(short.shape, long.shape, strict=True)):
        return None
    corners = (
        (slice(0, a), slice(b - a, b)) if a < b else (slice(0, a),)
        for a, b in zip(short.shape, long.shape, strict=True)
    )
    for corner in product(*corners):
        if same_bits(long[corner].contiguous(), short.contiguous()):
            return corner
    return None


def _filled(alone: Any, pair: Any, generator: torch.Generator) -> tuple[Any, Any]:
    """Return both batches with synthetic values; padding stays, and so do masks, which are constant in the record."""
    places = iter(_places(alone, rows(pair, 0)))

    def fill(short: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
        place = next(places)
        if place is None or (short.numel() > 1 and bool((short == short.flatten()[0]).all())):
            return short, both
        value, both = synthetic(short, 1, generator), both.clone()
        both[1] = synthetic(both[1:], 1, generator)[0]
        both[0][place] = value[0]
        return value, both

    filled = [fill(*leaves) for leaves in zip(tree_leaves(alone), tree_leaves(pair), strict=True)]
    made = [iter(column) for column in zip(*filled, strict=True)]
    return tree_map(lambda _: next(made[0]), alone), tree_map(lambda _: next(made[1]), pair)
