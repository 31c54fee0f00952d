"""ASC: batches that follow the released losses of groups, at equal cost for every group (asc.txt, Alg. 2).

Every owner is a group. The default is the Poisson form, whose unit is a record that is added or removed: a record of
group g is drawn with probability m_g / n_g. The published form has batches of fixed size without replacement, and its
unit is a record that is replaced: it has accountants of its own.

`plan_asc` makes the plan, `AdaptiveShares` chooses each step, and `training.group_losses` releases the losses.
"""

from abc import ABC
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS, Accountant, Segment, chosen
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE, name_in
from inosgm.methods.method import Method, adjusted_form
from inosgm.owners import Owners
from inosgm.planning.calibration import BELOW_BUDGET, Calibration, PlanRequest
from inosgm.planning.choices import Choices
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_request
from inosgm.planning.steering import Steering
from inosgm.planning.variants import GroupSampling, Sampling

FINENESS = 3
"""Number of rates to choose from between a rate and its double. A group gets the sensitivity of its next larger rate:
finer choices waste less of a budget, and take longer to plan."""

FALL = 2
"""The smallest rate to choose is the first rate over 2 to this power. A group that falls below it keeps the sensitivity
of that rate: larger ones would let a few records dominate a batch."""

LOSSES = 0.2
"""Largest part of an owner's epsilon that the releases of losses may cost by themselves. The steps need the rest."""

_SOLVED = 5  # rates that are solved: multipliers are smooth in the rate, and budgets are checked afterwards
# The search for the noise of all choices ends this far below a budget: each round costs a whole accounting.
_NEAR = 5e-3
_ROUNDS = 8  # a few rounds reach that; after these the safe end of the bracket is taken as it is


