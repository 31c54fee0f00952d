"""Simple baselines for owners with different budgets: they spend at most what owners grant, and often less."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import Accountant, Segment
from inosgm.methods.method import Method
from inosgm.owners import Owners
from inosgm.planning.calibration import Calibration, PlanRequest, calibrate_blend, calibrate_uniform
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_request
from inosgm.planning.variants import PlanMethod


def plan_left_out(
    owners: Owners,
    *,
    strictest: int,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    method: PlanMethod = "uniform",
    weight: float | None = None,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan without the owners whose budgets are strictest (IDP-SGD, App. E.1); they have a rate of 0.

    **Guarantee.** Owners that are left out spend nothing; the others spend at most what they grant, as with `method`.
    The budgets, which are public, decide who is left out.

    The other arguments are those of `plan_sample`.

    Args:
        strictest: Number of distinct epsilons, from the smallest on, whose owners are left out.
        expected_batch: Expected number of records in a batch, at most the records of the remaining owners.
        method: The planner for the remaining owners: "uniform" (with the smallest epsilon among them, as in the paper),
            "sample", "scale" or "blend".
        weight: The weight of a blend; None for other methods.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit.

    >>> owners = Owners(of_record=list("aabbcc") * 100, epsilon={"a": 1.0, "b": 2.0, "c": 3.0}, delta=1e-5)
    >>> plan = plan_left_out(owners, strictest=1, steps=100, expected_batch=40, clip_norm=1.0)
    >>> plan.sample_rates, plan.spent().round(2)
    (array([0. , 0.1, 0.1]), array([0., 2., 2.]))
    """
    request = plan_request(owners, steps, expected_batch, clip_norm, accountant, past)
    levels = np.unique(request.epsilon)
    strictest = _validate.count("strictest", strictest)
    if strictest >= levels.size:
        raise ValueError(
            f"strictest must be below the number of distinct epsilons, {levels.size}, got {strictest}: no owner would "
            "remain (leave-out needs owners that grant different epsilons)"
        )
    rows = np.flatnonzero(request.epsilon >= levels[strictest])
    calibration = _calibrate(request.some(rows), method, weight)
    return Plan.with_calibration(
        request, _among(calibration, rows, request.epsilon.size, request.clip_norm), owners=owners
    )


