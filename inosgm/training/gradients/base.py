"""The interface of per-record gradients: losses, norms and a weighted sum, never the matrix of all gradients."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from inosgm.training.gradients.compiled import is_compiled, uncompiled
from inosgm.training.gradients.groups import Groups
from inosgm.training.gradients.precision import WIDE

PerRecordLoss = Callable[[Any, Any], Tensor]
"""(outputs, targets) -> one loss per record."""


class Gradients(ABC):
    """The gradients of the losses of one batch with respect to the trainable parameters: `Contributions`.

    Attributes:
        losses: One loss per record, detached.
        outputs: The outputs of the model for the batch, detached.
    """

    losses: Tensor
    outputs: Any
    reruns: ClassVar[bool] = True
    """Whether norms or sums may run the model again. The caller then checks the model's state around them."""

    @abstractmethod
    def norms(self) -> Tensor:
        """Return the norm of each record's gradient over all parameters, in float64."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> list[Tensor]:
        """Return the sum of weights_k g_k, one tensor per trainable parameter; weight 0 leaves a record out."""

    def rows(self) -> Iterator[Tensor]:
        """Yield the gradients of some records after another as rows over all parameters, in float64."""
        raise TypeError(f"{type(self).__name__} never holds the gradient of a record: take the engine OneByOne")


class Engine(ABC):
    """Computes the gradients of a batch without wrapping the model; no hooks or attributes remain on it.

    Args:
        model: Any module that processes each record independently.
        loss: Takes outputs and targets, gives one loss per record.
        autocast: The precision of the forward pass, such as torch.bfloat16; that of the parameters if not given.

    Attributes:
        parameters: The trainable parameters.
        kinds: One of them of each type of numbers.
        device: Where they are.
    """

    def __init__(self, model: nn.Module, loss: PerRecordLoss, *, autocast: torch.dtype | None = None) -> None:
        self._model, self._loss, self._autocast = model, loss, autocast
        self.parameters = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
        if not self.parameters:
            raise ValueError("model must have a parameter to train: none has requires_grad")
        coarse = [parameter.dtype for parameter in self.parameters if parameter.dtype not in WIDE]
        if coarse:  # a sum of gradients has the type of its parameter
            raise TypeError(
                f"model must have trainable parameters in float32 or float64, got {coarse[0]}: use autocast"
            )
        self.device = self.parameters[0].device
        self.kinds = tuple({parameter.dtype: parameter for parameter in self.parameters}.values())
        self._compiled = is_compiled(model)

    @property
    def model(self) -> nn.Module:
        """The model whose gradients these are."""
        return self._model

    @abstractmethod
    def gradients(self, inputs: Any, targets: Any, groups: Groups | None = None) -> Gradients:
        """Return the gradients of a batch, which may hold no record at all.

        Args:
            inputs: What the model is given.
            targets: What the loss is given besides the outputs.
            groups: The units of the batch: norms and weights are those of units then, losses and outputs of records.
        """

    def losses(self, inputs: Any, targets: Any) -> Tensor:
        """Return the losses of a batch, with the random numbers that `gradients` would draw."""
        return self.gradients(inputs, targets).losses

    def followed(self) -> frozenset[int]:
        """Return the ids of the parameters that are followed through torch functions, as far as is known."""
        return frozenset()

    def run(self, inputs: Any, targets: Any) -> tuple[Tensor, Any]:
        """Return the losses and the outputs of a batch, ready for a backward pass."""
        with torch.enable_grad(), self._precision():
            outputs = apply(self._model, self._laid_out(inputs))
            return self._loss(outputs, targets), outputs

    def backward(self, losses: Tensor, weights: Tensor) -> list[Tensor]:
        """Return the gradient of the weighted sum of losses: 0 for a parameter that they do not depend on."""
        if not losses.requires_grad:
            return [torch.zeros_like(parameter) for parameter in self.parameters]
        return list(torch.autograd.grad(losses, self.parameters, weights, materialize_grads=True))

    def _laid_out(self, inputs: Any) -> Any:
        """Return the inputs in the memory layout that suits the engine."""
        return inputs

    def _precision(self) -> AbstractContextManager[Any]:
        """Return the context in which the model runs."""
        if self._autocast is None:
            return uncompiled(self._compiled)
        stack = ExitStack()
        stack.enter_context(uncompiled(self._compiled))
        stack.enter_context(torch.autocast(self.device.type, dtype=self._autocast))
        return stack


def apply(model: Callable[..., Any], inputs: Any) -> Any:
    """Call a model on a batch: a tuple or list holds its arguments, a dict its keyword arguments.

    Of an output with `logits`, as models of Hugging Face return it, those are what losses and scores are about.
    """
    if isinstance(inputs, tuple | list):
        outputs = model(*inputs)
    else:
        outputs = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    logits = None if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    return logits if isinstance(logits, Tensor) else outputs
