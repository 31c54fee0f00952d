"""What the owners' budgets buy: the public numbers of a plan, calibrated, written to files and revised."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.planning.choices import Menu as Menu
    from inosgm.planning.plan import AlreadySpent as AlreadySpent
    from inosgm.planning.plan import Plan as Plan
    from inosgm.planning.planners import plan_blend as plan_blend
    from inosgm.planning.planners import plan_sample as plan_sample
    from inosgm.planning.planners import plan_scale as plan_scale
    from inosgm.planning.planners import plan_uniform as plan_uniform
    from inosgm.planning.sequence import Course as Course

_NAMES_OF = {
    "choices": ["Menu"],
    "plan": ["AlreadySpent", "Plan"],
    "planners": ["plan_blend", "plan_sample", "plan_scale", "plan_uniform"],
    "sequence": ["Course"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
