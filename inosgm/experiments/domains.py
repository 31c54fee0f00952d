"""The values that a key of a configuration may take in a search, and how they are drawn."""

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
"""Significant digits of a number that is drawn: few enough to be typed into a grid later."""


class Domain(Protocol):
    """The values that a key may take in a search."""

    def draw(self, generator: np.random.Generator) -> Any:
        """Draw one of them."""

    def ends(self) -> Sequence[Any]:
        """Return the outermost of them, or all where there is no order."""


@dataclass(frozen=True)
class _Range:
    """The numbers between two ends.

    Raises:
        ValueError: if `low` is not below `high`, or one is not finite.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, self._end(name, getattr(self, name)))
        if self.low >= self.high:
            raise ValueError(f"low must be below high, got {self.low!r} and {self.high!r}")

    def _end(self, name: str, value: Any) -> float:
        """Return an end of the range as a number, or raise."""
        return _validate.number(name, value)

    def ends(self) -> Sequence[float]:
        """Return both ends."""
        return self.low, self.high


class Uniform(_Range):
    """Numbers in a range, drawn uniformly.

    >>> Uniform(0.2, 0.8).draw(np.random.default_rng(0))
    0.5822
    """

    def draw(self, generator: np.random.Generator) -> float:
        """Draw a number."""
        return rounded(generator.uniform(self.low, self.high), self.low, self.high)


class LogUniform(_Range):
    """Numbers > 0 in a range, whose logarithm is drawn uniformly.

    >>> LogUniform(0.01, 10).draw(np.random.default_rng(0))
    0.8145
    """

    def _end(self, name: str, value: Any) -> float:
        return _validate.number(name, value, above=0)

    def draw(self, generator: np.random.Generator) -> float:
        """Draw a number."""
        drawn = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        return rounded(drawn, self.low, self.high)


class Integers(_Range):
    """Whole numbers in a range, both ends included, drawn uniformly.

    >>> Integers(16, 64).draw(np.random.default_rng(0))
    57
    """

    low: int
    high: int

    def _end(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        return value

    def draw(self, generator: np.random.Generator) -> int:
        """Draw a whole number."""
        return int(generator.integers(self.low, self.high, endpoint=True))


@dataclass(frozen=True)
class Choice:
    """Some values, drawn uniformly.

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
