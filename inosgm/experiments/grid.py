"""The points of a sweep: configurations that differ from one in a few keys."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from inosgm._internal import yaml as _yaml
from inosgm.experiments.config import TrainingConfig

FIXED = {
    "data": "points are compared on the same records",
    "owners": "what owners grant is theirs to say, and the same for all points",
    "seed": "all points are run with the same seeds",
    "key": "all points have one, and noise of their own all the same",
    "run": "a sweep is kept in a store",
    "ledger": "the same owners pay for all points",
}
"""Keys that all points have in common, and why."""

_ABSENT: dict[str, Callable[[TrainingConfig], bool]] = {
    "tail": lambda config: config.tail.kind == "none",
    "adjustment": lambda config: config.adjustment is None,
}
"""Sections that some methods do without, and whether a configuration does."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A configuration of a sweep.

    Attributes:
        values: What makes it differ from the others, by path of key.
        config: All of it.
    """

    values: Mapping[str, Any]
    config: TrainingConfig = field(repr=False)

    @property
    def name(self) -> str:
        """Its name in tables: its values, as they are typed."""
        return " ".join(f"{path}={shown(value)}" for path, value in self.values.items()) or "as it is"


def shown(value: Any) -> str:
    """Return a value as YAML on one line, short where it can be."""
    return value if isinstance(value, str) else json.dumps(value)


def points_of(config: TrainingConfig, choices: Iterable[Mapping[str, Any]], *, what: str = "the sweep") -> list[Point]:
    """Return the points with some values, each once, after all have been checked.

    Args:
        config: What they differ from.
        choices: The values of each, by path of key.
        what: What an error calls all of them.

    Raises:
        ValueError: listing what is wrong with any of them, each problem once.
    """
    points: dict[str, Point] = {}
    problems: dict[str, str] = {}
    for values in choices:
        point = _point(config, values, problems)
        if point is not None:
            points.setdefault(point.config.to_yaml(), point)
    if problems:
        lines = [f"{problem} (at {name})" for problem, name in problems.items()]
        head = f"{what} has a problem:" if len(lines) == 1 else f"{what} has {len(lines)} problems:"
        raise ValueError("\n  ".join([head, *lines]))
    return list(points.values())


def grid_of(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the values of some keys; the last key changes fastest.

    Raises:
        ValueError: for a key without values.

    >>> grid_of({"optimizer.lr": [0.1, 0.5], "order": ["random"]})
    [{'optimizer.lr': 0.1, 'order': 'random'}, {'optimizer.lr': 0.5, 'order': 'random'}]
    """
    for path, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(f"grid: {path} must be a list of values, got {values!r}")
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def grid_for(config: TrainingConfig, grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the combinations that tune a configuration: keys of a tail or an adjustment that it lacks are left out.

    Several methods can so be tuned on one grid, each by the keys that it has.
    """
    absent = [name for name, missing in _ABSENT.items() if missing(config)]
    return grid_of({path: values for path, values in grid.items() if path.partition(".")[0] not in absent})


def values_from(text: str) -> list[Any]:
    """Read values with commas between them, each YAML.

    Raises:
        ValueError: for what is no YAML, and for no value.

    >>> values_from("0.1,1e-3,Adam,[1, 2],{kind: none}")
    [0.1, 0.001, 'Adam', [1, 2], {'kind': 'none'}]
    """
    values: list[Any] = _yaml.read(f"[{text}]")
    if not values:
        raise ValueError("there must be a value at least")
    return values


def _point(config: TrainingConfig, values: Mapping[str, Any], problems: dict[str, str]) -> Point | None:
    """Return a point, or None and enter what is wrong with it."""
    draft = Point(values=values, config=config)
    try:
        point = Point(values=values, config=config.changed(values))
    except ValueError as error:
        first, *more = str(error).split("\n  ")
        for problem in more or [first.removeprefix("configuration: ")]:
            problems.setdefault(problem, draft.name)
        return None
    changed = [key for key in FIXED if getattr(config, key) != getattr(point.config, key)]
    for key in changed:
        problems.setdefault(f"{key}: cannot differ within a sweep: {FIXED[key]}", draft.name)
    return None if changed else point
