"""Losses of records: what torch's losses say before they are averaged over a batch."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from inosgm._internal.trees import tree_leaves
from inosgm.training.comparable import BINARY, ELEMENTWISE, is_one_of, require_comparable
from inosgm.training.gradients.base import PerRecordLoss


def per_record(loss: Callable[..., Any]) -> PerRecordLoss:
    """Turn a loss of batches into a function (outputs, targets) -> one loss per record.

    Args:
        loss: A torch loss such as nn.CrossEntropyLoss() or F.cross_entropy, whatever its reduction, which a loss of
            one's own may have too; or a function that gives one number per record. Further axes, such as the
            positions of a sequence, are averaged for each record, or summed where the reduction is "sum" or
            "batchmean". The loss that was given is never changed.

    Returns:
        A function that raises ValueError where the loss does not give numbers record by record.

    Raises:
        TypeError: for a loss that does not take (outputs, targets).
        ValueError: for a loss with parameters to train.

    >>> per_record(nn.MSELoss())(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor([5., 0.])
    """
    if isinstance(loss, ComputedLosses):
        return loss
    if isinstance(loss, type):
        raise TypeError(f"loss must be a function of (outputs, targets), got the class: write {loss.__name__}()")
    if not callable(loss):
        raise TypeError(f"loss must be a function of (outputs, targets), got {loss!r}")
    if isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters()):
        raise ValueError(f"loss must have no parameters to train, {_name(loss)} has: make them parameters of the model")
    takes = _signature(loss)
    _require_two(loss, takes)
    reduction = getattr(loss, "reduction", None) if isinstance(loss, nn.Module) else None
    if isinstance(reduction, str):
        loss = copy.copy(loss)  # shares weights and buffers
        loss.reduction = "none"  # type: ignore[attr-defined]
    elif takes is not None and "reduction" in takes.parameters and not isinstance(loss, nn.Module):
        reduction = takes.parameters["reduction"].default
    else:
        reduction = None
    named = {} if reduction is None or isinstance(loss, nn.Module) else {"reduction": "none"}
    combine = torch.sum if reduction in ("sum", "batchmean") else torch.mean

    return _PerRecord(loss, named, combine, is_one_of(loss, ELEMENTWISE), is_one_of(loss, BINARY))


@dataclass(frozen=True, eq=False)
class _PerRecord:
    """One loss per record. What the loss itself holds can be seen in it."""

    loss: Callable[..., Any]
    named: dict[str, str]
    combine: Callable[..., Tensor]
    elementwise: bool
    binary: bool

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        if self.elementwise:
            require_comparable(self.loss, outputs, targets, binary=self.binary)
        values = self.loss(outputs, targets, **self.named)
        _require_per_record(self.loss, values, tree_leaves(targets)[0].shape[0])
        return values if values.ndim == 1 else self.combine(values, dim=tuple(range(1, values.ndim)))


class BatchLosses(nn.Module):
    """A model and a function (model, batch) -> one loss per record, as a module of the batch: what engines run.

    The user's model is a part of it and is not changed by that.

    Args:
        model: The user's model.
        losses: Gives one loss per record of a batch.

    Raises:
        TypeError: for losses that do not take a model and a batch.
        ValueError: for losses with parameters to train.
    """

    def __init__(self, model: nn.Module, losses: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        if not callable(losses) or isinstance(losses, type):
            raise TypeError(
                f"losses must be a function of (model, batch) that gives one loss per record, got {losses!r}"
            )
        if isinstance(losses, nn.Module) and any(parameter.requires_grad for parameter in losses.parameters()):
            raise ValueError("losses must have no parameters to train: make them parameters of the model")
        takes = _signature(losses)
        try:
            if takes is not None:
                takes.bind(None, None)
        except TypeError:
            raise TypeError(
                f"losses must be a function of (model, batch), but {_name(losses)} takes {takes}: a loss of outputs "
                "and targets is given as loss="
            ) from None
        self.model, self._losses = model, [losses]  # in a list: a module that computes losses is no part of the model

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Return the losses of a batch."""
        (losses,) = self._losses
        values = losses(self.model, batch)
        _require_per_record(losses, values, tree_leaves(batch)[0].shape[0], "losses")
        if values.ndim != 1:
            raise ValueError(
                f"losses must give one number per record, but {_name(losses)} gives several: average those of a record"
            )
        return {"losses": values}


@dataclass(frozen=True, eq=False)
class ComputedLosses:
    """Gives the losses that a `BatchLosses` has computed. What the user's function holds can be seen in it."""

    losses: Callable[[Any, Any], Tensor]

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """Return the losses."""
        values: Tensor = outputs["losses"]
        return values


def loss_or_losses(model: nn.Module, loss: Any, losses: Callable[[Any, Any], Tensor] | None) -> tuple[nn.Module, Any]:
    """Return what engines run and its loss: the model and `loss`, or a module of batches that computes `losses`.

    Raises:
        TypeError: unless exactly one of them is given.
    """
    if losses is None:
        if loss is None:
            raise TypeError(
                "loss must be given, such as nn.CrossEntropyLoss(), or losses=, a function of model and batch"
            )
        return model, loss
    if loss is not None:
        raise TypeError(
            f"loss and losses exclude each other, got {_name(loss)} and {_name(losses)}: losses= already says the loss "
            "of every record"
        )
    return BatchLosses(model, losses), ComputedLosses(losses)


def _name(loss: Callable[..., Any]) -> str:
    return getattr(loss, "__name__", type(loss).__name__)


def _signature(loss: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except (TypeError, ValueError):  # some functions written in C have none
        return None


def _require_two(loss: Callable[..., Any], takes: inspect.Signature | None) -> None:
    """Refuse losses of other things than outputs and targets, such as CTC, which also asks for lengths."""
    try:
        if takes is not None:
            takes.bind(None, None)
    except TypeError:
        raise TypeError(
            f"loss must be a function of (outputs, targets), but {_name(loss)} takes {takes}: write a function of two "
            "arguments that calls it with reduction='none'"
        ) from None


def _require_per_record(loss: Callable[..., Any], values: Any, records: int, argument: str = "loss") -> None:
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{argument} must give a tensor of one number per record, but {_name(loss)} gives {kind}")
    if not values.ndim:
        raise ValueError(
            f"{argument} must give one number per record, but {_name(loss)} gives one for the whole batch: do not "
            "average over records, use reduction='none' inside"
        )
    if values.shape[0] != records:
        raise ValueError(
            f"{argument} must give one number per record, but {_name(loss)} gives more or fewer: keep the records as "
            "the first axis of outputs and loss"
        )
