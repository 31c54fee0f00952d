"""aZB: every batch is drawn from one group, chosen by released losses (asc.txt, Alg. 3; after Zhou and Bassily).

`plan_chosen_group` makes the plan and `ChosenGroup` chooses the group of each step. The units of privacy and the
releases of losses are those of ASC.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from inosgm.accounting import Accountant, Segment
from inosgm.methods.asc import FollowingLosses, of_unit, own_multipliers, plan_losses, release_options
from inosgm.methods.method import Method
from inosgm.owners import Owners
from inosgm.planning.calibration import Calibration
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_request
from inosgm.planning.variants import GroupSampling, Sampling


def plan_chosen_group(
    owners: Owners,
    *,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    every: int,
    proportional: bool = False,
    weak: bool = False,
    loss_bound: float = 1.0,
    noise_ratio: float = 25.0,
    sampling: Sampling = "poisson",
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan for steps that each draw from one group, chosen by released losses: aZB, aZB-prop, aZB-weak.

    The groups are not known in advance, so every owner pays for every step as if its group were chosen.

    **Guarantee.** After the last step every owner has spent at most what it grants, the releases of losses included.
    With `weak` this holds for the largest group only: smaller groups, whose records are drawn more often, spend more
    than they grant. `Plan.spent` returns the correct epsilons in both cases.

    Args:
        owners: The groups, and what each grants.
        steps: Number of steps.
        expected_batch: The size of a batch of the chosen group; a smaller group is used as a whole.
        clip_norm: The sensitivity of every owner.
        every: Steps between releases of losses.
        proportional: Make the batch of a group proportional to its size instead: aZB-prop.
        weak: Add only the noise that the largest group needs: aZB-weak.
        loss_bound: The largest loss; larger ones are clipped to it (zeta).
        noise_ratio: The noise multiplier of the losses, in multiples of that of a step.
        sampling: As for `plan_asc`.
        accountant: As for `plan_asc`.
        past: Earlier releases of the owners' records.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit.
    """
    if isinstance(owners, Owners):
        owners.require_records("a plan that releases losses of groups")
    request = plan_request(owners, steps, expected_batch, clip_norm, of_unit(accountant, sampling), past)
    counts = np.minimum(request.expected_batch, request.sizes)
    if proportional:
        counts = request.common_rate() * request.sizes
    if sampling == "without_replacement":
        counts = np.maximum(np.rint(counts), 1)
    rates = counts / request.sizes
    kept = np.argmax(request.sizes, keepdims=True) if weak else np.arange(rates.size)  # owners whose budget is kept
    asked = request.some(kept)
    least = own_multipliers(asked, rates[kept])
    _, side_releases = plan_losses(request, np.full(rates.size, least.max()), every, loss_bound, noise_ratio, sampling)
    losses = tuple(plan.segment().rows(kept) for plan in side_releases)
    multiplier = float(own_multipliers(replace(asked, past=(*asked.past, *losses)), rates[kept]).max())
    calibration = Calibration(rates, np.full(rates.size, request.clip_norm), multiplier * request.clip_norm)
    variant = GroupSampling(side_releases=side_releases, sampling=sampling)
    return Plan.with_calibration(request, calibration, owners=owners, variant=variant)


class ChosenGroup(FollowingLosses):
    """Draws each batch from one random group; groups with higher losses are more likely: aZB (asc.txt Alg. 3).

    Args:
        plan: A plan of `plan_chosen_group`.
        every: Steps between releases of losses.
        temperature: How fast probabilities follow losses (eta).
    """

    def __init__(self, plan: Plan, *, every: int, temperature: float) -> None:
        super().__init__(every=every, temperature=temperature)
        self._probabilities = np.full(plan.sizes.size, 1 / plan.sizes.size)

    def shares(self, plan: Plan, coins: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the rate of one random group and 0 for all others, and the sensitivities of the plan."""
        group = coins.choice(self._probabilities.size, p=self._probabilities)
        return np.where(np.arange(self._probabilities.size) == group, plan.sample_rates, 0.0), plan.sensitivities

    def learn(self, losses: np.ndarray, coins: np.random.Generator) -> None:
        """Raise the probabilities of groups with higher losses."""
        weights = self._raised(self._probabilities, losses)
        self._probabilities = weights / weights.sum()

    def state(self) -> Any:
        """Return the probability of each group."""
        return self._probabilities.tolist()

    def restore(self, state: Any) -> None:
        """Resume with these probabilities."""
        self._probabilities = np.array(state)


def _plan(owners: Owners, options: Any, *, proportional: bool = False, weak: bool = False, **request: Any) -> Plan:
    return plan_chosen_group(owners, proportional=proportional, weak=weak, **release_options(options), **request)


def _steering(plan: Plan, options: Any) -> ChosenGroup:
    return ChosenGroup(plan, every=options.steering.every, temperature=options.steering.temperature)


METHODS = (
    Method(
        name="azb",
        title="aZB",
        description="each batch from one owner, chosen by losses",
        glossary="asks now and then, privately, whom it serves badly, and learns from one of those at a time",
        published="Poisson batches",
        planner=_plan,
        recognises=lambda options, ordered: options.method == "azb",
        plan_method="azb",
        takes=("sampling",),
        steering=_steering,
    ),
    Method(
        name="azb-prop",
        title="aZB-prop",
        description="aZB with batches in proportion to what owners hold",
        glossary="learns from one owner at a time, chosen by whom it serves badly, from more records of larger owners",
        published="Poisson batches",
        planner=partial(_plan, proportional=True),
        recognises=lambda options, ordered: options.method == "azb_prop",
        plan_method="azb_prop",
        takes=("sampling",),
        steering=_steering,
    ),
    Method(
        name="azb-weak",
        title="aZB-weak",
        description="aZB with the noise that the largest owner needs",
        glossary="learns from one owner at a time with the noise of the largest: it may BREAK what others granted",
        published="breaks budgets as well",
        planner=partial(_plan, weak=True),
        recognises=lambda options, ordered: options.method == "azb_weak",
        plan_method="azb_weak",
        takes=("sampling",),
        steering=_steering,
        keeps_budgets=False,
        warning="its noise suits the largest owner only: smaller ones may spend more than they grant",
    ),
)
