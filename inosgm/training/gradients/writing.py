"""Models that write to themselves as they run, in training or in evaluation mode: found before training."""

from functools import partial
from typing import Any

import torch
from torch import nn

from inosgm.training.gradients.base import Engine, PerRecordLoss, apply
from inosgm.training.gradients.batches import unambiguous_size
from inosgm.training.gradients.sandbox import perturbed, run_on_synthetic, sandbox, varied_batches
from inosgm.training.gradients.snapshot import Snapshot, write_error


def refuse_writing(
    kind: type[Engine],
    model: nn.Module,
    loss: PerRecordLoss,
    inputs: Any,
    targets: Any,
    *,
    autocast: torch.dtype | None = None,
) -> None:
    """Raise if a model or its loss changes what it holds in a pass, in either mode; it is left as it was.

    Tried are gradients by an engine, and outputs without gradients, on synthetic records; on the first record of the
    batch, if the model does not take them. Then once more with parameters that are moved, on records of more kinds, if
    the model takes those.

    Args:
        kind: The engine.
        model: The model.
        loss: Gives one loss per record.
        inputs: A batch, or all inputs.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.

    Raises:
        ValueError: naming what is changed. What model and loss raise is passed on.
    """
    like, snapshot = (inputs, targets), Snapshot(model=model, loss=loss)

    def watch(batch: Any) -> None:
        inputs, targets = batch
        snapshot.take()
        with torch.no_grad():
            loss(apply(model, inputs), targets)
        changes.append(snapshot.change())
        if changes[-1] is None:  # else an engine may meet tensors that torch.func cannot write, and end the process
            gradients = engine.gradients(inputs, targets)
            gradients.weighted_sum(torch.ones_like(gradients.norms()))
            changes.append(snapshot.change())

    with sandbox(model, loss=loss):
        for mode in ("training", "evaluation"):
            model.train(mode == "training")
            engine = kind(model, loss, autocast=autocast)
            changes = list[str | None]()
            run_on_synthetic(watch, like, unambiguous_size(like, model.parameters()))
            with perturbed(model):
                varied_batches(model, lambda *batch: watch(batch), like, 3, 1)
            for change in filter(None, changes):
                raise write_error(f"a pass over records in {mode} mode", change)


def outputs_in_evaluation(model: nn.Module, inputs: Any) -> Any:
    """Return what a model in evaluation mode says about a synthetic record, or the first one if it takes no such."""
    with sandbox(model), torch.no_grad():
        model.eval()
        return run_on_synthetic(partial(apply, model), inputs, 1)
