"""PDP-SGD and its baselines Sampling and AdaPDP, which sample by thresholds on budgets, with sound accounting.

`threshold` chooses tau of a round (Eq. 4 to 7), and `plan_thresholds` plans the rounds. AdaPDP trains a model in each
round: see `inosgm.methods.adapdp`. The published accounting is in `inosgm.methods.pdp_published`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from inosgm._internal import validate as _validate
from inosgm.accounting import Accountant, Segment
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.inverses import LEAST_MULTIPLIER, MOST_MULTIPLIER, multipliers
from inosgm.methods.method import Method
from inosgm.owners import Owners
from inosgm.planning.calibration import BELOW_BUDGET, Calibration, PlanRequest
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_request

Waste = Literal["fixed", "adaptive"]
"""How the two wastes are weighted: by the fixed weights of Eq. 6, or by those of `adaptive_loss`."""

_GRID_POINTS = 4096  # where `adaptive_loss` is evaluated: the spacing is finer than budgets are usually stated

# Least factor by which the noise grows in each round of the search. For very many owners, epsilons are interpolated in
# a table and may exceed a budget that the accountant itself keeps: without this factor the search would not end.
_LEAST_GROWTH = 1 + 1e-4


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

    After round R of k an owner may have spent R/k of what it grants. The remaining part decides the threshold of the
    round (Eq. 6 or 7) and the rate of the owner, q * pi_i. The noise is the least that keeps every budget. Every batch
    is drawn with these rates, as by the paper's own sampler (App. C.3). One round is the paper's baseline Sampling
    (App. B.1), except that the subset is drawn for every batch instead of once, which costs a record less. If every
    round begins with a new model, the method is AdaPDP (App. B.2); see `inosgm.methods.adapdp`.

    **Guarantee.** After the last step every owner has spent at most what it grants, at its delta, for one of its
    records added or removed: a record pays the amplified cost of every step of every round, whether it was drawn or
    not, and thresholds, rates and noise are functions of public numbers only. The published accounting, by which
    records that were not drawn in a round pay nothing for it, is false (docs: pdp_sgd_counterexample). The rates are
    those of the paper, not optimal ones: only some owners spend all they grant. Early rounds have more noise than late
    ones, because every round gets the same part of epsilon and epsilon grows with the square root of the steps.

    Args:
        owners: Who grants what; see Owners.
        rounds: Number of rounds, k.
        steps: Number of releases in all rounds together; a round has steps / rounds of them, rounded.
        expected_batch: Expected number of records in a batch, in every round.
        clip_norm: The sensitivity of every owner.
        waste: "fixed" weights the wastes of a threshold by Eq. 6, "adaptive" by `adaptive_loss`.
        weight: w_1 of Eq. 6; the paper uses 0.7, and 0.2 for AdaPDP.
        accountant: PLD() if not given.
        past: Earlier releases of the owners' records, which count: ledger.past(owners) returns them.

    Returns:
        One plan for each round; each has the rounds before it in its past.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit.

    >>> from inosgm import Owners
    >>> owners = Owners(of_record=["strict"] * 400 + ["mild"] * 600, epsilon={"strict": 0.5, "mild": 1.0}, delta=1e-5)
    >>> plans = plan_thresholds(owners, rounds=2, steps=20, expected_batch=50, clip_norm=1.0, weight=0.2)
    >>> [(plan.steps, plan.sample_rates.round(3).tolist(), plan.spent().round(2).tolist()) for plan in plans]
    [(10, [0.065, 0.028], [0.5, 0.21]), (10, [0.062, 0.033], [0.99, 0.5])]
    """
    request = plan_request(owners, steps, expected_batch, clip_norm, accountant, past)
    rounds = _validate.count("rounds", rounds, least=1)
    if rounds > request.steps:
        raise ValueError(f"rounds must be at most the {request.steps} steps, got {rounds}: raise steps")
    groups, kinds = request.grouped()
    first = np.unique(kinds, return_index=True)[1]
    before = epsilon_of_rows(groups.past, groups.delta, groups.accountant)
    for row in np.flatnonzero(before >= groups.epsilon):
        raise ValueError(f"{groups.budget(row)} has nothing left to spend: raise its epsilon, or leave it out")
    ends = np.round(np.arange(rounds + 1) * request.steps / rounds).astype(int)
    plans: list[Plan] = []
    done = tuple(request.past)
    for number, count in enumerate(np.diff(ends).tolist(), start=1):
        granted = before + (groups.epsilon - before) * number / rounds
        past = [segment.rows(first) for segment in done]
        calibration = _calibrate(replace(groups, epsilon=granted, steps=count, past=past), waste, weight)
        everyone = Calibration(
            calibration.sample_rates[kinds], calibration.sensitivities[kinds], calibration.noise_scale
        )
        plans.append(Plan.with_calibration(replace(request, steps=count), everyone, owners=owners, past=done))
        done = (*done, plans[-1].segment())
    return tuple(plans)


