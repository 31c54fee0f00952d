"""What the owners' budgets buy: the public numbers of a plan, calibrated, written to files and revised."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.planning.choices import Choices as Choices
    from inosgm.planning.choices import Menu as Menu
    from inosgm.planning.plan import AlreadySpent as AlreadySpent
    from inosgm.planning.plan import Plan as Plan
    from inosgm.planning.planners import plan_blend as plan_blend
    from inosgm.planning.planners import plan_sample as plan_sample
    from inosgm.planning.planners import plan_scale as plan_scale
    from inosgm.planning.planners import plan_uniform as plan_uniform
    from inosgm.planning.sequence import Course as Course
    from inosgm.planning.sequence import PlanSequence as PlanSequence
    from inosgm.planning.steering import Steering as Steering
    from inosgm.planning.variants import Blend as Blend
    from inosgm.planning.variants import GroupSampling as GroupSampling
    from inosgm.planning.variants import IndividualAccounting as IndividualAccounting
    from inosgm.planning.variants import Variant as Variant

_NAMES_OF = {
    "choices": ["Choices", "Menu"],
    "plan": ["AlreadySpent", "Plan"],
    "planners": ["plan_blend", "plan_sample", "plan_scale", "plan_uniform"],
    "sequence": ["Course", "PlanSequence"],
    "steering": ["Steering"],
    "variants": ["Blend", "GroupSampling", "IndividualAccounting", "Variant"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
