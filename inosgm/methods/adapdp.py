"""AdaPDP (PDP-SGD, App. B.2): one model for each round of `plan_thresholds`; their outputs are averaged.

This module needs torch. The plan and the registration of AdaPDP are in `inosgm.methods.pdp_sgd`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inosgm._internal import validate as _validate
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.methods.pdp_sgd import Waste, sampling_probabilities, threshold
from inosgm.planning.plan import Plan


class Averaged(nn.Module):
    """Members that are trained one after another; in evaluation mode, the weighted mean of those trained so far.

    In training mode, the model is the current member, and only that member has trainable parameters: gradients,
    clipping and noise concern it alone. An optimizer may hold all parameters, because it skips those without a
    gradient. The outputs of members are averaged unchanged: logits, for networks that end in logits (those of the paper
    end in a softmax). The index of the current member is part of the state, so a loaded model predicts as before.

    Args:
        members: Modules that take the same inputs and share no parameters.
        weights: The weight of each member, above 0; `member_weights` for AdaPDP. Public.

    Raises:
        ValueError: for no members, another number of weights, a weight that is not above 0, or shared parameters.

    >>> model = Averaged([nn.Linear(2, 1), nn.Linear(2, 1)], [0.25, 0.75])
    >>> model.turn_to(1)
    >>> [parameter.requires_grad for parameter in model.parameters()]
    [False, False, True, True]
    """

    weights: Tensor
    turn: Tensor

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        if not members:
            raise ValueError("members must hold at least one module")
        shares = _validate.vector("weights", weights)
        if shares.size != len(members):
            raise ValueError(f"weights must hold one for each of {len(members)} members, got {shares.size}")
        _validate.each("weights", shares, shares > 0, "be > 0")
        every = [id(parameter) for member in members for parameter in member.parameters()]
        if len(set(every)) < len(every):
            raise ValueError("members must not share parameters: training one must not change another")
        self.members = nn.ModuleList(members)
        self._frozen = {name for name, parameter in self.members.named_parameters() if not parameter.requires_grad}
        self.register_buffer("weights", torch.tensor(shares, dtype=torch.float64))
        self.register_buffer("turn", torch.tensor(0))
        self.register_load_state_dict_post_hook(_restore_turn)  # type: ignore[no-untyped-call]
        self.turn_to(0)

    def turn_to(self, member: int) -> None:
        """Train a member from now on: earlier members are fixed, later ones are left out of predictions."""
        member = _validate.count("member", member)
        if member >= len(self.members):
            raise ValueError(f"member must be below {len(self.members)}, got {member}")
        self._turn = member
        self.turn.fill_(member)
        for name, parameter in self.members.named_parameters():
            parameter.requires_grad_(name.startswith(f"{member}.") and name not in self._frozen)
            parameter.grad = None  # a gradient of an earlier turn would change a member that is fixed

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return the output of the current member, or in evaluation mode the mean over the members trained so far."""
        if self.training:
            return self.members[self._turn](*inputs, **named)
        begun = self._turn + 1
        shares = self.weights[:begun] / self.weights[:begun].sum()
        outputs = (member(*inputs, **named) for member in self.members[:begun])
        return sum(share.to(output.dtype) * output for share, output in zip(shares, outputs, strict=True))


def _restore_turn(model: nn.Module, _: Any) -> None:
    """Resume with the member of a state that was loaded."""
    if isinstance(model, Averaged):
        model.turn_to(int(model.turn))


def member_weights(plans: Sequence[Plan], *, waste: Waste = "fixed", weight: float = 0.7) -> tuple[float, ...]:
    """Return the weight of the model of each round in AdaPDP: tau_R times the expected size of its subset.

    The paper weights by the realised size of the subset, which is private.

    Args:
        plans: The plans of `plan_thresholds`.
        waste: As given to `plan_thresholds`.
        weight: As given to `plan_thresholds`.

    Returns:
        One weight per round; they add up to 1.
    """
    products = []
    for number, plan in enumerate(plans, start=1):
        granted, delta, accountant = plan.budgets()
        before = epsilon_of_rows(plans[0].past, delta, accountant)
        spent = epsilon_of_rows(plan.past, delta, accountant)
        left = np.maximum(before + (granted - before) * number / len(plans) - spent, 0.0)
        tau = threshold(left, plan.sizes, waste, weight)
        products.append(tau * float(sampling_probabilities(left, tau) @ plan.sizes))
    return tuple(product / sum(products) for product in products)