def _calibrate(request: PlanRequest, waste: Waste, weight: float) -> Calibration:
    """Return the rates of a round, and the least noise that keeps the budgets of the request."""
    left = np.maximum(request.epsilon - epsilon_of_rows(request.past, request.delta, request.accountant), 0.0)
    tau = threshold(left, request.sizes, waste, weight)
    drawn = sampling_probabilities(left, tau)
    most = float(drawn @ request.sizes)
    if request.expected_batch > most:
        raise ValueError(
            f"expected_batch must be at most {most:.6g}, the records that a round draws from at its threshold, "
            f"{tau:.4g}, got {request.expected_batch:g}"
        )
    rates = drawn * (request.expected_batch / most)
    return Calibration(rates, request._filled(request.clip_norm), _multiplier(request, rates) * request.clip_norm)


def _multiplier(request: PlanRequest, rates: np.ndarray) -> float:
    """Return the least multiplier that keeps all budgets: solved for one owner after the other, checked for all."""
    aim, steps = request.epsilon * BELOW_BUDGET, request._filled(request.steps)
    multiplier, worst = LEAST_MULTIPLIER, int(np.argmax(rates / aim))
    while True:
        row = np.array([worst])
        past = [segment.rows(row) for segment in request.past]
        needed = multipliers(aim[row], request.delta[row], rates[row], steps[row], past, request.accountant)[0]
        if np.isnan(needed):
            raise ValueError(
                f"{request.budget(worst)} is too little for this round: at a sample rate of {rates[worst]:g} no noise "
                f"multiplier up to {MOST_MULTIPLIER:g} keeps it for {request.steps} steps. Lower steps, rounds or "
                "expected_batch, or raise its epsilon"
            )
        multiplier = max(multiplier * _LEAST_GROWTH, float(needed))
        ahead = Segment(rates, request._filled(multiplier), steps)
        over = epsilon_of_rows([*request.past, ahead], request.delta, request.accountant) / aim
        worst = int(np.argmax(over))
        if over[worst] <= 1:
            return multiplier


def sampling_probabilities(epsilons: ArrayLike, threshold: float) -> np.ndarray:
    """Return min(1, (e^epsilon_i - 1) / (e^tau - 1)), the probability to draw a record at the threshold tau (Eq. 4).

    Args:
        epsilons: The remaining part of each budget, >= 0; a record whose budget is 0 is not drawn.
        threshold: tau, above 0.

    >>> sampling_probabilities([0.0, 0.5, 2.0], 1.0).round(4)
    array([0.    , 0.3775, 1.    ])
    """
    left = _budgets(epsilons)
    tau = _validate.number("threshold", threshold, above=0)
    below = np.minimum(left, tau)  # only differences are exponentiated: a budget of 1000 must not overflow
    return np.asarray(np.exp(below - tau) * (np.expm1(-below) / np.expm1(-tau)))


