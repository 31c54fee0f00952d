"""Plans in rounds by thresholds: PDP-SGD, its baselines Sampling and AdaPDP, in a form that keeps what it promises."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import Accountant, Segment
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.inverses import LEAST_MULTIPLIER, MOST_MULTIPLIER, multipliers
from inosgm.methods.thresholds import Waste, sampling_probabilities, threshold
from inosgm.owners import Owners
from inosgm.planning.calibration import Shares, Wish
from inosgm.planning.plan import Plan
from inosgm.planning.planners import wish_of

_ROOM = 1e-7  # what a budget is aimed below, relatively, against rounding
_NUDGE = 1e-4  # by how much noise grows where a table of many owners says more than the accountant itself


def plan_thresholds(
    owners: Owners,
    *,
    rounds: int,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    waste: Waste = "fixed",
    weight: float = 0.7,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> tuple[Plan, ...]:
    """Plan rounds of steps, each with rates by Eq. 4 at a threshold of its own: the sound form of PDP-SGD.

    After round R of k an owner may have spent R/k of what it grants. What it has left until then decides the threshold
    of the round (Eq. 6 or 7) and its rate, q * pi_i; the noise is the least with which nobody spends more. Batches are
    drawn anew with these rates, as the paper's own sampler does (App. C.3), so that one round is its baseline Sampling
    (App. B.1) but for the subset, which is drawn for every batch instead of once: that costs a record less. Rounds
    that begin with a new model each are AdaPDP (App. B.2); see `inosgm.methods.averaged`.

    **Guarantee.** After the last step every owner has spent at most what it grants, at its delta, for one of its
    records added or removed: a record pays the amplified cost of every step of every round, whether it was drawn or
    not, and thresholds, rates and noise rest on public numbers only. The published accounting, by which records that
    were not drawn in a round pay nothing for it, is false (docs: pdp_sgd_counterexample). The rates are those of the
    paper, not the best ones: only the owners that bind spend all they grant. Early rounds are noisier than late ones,
    since epsilon is shared out evenly and grows with the root of the steps.

    Args:
        owners: Who grants what; see Owners.
        rounds: How many rounds, k.
        steps: How many releases there will be in all rounds together; a round has steps / rounds of them, rounded.
        expected_batch: Expected number of records in a batch, in every round.
        clip_norm: The sensitivity of every owner.
        waste: "fixed" weighs the wastes of a threshold by Eq. 6, "adaptive" as Eq. 7 means it.
        weight: w_1 of Eq. 6; the paper takes 0.7, and 0.2 for AdaPDP.
        accountant: PLD() if not given.
        past: What was done to the owners' records before, which counts: ledger.past(owners) knows.

    Returns:
        One plan for each round; each has the rounds before it in its past.

    Raises:
        ValueError: naming the argument that cannot be, or the owner whose budget does not fit.

    >>> from inosgm import Owners
    >>> owners = Owners(of_record=["strict"] * 400 + ["mild"] * 600, epsilon={"strict": 0.5, "mild": 1.0}, delta=1e-5)
    >>> plans = plan_thresholds(owners, rounds=2, steps=20, expected_batch=50, clip_norm=1.0, weight=0.2)
    >>> [(plan.steps, plan.sample_rates.round(3).tolist(), plan.spent().round(2).tolist()) for plan in plans]
    [(10, [0.065, 0.028], [0.5, 0.21]), (10, [0.062, 0.033], [0.99, 0.5])]
    """
    wish = wish_of(owners, steps, expected_batch, clip_norm, accountant, past)
    rounds = _validate.count("rounds", rounds, least=1)
    if rounds > wish.steps:
        raise ValueError(f"rounds must be at most the {wish.steps} steps, got {rounds}: raise steps")
    groups, kinds = wish.grouped()
    first = np.unique(kinds, return_index=True)[1]
    before = _spent(groups)
    for row in np.flatnonzero(before >= groups.epsilon):
        raise ValueError(f"{groups.budget(row)} has nothing left to spend: raise its epsilon, or leave it out")
    ends = np.round(np.arange(rounds + 1) * wish.steps / rounds).astype(int)
    plans: list[Plan] = []
    done = tuple(wish.past)
    for number, count in enumerate(np.diff(ends).tolist(), start=1):
        granted = before + (groups.epsilon - before) * number / rounds
        past = [segment.rows(first) for segment in done]
        shares = _shares(replace(groups, epsilon=granted, steps=count, past=past), waste, weight)
        everyone = Shares(shares.sample_rates[kinds], shares.sensitivities[kinds], shares.noise_scale)
        plans.append(Plan.with_shares(replace(wish, steps=count), everyone, owners=owners, past=done))
        done = (*done, plans[-1].segment())
    return tuple(plans)


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
        granted, delta, accountant = plan._budgets()
        before = epsilon_of_rows(plans[0].past, delta, accountant)
        spent = epsilon_of_rows(plan.past, delta, accountant)
        left = np.maximum(before + (granted - before) * number / len(plans) - spent, 0.0)
        tau = threshold(left, plan.sizes, waste, weight)
        found.append(tau * float(sampling_probabilities(left, tau) @ plan.sizes))
    return tuple(value / sum(found) for value in found)


def _spent(wish: Wish) -> np.ndarray:
    return epsilon_of_rows(wish.past, wish.delta, wish.accountant)


def _shares(wish: Wish, waste: Waste, weight: float) -> Shares:
    """Return the rates of a round, and the least noise with which nobody spends more than the wish says."""
    left = np.maximum(wish.epsilon - _spent(wish), 0.0)
    tau = threshold(left, wish.sizes, waste, weight)
    drawn = sampling_probabilities(left, tau)
    most = float(drawn @ wish.sizes)
    if wish.expected_batch > most:
        raise ValueError(
            f"expected_batch must be at most {most:.6g}, the records that a round draws from at its threshold, "
            f"{tau:.4g}, got {wish.expected_batch:g}"
        )
    rates = drawn * (wish.expected_batch / most)
    return Shares(rates, wish._filled(wish.clip_norm), _multiplier(wish, rates) * wish.clip_norm)


def _multiplier(wish: Wish, rates: np.ndarray) -> float:
    """Return the least multiplier that keeps all budgets: solved for the owner that binds, checked for all."""
    aim, steps = wish.epsilon * (1 - _ROOM), wish._filled(wish.steps)
    multiplier, worst = LEAST_MULTIPLIER, int(np.argmax(rates / aim))
    while True:
        row = np.array([worst])
        past = [segment.rows(row) for segment in wish.past]
        found = multipliers(aim[row], wish.delta[row], rates[row], steps[row], past, wish.accountant)[0]
        if np.isnan(found):
            raise ValueError(
                f"{wish.budget(worst)} is too little for this round: at a sample rate of {rates[worst]:g} no noise "
                f"multiplier up to {MOST_MULTIPLIER:g} keeps it for {wish.steps} steps. Lower steps, rounds or "
                "expected_batch, or raise its epsilon"
            )
        multiplier = max(multiplier * (1 + _NUDGE), float(found))
        ahead = Segment(rates, wish._filled(multiplier), steps)
        over = epsilon_of_rows([*wish.past, ahead], wish.delta, wish.accountant) / aim
        worst = int(np.argmax(over))
        if over[worst] <= 1:
            return multiplier
