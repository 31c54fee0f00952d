"""Functions that lower rooms and files call by name, so that imports point downwards only.

Figures are functions of `inosgm.reports`. Users also draw with a method of what they hold, as in `audit.figure(file)`.
A question about some records is made of other questions, whose functions all end in `answer_query`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from inosgm._internal.extras import require_extra

PLUGINS = {
    "draw an audit": "inosgm.reports.roc:draw",
    "draw a summary of seeds": "inosgm.reports.seed_plot:draw",
    "ask about some records": "inosgm.statistics.conditional:conditional",
}


def plugin(name: str) -> Callable[..., Any]:
    """Return the function of that name in `PLUGINS`, and import its module only now: reports need matplotlib."""
    module, _, attribute = PLUGINS[name].partition(":")
    if module.startswith("inosgm.reports."):
        require_extra("matplotlib")
    function: Callable[..., Any] = getattr(import_module(module), attribute)
    return function
