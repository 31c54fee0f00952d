"""Plans for budgets: what each owner's grant buys, never exceeded and spent to the end."""

from collections.abc import Callable, Mapping, Sequence

from inosgm._internal import validate as _validate
from inosgm.accounting import Accountant, Segment, chosen
from inosgm.owners import Owners
from inosgm.planning.calibration import PlanRequest
from inosgm.planning.plan import AlreadySpent, Plan

__all__ = ["AlreadySpent", "Plan", "plan_blend", "plan_sample", "plan_scale", "plan_uniform"]


EXPOSURE_STEPS = 64
"""Weights among which `plan_blend` finds the one that keeps a Delta: finer ones hardly change a plan."""


def plan_sample(
    owners: Owners,
    *,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with one sensitivity and a sample rate for every owner (Algorithm 2 of IDP-SGD).

    **Guarantee.** After the last step every owner has spent at most what it grants, and at least 99.5 % of
    it, at its delta, for one of its records added or removed. The rates give exactly the expected batch.

    Args:
        owners: Who grants what; see Owners.
        steps: Number of releases.
        expected_batch: Expected number of records in a batch, at most the number of records.
        clip_norm: The sensitivity of every owner.
        accountant: PLD() if not given.
        past: Earlier releases of the owners' records, which count: ledger.past(owners) returns them.

    Returns:
        The plan, with the budgets and the accountant's name in it.

    Raises:
        ValueError: naming the invalid argument, or the owner whose budget does not fit, the limit that was hit
            and what to change.

    >>> from inosgm import Owners
    >>> owners = Owners(of_record=["benign"] * 600 + ["malignant"] * 400,
    ...                 epsilon={"benign": 5.0, "malignant": 1.0}, delta=1e-5)
    >>> plan = plan_sample(owners, steps=1000, expected_batch=50, clip_norm=1.0)
    >>> plan.sample_rates.round(3)
    array([0.072, 0.017])
    """
    return Plan.of(plan_request(owners, steps, expected_batch, clip_norm, accountant, past), "sample", owners=owners)


def plan_scale(
    owners: Owners,
    *,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with one sample rate and a sensitivity for every owner (Algorithm 3 of IDP-SGD).

    **Guarantee.** After the last step every owner has spent at most what it grants, and at least 99.5 % of
    it, at its delta, for one of its records added or removed.

    The other arguments, the result and the errors are those of `plan_sample`.

    Args:
        clip_norm: The mean of the sensitivities over all records.

    >>> from inosgm import Owners
    >>> owners = Owners(of_record=["benign"] * 600 + ["malignant"] * 400,
    ...                 epsilon={"benign": 5.0, "malignant": 1.0}, delta=1e-5)
    >>> plan = plan_scale(owners, steps=1000, expected_batch=50, clip_norm=1.0)
    >>> plan.sensitivities.round(2)
    array([1.41, 0.38])
    """
    return Plan.of(plan_request(owners, steps, expected_batch, clip_norm, accountant, past), "scale", owners=owners)


def plan_blend(
    owners: Owners,
    *,
    weight: float | None = None,
    most_exposure: float | None = None,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with rates and sensitivities that share the work of telling owners apart.

    **Guarantee.** After the last step every owner has spent at most what it grants, and at least 99.5 % of
    it, at its delta, for one of its records added or removed. The rates give exactly the expected batch.

    The other arguments, the result and the errors are those of `plan_sample`.

    Args:
        weight: In [0, 1], the share of the rates: 1 is plan_sample, 0 is plan_scale.
        most_exposure: Instead of a weight: the largest Delta of any owner (`Plan.exposure`). The plan gets the largest
            weight that keeps it, to 1/64.
        clip_norm: The mean of the sensitivities over all records.

    >>> from inosgm import Owners
    >>> owners = Owners(of_record=["benign"] * 600 + ["malignant"] * 400,
    ...                 epsilon={"benign": 5.0, "malignant": 1.0}, delta=1e-5)
    >>> plan = plan_blend(owners, weight=0.5, steps=1000, expected_batch=50, clip_norm=1.0)
    >>> plan.sample_rates.round(3), plan.sensitivities.round(2)
    (array([0.063, 0.031]), array([1.24, 0.64]))
    """
    if (weight is None) == (most_exposure is None):
        raise ValueError(f"one of weight and most_exposure must be given, got {weight} and {most_exposure}")
    request = plan_request(owners, steps, expected_batch, clip_norm, accountant, past)
    if weight is not None:
        weight = _validate.number("weight", weight, least=0, most=1)
        return Plan.of(request, "blend", weight, owners=owners)
    limit = _validate.number("most_exposure", most_exposure, least=0, most=1)

    def keeps(candidate: Plan) -> bool:
        return bool(candidate.exposure().excess.max() <= limit)

    least, plan = 0, Plan.of(request, "blend", 0.0, owners=owners)
    if not keeps(plan):
        raise ValueError(
            f"most_exposure must be at least the Delta of plan_scale, {plan.exposure().excess.max():.3g}, got {limit:g}"
        )
    above = EXPOSURE_STEPS + 1
    while above - least > 1:  # Delta rises with the weight: it is 0 without different rates
        middle = (least + above) // 2
        candidate = Plan.of(request, "blend", middle / EXPOSURE_STEPS, owners=owners)
        if keeps(candidate):
            least, plan = middle, candidate
        else:
            above = middle
    return plan


def plan_uniform(
    owners: Owners,
    *,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    accountant: Accountant | None = None,
    past: Sequence[Segment] = (),
) -> Plan:
    """Plan with one rate and one sensitivity, as strict as the strictest owner: DP-SGD.

    **Guarantee.** After the last step every owner has spent at most what it grants, at its delta, for one of
    its records added or removed; the strictest owner at least 99.5 % of it.

    Arguments, result and errors are those of `plan_sample`.

    >>> from inosgm import Owners
    >>> owners = Owners(of_record=["benign"] * 600 + ["malignant"] * 400,
    ...                 epsilon={"benign": 5.0, "malignant": 1.0}, delta=1e-5)
    >>> plan_uniform(owners, steps=1000, expected_batch=50, clip_norm=1.0).spent().round(3)
    array([1., 1.])
    """
    return Plan.of(plan_request(owners, steps, expected_batch, clip_norm, accountant, past), "uniform", owners=owners)


PLANNERS: Mapping[str, Callable[..., Plan]] = {
    "sample": plan_sample,
    "scale": plan_scale,
    "blend": plan_blend,
    "uniform": plan_uniform,
}
"""Planners that give every owner one rate and one sensitivity for all steps, by the name that plans have for them."""


def plan_request(
    owners: Owners,
    steps: int,
    expected_batch: float,
    clip_norm: float,
    accountant: Accountant | None,
    past: Sequence[Segment],
) -> PlanRequest:
    """Check the arguments of a plan."""
    _validate.instance("owners", owners, Owners, "make them with Owners(of_record=..., epsilon=..., delta=...)")
    for segment in past:
        _validate.instance("past", segment, Segment, "take ledger.past(owners), or a list of Segment")
    return PlanRequest(
        labels=owners.labels,
        sizes=owners.sizes,
        epsilon=owners.epsilon,
        delta=owners.delta,
        past=tuple(segment.rows_of(len(owners.labels)) for segment in past),
        steps=_validate.count("steps", steps, least=1),
        expected_batch=_validate.number("expected_batch", expected_batch, above=0),
        clip_norm=_validate.number("clip_norm", clip_norm, above=0),
        accountant=chosen(accountant),
    )
