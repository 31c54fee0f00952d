"""Strengths after training that are learnt: each owner releases the losses of its records at some strengths."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from examples.strict_study.tasks import Task
from inosgm import Owners, Plan, plan_scale

STRENGTHS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""The strengths whose losses are released."""
LOSS_BOUND = 2.3
"""What losses are cut to: the loss of a guess among ten classes."""


def release_plan(owners: Owners, share: float) -> Plan:
    """Return the plan of one release of sums over all records, which costs every owner a share of its epsilon.

    The sensitivity is that of all strengths together, after losses are moved by half of their bound.
    """
    budgets = Owners(of_record=owners.of_record, epsilon=share * owners.epsilon, delta=owners.delta)
    norm = LOSS_BOUND / 2 * len(STRENGTHS) ** 0.5
    return plan_scale(budgets, steps=1, expected_batch=len(owners.of_record), clip_norm=norm)


def plan_rest(owners: Owners, share: float, task: Task) -> Plan:
    """Return the plan of training with what the release leaves."""
    past = [release_plan(owners, share).segment()]
    return plan_scale(owners, steps=task.steps, expected_batch=task.expected_batch, clip_norm=task.clip_norm, past=past)


def learnt_strength(
    logits: Tensor, classes: Tensor, owners: Owners, prior: np.ndarray, share: float, coins: np.random.Generator
) -> float:
    """Return the strength with the smallest released loss, in the mean over owners.

    The noise follows a seed and protects nobody: for public data only.

    Args:
        logits: Those of all training records.
        classes: Their classes.
        owners: Their owners.
        prior: The logarithm of the class prior.
        share: The part of every epsilon that the release costs.
        coins: Draws the noise.
    """
    plan = release_plan(owners, share)
    noise = plan.noise_scale / plan.sensitivities * LOSS_BOUND / 2 * len(STRENGTHS) ** 0.5 / owners.sizes
    released = []
    for strength in STRENGTHS:
        shifted = logits - strength * torch.from_numpy(prior).float()
        losses = functional.cross_entropy(shifted, classes, reduction="none").clamp(max=LOSS_BOUND).double().numpy()
        means = np.bincount(owners.of_record, losses, minlength=owners.sizes.size) / owners.sizes
        released.append(np.clip(means + noise * coins.standard_normal(noise.size), 0, LOSS_BOUND).mean())
    return STRENGTHS[int(np.argmin(released))]
