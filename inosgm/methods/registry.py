"""The registry of methods: a name and the module that describes it. Modules are imported when they are needed."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inosgm.methods.method import Method

_MODULE_OF = {
    "dp-sgd": "sgd",
    "idp-sgd": "sgd",
    "ino-sgd": "sgd",
    "dp-sgd-adjusted": "sgd",
    "idp-sgd-adjusted": "sgd",
    "ino-sgd-adjusted": "sgd",
    "asc": "asc",
    "asc-ino": "asc",
    "asc-adjusted": "asc",
    "asc-ino-adjusted": "asc",
    "asc-published": "asc",
    "azb": "azb",
    "azb-prop": "azb",
    "azb-weak": "azb",
    "pdp-sgd": "pdp_sgd",
    "pdp-sgd-adaptive": "pdp_sgd",
    "sampling": "pdp_sgd",
    "adapdp": "pdp_sgd",
    "individual": "individual",
    "individual-ino": "individual",
    "leave-out": "baselines",
    "one-after-another": "baselines",
    "undersample": "baselines",
    "lower": "baselines",
    "ipate-upsample": "ipate.teachers",
    "ipate-weight": "ipate.teachers",
}
"""The module of this room whose `METHODS` has the method; in the order of tables and reports."""

USUAL = ("dp-sgd", "idp-sgd", "ino-sgd")
"""The methods that are compared unless others are named, from the simplest on."""


class _Registry(Mapping[str, "Method"]):
    """All methods by name. Names are known without an import, so that a help text can list them."""

    def __getitem__(self, name: str) -> "Method":
        module = import_module(f"inosgm.methods.{_MODULE_OF[name]}")
        found: Method = next(method for method in module.METHODS if method.name == name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)

    def __contains__(self, name: object) -> bool:
        return name in _MODULE_OF


METHODS: Mapping[str, "Method"] = _Registry()
"""The methods that a configuration can be turned into."""


def plan_methods(*, taking: str | None = None, needing: str | None = None) -> tuple[str, ...]:
    """Return the values that `plan.method` may have: all, or those of methods that take or need a key of `plan`.

    >>> plan_methods(taking="rounds"), plan_methods(needing="teachers")
    (('thresholds',), ('ipate_upsample', 'ipate_weight'))
    """
    chosen = [
        method
        for method in METHODS.values()
        if (taking is None or taking in method.takes) and (needing is None or needing in method.needs)
    ]
    chosen.sort(key=lambda method: method.plan_method is not None)  # sample, scale and blend first
    return tuple(dict.fromkeys(name for method in chosen for name in method.plan_methods))