def plan_in_turn(
    owners: Owners,
    *,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> tuple[Plan, ...]:
    """Plan one stage for the owners of each budget, the strictest first (IDP-SGD, App. E.2).

    The paper found this order to be better than the reverse. The number of steps of a stage is proportional to its
    records. If its owners have fewer records than the expected batch, every step uses all of them.

    **Guarantee.** Every owner spends at most what it grants, all of it in its own stage, at its delta, for one of its
    records added or removed.

    The other arguments are those of `plan_sample`.

    Args:
        steps: Number of releases in all stages together, at least one for each budget.
        expected_batch: Largest expected number of records in a batch.

    Returns:
        One plan for each distinct (epsilon, delta); in each, all others have a rate of 0.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit.

    >>> owners = Owners(of_record=list("aab") * 100, epsilon={"a": 2.0, "b": 1.0}, delta=1e-5)
    >>> plans = plan_in_turn(owners, steps=30, expected_batch=40, clip_norm=1.0)
    >>> [(plan.steps, plan.sample_rates.tolist(), plan.spent().round(2).tolist()) for plan in plans]
    [(10, [0.0, 0.4], [0.0, 1.0]), (20, [0.2, 0.0], [2.0, 1.0])]
    """
    request = plan_request(owners, steps, expected_batch, clip_norm, accountant, past)
    stages = [np.flatnonzero(owners.budget_of_owner == level) for level in range(len(owners.budgets))]
    stages = [rows for rows in stages if request.sizes[rows].any()]
    if request.steps < len(stages):
        raise ValueError(f"steps must be at least one for each of {len(stages)} budgets, got {request.steps}")
    counts = _in_proportion(request.steps, np.array([request.sizes[rows].sum() for rows in stages]))
    plans: list[Plan] = []
    done = tuple(request.past)
    for rows, count in zip(stages, counts.tolist(), strict=True):
        batch = min(request.expected_batch, float(request.sizes[rows].sum()))
        here = replace(request, steps=count, expected_batch=batch, past=done)
        calibration = _among(calibrate_uniform(here.some(rows)), rows, request.epsilon.size, request.clip_norm)
        plans.append(Plan.with_calibration(here, calibration, owners=owners))
        done = (*done, plans[-1].segment())
    return tuple(plans)


def plan_lowered(
    owners: Owners,
    *,
    share: float,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    method: PlanMethod = "sample",
    weight: float | None = None,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with every epsilon lowered towards the strictest one by a share of their distance (INO-SGD, Fig. 20).

    A share of 0 is the plan of the method itself; a share of 1 gives all owners the smallest epsilon.

    **Guarantee.** Every owner spends at most its lowered epsilon, e + (1 - share) (epsilon - e), where e is the
    smallest epsilon, and therefore at most what it grants.

    The other arguments are those of the planner.

    Args:
        share: In [0, 1].
        method: The planner: "sample", "scale", "blend" or "uniform".
        weight: The weight of a blend; None for other methods.

    Raises:
        ValueError: naming the invalid argument, or the owner whose lowered budget does not fit.

    >>> owners = Owners(of_record=list("ab") * 300, epsilon={"a": 1.0, "b": 3.0}, delta=1e-5)
    >>> plan_lowered(owners, share=0.5, steps=100, expected_batch=40, clip_norm=1.0).spent().round(2)
    array([1., 2.])
    """
    request = plan_request(owners, steps, expected_batch, clip_norm, accountant, past)
    share = _validate.number("share", share, least=0, most=1)
    least = request.epsilon.min()
    epsilon = least + (1 - share) * (request.epsilon - least)
    calibration = _calibrate(replace(request, epsilon=epsilon), method, weight)
    return Plan.with_calibration(request, calibration, owners=owners)


def plan_undersampled(
    owners: Owners,
    *,
    share: float,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    method: PlanMethod = "sample",
    weight: float | None = None,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with lower rates for the less private owners, whose records are left out at random (INO-SGD, Table 3).

    An owner is less private if it grants more than the mean over owners. The paper drops records once, before
    training. Here every batch leaves out others, by lower sample rates: then a record that is added or removed moves no
    other record, and records that are drawn less often cost less.

    **Guarantee.** Every owner spends at most what it grants; the less private owners spend less.

    The other arguments are those of the planner.

    Args:
        share: The probability with which a batch leaves out a record of a less private owner, in [0, 1).
        expected_batch: As in the planner, before records are left out; sums are still divided by it.
        method: The planner: "sample", "scale", "blend" or "uniform".
        weight: The weight of a blend; None for other methods.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit.

    >>> owners = Owners(of_record=list("ab") * 300, epsilon={"a": 1.0, "b": 3.0}, delta=1e-5)
    >>> plan_undersampled(owners, share=0.5, steps=100, expected_batch=40, clip_norm=1.0).spent().round(2)
    array([1.  , 1.41])
    """
    share = _validate.number("share", share, least=0, most=1)
    if share == 1:
        raise ValueError("share must be below 1, got 1: some owners would take no part")
    request = plan_request(owners, steps, expected_batch, clip_norm, accountant, past)
    calibration = _calibrate(request, method, weight)
    kept = np.where(request.epsilon > request.epsilon.mean(), 1 - share, 1.0)
    fewer = calibration._replace(sample_rates=calibration.sample_rates * kept)
    return Plan.with_calibration(request, fewer, owners=owners)


def _calibrate(request: PlanRequest, method: PlanMethod, weight: float | None) -> Calibration:
    """Return the rates, sensitivities and noise of a method for the owners of a request."""
    if (method == "blend") != (weight is not None):
        raise ValueError(f"weight must be given for a blend and for nothing else, got {weight!r} for {method!r}")
    if method == "uniform":
        return calibrate_uniform(request)
    if method not in ("sample", "scale", "blend"):
        raise ValueError(f"method must be uniform, sample, scale or blend, got {method!r}")
    part = {"sample": 1.0, "scale": 0.0}.get(method, 0.0 if weight is None else weight)
    return calibrate_blend(request, _validate.number("weight", part, least=0, most=1))


def _in_proportion(total: int, parts: np.ndarray) -> np.ndarray:
    """Return whole numbers in proportion to `parts`, each at least 1, that add up to `total` (largest remainders)."""
    exact = 1 + (total - parts.size) * parts / parts.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return np.asarray(counts)


def _among(calibration: Calibration, rows: np.ndarray, size: int, clip_norm: float) -> Calibration:
    """Return the calibration of some owners as one of all owners, of whom the others take no part."""
    sample_rates, sensitivities = np.zeros(size), np.full(size, clip_norm)
    sample_rates[rows], sensitivities[rows] = calibration.sample_rates, calibration.sensitivities
    return Calibration(sample_rates, sensitivities, calibration.noise_scale)


def _left_out(owners: Owners, options: Any, **request: Any) -> Plan:
    strictest = options.leave_out
    return plan_left_out(owners, strictest=strictest, method=options.method, weight=options.weight, **request)


def _in_turn(owners: Owners, options: Any, **request: Any) -> tuple[Plan, ...]:
    return plan_in_turn(owners, **request)


def _undersampled(owners: Owners, options: Any, **request: Any) -> Plan:
    share = options.undersample
    return plan_undersampled(owners, share=share, method=options.method, weight=options.weight, **request)


def _lowered(owners: Owners, options: Any, **request: Any) -> Plan:
    return plan_lowered(owners, share=options.lower, method=options.method, weight=options.weight, **request)


METHODS = (
    Method(
        name="leave-out",
        title="Leave-out",
        description="DP-SGD without the strictest owners",
        glossary="leaves the strictest out, and gives everybody else the budget of the strictest of them",
        published="the same",
        planner=_left_out,
        recognises=lambda options, ordered: options.leave_out is not None,
        plan_method="uniform",
        options={"leave_out": 1},
        different_budgets=True,
    ),
    Method(
        name="one-after-another",
        title="One after another",
        description="owners in turn, the strictest first",
        glossary="learns from one budget after the other, the strictest first",
        published="the same",
        planner=_in_turn,
        recognises=lambda options, ordered: options.method == "in_turn",
        plan_method="in_turn",
    ),
    Method(
        name="undersample",
        title="Undersampling",
        description="IDP-SGD without 30 % of the records of the less private",
        glossary="gives each its own, and leaves out some records of those who are less strict",
        published="anew in each batch, not once",
        planner=_undersampled,
        recognises=lambda options, ordered: options.undersample is not None,
        plan_method=None,
        options={"undersample": 0.3},
    ),
    Method(
        name="lower",
        title="Lowered budgets",
        description="IDP-SGD with budgets half way towards the strictest",
        glossary="gives each less than its own, part of the way down to the strictest",
        published="the same",
        planner=_lowered,
        recognises=lambda options, ordered: options.lower is not None,
        plan_method=None,
        options={"lower": 0.5},
    ),
)
