"""Methods as configurations: each is one with a few keys set, so that comparisons compare nothing else."""

from collections.abc import Sequence

from inosgm.experiments.config import ClassOwners, SettingOwners, TrainingConfig
from inosgm.methods.method import TELLING_APART
from inosgm.methods.registry import METHODS, USUAL


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
        if method.plan_method is None and known not in TELLING_APART:
            raise ValueError(f"plan.method: {name} tells owners apart, got {known}: take sample, scale or blend")
        if method.ordered and config.tail.kind == "none":
            raise ValueError(f"tail: {name} needs one, got none: set one, such as {{kind: linear, fraction: 0.7}}")
        by_default = method.adjusted and config.adjustment is None
        if by_default and not isinstance(config.owners, ClassOwners | SettingOwners):
            raise ValueError(f"adjustment: {name} needs class_shares, because owners do not hold classes of their own")
        made[name] = config.changed({**method.changes, **({"adjustment": {}} if by_default else {})})
    return made


def kind_of(config: TrainingConfig) -> str:
    """Return the name of the method that a configuration is one of, whatever its numbers are."""
    options, ordered = config.plan.with_defaults(), bool(getattr(config.tail, "fraction", 0))
    kinds = [method for method in METHODS.values() if method.recognises(options, ordered)]
    return min(kinds, key=lambda method: method.adjusted != (config.adjustment is not None)).name


def title_of(config: TrainingConfig) -> str:
    """Return what reports call the method of a configuration; most methods have no name for their adjusted form."""
    method = METHODS[kind_of(config)]
    return f"{method.title}, adjusted" if config.adjustment is not None and not method.adjusted else method.title
