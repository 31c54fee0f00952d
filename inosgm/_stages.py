"""Plans of shares that were worked out elsewhere: stages of a course, and plans in which not everybody takes part."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np

from inosgm._plan_file import Sampling
from inosgm.accounting import Segment
from inosgm.menu import Menu
from inosgm.owners import Owners
from inosgm.plan import Plan
from inosgm.shares import Shares, Wish


class More(TypedDict, total=False):
    """What some plans have besides."""

    menu: Menu
    beside: Sequence[Plan]
    sampling: Sampling


def staged(
    wish: Wish, owners: Owners, shares: Shares, past: Sequence[Segment] | None = None, **more: Unpack[More]
) -> Plan:
    """Return the plan of a wish with shares for all owners; it has the budgets that the owners grant in it."""
    plan = Plan(
        sample_rates=shares.sample_rates,
        sensitivities=shares.sensitivities,
        sizes=owners.sizes,
        noise_scale=shares.noise_scale,
        steps=wish.steps,
        expected_batch=wish.expected_batch,
        labels=owners.labels,
        epsilon=owners.epsilon,
        delta=owners.delta,
        accountant=wish.accountant.name,
        past=wish.past if past is None else past,
        **more,
    )
    object.__setattr__(plan, "_owners", owners)
    return plan


def among(shares: Shares, rows: np.ndarray, size: int, clip_norm: float) -> Shares:
    """Return the shares of some owners as shares of all, of whom the others take no part."""
    sample_rates, sensitivities = np.zeros(size), np.full(size, clip_norm)
    sample_rates[rows], sensitivities[rows] = shares.sample_rates, shares.sensitivities
    return Shares(sample_rates, sensitivities, shares.noise_scale)
