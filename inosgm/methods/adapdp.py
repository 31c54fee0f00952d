"""AdaPDP (PDP-SGD, App. B.2): one model for each round of `plan_thresholds`; the models answer together.

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
    """Members that learn in turn; in evaluation mode the weighted mean of the outputs of those whose turn has come.

    In training mode it is the member whose turn it is, and only that one has parameters to train, so that gradients,
    clipping and noise are about it alone. An optimizer may hold all parameters: it skips those that have no gradient.
    What is averaged is what members return, as they return it: for networks that end in logits, these (the paper's end
    in a softmax). Whose turn it is is part of the state, so that a model that was read from a file answers as it did.

    Args:
        members: Modules with parameters of their own, which take the same inputs.
        weights: How much each of them counts, above 0; `member_weights` for AdaPDP. Public.

    Raises:
        ValueError: for no members, for weights that do not fit, or parameters that members share.

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
            raise ValueError("members must hold one module at least")
        shares = _validate.vector("weights", weights)
        if shares.size != len(members):
            raise ValueError(f"weights must hold one for each of {len(members)} members, got {shares.size}")
        _validate.each("weights", shares, shares > 0, "be > 0")
        every = [id(parameter) for member in members for parameter in member.parameters()]
        if len(set(every)) < len(every):
            raise ValueError("members must have parameters of their own: what one learns must not change another")
        self.members = nn.ModuleList(members)
        self._frozen = {name for name, parameter in self.members.named_parameters() if not parameter.requires_grad}
        self.register_buffer("weights", torch.tensor(shares, dtype=torch.float64))
        self.register_buffer("turn", torch.tensor(0))
        self.register_load_state_dict_post_hook(_take_up)  # type: ignore[no-untyped-call]
        self.turn_to(0)

    def turn_to(self, member: int) -> None:
        """Let a member learn from now on; those after it do not answer yet, those before it learn no more."""
        member = _validate.count("member", member)
        if member >= len(self.members):
            raise ValueError(f"member must be below {len(self.members)}, got {member}")
        self._turn = member
        self.turn.fill_(member)
        for name, parameter in self.members.named_parameters():
            parameter.requires_grad_(name.startswith(f"{member}.") and name not in self._frozen)
            parameter.grad = None  # what is left of an earlier turn would move a member that learns no more

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return what the member says whose turn it is, or in evaluation mode what all say that had one."""
        if self.training:
            return self.members[self._turn](*inputs, **named)
        begun = self._turn + 1
        shares = self.weights[:begun] / self.weights[:begun].sum()
        answers = (member(*inputs, **named) for member in self.members[:begun])
        return sum(share.to(answer.dtype) * answer for share, answer in zip(shares, answers, strict=True))


def _take_up(model: nn.Module, _: Any) -> None:
    """Go on where a state that was read has left off."""
    if isinstance(model, Averaged):
        model.turn_to(int(model.turn))


def member_weights(plans: Sequence[Plan], *, waste: Waste = "fixed", weight: float = 0.7) -> tuple[float, ...]:
    """Return how much the model of each round counts in AdaPDP's answer: tau_R times the expected size of its subset.

    The paper weighs by the size that the subset happened to have, which nobody may see.

    Args:
        plans: What `plan_thresholds` returned.
        waste: As it was there.
        weight: As it was there.

    Returns:
        One weight per round; they add up to 1.
    """
    found = []
    for number, plan in enumerate(plans, start=1):
        granted, delta, accountant = plan.budgets()
        before = epsilon_of_rows(plans[0].past, delta, accountant)
        spent = epsilon_of_rows(plan.past, delta, accountant)
        left = np.maximum(before + (granted - before) * number / len(plans) - spent, 0.0)
        tau = threshold(left, plan.sizes, waste, weight)
        found.append(tau * float(sampling_probabilities(left, tau) @ plan.sizes))
    return tuple(value / sum(found) for value in found)
