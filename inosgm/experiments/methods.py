"""Methods by name: each is a configuration with a few keys set, so that comparisons compare nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inosgm.experiments.config import TrainingConfig
from inosgm.experiments.config.learning import BASE, RoundsConfig


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to train with what owners grant.

    Attributes:
        about: What it is, in a line.
        changes: The keys that make a configuration one of this method.
        tells_apart: Whether it needs a plan that tells owners apart.
        orders: Whether it needs a tail.
        warning: What somebody who reads a table must know about its guarantee; empty if it is that of all others.
    """

    about: str
    changes: Mapping[str, Any]
    tells_apart: bool = False
    orders: bool = False
    warning: str = ""


NO_TAIL = {"tail": {"kind": "none"}}

_PLAIN = dict.fromkeys(("leave_out", "lower", "undersample", "rounds"))


def _changes(method: str | None = None, *, ordered: bool = False, **others: Any) -> dict[str, Any]:
    """Return the keys of a method: its plan, none of the keys of other methods, and no tail unless it is ordered.

    All keep `steering`, `lasting` and `teachers` of the file, which some ask.
    """
    keys: dict[str, Any] = {"sampling": "poisson", **_PLAIN, **others}
    if method is not None:
        keys |= {"method": method, "weight": None}
    return {**{f"plan.{name}": value for name, value in keys.items()}, **({} if ordered else NO_TAIL)}


def _rounds(count: int, waste: str = "fixed", weight: float = 0.7, restart: bool = False) -> dict[str, Any]:
    return _changes("thresholds", rounds={"count": count, "waste": waste, "weight": weight, "restart": restart})


METHODS: Mapping[str, Method] = {
    "dp-sgd": Method(about="one budget for all, that of the strictest owner", changes=_changes("uniform")),
    "idp-sgd": Method(about="a budget for each owner, and no order", changes=_changes(), tells_apart=True),
    "ino-sgd": Method(
        about="a budget for each owner, and an ordered tail",
        changes=_changes(ordered=True),
        tells_apart=True,
        orders=True,
    ),
    "asc": Method(about="batches follow the losses of owners, at equal cost (Poisson form)", changes=_changes("asc")),
    "asc-ino": Method(about="ASC with an ordered tail", changes=_changes("asc", ordered=True), orders=True),
    "asc-published": Method(
        about="ASC as published: batches of fixed size, without replacement",
        changes=_changes("asc", sampling="without_replacement"),
        warning="another unit: epsilons are about a record that is replaced, and do not compare with the others",
    ),
    "azb": Method(about="each batch from one owner, chosen by losses", changes=_changes("azb")),
    "azb-prop": Method(about="aZB with batches in proportion to what owners hold", changes=_changes("azb_prop")),
    "azb-weak": Method(
        about="aZB with the noise that the largest owner needs",
        changes=_changes("azb_weak"),
        warning="its noise suits the largest owner only: smaller ones may spend more than they grant",
    ),
    "pdp-sgd": Method(about="records sampled by thresholds on budgets, in five rounds", changes=_rounds(5)),
    "pdp-sgd-adaptive": Method(about="PDP-SGD with adaptive thresholds", changes=_rounds(5, "adaptive")),
    "sampling": Method(about="records sampled by one threshold on budgets", changes=_rounds(1, weight=0.2)),
    "adapdp": Method(
        about="thresholds in two rounds with a model each, which answer together",
        changes=_rounds(2, weight=0.2, restart=True),
    ),
    "individual": Method(
        about="each record pays by its own gradients, and leaves when its budget is used up",
        changes=_changes("individual"),
    ),
    "individual-ino": Method(
        about="individual accounting with a tail ordered over realised norms",
        changes=_changes("individual", ordered=True),
        orders=True,
    ),
    "leave-out": Method(about="DP-SGD without the strictest owners", changes=_changes("uniform", leave_out=1)),
    "one-after-another": Method(about="owners in turn, the strictest first", changes=_changes("in_turn")),
    "undersample": Method(
        about="IDP-SGD without 30 % of the records of the less private",
        changes=_changes(undersample=0.3),
        tells_apart=True,
    ),
    "lower": Method(
        about="IDP-SGD with budgets half way towards the strictest", changes=_changes(lower=0.5), tells_apart=True
    ),
    "ipate-upsample": Method(
        about="teachers vote for a student; records of the less private teach several",
        changes=_changes("ipate_upsample"),
    ),
    "ipate-weight": Method(
        about="teachers vote for a student; votes of the less private weigh more", changes=_changes("ipate_weight")
    ),
}
"""The methods that a configuration can be turned into."""

USUAL = ("dp-sgd", "idp-sgd", "ino-sgd")
"""What is compared where nobody says which."""


def methods_of(config: TrainingConfig, names: Sequence[str] = USUAL) -> dict[str, TrainingConfig]:
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
        method, known = METHODS[name], config.plan.method
        if method.tells_apart and (known == "uniform" or known not in BASE):
            raise ValueError(f"plan.method: {name} tells owners apart, got {known}: take sample, scale or blend")
        if method.orders and config.tail.kind == "none":
            raise ValueError(f"tail: {name} needs one, got none: set one, such as {{kind: linear, fraction: 0.7}}")
        made[name] = config.changed(method.changes)
    return made


_BY_PLAN = {"azb": "azb", "azb_prop": "azb-prop", "azb_weak": "azb-weak", "in_turn": "one-after-another"}
_BY_PLAN |= {"ipate_upsample": "ipate-upsample", "ipate_weight": "ipate-weight"}


def kind_of(config: TrainingConfig) -> str:
    """Return which method of `METHODS` a configuration is one of, whatever its numbers are."""
    plan, ordered = config.plan, bool(getattr(config.tail, "fraction", 0))
    if plan.method in _BY_PLAN:
        return _BY_PLAN[plan.method]
    if plan.method == "asc":
        return "asc-published" if plan.sampling == "without_replacement" else "asc-ino" if ordered else "asc"
    if plan.method == "individual":
        return "individual-ino" if ordered else "individual"
    if plan.method == "thresholds":
        rounds = plan.rounds or RoundsConfig()
        if rounds.restart:
            return "adapdp"
        return "sampling" if rounds.count == 1 else "pdp-sgd-adaptive" if rounds.waste == "adaptive" else "pdp-sgd"
    for key, name in (("leave_out", "leave-out"), ("lower", "lower"), ("undersample", "undersample")):
        if getattr(plan, key) is not None:
            return name
    return "ino-sgd" if ordered else "dp-sgd" if plan.method == "uniform" else "idp-sgd"
