"""DP-SGD, IDP-SGD and INO-SGD: one rate and one sensitivity for each owner in all steps, without or with a tail.

Their plans are those of `inosgm.planning.planners`; the tail is an argument of the mechanism. The adjusted forms train
and predict with logits that are corrected by the class prior of the plan (`inosgm.training.logit_adjustment`).
"""

from typing import Any

from inosgm.methods.method import TELLING_APART, Method, adjusted_form
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import PLANNERS


def _plan(owners: Owners, options: Any, **request: Any) -> Plan:
    blend = {} if options.weight is None else {"weight": options.weight}
    return PLANNERS[options.method](owners, **blend, **request)


def _plain(options: Any) -> bool:
    """Say whether a configuration has one of these plans as it is: `methods.baselines` has others."""
    changed = (options.leave_out, options.lower, options.undersample)
    return options.method in PLANNERS and all(value is None for value in changed)


_PLAIN = (
    Method(
        name="dp-sgd",
        title="DP-SGD",
        description="one budget for all, that of the strictest owner",
        glossary="gives everybody the budget of the strictest",
        published="the same",
        planner=_plan,
        recognises=lambda options, ordered: _plain(options) and not ordered and options.method == "uniform",
        plan_method="uniform",
        takes=("leave_out", "undersample"),
    ),
    Method(
        name="idp-sgd",
        title="IDP-SGD",
        description="a budget for each owner: strict owners are sampled less, or clipped harder",
        glossary="gives each its own, and so listens less to those who are strict",
        published="the same, accounted exactly",
        planner=_plan,
        recognises=lambda options, ordered: _plain(options) and not ordered and options.method in TELLING_APART,
        plan_method=None,
        takes=("leave_out", "lower", "undersample"),
    ),
    Method(
        name="ino-sgd",
        title="INO-SGD",
        description="a budget for each owner, and the least important records of a batch are down-weighted",
        glossary="gives each its own, and has every batch let go of the records that matter least, whoever owns them",
        published="the same, accounted exactly",
        planner=_plan,
        recognises=lambda options, ordered: _plain(options) and ordered,
        plan_method=None,
        ordered=True,
    ),
)

METHODS = (*_PLAIN, *map(adjusted_form, _PLAIN))
