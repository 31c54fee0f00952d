"""ASC: batches that follow the released losses of groups, at equal cost for every group (asc.txt, Alg. 2).

Every owner is a group. The default is the Poisson form, whose unit is a record that is added or removed: a record of
group g is drawn with probability m_g / n_g. The published form has batches of fixed size without replacement, and its
unit is a record that is replaced: separate accountants exist for it.

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

CHOICES_PER_DOUBLING = 3
"""Number of rates between a rate and its double. A group gets the sensitivity of its next larger rate: finer choices
waste less of a budget, and take longer to plan."""

HALVINGS = 2
"""The smallest rate is the first rate, halved this many times. A group whose rate falls below it keeps the sensitivity
of that rate: a larger sensitivity would let a few records dominate a batch."""

LOSS_EPSILON_SHARE = 0.2
"""Largest part of an owner's epsilon that the releases of losses may cost by themselves. The steps need the rest."""

_SOLVED_RATES = 5  # the others are interpolated: multipliers are smooth in the rate, and budgets are checked afterwards
_LOG_TOLERANCE = 5e-3  # the search ends with 0.5 % of a budget unused at most: each round costs a whole accounting
_ROUNDS = 8  # a few rounds reach the tolerance; after these, the end of the bracket that keeps the budget is used


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

    The choices of an owner have rates from a quarter of its first rate to the rate of a batch with its records only.
    The sensitivity of a rate is such that `steps` steps at that rate cost what the owner grants.

    **Guarantee.** After the last step every owner has spent at most what it grants, the releases of losses included,
    for every sequence of choices that follows released values.

    Args:
        owners: The groups, and what each grants.
        steps: Number of steps.
        expected_batch: The size of a batch. At first all groups have equal parts of it, limited by their sizes.
        clip_norm: The mean over all records of the sensitivities of the first step.
        every: Steps between releases of losses.
        loss_bound: The largest loss; larger ones are clipped to it (zeta).
        noise_ratio: The noise multiplier of the losses, in multiples of that of a step. It is raised if the losses
            would cost more than a fifth of an epsilon.
        sampling: How batches are drawn; "without_replacement" is the published form, whose unit is a replaced record.
        accountant: PLD() if not given, or the accountant of the same name for the unit of the sampling.
        past: Earlier releases of the owners' records.

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
    last = np.ceil(CHOICES_PER_DOUBLING * np.log2((most / first).max()))
    powers = np.arange(-HALVINGS * CHOICES_PER_DOUBLING, last + 1) / CHOICES_PER_DOUBLING
    rates = np.minimum(first * 2.0 ** powers[:, None], most)
    rates[-1] = most
    least = own_multipliers(request, first)
    losses, side_releases = plan_losses(request, least, every, loss_bound, noise_ratio, sampling)
    asked = replace(request, past=(*request.past, *losses))
    shape = np.stack([_multipliers_at(asked.some(np.array([g])), rates[:, g]) for g in range(first.size)], axis=1)
    factor = _factors_within_budgets(asked, rates, shape)
    start = shape[np.searchsorted(powers, 0.0)]
    multipliers = shape * factor
    scale = request.clip_norm * request.records / float((request.sizes / (start * factor)).sum())
    calibration = Calibration(first, scale / (start * factor), scale)
    choices = Choices(sample_rates=rates, sensitivities=scale / multipliers)
    variant = GroupSampling(choices=choices, side_releases=side_releases, sampling=sampling)
    return Plan.with_calibration(request, calibration, owners=owners, variant=variant)


def first_counts(batch: float, sizes: np.ndarray, *, whole: bool) -> np.ndarray:
    """Return the number of records of each group in a first batch: equal numbers, limited by the sizes of groups.

    >>> first_counts(30, np.array([100, 4, 100]), whole=False)
    array([13.,  4., 13.])
    """
    if batch > sizes.sum():
        raise ValueError(f"expected_batch must be at most the number of records, {sizes.sum()}, got {batch:g}")
    counts = capped(np.full(sizes.size, batch / sizes.size), sizes, batch)
    return np.maximum(np.floor(counts), 1) if whole else counts


def of_unit(accountant: Accountant | None, sampling: Sampling) -> Accountant:
    """Return the given accountant, or the accountant of the same name for the unit of this sampling."""
    given = chosen(accountant)
    unit = ADD_REMOVE if sampling == "poisson" else REPLACE_ONE
    return given if given.unit == unit else ACCOUNTANTS[name_in(unit, given.name)]


def own_multipliers(request: PlanRequest, rates: np.ndarray) -> np.ndarray:
    """Return, for every owner, the noise multiplier that spends its budget at its own rate."""
    return np.array([float(request.some(np.array([g])).multipliers(rates[g])[0]) for g in range(rates.size)])


def plan_losses(
    request: PlanRequest, least: np.ndarray, every: int, bound: float, ratio: float, sampling: Sampling
) -> tuple[tuple[Segment, ...], tuple[Plan, ...]]:
    """Return the segments and the plan of the releases of losses; both are empty if there are none."""
    every = _validate.count("every", every, least=1)
    half = _validate.number("loss_bound", bound, above=0) / 2  # losses are centred: see GroupLosses
    releases = (request.steps - 1) // every
    if not releases:
        return (), ()
    losses_only = replace(request, epsilon=LOSS_EPSILON_SHARE * request.epsilon, steps=releases, past=())
    floor = float(losses_only.multipliers(1.0).max())
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


