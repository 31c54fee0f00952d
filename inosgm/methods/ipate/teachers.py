"""Which teachers there are, whose records each may learn from, what its vote weighs, and what that costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS, Accountant, Segment
from inosgm.methods.method import Method
from inosgm.owners import Owners
from inosgm.planning.calibration import PlanRequest
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_request


@dataclass(frozen=True, kw_only=True, eq=False)
class Teachers:
    """The teachers of IPATE and the plan of their votes. Everything in it is public.

    A record of owner n goes to `copies[n]` of the `among[n]` teachers from `first[n]` on, and the votes of these have
    one weight, w_n.

    **Guarantee.** A record of owner n, added or removed, moves the matrix of votes (a row per query, a column per
    class) by at most sqrt(2 queries) copies_n w_n, the sensitivity of the plan. Proof: who learns from which record is
    decided by coins of that record alone (`partition_records`), so only its copies_n teachers learn from other records
    than before, and they may vote anything else: a vote that changes from class a to class b moves its row of the
    matrix by w_n (e_b - e_a), of norm w_n sqrt(2). In the worst case all copies_n teachers change from the same a to
    the same b in each of the rows, and these are orthogonal to each other. The bound is reached, so it cannot be
    lowered. It holds whatever teachers are and however they learn; nothing is assumed about their agreement.

    The epsilon that follows does not depend on data. PATE's data-dependent bound, which is smaller where teachers
    agree, is not used: it is a private number itself, known after the votes only, so that no owner's budget can be
    kept by it, and nobody can be told what was spent.

    Attributes:
        plan: One release of all votes, in which every record takes part; `expected_batch` is the number of teachers.
        queries: How many public records are labelled.
        weights: What the vote of each teacher counts; 1 on average.
        first: The first of the teachers that records of each owner may go to.
        among: How many teachers these are.
        copies: How many of them get a copy of a record.
    """

    plan: Plan
    queries: int
    weights: np.ndarray
    first: np.ndarray
    among: np.ndarray
    copies: np.ndarray

    @property
    def count(self) -> int:
        """Number of teachers."""
        return self.weights.size


def weighted_teachers(
    owners: Owners,
    *,
    count: int,
    queries: int,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Teachers:
    """Let each teacher learn from owners of one budget, and weigh its vote by what that budget allows.

    **Guarantee.** That of `Teachers`; and after the release every owner has spent at most what it grants, at its delta,
    for one of its records added or removed, and at least 99.5 % of it.

    Args:
        owners: Who grants what; see Owners.
        count: Number of teachers, at least one for each distinct budget, in proportion to the numbers of records, which
            are public.
        queries: Number of public records that they label.
        accountant: PLD() if not given.
        past: Earlier releases of the owners' records, which count: ledger.past(owners) returns them.

    Raises:
        ValueError: for fewer teachers than distinct budgets, and for a budget that does not fit.

    >>> owners = Owners(of_record=["a"] * 60 + ["b"] * 30, epsilon={"a": 1.0, "b": 2.0}, delta=1e-5)
    >>> made = weighted_teachers(owners, count=3, queries=50)
    >>> made.weights.round(2), made.plan.spent().round(2)
    (array([1.45, 0.77, 0.77]), array([1., 2.]))
    """
    request = _request(owners, count, queries, accountant, past)
    multipliers = _multipliers(request)
    levels, level = np.unique(multipliers, return_inverse=True)
    if levels.size > count:
        raise ValueError(
            f"count must be at least the number of distinct budgets, {levels.size}, got {count}: a teacher learns from "
            "owners of one budget; raise it, or take copies of records instead of weights (upsample)"
        )
    teachers = _in_proportion(np.bincount(level, weights=request.sizes), count)
    weights = 1 / np.repeat(levels, teachers)
    weights *= count / weights.sum()
    first = (np.cumsum(teachers) - teachers)[level]
    ones = np.ones(level.size, dtype=np.int64)
    return _planned(request, multipliers, queries, weights, first, teachers[level], ones)


def upsampled_teachers(
    owners: Owners,
    *,
    count: int,
    queries: int,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Teachers:
    """Let a record be learned from by as many teachers as its owner's budget allows: 1 for the strictest owner.

    **Guarantee.** That of `Teachers`; and after the release every owner has spent at most what it grants, at its delta,
    for one of its records added or removed. The strictest owner spends at least 99.5 % of it; others less, where their
    budget allows no whole number of copies.

    Args:
        owners: Who grants what; see Owners.
        count: Number of teachers. No record has more copies.
        queries: Number of public records that they label.
        accountant: PLD() if not given.
        past: Earlier releases of the owners' records, which count: ledger.past(owners) returns them.

    Raises:
        ValueError: for a budget that does not fit.

    >>> owners = Owners(of_record=["a"] * 60 + ["b"] * 30, epsilon={"a": 1.0, "b": 2.5}, delta=1e-5)
    >>> made = upsampled_teachers(owners, count=3, queries=50)
    >>> made.copies, made.plan.spent().round(2)
    (array([1, 2]), array([1.  , 2.15]))
    """
    request = _request(owners, count, queries, accountant, past)
    multipliers = _multipliers(request)
    copies = np.minimum(np.floor(multipliers.max() / multipliers), count).astype(np.int64)
    first, among = np.zeros_like(copies), np.full_like(copies, count)
    return _planned(request, multipliers, queries, np.ones(count), first, among, copies)


_FORMS = {"ipate_weight": weighted_teachers, "ipate_upsample": upsampled_teachers}


def teachers_of(options: Any, owners: Owners, past: Sequence[Segment] = ()) -> Teachers:
    """Return the teachers that the `plan` section of a configuration asks for."""
    if options.teachers is None:
        raise ValueError(f"teachers must be given for {options.method}")
    count, queries, accountant = options.teachers.count, options.teachers.queries, ACCOUNTANTS[options.accountant]
    return _FORMS[options.method](owners, count=count, queries=queries, accountant=accountant, past=past)


def _request(
    owners: Owners, count: int, queries: int, accountant: Accountant | None, past: Sequence[Segment]
) -> PlanRequest:
    """Check the arguments, and return the request for one release in which every record takes part."""
    _validate.count("queries", queries, least=1)
    if isinstance(owners, Owners):
        owners.require_records("IPATE, whose teachers are given records one by one,")
    return plan_request(owners, 1, _validate.count("count", count, least=1), 1.0, accountant, past)


def _multipliers(request: PlanRequest) -> np.ndarray:
    """Return the noise multiplier with which one release spends what each owner grants."""
    groups, kinds = request.grouped()
    return np.asarray(groups.multipliers(1.0)[kinds])


def _in_proportion(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return how many of the teachers each size gets: one, and the next ones where most records share a teacher."""
    shares = np.ones(sizes.size, dtype=np.int64)
    for _ in range(count - sizes.size):
        shares[np.argmax(sizes / shares)] += 1
    return shares


