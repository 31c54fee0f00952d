"""Methods by name: each is a configuration with a few keys set, so that comparisons compare nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inosgm.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to train with what owners grant.

    Attributes:
        about: What it is, in a line.
        changes: The keys that make a configuration one of this method.
        tells_apart: Whether it needs a plan that tells owners apart.
        orders: Whether it needs a tail.
    """

    about: str
    changes: Mapping[str, Any]
    tells_apart: bool = False
    orders: bool = False


NO_TAIL = {"tail": {"kind": "none"}}

METHODS: Mapping[str, Method] = {
    "dp-sgd": Method(
        about="one budget for all, that of the strictest owner",
        changes={"plan.method": "uniform", "plan.weight": None, **NO_TAIL},
    ),
    "idp-sgd": Method(about="a budget for each owner, and no order", changes=NO_TAIL, tells_apart=True),
    "ino-sgd": Method(about="a budget for each owner, and an ordered tail", changes={}, tells_apart=True, orders=True),
}
"""The methods that a configuration can be turned into."""


def methods_of(config: TrainingConfig, names: Sequence[str] = tuple(METHODS)) -> dict[str, TrainingConfig]:
    """Return a configuration as each of some methods has it.

    Args:
        config: What they have in common: data, owners, model, plan, tail.
        names: Which methods, of `METHODS`.

    Raises:
        ValueError: for a name that is none, and for a configuration that lacks what a method needs.

    >>> config = TrainingConfig.from_dict({
    ...     "data": {"name": "digits"},
    ...     "owners": {"by": "class", "epsilon": 2, "delta": 1e-5},
    ...     "model": {"name": "logistic_regression"},
    ...     "plan": {"method": "sample", "steps": 10, "expected_batch": 64, "clip_norm": 1},
    ...     "tail": {"kind": "linear", "fraction": 0.5},
    ...     "optimizer": {"name": "SGD", "lr": 0.5},
    ... })
    >>> {name: (made.plan.method, made.tail.kind) for name, made in methods_of(config).items()}
    {'dp-sgd': ('uniform', 'none'), 'idp-sgd': ('sample', 'none'), 'ino-sgd': ('sample', 'linear')}
    """
    made: dict[str, TrainingConfig] = {}
    for name in names:
        if name not in METHODS:
            raise ValueError(f"methods must be some of {', '.join(METHODS)}, got {name!r}")
        if name in made:
            raise ValueError(f"methods must be named once each, got {name!r} twice")
        method = METHODS[name]
        if method.tells_apart and config.plan.method == "uniform":
            raise ValueError(f"plan.method: {name} tells owners apart, got uniform: take sample, scale or blend")
        if method.orders and config.tail.kind == "none":
            raise ValueError(f"tail: {name} needs one, got none: set one, such as {{kind: linear, fraction: 0.7}}")
        made[name] = config.changed(method.changes)
    return made