def wastes(epsilons: ArrayLike, sizes: ArrayLike, thresholds: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the wastes at each threshold: budgets of records that are not drawn, and budgets above the threshold.

    They are waste_u and waste_s of Eq. 6, summed over records. The first increases with the threshold, from 0 at the
    smallest budget; the second decreases, to 0 at the largest.

    Args:
        epsilons: The remaining part of each owner's budget, >= 0.
        sizes: Number of records of each owner.
        thresholds: The thresholds, above 0.

    >>> unused, above = wastes([0.5, 1.0], [100, 100], [0.5, 1.0])
    >>> unused.round(2), above.round(2)
    (array([ 0.  , 31.12]), array([50.,  0.]))
    """
    left, counts = _budgets(epsilons), _validate.vector("sizes", sizes)
    if counts.size != left.size:
        raise ValueError(f"sizes must hold one entry per owner: got {counts.size} for {left.size} epsilons")
    _validate.each("sizes", counts, counts >= 0, "be >= 0")
    at = _validate.vector("thresholds", thresholds)
    _validate.each("thresholds", at, at > 0, "be > 0")
    order = np.argsort(left, kind="stable")
    left, counts = left[order], counts[order]
    below_at = np.searchsorted(left, at, side="left")  # number of owners below each threshold
    with np.errstate(divide="ignore"):  # log(0) for a budget of 0, which wastes nothing
        terms = np.log(counts * left) + left + np.log(-np.expm1(-left))
    drawn = np.append(-np.inf, np.logaddexp.accumulate(terms))[below_at] - at - np.log(-np.expm1(-at))
    below = np.append(0.0, np.cumsum(counts * left))
    records = np.append(0.0, np.cumsum(counts))
    unused = np.maximum(below[below_at] - np.exp(drawn), 0.0)
    above = np.maximum(below[-1] - below[below_at] - (records[-1] - records[below_at]) * at, 0.0)
    return unused, above


def fixed_loss(unused: ArrayLike, above: ArrayLike, weight: float) -> np.ndarray:
    """Return weight * waste_u + (1 - weight) * waste_s (Eq. 6)."""
    weight = _validate.number("weight", weight, least=0, most=1)
    return np.asarray(weight * np.asarray(unused) + (1 - weight) * np.asarray(above))


def harmonic_loss(unused: ArrayLike, above: ArrayLike) -> np.ndarray:
    """Return 2 * waste_u * waste_s / (waste_u + waste_s), Eq. 7 as it is printed; 0 where both are 0.

    It chooses no threshold: waste_u is 0 at the smallest budget and waste_s at the largest, so its minimum, 0, is at
    both ends for all budgets.
    """
    u, s = np.asarray(unused, dtype=np.float64), np.asarray(above, dtype=np.float64)
    return _per_total(2 * u * s, u + s)


def adaptive_loss(unused: ArrayLike, above: ArrayLike) -> np.ndarray:
    """Return (waste_u^2 + waste_s^2) / (waste_u + waste_s): Eq. 6 with the weights that Eq. 7 names.

    The formula and the weights of Eq. 7 contradict each other: the formula needs the two weights exchanged, and has
    its minima at both ends of the range (see `harmonic_loss`). With the weights that the text names, the larger waste
    has the larger weight, and the minimum is inside the range, near the point where both wastes are equal.
    """
    u, s = np.asarray(unused, dtype=np.float64), np.asarray(above, dtype=np.float64)
    return _per_total(u * u + s * s, u + s)


def threshold(epsilons: ArrayLike, sizes: ArrayLike, waste: Waste = "fixed", weight: float = 0.7) -> float:
    """Return the threshold in [min, max] of the budgets with the least loss, the smallest of several.

    It is a function of public numbers only. Eq. 6 is concave between two neighbouring budgets, so its minimum is at a
    budget; `adaptive_loss` is evaluated on a grid between them as well.

    Args:
        epsilons: The remaining part of each owner's budget, >= 0; at least one must be above 0.
        sizes: Number of records of each owner.
        waste: "fixed" weights the two wastes by Eq. 6, "adaptive" by `adaptive_loss`.
        weight: w_1 of Eq. 6, for records that are not drawn; w_2 is the rest.

    >>> budgets = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    >>> threshold(budgets, [100] * 6), round(threshold(budgets, [100] * 6, waste="adaptive"), 3)
    (0.6, 0.76)
    """
    left = _budgets(epsilons)
    if waste not in ("fixed", "adaptive"):
        raise ValueError(f"waste must be fixed or adaptive, got {waste!r}")
    candidates = np.unique(left[left > 0])
    if not candidates.size:
        raise ValueError("epsilons must hold a budget above 0: no owner has anything left")
    if waste == "adaptive":
        candidates = np.unique(np.append(candidates, np.linspace(candidates[0], candidates[-1], _GRID_POINTS)))
        loss = adaptive_loss(*wastes(left, sizes, candidates))
    else:
        loss = fixed_loss(*wastes(left, sizes, candidates), weight)
    return float(candidates[np.argmin(loss)])


def _budgets(epsilons: ArrayLike) -> np.ndarray:
    left = _validate.vector("epsilons", epsilons)
    _validate.each("epsilons", left, left >= 0, "be >= 0")
    return left


def _per_total(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, total, out=np.zeros(total.shape), where=total > 0))


def _plan(owners: Owners, options: Any, **request: Any) -> tuple[Plan, ...]:
    rounds = options.rounds
    return plan_thresholds(owners, rounds=rounds.count, waste=rounds.waste, weight=rounds.weight, **request)


def _name_of(options: Any) -> str | None:
    """Return the name of the method that a configuration describes; None if it is not one of these."""
    if options.method != "thresholds":
        return None
    if options.rounds.restart:
        return "adapdp"
    if options.rounds.count == 1:
        return "sampling"
    return "pdp-sgd-adaptive" if options.rounds.waste == "adaptive" else "pdp-sgd"


def _method(
    name: str,
    count: int,
    *,
    waste: Waste = "fixed",
    weight: float = 0.7,  # of the paper; its baselines have 0.2
    restart: bool = False,
    **words: Any,
) -> Method:
    return Method(
        name=name,
        planner=_plan,
        recognises=lambda options, ordered: _name_of(options) == name,
        plan_method="thresholds",
        options={"rounds": {"count": count, "waste": waste, "weight": weight, "restart": restart}},
        takes=("rounds",),
        **words,
    )


METHODS = (
    _method(
        "pdp-sgd",
        5,
        title="PDP-SGD",
        description="records sampled by thresholds on budgets, in five rounds",
        glossary="keeps records by chance in rounds with a threshold each, and everybody pays for every round",
        published="**unsound**: another accounting here",
    ),
    _method(
        "pdp-sgd-adaptive",
        5,
        waste="adaptive",
        title="PDP-SGD adaptive",
        description="PDP-SGD with adaptive thresholds",
        glossary="is PDP-SGD with thresholds that weigh by themselves what they waste",
        published="**unsound**",
    ),
    _method(
        "sampling",
        1,
        weight=0.2,
        title="Sampling",
        description="records sampled by one threshold on budgets",
        glossary="keeps records of strict owners by chance, and gives all that are kept one common budget",
        published="the same idea, accounted exactly",
    ),
    _method(
        "adapdp",
        2,
        weight=0.2,
        restart=True,
        title="AdaPDP",
        description="thresholds in two rounds with a model each, which answer together",
        glossary="trains a model in each of two rounds with a threshold of their own, and lets both answer together",
        published="**unsound**",
    ),
)
