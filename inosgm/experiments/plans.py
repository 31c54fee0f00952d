"""From the `plan` section of a configuration to the plans that a run follows, and the object that steers them."""

from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.config.problems import about
from inosgm.experiments.methods import kind_of
from inosgm.ledger.ledger import Ledger
from inosgm.methods.registry import METHODS
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import PLANNERS
from inosgm.planning.sequence import PlanSequence
from inosgm.planning.steering import Steering


def planned(config: TrainingConfig, owners: Owners, ledger: Ledger | None) -> PlanSequence:
    """Plan with what the ledger, if there is one, says is left."""
    with about("plan"):
        past = () if ledger is None else ledger.past(owners)
        return METHODS[kind_of(config)].plans(config.plan.with_defaults(), owners, past)


def steering_of(config: TrainingConfig, plan: Plan) -> Steering | None:
    """Return the object that chooses the steps of a plan, for a method that has one."""
    steering = METHODS[kind_of(config)].steering
    return None if steering is None else steering(plan, config.plan.with_defaults())


def one_plan(config: TrainingConfig, course: PlanSequence, what: str) -> Plan:
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
