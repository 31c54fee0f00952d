"""Logit adjustment: the class prior that a plan makes public, taken out of the logits again.

A plan says publicly how much of every expected batch belongs to each owner. Where owners hold different classes, strict
owners' classes are therefore rare in training. Menon et al. (2021, "Long-tail learning via logit adjustment") correct
exactly this: they train with, or predict by, logits that are shifted by the logarithm of the class prior.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from inosgm._internal import validate
from inosgm.planning.plan import Plan
from inosgm.training.losses import per_record

ROWS_SUM_TO_ONE = 1e-6
"""Tolerance for the sum of an owner's class shares: shares written with six decimals pass, percentages do not."""


class LogitAdjustment:
    """A correction of logits by the class prior that a plan implies.

    Owner n fills m_n = sample_rate_n * size_n * sensitivity_n of an expected batch (`Plan.batch_shares`). The prior of
    class c is proportional to the sum of m_n * class_shares[n, c] over all owners, and `offsets` is strength *
    log(prior).

    Use `loss` while training, `adjust` on the logits of a trained model, or both: the two strengths are independent
    numbers, so make one object for each. With `loss` alone and strength 1, the model's own logits estimate what a
    balanced data set would give (balanced softmax).

    **Guarantee.** The correction costs no privacy. Every number of a plan is public before a record is seen, so in the
    loss the offsets are constants of each record's own loss, and after training they are post-processing. This holds
    only if the class shares are public as well, or were released and paid for (`release_class_shares`). Wrong or stale
    shares cost accuracy, never privacy.

    Args:
        plan: The plan that the model is trained with.
        class_shares: The share of each class among the records of each owner: one row per owner, in the order of
            `plan.labels`, that sums to 1. Without it, owners are classes: the owner with label c holds class c if the
            labels are the numbers 0 to k - 1, and the owner at position c holds class c otherwise.
        strength: The factor of log(prior), called tau in the paper. 0 changes nothing.

    Raises:
        ValueError: for shares that do not fit the plan, and for a class that no expected batch contains.

    >>> plan = Plan(sample_rates=[0.1, 0.1], sensitivities=[1.0, 3.0], sizes=[100, 100], noise_scale=1.0, steps=1)
    >>> adjustment = LogitAdjustment(plan)
    >>> adjustment.prior, adjustment.adjust(np.zeros((1, 2))).round(3)
    (array([0.25, 0.75]), array([[1.386, 0.288]]))
    """

    def __init__(self, plan: Plan, class_shares: ArrayLike | None = None, strength: float = 1.0) -> None:
        self.strength = validate.number("strength", strength, least=0)
        shares = _identity(plan) if class_shares is None else _checked(class_shares, plan.sizes.size)
        prior = plan.batch_shares @ shares
        if not (prior > 0).all():
            raise ValueError(
                f"class {int(np.argmin(prior))} must have a share in an expected batch, got 0, whose logarithm is "
                "infinite: give class_shares without empty classes, or leave that class out of the model"
            )
        self.prior = prior / prior.sum()
        self.offsets = self.strength * np.log(self.prior)

    def loss(self, loss: Callable[..., Any]) -> "AdjustedLoss":
        """Return a loss at logits + offsets, one number per record, for `Trainer`.

        Args:
            loss: A loss of logits and classes, as `Trainer` takes it, such as nn.CrossEntropyLoss().
        """
        return AdjustedLoss(loss, self.offsets)

    def adjust(self, logits: Any) -> Any:
        """Return logits - offsets, for predictions. The classes are on axis 1 (a batch), or on the only axis.

        Args:
            logits: A tensor or an array.
        """
        return logits - _aligned(self.offsets, logits)

    def adjusted(self, model: nn.Module) -> "AdjustedModel":
        """Return a model whose outputs are adjusted; it holds the offsets, so that its state dict carries them."""
        return AdjustedModel(model, self.offsets)


class AdjustedLoss(nn.Module):
    """The loss of every record at logits + offsets."""

    offsets: Tensor

    def __init__(self, loss: Callable[..., Any], offsets: np.ndarray) -> None:
        super().__init__()
        self.loss = loss
        self._per_record = per_record(loss)
        self.register_buffer("offsets", torch.from_numpy(np.array(offsets)))

    def forward(self, outputs: Tensor, targets: Any) -> Tensor:
        """Return one loss per record."""
        return self._per_record(outputs + _aligned(self.offsets, outputs), targets)


class AdjustedModel(nn.Module):
    """A model whose logits are shifted by minus the offsets that it holds."""

    offsets: Tensor

    def __init__(self, model: nn.Module, offsets: np.ndarray) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("offsets", torch.from_numpy(np.array(offsets)))

    @classmethod
    def from_state(cls, model: nn.Module, state: Mapping[str, Any]) -> Self:
        """Return the adjusted model of a state dict, such as `model.pt` of a run with `adjustment.after`.

        Args:
            model: A model of the same class as the one that was trained.
            state: What `torch.load` has read.

        >>> saved = AdjustedModel(nn.Linear(2, 3), np.array([0.0, 1.0, 2.0])).state_dict()
        >>> AdjustedModel.from_state(nn.Linear(2, 3), saved).offsets.tolist()
        [0.0, 1.0, 2.0]
        """
        made = cls(model, np.zeros(len(state["offsets"])))
        made.load_state_dict(state)
        return made

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return adjusted logits."""
        logits: Tensor = self.model(*inputs, **named)
        offsets: Tensor = _aligned(self.offsets, logits)
        return logits - offsets


def _aligned(offsets: Any, logits: Any) -> Any:
    """Return offsets in the type and on the device of logits, along their class axis."""
    axis = min(1, logits.ndim - 1)
    if logits.shape[axis] != len(offsets):
        raise ValueError(
            f"logits must have one number for each of {len(offsets)} classes on axis {axis}, got {logits.shape[axis]}: "
            "does the model have as many outputs as there are classes in class_shares?"
        )
    shape = (-1,) + (1,) * (logits.ndim - axis - 1)
    if isinstance(logits, Tensor):
        return torch.as_tensor(offsets).to(device=logits.device, dtype=logits.dtype).reshape(shape)
    return np.asarray(offsets).reshape(shape)


def _identity(plan: Plan) -> np.ndarray:
    """Return the class shares of owners that are classes."""
    count = len(plan.labels)
    if count < 2:
        raise ValueError("class_shares must be given: a plan for one owner says nothing about classes")
    labels = list(plan.labels)
    classes = labels if sorted(map(str, labels)) == sorted(map(str, range(count))) else range(count)
    shares = np.zeros((count, count))
    shares[np.arange(count), [int(label) for label in classes]] = 1
    return shares


def _checked(class_shares: ArrayLike, owners: int) -> np.ndarray:
    shares = np.asarray(class_shares, dtype=np.float64)
    if shares.ndim != 2 or shares.shape[0] != owners or shares.shape[1] < 2:
        raise ValueError(
            f"class_shares must have {owners} rows, one per owner of the plan, and a column for each class, got the "
            f"shape {shares.shape}"
        )
    if not (shares >= 0).all() or not (abs(shares.sum(axis=1) - 1) <= ROWS_SUM_TO_ONE).all():
        raise ValueError(
            "class_shares must be numbers of at least 0 that sum to 1 in every row: divide each row by its sum"
        )
    return shares
