"""From the `plan` section of a configuration to the plans that a run follows, and the object that steers them."""

from collections.abc import Sequence

from inosgm.accounting import ACCOUNTANTS, Segment
from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.config.learning import PlanConfig
from inosgm.experiments.methods import kind_of
from inosgm.experiments.parts import about
from inosgm.ledger.ledger import Ledger
from inosgm.methods.method import Method
from inosgm.methods.registry import METHODS
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import PLANNERS
from inosgm.planning.sequence import Course
from inosgm.planning.steering import Steering


def planned(config: TrainingConfig, owners: Owners, ledger: Ledger | None) -> Course:
    """Plan with what the ledger, if there is one, says is left."""
    with about("plan"):
        return plans_of(METHODS[kind_of(config)], config.plan, owners, () if ledger is None else ledger.past(owners))


def plans_of(method: Method, options: PlanConfig, owners: Owners, past: Sequence[Segment] = ()) -> Course:
    """Return the plans of a method.

    Raises:
        ValueError: for options of several methods, and for what the planner refuses.
    """
    given = [name for name in ("leave_out", "lower", "undersample") if getattr(options, name) is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are methods of their own: set one of them")
    made = method.planner(
        owners,
        options.with_defaults(),
        steps=options.steps,
        expected_batch=options.expected_batch,
        clip_norm=options.clip_norm,
        accountant=ACCOUNTANTS[options.accountant],
        past=past,
    )
    return Course(made if isinstance(made, tuple) else (made,))


def steering_of(config: TrainingConfig, plan: Plan) -> Steering | None:
    """Return the object that chooses the steps of a plan, for a method that has one."""
    steering = METHODS[kind_of(config)].steering
    return None if steering is None else steering(plan, config.plan.with_defaults())


def one_plan(config: TrainingConfig, course: Course, what: str) -> Plan:
    """Return the plan of a run that follows one plan as it is.

    Raises:
        ValueError: for a method that follows several, or whose plan something else steers or goes beyond.
    """
    if config.plan.method not in PLANNERS:
        raise ValueError(
            f"plan.method: {what} knows {', '.join(PLANNERS)}, got {config.plan.method}: attack its mechanism, with "
            "audit_mechanism(build(config).trainer, owner)"
        )
    return course.first
