"""What values a key of a configuration may take in a search, and how they are drawn."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal import yaml as _yaml
from inosgm._internal.keys import Draw
from inosgm.experiments.grid import values_from

DIGITS = 4
"""How many significant digits a number that is drawn has: few enough to be typed into a grid later."""


class Domain(Protocol):
    """The values that a key may take in a search."""

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw one of them."""

    def ends(self) -> Sequence[Any]:
        """Return the outermost of them, or all where there is no order."""


@dataclass(frozen=True)
class Uniform:
    """Numbers between two, all alike.

    Raises:
        ValueError: if `low` is not below `high`, or one is not finite.

    >>> Uniform(0.2, 0.8).draw(np.random.default_rng(0))
    0.5822
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self)

    def draw(self, generator: np.random.Generator) -> float:
        """Draw a number."""
        return rounded(generator.uniform(self.low, self.high), self.low, self.high)

    def ends(self) -> Sequence[float]:
        """Return both ends."""
        return self.low, self.high


@dataclass(frozen=True)
class LogUniform:
    """Numbers between two that are > 0, all orders of magnitude alike.

    Raises:
        ValueError: if `low` is not > 0 and below `high`, or one is not finite.

    >>> LogUniform(0.01, 10).draw(np.random.default_rng(0))
    0.8145
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self, above=0.0)

    def draw(self, generator: np.random.Generator) -> float:
        """Draw a number."""
        drawn = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        return rounded(drawn, self.low, self.high)

    def ends(self) -> Sequence[float]:
        """Return both ends."""
        return self.low, self.high


@dataclass(frozen=True)
class Integers:
    """Whole numbers from one to another, both included.

    Raises:
        ValueError: if they are not whole, or `low` is not below `high`.

    >>> Integers(16, 64).draw(np.random.default_rng(0))
    57
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} must be a whole number, got {getattr(self, name)!r}")
        _require_order(self.low, self.high)

    def draw(self, generator: np.random.Generator) -> int:
        """Draw a whole number."""
        return int(generator.integers(self.low, self.high, endpoint=True))

    def ends(self) -> Sequence[int]:
        """Return both ends."""
        return self.low, self.high


@dataclass(frozen=True)
class Choice:
    """Some values, all alike.

    Raises:
        ValueError: for fewer than two.

    >>> Choice(("SGD", "Adam")).draw(np.random.default_rng(0))
    'Adam'
    """

    values: Sequence[Any]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"values must be two at least, got {list(self.values)}")

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw a value."""
        return self.values[int(generator.integers(len(self.values)))]

    def ends(self) -> Sequence[Any]:
        """Return all values."""
        return self.values


RANGES: dict[str, Callable[[Any, Any], Domain]] = {"uniform": Uniform, "log": LogUniform, "integer": Integers}


def rounded(value: float, low: float, high: float) -> float:
    """Return a number with few digits, between two."""
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)


def domain_from(text: str) -> Domain:
    """Read a domain.

    Raises:
        ValueError: saying what may be written.

    >>> domain_from("log:0.01..10"), domain_from("integer:16..64"), domain_from("choice:SGD,Adam")
    (LogUniform(low=0.01, high=10.0), Integers(low=16, high=64), Choice(values=['SGD', 'Adam']))
    """
    kind, colon, rest = text.partition(":")
    low, dots, high = rest.partition("..")
    if colon and kind == "choice":
        return Choice(values_from(rest))
    if not (colon and dots and kind in RANGES):
        forms = "uniform:0.1..0.9, log:0.01..10, integer:16..64 or choice:SGD,Adam"
        raise ValueError(f"must be of the form {forms}, got {text!r}")
    return RANGES[kind](_yaml.read(low), _yaml.read(high))


def _check_range(domain: Uniform | LogUniform, above: float = -math.inf) -> None:
    """Make the ends of a range numbers."""
    for name in ("low", "high"):
        object.__setattr__(domain, name, _validate.number(name, getattr(domain, name), above=above))
    _require_order(domain.low, domain.high)


def _require_order(low: float, high: float) -> None:
    """Raise if there is nothing between two numbers."""
    if low >= high:
        raise ValueError(f"low must be below high, got {low!r} and {high!r}")


def samples_of(search: Mapping[str, Domain], samples: int, seed: int) -> list[dict[str, Any]]:
    """Draw values of some keys: the first few do not depend on how many are drawn.

    Args:
        search: What each key may be.
        samples: How many times to draw.
        seed: What is drawn is a function of it, of the keys and of their domains.

    >>> samples_of({"optimizer.lr": LogUniform(0.01, 10), "plan.steps": Integers(10, 20)}, 2, seed=0)
    [{'optimizer.lr': 0.0246, 'plan.steps': 19}, {'optimizer.lr': 0.362, 'plan.steps': 18}]
    """
    samples = _validate.count("samples", samples, least=1)
    drawn = []
    for place in range(samples):
        generator = Draw.SEARCH.generator(seed, place)
        values = {path: search[path].draw(generator) for path in sorted(search)}
        drawn.append({path: values[path] for path in search})
    return drawn
