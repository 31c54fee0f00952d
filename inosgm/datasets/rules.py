"""Rules that assign the records of a class to owners: the parts of the papers' settings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.keys import Draw
from inosgm.owners import Label, Owners

DELTA = 1e-5
"""The delta of every owner in the papers; the ASC paper has 1 / (2 n), which on its MNIST is 1.02e-5."""


class Rule(ABC):
    """An assignment of training records to owners, and of held-out records to groups; random rules take a seed."""

    @abstractmethod
    def owners(self, labels: np.ndarray, seed: int | None) -> Owners:
        """Return the owners of training records of these classes."""

    @abstractmethod
    def groups(self, labels: np.ndarray, seed: int | None) -> np.ndarray:
        """Return a label for each held-out record: its owner if its class says so, or else a name for its class."""


@dataclass(frozen=True)
class ByClass(Rule):
    """Every class belongs to one owner.

    Args:
        owner_of_class: The owner of class 0, 1, ...
        epsilon: What each owner grants.
    """

    owner_of_class: Sequence[Label]
    epsilon: dict[Any, float]

    def owners(self, labels: np.ndarray, seed: int | None) -> Owners:
        """Return the owners of the classes."""
        return _granting(self.groups(labels, seed), self.epsilon)

    def groups(self, labels: np.ndarray, seed: int | None) -> np.ndarray:
        """Return the owner of each class."""
        return np.take(self.owner_of_class, labels)


@dataclass(frozen=True)
class OnePerClass(Rule):
    """As many owners as classes, 0, 1, ...: owner n holds class n.

    Args:
        epsilons: What each owner grants.
        given_away: The share of its class that an owner gives to the others, in equal parts, and gets back from them.
        shuffled: Whether owner n holds a random class instead, another one for each.
    """

    epsilons: Sequence[float]
    given_away: float = 0.0
    shuffled: bool = False

    def owners(self, labels: np.ndarray, seed: int | None) -> Owners:
        """Return the owners; records given away go round, so that with equal classes everybody gets as many back."""
        of_record = self.groups(labels, seed).copy()
        if self.given_away:
            n, generator = len(self.epsilons), generator_of(seed, Draw.OWNER_SHARES)
            for label in range(n):
                members = generator.permutation(np.flatnonzero(labels == label))
                given = members[: round(self.given_away * members.size)]
                of_record[given] = (label + 1 + np.arange(given.size) % (n - 1)) % n
        return _granting(of_record, dict(enumerate(self.epsilons)))

    def groups(self, labels: np.ndarray, seed: int | None) -> np.ndarray:
        """Return the owner who holds all or most of the class."""
        if not self.shuffled:
            return labels
        return np.take(generator_of(seed, Draw.OWNER_CLASSES).permutation(len(self.epsilons)), labels)


@dataclass(frozen=True)
class OnePerRecord(Rule):
    """Every record is its own owner, 0, 1, ..., with an epsilon drawn around the mean of its class.

    Args:
        means: The mean epsilon of each class.
        spread: Half the width of a uniform distribution, or the standard deviation of a normal one.
        normal: Which of them. What is below `least` is drawn again: nobody can grant less than nothing.
        least: The smallest epsilon.
        names: What held-out records of class 0, 1, ... are counted as.
    """

    means: Sequence[float]
    spread: float
    normal: bool
    names: Sequence[str]
    least: float = 0.1

    def owners(self, labels: np.ndarray, seed: int | None) -> Owners:
        """Return the owners, each with its own draw."""
        generator, means = generator_of(seed, Draw.OWNER_BUDGETS), np.array(self.means)[labels]

        def draw(around: np.ndarray) -> np.ndarray:
            if self.normal:
                return generator.normal(around, self.spread)
            return generator.uniform(around - self.spread, around + self.spread)

        epsilon = draw(means)
        while (low := epsilon < self.least).any():
            epsilon[low] = draw(means[low])
        return Owners(of_record=np.arange(labels.size), epsilon=epsilon, delta=DELTA)

    def groups(self, labels: np.ndarray, seed: int | None) -> np.ndarray:
        """Return a name for each class: a held-out record has no owner."""
        return np.take(self.names, labels)


@dataclass(frozen=True)
class Split(Rule):
    """Owners 0, 1, ... hold given fractions of the records, drawn at random, whatever their class.

    Args:
        fractions: They sum to 1.
        epsilons: What each owner grants.
    """

    fractions: Sequence[float]
    epsilons: Sequence[float]

    def __post_init__(self) -> None:
        fractions = _validate.vector("fractions", self.fractions)
        _validate.each("fractions", fractions, fractions > 0, "be > 0")
        # 1e-9: fractions such as three times 1/3 do not sum to 1 exactly.
        if abs(fractions.sum() - 1) > 1e-9 or len(self.epsilons) != fractions.size:
            raise ValueError(f"fractions must sum to 1, with one epsilon each: got {self.fractions}, {self.epsilons}")

    def owners(self, labels: np.ndarray, seed: int | None) -> Owners:
        """Return the owners; sizes are rounded so that they add up."""
        ends = np.round(np.cumsum(self.fractions) * labels.size).astype(np.int64)
        of_record = np.repeat(np.arange(ends.size), np.diff(ends, prepend=0))
        return _granting(generator_of(seed, Draw.OWNER_SHARES).permutation(of_record), dict(enumerate(self.epsilons)))

    def groups(self, labels: np.ndarray, seed: int | None) -> np.ndarray:
        """Return a name for each class: a held-out record has no owner."""
        return np.array([f"class {label}" for label in labels.tolist()], dtype=str)


def generator_of(seed: int | None, draw: Draw) -> np.random.Generator:
    """Return the generator of a seed for one of the random parts of a setting: each has its own."""
    if seed is None:
        raise ValueError("seed must be given, as a whole number >= 0: the setting is random")
    return draw.generator(_validate.count("seed", seed))


def _granting(of_record: np.ndarray, epsilon: dict[Any, float]) -> Owners:
    """Return `Owners` without those who hold no record."""
    present = np.unique(of_record).tolist()
    return Owners(of_record=of_record, epsilon={label: epsilon[label] for label in present}, delta=DELTA)