def _planned(
    request: PlanRequest,
    multipliers: np.ndarray,
    queries: int,
    weights: np.ndarray,
    first: np.ndarray,
    among: np.ndarray,
    copies: np.ndarray,
) -> Teachers:
    """Return the teachers with the sensitivities of records, and the least noise that keeps every budget."""
    sensitivities = math.sqrt(2 * queries) * copies * weights[first]
    plan = Plan(
        sample_rates=np.ones(copies.size),
        sensitivities=sensitivities,
        sizes=request.sizes,
        noise_scale=float((sensitivities * multipliers).max()),
        steps=1,
        expected_batch=request.expected_batch,
        labels=request.labels,
        epsilon=request.epsilon,
        delta=request.delta,
        accountant=request.accountant.name,
        past=request.past,
    )
    return Teachers(plan=plan, queries=queries, weights=weights, first=first, among=among, copies=copies)


def _plan(owners: Owners, options: Any, *, past: Sequence[Segment], **request: Any) -> Plan:
    return teachers_of(options, owners, past).plan


METHODS = (
    Method(
        name="ipate-upsample",
        title="IPATE upsampling",
        description="teachers vote for a student; records of the less private teach several",
        glossary="lets many models vote on public records with noise; records of less strict owners teach several",
        published="coins for each record",
        planner=_plan,
        recognises=lambda options, ordered: options.method == "ipate_upsample",
        plan_method="ipate_upsample",
        needs=("teachers",),
    ),
    Method(
        name="ipate-weight",
        title="IPATE weighting",
        description="teachers vote for a student; votes of the less private weigh more",
        glossary="lets many models vote on public records with noise; models of less strict owners count more",
        published="coins for each record",
        planner=_plan,
        recognises=lambda options, ordered: options.method == "ipate_weight",
        plan_method="ipate_weight",
        needs=("teachers",),
    ),
)
