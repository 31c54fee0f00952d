"""Individual accounting: every record pays for itself, by the norm of what it gives, until its budget is used up.

The plan is made here; `inosgm.mechanism.record_filter` keeps count of what records have spent.
"""

import math
from collections.abc import Sequence
from typing import Any

from inosgm._internal import validate as _validate
from inosgm.accounting import Accountant, Segment
from inosgm.methods.method import Method
from inosgm.owners import Owners
from inosgm.planning.calibration import calibrate_scale
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_request
from inosgm.planning.variants import IndividualAccounting


def plan_individual(
    owners: Owners,
    *,
    steps: int,
    clip_norm: float,
    full_norm_fraction: float = 0.8,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan full batches in which every record pays by the norm of what it gives, out of a budget for squared norms.

    A record that contributes a vector of norm l to a step spends (l / noise_scale)^2. Once its budget is used up, it
    has left: the last contribution is cut to what it can still afford. Records with short gradients so stay longer
    than those with long ones, and the noise may be less than what full norms at all steps would need.

    **Guarantee.** After any number of steps every owner has spent at most what it grants, at its delta, for one of its
    records added or removed. The budget is charged whole, before the first step: it pays for whatever a record may
    do. With RDP() it is that of a Renyi filter (Feldman and Zrnic 2021), with PLD() that of a Gaussian one (Smith and
    Thakurta 2022; Koskela, Tobaben and Honkela 2023); docs/guides/individual_accounting.md has the proof. What single
    records have spent, and how many are left, is private and nowhere reported.

    Args:
        owners: Who grants what; see Owners.
        steps: How many releases there will be.
        clip_norm: The mean over all records of C, the most that a record contributes to a step. Owners have the
            sensitivities of `plan_scale`, so that nobody's records have to leave before those of others.
        full_norm_fraction: In (0, 1], the fraction of the steps that a record lasts if it contributes C to each. At 1
            every record lasts to the end, with the noise of `plan_scale`; a smaller fraction means less noise, and
            records with long gradients leave early.
        accountant: PLD() if not given.
        past: What was done to the owners' records before, which counts: ledger.past(owners) knows.

    Returns:
        The plan, with the budgets in it.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit and what to change.

    >>> owners = Owners(of_record=["benign"] * 600 + ["malignant"] * 400,
    ...                 epsilon={"benign": 5.0, "malignant": 1.0}, delta=1e-5)
    >>> plan = plan_individual(owners, steps=100, clip_norm=1.0)
    >>> plan.spent().round(3), plan.squared_norm_budget.round(3)
    (array([4.999, 1.   ]), array([1.257, 0.072]))
    """
    records = int(owners.sizes.sum()) if isinstance(owners, Owners) else 1
    request = plan_request(owners, steps, records, clip_norm, accountant, past)
    share = _validate.number("full_norm_fraction", full_norm_fraction, above=0, most=1)
    full = calibrate_scale(request)
    less = full._replace(noise_scale=math.sqrt(share) * full.noise_scale)
    budget = request.steps * (full.sensitivities / full.noise_scale) ** 2
    return Plan.with_calibration(
        request, less, owners=owners, method="individual", variant=IndividualAccounting(budget)
    )


def _plan(owners: Owners, options: Any, *, expected_batch: float, **request: Any) -> Plan:
    """Plan full batches, whatever batch is asked for."""
    lasting = {} if options.lasting is None else {"full_norm_fraction": options.lasting}
    return plan_individual(owners, **lasting, **request)


METHODS = (
    Method(
        name="individual",
        title="Individual",
        description="each record pays by its own gradients, and leaves when its budget is used up",
        glossary="counts for every record what it has really given, and goes on without it when its budget is used up",
        published="the same, with a clip norm for each owner",
        planner=_plan,
        recognises=lambda options, ordered: options.method == "individual" and not ordered,
        plan_method="individual",
    ),
    Method(
        name="individual-ino",
        title="Individual with INO",
        description="individual accounting with a tail ordered over realised norms",
        glossary="counts for every record what it has really given, and lets go of the records that matter least",
        published="new",
        planner=_plan,
        recognises=lambda options, ordered: options.method == "individual" and ordered,
        plan_method="individual",
        ordered=True,
    ),
)
