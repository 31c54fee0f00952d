"""Detection, before training, of models that write to their own state as they run."""

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
    """Raise if a model or its loss changes its state in a pass, in training or evaluation mode; it is restored.

    The passes are gradients by an engine, and outputs without gradients, on synthetic records, or on the first record
    of the batch if the model rejects those. They run again with perturbed parameters on more varied records, if the
    model accepts them.

    Args:
        kind: The engine.
        model: The model.
        loss: Gives one loss per record.
        inputs: A batch, or all inputs.
        targets: What the loss compares with.
        autocast: The precision of the forward pass.

    Raises:
        ValueError: naming what is changed. Exceptions of model and loss are passed on.
    """
    like, snapshot = (inputs, targets), Snapshot(model=model, loss=loss)

    def watch(batch: Any) -> None:
        inputs, targets = batch
        snapshot.take()
        with torch.no_grad():
            loss(apply(model, inputs), targets)
        changes.append(snapshot.change())
        if changes[-1] is None:  # otherwise torch.func may meet tensors that it cannot write, and end the process
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
    """Return the output of a model in evaluation mode for a synthetic record, or for the first record of the batch."""
    with sandbox(model), torch.no_grad():
        model.eval()
        return run_on_synthetic(partial(apply, model), inputs, 1)
