"""Evaluation of a model on records that need no protection."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal.records import records_in
from inosgm.training.batches import batch_of
from inosgm.training.gradients.base import PerRecordLoss, apply
from inosgm.training.gradients.batches import form
from inosgm.training.gradients.snapshot import Snapshot
from inosgm.training.losses import ComputedLosses
from inosgm.training.metrics import Evaluation, evaluation, predicted
from inosgm.training.microbatches import parts_of


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and each of its modules back into the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


Metrics = Mapping[str, Callable[[Any, Any], float]]
"""Metrics of one's own, by name: functions (outputs, targets) -> a number, of all held-out records as arrays."""


def require_metrics(metrics: Metrics | None, loss: PerRecordLoss) -> None:
    """Raise for metrics that cannot be computed.

    Raises:
        TypeError: for what is no mapping of functions, and where `losses` says nothing about outputs.
    """
    if not metrics:
        return
    if not isinstance(metrics, Mapping) or not all(map(callable, metrics.values())):
        raise TypeError(
            f"metrics must be a dict of functions of (outputs, targets) by name, got {metrics!r}: "
            'metrics={"mine": lambda outputs, targets: ...}'
        )
    if isinstance(loss, ComputedLosses):
        raise TypeError(
            "metrics are functions of outputs and targets, and losses= tells neither: compute them in on_evaluate, "
            "with the model and held-out records"
        )


def evaluated(
    model: nn.Module,
    loss: PerRecordLoss,
    data: Any,
    owners: Any,
    like: Tensor,
    most: int,
    metrics: Metrics | None = None,
) -> Evaluation:
    """Evaluate a model, so many records at a time; with metrics, outputs of all records are kept until the end.

    Raises:
        TypeError: for metrics that cannot be computed, or give no number.
        ValueError: for no record at all, and for a model that writes to itself meanwhile, which is put back as it was.
    """
    require_metrics(metrics, loss)
    losses, predictions, targets, kept = [], [], [], []
    with Snapshot(model=model, loss=loss), evaluating(model), torch.no_grad():
        for positions in parts_of(np.arange(records_in(data)), most):
            inputs, wanted = batch_of(data, positions, like)
            try:
                outputs = apply(model, inputs)
                losses.append(as_numpy(loss(outputs, wanted)))
            except Exception as error:  # whatever model and loss raise
                error.add_note(f"(a record to evaluate has inputs {form(inputs)} and targets {form(wanted)})")
                raise
            targets.append(as_numpy(wanted))
            predictions.append(predicted(as_numpy(outputs), targets[-1]))
            if metrics:
                kept.append(as_numpy(outputs))
    known = [some for some in predictions if some is not None]
    if not losses:
        raise ValueError("data must hold at least one record")
    if len(known) < len(predictions):
        found = evaluation(np.concatenate(losses), None, None, owners=owners)
    else:
        true = np.concatenate([some.reshape(-1) for some in targets])
        found = evaluation(np.concatenate(losses), np.concatenate(known), true, owners=owners)
    if not metrics:
        return found
    whole = [np.concatenate(column) for column in (kept, targets)]
    return replace(found, metrics={name: _number(name, metric(*whole)) for name, metric in metrics.items()})


def _number(name: str, value: Any) -> float | None:
    """Return the value of a metric; None if it is not finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"metrics[{name!r}] must give one number, got {type(value).__name__}") from None
    return number if math.isfinite(number) else None


def as_numpy(value: Any) -> Any:
    """Return a tensor as numpy, bfloat16 included, and anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
