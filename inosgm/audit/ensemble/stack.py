"""Many networks of the same linear layers as one: a matrix becomes a stack of matrices."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm.training.gradients.per_record import TINY


class Stack(nn.Module):
    """Networks of linear layers and elementwise activations, run side by side, each on a batch of its own.

    Parameters are those of the networks in the same order, with a first axis for the networks; elementwise operations,
    such as most optimizers, act on each network as if it were alone. Inside, the records are the last axis: sums over
    classes and neurons are then sums of long rows, which are fast.

    Args:
        models: Networks for which `unstackable` returns None.
        loss: A cross-entropy.
        shifts: What the loss and what a prediction adds to the logits, one number per class or 0 (`Adjusting.shifts`).

    Attributes:
        loss: The loss, of each record by itself.
        width: The number of activations in all layers of a network, for one record.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        loss: nn.Module,
        shifts: tuple[np.ndarray | float, np.ndarray | float] = (0.0, 0.0),
    ) -> None:
        super().__init__()
        every = [list(model.parameters()) for model in models]
        self.stacked = nn.ParameterList(torch.stack([p.detach() for p in same]) for same in zip(*every, strict=True))
        self._names = [name for name, _ in models[0].named_parameters()]
        linear = [module for module in layers_of(models[0]) if isinstance(module, nn.Linear)]
        self.width = linear[0].in_features + sum(module.out_features for module in linear)
        self._layers: list[tuple[int, bool] | nn.Module] = []
        index = 0
        for module in layers_of(models[0]):
            if isinstance(module, nn.Linear):
                self._layers.append((index, module.bias is not None))
                index += 1 + (module.bias is not None)
            elif not isinstance(module, nn.Flatten):
                self._layers.append(module)
        self._in_loss, self._predicted = (torch.as_tensor(s, dtype=self.stacked[0].dtype).view(-1, 1) for s in shifts)
        self.loss = copy.copy(loss)
        self.loss.reduction = "none"  # type: ignore[assignment]

    def state_of(self, index: int) -> dict[str, Tensor]:
        """Return the parameters of one network by their names in it."""
        return {name: value[index].detach().clone() for name, value in zip(self._names, self.stacked, strict=True)}

    def outputs(self, some: slice, inputs: Tensor) -> Tensor:
        """Return the outputs of some networks, as they predict: (network, class, record).

        Args:
            some: The networks.
            inputs: (network, number of the record, record).
        """
        with torch.no_grad():
            return self._run(some, inputs)[0] + self._predicted

    def gradients(self, some: slice, inputs: Tensor, squares: Tensor, targets: Tensor) -> "StackedGradients":
        """Return the gradients of the losses of some networks.

        Args:
            some: The networks.
            inputs: (network, number of the record, record).
            squares: The squared length of each record, in float64.
            targets: The class of each record.
        """
        with torch.enable_grad():
            outputs, given, returned = self._run(some, inputs)
            losses = self.loss(outputs + self._in_loss, targets)
            output_grads = torch.autograd.grad(losses, returned, torch.ones_like(losses))
        uses = [layer for layer in self._layers if isinstance(layer, tuple)]
        return StackedGradients(losses.detach(), squares, [value.detach() for value in given], list(output_grads), uses)

    def _run(self, some: slice, inputs: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Return the outputs, and the inputs and outputs of each linear layer."""
        given, returned = [], []
        value = inputs.transpose(1, 2)
        for layer in self._layers:
            if isinstance(layer, nn.Module):
                value = layer(value)
                continue
            index, biased = layer
            weights = self.stacked[index].detach()[some]
            given.append(value)
            if biased:
                value = torch.baddbmm(self.stacked[index + 1].detach()[some, :, None], weights, value)
            else:
                value = torch.bmm(weights, value)
            if torch.is_grad_enabled() and not value.requires_grad:
                value.requires_grad_()
            returned.append(value)
        return value, given, returned


@dataclass(frozen=True, eq=False)
class StackedGradients:
    """The gradients of batches of several networks: losses, norms, weighted sums; never a gradient by itself.

    Attributes:
        losses: (network, record).
    """

    losses: Tensor
    _squares: Tensor
    _given: list[Tensor]
    _output_grads: list[Tensor]
    _uses: list[tuple[int, bool]]

    def norms(self) -> Tensor:
        """Return the norm of each record's gradient over all parameters, in float64: (network, record).

        The norm of an outer product is the product of the lengths. Squares that underflow count as `TINY`.
        """
        least = TINY * max(value.shape[1] for value in (*self._given, *self._output_grads))
        total = torch.zeros_like(self._squares)
        for index, (given, output_grads, (_, biased)) in enumerate(
            zip(self._given, self._output_grads, self._uses, strict=True)
        ):
            square = self._squares if index == 0 else _squares(given)
            total += (_squares(output_grads) + least) * (square + least + biased)
        return total.sqrt_()

    def weighted_sums(self, weights: Tensor, kept: Tensor) -> list[Tensor]:
        """Return the sums of weights_k g_k of each network, one tensor per parameter: (network, ...).

        Args:
            weights: (network, record).
            kept: False for records that must be removed: 0 * nan is nan.
        """
        some_are_not = not bool(kept.all())
        sums = []
        for given, output_grads, (_, biased) in zip(self._given, self._output_grads, self._uses, strict=True):
            if some_are_not:
                given, output_grads = (value.where(kept[:, None], 0) for value in (given, output_grads))
            output_grads = output_grads * weights[:, None]
            sums.append(torch.bmm(output_grads, given.transpose(1, 2)))
            if biased:
                sums.append(output_grads.sum(2))
        return sums


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a sequential network, in their order."""
    every: list[Any] = [module for _, module in model.named_modules(remove_duplicate=False)]
    return [module for module in every if type(module) is not nn.Sequential]


def _squares(values: Tensor) -> Tensor:
    """Return the squared length of each record."""
    return (values * values).sum(1).double()
