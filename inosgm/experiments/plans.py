"""From the `plan` section of a configuration to the plans that a run follows, and what steers them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inosgm.accounting import ACCOUNTANTS, Segment
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.config.learning import BASE, VOTING, PlanConfig, RoundsConfig, SteeringConfig
from inosgm.experiments.parts import about
from inosgm.ledger.ledger import Ledger
from inosgm.methods.asc import plan_asc, plan_chosen_group
from inosgm.methods.baselines import plan_in_turn, plan_left_out, plan_lowered, plan_undersampled
from inosgm.methods.individual import plan_individual
from inosgm.methods.ipate.teachers import FORMS, Teachers
from inosgm.methods.pdp_sgd import plan_thresholds
from inosgm.methods.steering import AdaptiveShares, ChosenGroup
from inosgm.owners import Owners
from inosgm.planning import planners as planning
from inosgm.planning.plan import Plan
from inosgm.planning.sequence import Course
from inosgm.planning.steering import Steering

UPDATES = 50
"""How often losses are released where nobody has said after how many steps."""


def planned(config: TrainingConfig, owners: Owners, ledger: Ledger | None) -> Course:
    """Plan with what the ledger, if there is one, says is left."""
    wish = config.plan
    asked = {
        "steps": wish.steps,
        "expected_batch": wish.expected_batch,
        "clip_norm": wish.clip_norm,
        "accountant": ACCOUNTANTS[wish.accountant],
        "past": () if ledger is None else ledger.past(owners),
    }
    with about("plan"):
        made = _base(wish, owners, asked) if wish.method in BASE else _PLANNERS[wish.method](wish, owners, asked)
        return Course(made if isinstance(made, tuple) else (made,))


def steering_of(config: TrainingConfig, plan: Plan) -> Steering | None:
    """Return what steers a plan of a configuration, if anything does."""
    kind = AdaptiveShares if config.plan.method == "asc" else ChosenGroup
    if config.plan.method not in ("asc", *_CHOSEN):
        return None
    wish = config.plan.steering or SteeringConfig()
    return kind(plan, every=_every(config.plan), temperature=wish.temperature)


def one_plan(config: TrainingConfig, course: Course, what: str) -> Plan:
    """Return the plan of a run that follows one plan as it is.

    Raises:
        ValueError: for a method that follows several, or whose plan something else steers or goes beyond.
    """
    if config.plan.method not in BASE:
        raise ValueError(
            f"plan.method: {what} knows {', '.join(BASE)}, got {config.plan.method}: attack its mechanism, with "
            "audit_mechanism(build(config).trainer, owner)"
        )
    return course.first


def _base(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> Plan:
    """Plan for all steps alike, for the budgets as they are, without the strictest, or lowered."""
    told: dict[str, Any] = {**asked, "method": wish.method, "weight": wish.weight}
    given = [name for name in ("leave_out", "lower", "undersample") if getattr(wish, name) is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are methods of their own: set one of them")
    if wish.leave_out is not None:
        return plan_left_out(owners, strictest=wish.leave_out, **told)
    if wish.lower is not None:
        return plan_lowered(owners, share=wish.lower, **told)
    if wish.undersample is not None:
        return plan_undersampled(owners, share=wish.undersample, **told)
    methods: dict[str, Callable[..., Plan]] = {
        "sample": planning.plan_sample,
        "scale": planning.plan_scale,
        "blend": planning.plan_blend,
        "uniform": planning.plan_uniform,
    }
    return methods[wish.method](owners, **({} if wish.weight is None else {"weight": wish.weight}), **asked)


def _every(wish: PlanConfig) -> int:
    given = None if wish.steering is None else wish.steering.every
    return max(1, wish.steps // UPDATES) if given is None else given


def _steered(wish: PlanConfig) -> dict[str, Any]:
    steering = wish.steering or SteeringConfig()
    told = {"loss_bound": steering.loss_bound, "noise_ratio": steering.noise_ratio, "sampling": wish.sampling}
    return {**told, "every": _every(wish)}


def _asc(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> Plan:
    return plan_asc(owners, **_steered(wish), **asked)


_CHOSEN: dict[str, dict[str, Any]] = {"azb": {}, "azb_prop": {"proportional": True}, "azb_weak": {"weak": True}}


def _azb(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> Plan:
    return plan_chosen_group(owners, **_CHOSEN[wish.method], **_steered(wish), **asked)


def _thresholds(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> tuple[Plan, ...]:
    rounds = wish.rounds or RoundsConfig()
    return plan_thresholds(owners, rounds=rounds.count, waste=rounds.waste, weight=rounds.weight, **asked)


def _in_turn(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> tuple[Plan, ...]:
    return plan_in_turn(owners, **asked)


def _individual(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> Plan:
    """Plan full batches, whatever batch is asked for."""
    told: dict[str, Any] = {name: value for name, value in asked.items() if name != "expected_batch"}
    if wish.lasting is not None:
        told["lasting"] = wish.lasting
    return plan_individual(owners, **told)


def teachers_of(wish: PlanConfig, owners: Owners, past: Sequence[Segment] = ()) -> Teachers:
    """Return who votes, for a method that lets teachers vote."""
    if wish.teachers is None:
        raise ValueError(f"teachers must be given for {wish.method}")
    count, queries, accountant = wish.teachers.count, wish.teachers.queries, ACCOUNTANTS[wish.accountant]
    return FORMS[wish.method](owners, count=count, queries=queries, accountant=accountant, past=past)


def _by_votes(wish: PlanConfig, owners: Owners, asked: Mapping[str, Any]) -> Plan:
    return teachers_of(wish, owners, asked["past"]).plan


_PLANNERS: dict[str, Callable[..., Plan | tuple[Plan, ...]]] = {
    "asc": _asc,
    **dict.fromkeys(_CHOSEN, _azb),
    "thresholds": _thresholds,
    "in_turn": _in_turn,
    "individual": _individual,
    **dict.fromkeys(VOTING, _by_votes),
}
