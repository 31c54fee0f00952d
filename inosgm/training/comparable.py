"""Types and shapes of what losses and models take: errors in words where those of torch are obscure."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inosgm.training.gradients.batches import tensors_in

BINARY = (nn.BCELoss, nn.BCEWithLogitsLoss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits)
"""Losses of torch whose targets are probabilities, and so floating-point numbers."""

ELEMENTWISE = (
    *BINARY,
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss, nn.SoftMarginLoss),
    *(F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.poisson_nll_loss, F.soft_margin_loss),
)
"""Losses of torch that compare outputs and targets number by number, after torch has broadcast them."""


def is_one_of(loss: Any, kinds: tuple[Any, ...]) -> bool:
    """Say whether a loss is one of torch's modules or functions, maybe with arguments of its own."""
    loss = loss.func if isinstance(loss, partial) else loss
    return any(isinstance(loss, kind) if isinstance(kind, type) else loss is kind for kind in kinds)


def require_comparable(loss: Any, outputs: Any, targets: Any, *, binary: bool) -> None:
    """Raise where an elementwise loss would compare every output with every target, or takes no whole numbers.

    Args:
        loss: For the message.
        outputs: Of the model.
        targets: What they are compared with.
        binary: Whether targets are probabilities.

    Raises:
        TypeError: for whole numbers where probabilities are wanted.
        ValueError: for an axis of length 1 that one of the two has and the other has not.
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return
    name = getattr(loss, "__name__", type(loss).__name__)
    if binary and not targets.is_floating_point():
        kind = str(targets.dtype).removeprefix("torch.")
        raise TypeError(
            f"targets of {name} must be floating-point numbers, 0.0 or 1.0, got {kind}: y.float() of a tensor, "
            "y.astype(np.float32) of an array"
        )
    if {outputs.ndim, targets.ndim} == {1, 2} and outputs.shape[1:] != targets.shape[1:]:
        wide, other = ("outputs", "targets") if outputs.ndim == 2 else ("targets", "outputs")
        if (outputs if outputs.ndim == 2 else targets).shape[1] == 1:
            remedy = "y[:, None]" if wide == "outputs" else "y[:, 0]"
            raise ValueError(
                f"outputs and targets of {name} must have the same shape, but the {wide} of a record have shape (1,) "
                f"and its {other} shape (): torch would compare every record with every other. Give targets {remedy}"
            )


def explained(error: Exception, inputs: Any) -> Exception:
    """Return an error of a model on a record in words, where a type of the inputs is its usual cause; or as it is."""
    kinds = {tensor.dtype for tensor in tensors_in(inputs)}
    of_types = isinstance(error, RuntimeError | NotImplementedError | TypeError) and any(
        word in str(error) for word in ("Byte", "uint8", "unsigned char", "same dtype")
    )
    if torch.uint8 not in kinds or not of_types:
        return error
    return TypeError(
        "inputs must be of a type that the model computes with, and are uint8, as images come from files: give "
        "floating-point numbers, x / 255 as float32, or convert them in the model (torch says: "
        f"{str(error).splitlines()[0]})"
    )