def _multipliers_at(request: PlanRequest, rates: np.ndarray) -> np.ndarray:
    """Return, for each rate, about the multiplier that spends one owner's budget if all steps are at that rate.

    A few rates are solved and the others interpolated: `_factors_within_budgets` makes up for the error.
    """
    solved = np.unique(np.linspace(0, rates.size - 1, _SOLVED_RATES).round().astype(np.int64))
    multipliers = np.array([float(request.multipliers(rates[row])[0]) for row in solved])
    return np.asarray(np.exp(np.interp(np.log(rates), np.log(rates[solved]), np.log(multipliers))))


def _factors_within_budgets(request: PlanRequest, rates: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return the factor for each owner by which the multipliers of its choices grow so that its budget is kept."""
    count = np.full(request.epsilon.size, request.steps)

    def over(factor: np.ndarray) -> np.ndarray:
        """Return the logarithm of the ratio of the spent to the granted epsilon."""
        chosen = Segment(rates.T, (shape * factor).T, count)
        spent = epsilon_of_rows([*request.past, chosen], request.delta, request.accountant)
        return np.asarray(np.log(spent / (request.epsilon * BELOW_BUDGET)))

    low, high = np.full(count.size, 0.9), np.full(count.size, 1.25)  # high is raised below until it keeps all budgets
    below, above = over(low), over(high)
    while (above > 0).any():
        low, below, high = (
            np.where(above > 0, high, low),
            np.where(above > 0, above, below),
            np.where(above > 0, high * 1.5, high),
        )
        above = over(high)
    for _ in range(_ROUNDS):
        if (above > -_LOG_TOLERANCE).all():
            break
        # The secant on a log scale, kept inside the bracket, and a tenth of the way towards its upper end: the upper
        # end is what is returned, so a guess that keeps the budget is worth more than one that just misses it.
        share = np.clip(below / (below - above), 0.05, 0.95)
        middle = low * (high / low) ** (share + 0.1 * (1 - share))
        excess = over(middle)
        low, below = np.where(excess > 0, middle, low), np.where(excess > 0, excess, below)
        high, above = np.where(excess > 0, high, middle), np.where(excess > 0, above, excess)
    return high


class FollowingLosses(Steering, ABC):
    """Base of methods that reweight groups by exp(temperature * loss)."""

    def __init__(self, *, every: int, temperature: float) -> None:
        self.every = _validate.count("every", every, least=1)
        self._temperature = _validate.number("temperature", temperature, above=0)

    def _raised(self, weights: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """Return weights times exp(temperature * loss), up to a common factor that avoids overflow."""
        return np.asarray(weights * np.exp(self._temperature * (losses - losses.max())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(every={self.every}, temperature={self._temperature})"


class AdaptiveShares(FollowingLosses):
    """Gives groups with higher losses a larger part of the batch: ASC (asc.txt Alg. 2).

    After each release m_g becomes proportional to m_g exp(temperature * L_g). The m_g sum to the batch size, and none
    exceeds the size of its group. The sensitivity of a group is that of its next larger choice. Without replacement
    the m_g are whole numbers, by the rounding of asc.txt App. B.

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
        # A rate that equals one of the ascending choices up to rounding (1e-12) is that choice.
        rows = (plan.choices.sample_rates < rates * (1 - 1e-12)).sum(axis=0)
        rows = np.minimum(rows, plan.choices.count - 1)
        groups = np.arange(rates.size)
        return np.minimum(rates, plan.choices.sample_rates[rows, groups]), plan.choices.sensitivities[rows, groups]

    def learn(self, losses: np.ndarray, coins: np.random.Generator) -> None:
        """Shift the batch towards groups with higher losses."""
        counts = self._raised(self._counts, losses)
        if self._whole:
            self._counts = rounded(self._batch * counts / counts.sum(), self._sizes, self._batch, coins)
        else:
            self._counts = capped(counts, self._sizes, self._batch)

    def state(self) -> Any:
        """Return the number of records of each group in a batch."""
        return self._counts.tolist()

    def restore(self, state: Any) -> None:
        """Resume with these numbers of records."""
        self._counts = np.array(state)


def rounded(counts: np.ndarray, sizes: np.ndarray, batch: float, coins: np.random.Generator) -> np.ndarray:
    """Round to whole numbers, halves to even, then add or subtract 1 at random groups until they sum to the batch.

    As in asc.txt App. B: no number becomes negative or exceeds the size of its group.

    >>> rounded(np.array([2.5, 3.5, 4.0]), np.full(3, 100.0), 10, np.random.default_rng(0))
    array([2., 4., 4.])
    """
    whole = np.minimum(np.rint(counts), sizes)
    while (missing := round(batch - whole.sum())) != 0:
        able = np.flatnonzero(whole < sizes if missing > 0 else whole > 0)
        whole[coins.choice(able)] += np.sign(missing)
    return np.asarray(whole)


def capped(counts: np.ndarray, sizes: np.ndarray, batch: float) -> np.ndarray:
    """Scale numbers of records to sum to a batch, none above the size of its group (m_g <= n_g).

    >>> capped(np.array([1.0, 1.0, 2.0]), np.array([100, 5, 100]), 40.0)
    array([11.66666667,  5.        , 23.33333333])
    """
    full = np.zeros(counts.size, dtype=bool)
    while True:
        left = batch - sizes[full].sum()
        # 1e-300 replaces a sum of 0, where all groups are full or have no weight: no division by zero.
        scaled = np.where(full, sizes, counts * left / max(counts[~full].sum(), 1e-300))
        over = (scaled > sizes) & ~full
        if not over.any():
            return np.asarray(scaled, dtype=np.float64)
        full |= over


def release_options(options: Any) -> dict[str, Any]:
    """Return the arguments of a planner that a configuration sets for releases of losses and for sampling."""
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