def plan_asc(
    owners: Owners,
    *,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    every: int,
    loss_bound: float = 1.0,
    noise_ratio: float = 25.0,
    sampling: Sampling = "poisson",
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with rates that will follow released losses, and sensitivities that make each rate cost the same.

    The choices of an owner have rates from a quarter of its first one to that of a batch of its records alone; the
    sensitivity of a rate is such that many steps at that rate cost what the owner grants.

    **Guarantee.** Whatever is chosen, by whatever was released: after the last step every owner has spent
    at most what it grants, the releases of losses included.

    Args:
        owners: The groups, and what each grants.
        steps: How many steps.
        expected_batch: The size of a batch, shared equally at first, as far as groups have so many records.
        clip_norm: The mean over all records of the sensitivities of the first step.
        every: Steps between releases of losses.
        loss_bound: What losses are cut to (zeta).
        noise_ratio: The noise multiplier of the losses, in multiples of that of a step; more, where they would cost
            more than a fifth of an epsilon.
        sampling: How batches are drawn; "without_replacement" is the published form, about a record that is replaced.
        accountant: PLD() if not given, or the one of its name for the unit of the sampling.
        past: What was done to the owners' records before.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit.
    """
    if sampling == "without_replacement":
        expected_batch = _validate.count("expected_batch", expected_batch, least=1)
    if isinstance(owners, Owners):
        owners.require_records("a plan that releases losses of groups")
    request = plan_request(owners, steps, expected_batch, clip_norm, of_unit(accountant, sampling), past)
    first = first_counts(request.expected_batch, request.sizes, whole=sampling == "without_replacement") / request.sizes
    most = np.minimum(1.0, request.expected_batch / request.sizes)
    powers = np.arange(-FALL * FINENESS, np.ceil(FINENESS * np.log2((most / first).max())) + 1) / FINENESS
    rates = np.minimum(first * 2.0 ** powers[:, None], most)
    rates[-1] = most
    least = own_multipliers(request, first)
    losses, side_releases = plan_losses(request, least, every, loss_bound, noise_ratio, sampling)
    asked = replace(request, past=(*request.past, *losses))
    shape = np.stack([_constant(asked.some(np.array([g])), rates[:, g]) for g in range(first.size)], axis=1)
    factor = _noisier(asked, rates, shape)
    start = shape[np.searchsorted(powers, 0.0)]
    multipliers = shape * factor
    scale = request.clip_norm * request.records / float((request.sizes / (start * factor)).sum())
    calibration = Calibration(first, scale / (start * factor), scale)
    choices = Choices(sample_rates=rates, sensitivities=scale / multipliers)
    variant = GroupSampling(choices=choices, side_releases=side_releases, sampling=sampling)
    return Plan.with_calibration(request, calibration, owners=owners, variant=variant)


def first_counts(batch: float, sizes: np.ndarray, *, whole: bool) -> np.ndarray:
    """Return how many records of each group a first batch has: equal numbers, as far as groups have so many.

    >>> first_counts(30, np.array([100, 4, 100]), whole=False)
    array([13.,  4., 13.])
    """
    if batch > sizes.sum():
        raise ValueError(f"expected_batch must be at most the number of records, {sizes.sum()}, got {batch:g}")
    counts = capped(np.full(sizes.size, batch / sizes.size), sizes, batch)
    return np.maximum(np.floor(counts), 1) if whole else counts


def of_unit(accountant: Accountant | None, sampling: Sampling) -> Accountant:
    """Return an accountant for the unit of a way of sampling: the given one, or the one of its name for that unit."""
    given = chosen(accountant)
    unit = ADD_REMOVE if sampling == "poisson" else REPLACE_ONE
    return given if given.unit == unit else ACCOUNTANTS[name_in(unit, given.name)]


def own_multipliers(request: PlanRequest, rates: np.ndarray) -> np.ndarray:
    """Return the multiplier with which every owner spends its budget at its own rate."""
    return np.array([float(request.some(np.array([g])).multipliers(rates[g])[0]) for g in range(rates.size)])


def plan_losses(
    request: PlanRequest, least: np.ndarray, every: int, bound: float, ratio: float, sampling: Sampling
) -> tuple[tuple[Segment, ...], tuple[Plan, ...]]:
    """Return what releases of losses do to everybody's records, and the plan that they follow."""
    every = _validate.count("every", every, least=1)
    half = _validate.number("loss_bound", bound, above=0) / 2  # see GroupLosses
    releases = (request.steps - 1) // every
    if not releases:
        return (), ()
    told = replace(request, epsilon=LOSSES * request.epsilon, steps=releases, past=())
    floor = float(told.multipliers(1.0).max())
    multiplier = max(_validate.number("noise_ratio", ratio, above=0) * float(least.max()), floor)
    plan = Plan(
        sample_rates=np.ones(least.size),
        sensitivities=np.full(least.size, half),
        sizes=request.sizes,
        noise_scale=multiplier * half,
        steps=releases,
        labels=request.labels,
        variant=GroupSampling(sampling=sampling),
    )
    return (plan.segment(),), (plan,)


def _constant(request: PlanRequest, rates: np.ndarray) -> np.ndarray:
    """Return multipliers with which one owner spends its budget if all steps are made at one of these rates, about.

    A few rates are solved and those between them interpolated: what is spent for sure is found out afterwards.
    """
    solved = np.unique(np.linspace(0, rates.size - 1, _SOLVED).round().astype(np.int64))
    found = np.array([float(request.multipliers(rates[place])[0]) for place in solved])
    return np.asarray(np.exp(np.interp(np.log(rates), np.log(rates[solved]), np.log(found))))


def _noisier(request: PlanRequest, rates: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return by how much the multipliers of each owner's choices must be larger for its budget to hold for sure."""
    count = np.full(request.epsilon.size, request.steps)

    def over(factor: np.ndarray) -> np.ndarray:
        """Return the logarithm of what is spent to what may be."""
        chosen = Segment(rates.T, (shape * factor).T, count)
        spent = epsilon_of_rows([*request.past, chosen], request.delta, request.accountant)
        return np.asarray(np.log(spent / (request.epsilon * BELOW_BUDGET)))

    low, high = np.full(count.size, 0.9), np.full(count.size, 1.25)
    below, above = over(low), over(high)
    while (above > 0).any():
        low, below, high = (
            np.where(above > 0, high, low),
            np.where(above > 0, above, below),
            np.where(above > 0, high * 1.5, high),
        )
        above = over(high)
    for _ in range(_ROUNDS):
        if (above > -_NEAR).all():
            break
        share = np.clip(below / (below - above), 0.05, 0.95)  # where a line on a log scale crosses, a little above
        middle = low * (high / low) ** (share + 0.1 * (1 - share))
        found = over(middle)
        low, below = np.where(found > 0, middle, low), np.where(found > 0, found, below)
        high, above = np.where(found > 0, high, middle), np.where(found > 0, above, found)
    return high


class FollowingLosses(Steering, ABC):
    """Follows losses at a temperature."""

    def __init__(self, *, every: int, temperature: float) -> None:
        self.every = _validate.count("every", every, least=1)
        self._temperature = _validate.number("temperature", temperature, above=0)

    def _raised(self, weights: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """Return weights times exp(temperature * loss), but for a common factor."""
        return np.asarray(weights * np.exp(self._temperature * (losses - losses.max())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(every={self.every}, temperature={self._temperature})"


class AdaptiveShares(FollowingLosses):
    """Gives groups with higher losses more of the batch: ASC (asc.txt Alg. 2).

    After each release m_g becomes proportional to m_g exp(temperature * L_g), with the sum of a batch and none above
    the size of its group. The sensitivity of a group is that of its next larger choice. Without replacement the
    numbers are whole, by the rounding of asc.txt App. B.

    Args:
        plan: A plan of `plan_asc`.
        every: Steps between releases of losses.
        temperature: How fast shares follow losses (eta).
    """

    def __init__(self, plan: Plan, *, every: int, temperature: float) -> None:
        super().__init__(every=every, temperature=temperature)
        self._sizes, self._batch = plan.sizes.astype(np.float64), plan.expected_batch
        self._whole = plan.sampling == "without_replacement"
        self._counts = plan.sample_rates * self._sizes

    def shares(self, plan: Plan, coins: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return rates m_g / n_g, and the sensitivities that go with them."""
        if plan.choices is None:
            raise ValueError("plan must have choices: make it with plan_asc")
        rates = self._counts / self._sizes
        rows = (plan.choices.sample_rates < rates * (1 - 1e-12)).sum(
            axis=0
        )  # a rate that equals one of the ascending choices up to rounding is that choice
        rows = np.minimum(rows, plan.choices.count - 1)
        groups = np.arange(rates.size)
        return np.minimum(rates, plan.choices.sample_rates[rows, groups]), plan.choices.sensitivities[rows, groups]

    def learn(self, losses: np.ndarray, coins: np.random.Generator) -> None:
        """Move records of a batch to groups with higher losses."""
        counts = self._raised(self._counts, losses)
        if self._whole:
            self._counts = rounded(self._batch * counts / counts.sum(), self._sizes, self._batch, coins)
        else:
            self._counts = capped(counts, self._sizes, self._batch)

    def state(self) -> Any:
        """Return the numbers of records."""
        return self._counts.tolist()

    def restore(self, state: Any) -> None:
        """Go on with these numbers of records."""
        self._counts = np.array(state)


def rounded(counts: np.ndarray, sizes: np.ndarray, batch: float, coins: np.random.Generator) -> np.ndarray:
    """Return whole numbers that sum to a batch: to the nearest, halves to even, and what is missing at random.

    As in asc.txt App. B: who gives one up has one at least; and nobody gets more than its group has.

    >>> rounded(np.array([2.5, 3.5, 4.0]), np.full(3, 100.0), 10, np.random.default_rng(0))
    array([2., 4., 4.])
    """
    found = np.minimum(np.rint(counts), sizes)
    while (missing := round(batch - found.sum())) != 0:
        able = np.flatnonzero(found < sizes if missing > 0 else found > 0)
        found[coins.choice(able)] += np.sign(missing)
    return np.asarray(found)


def capped(counts: np.ndarray, sizes: np.ndarray, batch: float) -> np.ndarray:
    """Return numbers of records in the same proportions that sum to a batch, none above what a group has (m_g <= n_g).

    >>> capped(np.array([1.0, 1.0, 2.0]), np.array([100, 5, 100]), 40.0)
    array([11.66666667,  5.        , 23.33333333])
    """
    full = np.zeros(counts.size, dtype=bool)
    while True:
        left = batch - sizes[full].sum()
        found = np.where(full, sizes, counts * left / max(counts[~full].sum(), 1e-300))
        over = (found > sizes) & ~full
        if not over.any():
            return np.asarray(found, dtype=np.float64)
        full |= over


def release_options(options: Any) -> dict[str, Any]:
    """Return what a configuration says about releases of losses and the drawing of batches."""
    steering = options.steering
    names = ("every", "loss_bound", "noise_ratio")
    return {**{name: getattr(steering, name) for name in names}, "sampling": options.sampling}


def _plan(owners: Owners, options: Any, **request: Any) -> Plan:
    return plan_asc(owners, **release_options(options), **request)


def _steering(plan: Plan, options: Any) -> AdaptiveShares:
    return AdaptiveShares(plan, every=options.steering.every, temperature=options.steering.temperature)


def _is_asc(options: Any, *, published: bool) -> bool:
    return bool(options.method == "asc" and (options.sampling == "without_replacement") == published)


_POISSON = (
    Method(
        name="asc",
        title="ASC",
        description="owners with larger losses are sampled more and clipped harder, at equal cost (Poisson form)",
        glossary="asks now and then, privately, whom it serves badly, and listens more to those at the same price for "
        "all",
        published="another form: Poisson batches",
        planner=_plan,
        recognises=lambda options, ordered: _is_asc(options, published=False) and not ordered,
        plan_method="asc",
        takes=("sampling",),
        steering=_steering,
    ),
    Method(
        name="asc-ino",
        title="ASC with INO",
        description="ASC with an ordered tail",
        glossary="listens more to those it serves badly, and has every batch let go of the records that matter least",
        published="new",
        planner=_plan,
        recognises=lambda options, ordered: _is_asc(options, published=False) and ordered,
        plan_method="asc",
        ordered=True,
        steering=_steering,
    ),
)

METHODS = (
    *_POISSON,
    *map(adjusted_form, _POISSON),
    Method(
        name="asc-published",
        title="ASC as published",
        description="ASC as published: batches of fixed size, without replacement",
        glossary="listens more to those it serves badly, with batches of fixed size: its promise is about a record "
        "that is replaced by another",
        published="the same, accounted with sensitivity 2C",
        planner=_plan,
        recognises=lambda options, ordered: _is_asc(options, published=True),
        plan_method="asc",
        options={"sampling": "without_replacement"},
        takes=("sampling",),
        steering=_steering,
        unit=REPLACE_ONE,
        warning="another unit: epsilons are about a record that is replaced, and do not compare with the others",
    ),
)
