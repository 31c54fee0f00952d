"""Plans for groups whose shares follow their losses: ASC, and the methods after Zhou and Bassily (asc.txt Alg. 2, 3).

Every owner is a group. The default is the Poisson form, about records that are added or removed: a record of group g is
drawn with probability m_g / n_g. Batches of fixed size without replacement, about records that are replaced, are the
published form: another unit of privacy, with accountants of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS, Accountant, Segment, chosen
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE, name_in
from inosgm.methods.steering import capped
from inosgm.owners import Owners
from inosgm.planning.calibration import Shares, Wish
from inosgm.planning.choices import Menu
from inosgm.planning.plan import Plan
from inosgm.planning.plan_file import Sampling
from inosgm.planning.planners import wish_of

FINENESS = 3
"""So many rates of a menu lie between one and its double."""

FALL = 2
"""The rates of a menu go down to the first rate over 2 to this power; below it sensitivities rise no more."""

LOSSES = 0.2
"""The most of an owner's epsilon that releases of losses may cost by themselves: beyond it they get more noise."""

_SOLVED = 5  # so many rates of a menu are solved
_NEAR, _ROUNDS = 5e-3, 8  # how close to a budget the search for the noise of a menu comes, and when it gives up


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

    The menu of an owner has rates from a quarter of its first one to that of a batch of its records alone; the
    sensitivity of a rate is such that many steps at that rate cost what the owner grants.

    **Guarantee.** Whatever is chosen from the menu, by whatever was released: after the last step every owner has spent
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
        ValueError: naming the argument that cannot be, or the owner whose budget does not fit.
    """
    if sampling == "without_replacement":
        expected_batch = _validate.count("expected_batch", expected_batch, least=1)
    wish = wish_of(owners, steps, expected_batch, clip_norm, of_unit(accountant, sampling), past)
    first = first_counts(wish.expected_batch, wish.sizes, whole=sampling == "without_replacement") / wish.sizes
    most = np.minimum(1.0, wish.expected_batch / wish.sizes)
    powers = np.arange(-FALL * FINENESS, np.ceil(FINENESS * np.log2((most / first).max())) + 1) / FINENESS
    rates = np.minimum(first * 2.0 ** powers[:, None], most)
    rates[-1] = most
    least = _multipliers(wish, first)
    losses, beside = _losses(wish, least, every, loss_bound, noise_ratio, sampling)
    asked = replace(wish, past=(*wish.past, *losses))
    shape = np.stack([_constant(asked.some(np.array([g])), rates[:, g]) for g in range(first.size)], axis=1)
    factor = _noisier(asked, rates, shape)
    start = shape[np.searchsorted(powers, 0.0)]
    multipliers = shape * factor
    scale = wish.clip_norm * wish.records / float((wish.sizes / (start * factor)).sum())
    shares = Shares(first, scale / (start * factor), scale)
    menu = Menu(sample_rates=rates, sensitivities=scale / multipliers)
    return Plan.with_shares(wish, shares, owners=owners, menu=menu, beside=beside, sampling=sampling)


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

    Nobody knows beforehand which group is chosen, so everybody pays for every step as if it were the own one.

    **Guarantee.** After the last step every owner has spent at most what it grants, the releases of losses included;
    but not if `weak`: then that holds for the largest group only, and smaller groups, whose records are drawn more
    often, spend more than they grant. `spent()` is the truth either way.

    Args:
        owners: The groups, and what each grants.
        steps: How many steps.
        expected_batch: The size of a batch of the group that is chosen; of all of it, if it is smaller.
        clip_norm: The sensitivity of everyone.
        every: Steps between releases of losses.
        proportional: Let the batch of a group be in proportion to its size instead: aZB-prop.
        weak: Add only the noise that the largest group needs: aZB-weak.
        loss_bound: What losses are cut to (zeta).
        noise_ratio: The noise multiplier of the losses, in multiples of that of a step.
        sampling: As for `plan_asc`.
        accountant: As for `plan_asc`.
        past: What was done to the owners' records before.

    Raises:
        ValueError: naming the argument that cannot be, or the owner whose budget does not fit.
    """
    wish = wish_of(owners, steps, expected_batch, clip_norm, of_unit(accountant, sampling), past)
    counts = np.minimum(wish.expected_batch, wish.sizes)
    if proportional:
        counts = wish.common_rate() * wish.sizes
    if sampling == "without_replacement":
        counts = np.maximum(np.rint(counts), 1)
    rates = counts / wish.sizes
    heard = np.argmax(wish.sizes, keepdims=True) if weak else np.arange(rates.size)
    asked = wish.some(heard)
    least = _multipliers(asked, rates[heard])
    _, beside = _losses(wish, np.full(rates.size, least.max()), every, loss_bound, noise_ratio, sampling)
    lossy = tuple(plan.segment().rows(heard) for plan in beside)
    multiplier = float(_multipliers(replace(asked, past=(*asked.past, *lossy)), rates[heard]).max())
    shares = Shares(rates, np.full(rates.size, wish.clip_norm), multiplier * wish.clip_norm)
    return Plan.with_shares(wish, shares, owners=owners, beside=beside, sampling=sampling)


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


def _multipliers(wish: Wish, rates: np.ndarray) -> np.ndarray:
    """Return the multiplier with which every owner spends its budget at its own rate."""
    return np.array([float(wish.some(np.array([g])).multipliers(rates[g])[0]) for g in range(rates.size)])


def _losses(
    wish: Wish, least: np.ndarray, every: int, bound: float, ratio: float, sampling: Sampling
) -> tuple[tuple[Segment, ...], tuple[Plan, ...]]:
    """Return what releases of losses do to everybody's records, and the plan that they follow."""
    every = _validate.count("every", every, least=1)
    half = _validate.number("loss_bound", bound, above=0) / 2  # see GroupLosses
    releases = (wish.steps - 1) // every
    if not releases:
        return (), ()
    told = replace(wish, epsilon=LOSSES * wish.epsilon, steps=releases, past=())
    floor = float(told.multipliers(1.0).max())
    multiplier = max(_validate.number("noise_ratio", ratio, above=0) * float(least.max()), floor)
    plan = Plan(
        sample_rates=np.ones(least.size),
        sensitivities=np.full(least.size, half),
        sizes=wish.sizes,
        noise_scale=multiplier * half,
        steps=releases,
        labels=wish.labels,
        sampling=sampling,
    )
    return (plan.segment(),), (plan,)


def _constant(wish: Wish, rates: np.ndarray) -> np.ndarray:
    """Return multipliers with which one owner spends its budget if all steps are made at one of these rates, about.

    A few rates are solved and those between them interpolated: what is spent for sure is found out afterwards.
    """
    solved = np.unique(np.linspace(0, rates.size - 1, _SOLVED).round().astype(np.int64))
    found = np.array([float(wish.multipliers(rates[place])[0]) for place in solved])
    return np.asarray(np.exp(np.interp(np.log(rates), np.log(rates[solved]), np.log(found))))


def _noisier(wish: Wish, rates: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return by how much the multipliers of each owner's menu must be larger for its budget to hold for sure."""
    count = np.full(wish.epsilon.size, wish.steps)

    def over(factor: np.ndarray) -> np.ndarray:
        """Return the logarithm of what is spent to what may be."""
        menu = Segment(rates.T, (shape * factor).T, count)
        spent = epsilon_of_rows([*wish.past, menu], wish.delta, wish.accountant)
        return np.asarray(np.log(spent / (wish.epsilon * (1 - 1e-7))))

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
