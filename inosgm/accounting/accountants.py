"""The two ways to account: exactly, by privacy loss distributions, or as the papers do, by Renyi divergences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from inosgm.accounting.along import epsilon_of_rows
from inosgm.accounting.pld import pld_epsilon
from inosgm.accounting.rdp import best_epsilon, epsilon_at_each
from inosgm.accounting.rows import distinct
from inosgm.accounting.segments import Segment
from inosgm.units import ADD_REMOVE

Stretch = tuple[float, float, int]
"""Equal steps, as a ledger keeps them: (sample rate, noise multiplier, number of steps)."""

History = Sequence[Stretch]


class Accountant(Protocol):
    """Says what segments of steps cost; every row is an owner, and every array has one entry per row."""

    name: ClassVar[str]
    """What plans call it."""

    unit: ClassVar[str]
    """What its epsilons are about, of `inosgm.units`."""

    precision: ClassVar[float]
    """How close inverses come to a budget, relatively, from below."""

    confirms: ClassVar[bool]
    """Whether `confirm` is much cheaper than `epsilon`."""

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an upper bound on the epsilon of every row, and a hint that `confirm` understands."""
        ...

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return upper bounds as the hint tells them: a quick one, or, looking closely, the best."""
        ...


class _OfHistories:
    """What a ledger asks an accountant: the epsilon of whole histories, of many owners at once."""

    def epsilon_of(self: Accountant, segments: History, delta: float) -> float:
        """Return the epsilon of one history, from above."""
        return float(_epsilons_of(self, [segments], [delta])[0])

    def epsilons_of(self: Accountant, histories: Sequence[History], deltas: Sequence[float]) -> np.ndarray:
        """Return the epsilon of every history, from above."""
        return _epsilons_of(self, histories, deltas)


@dataclass(frozen=True)
class PLD(_OfHistories):
    """Account by privacy loss distributions, to four digits: the default.

    **Guarantee.** The epsilon is at least that of the composed sampled Gaussian mechanisms, for one record
    added or removed, in exact arithmetic. Up to a million steps and epsilons up to 100 it is at most 0.05 % above it
    (0.01 % in most cases); beyond that it may be a few percent above.

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 1.0, 1000, 1e-5, accountant=PLD()), 3))
    1.828
    """

    name: ClassVar[str] = "pld"
    unit: ClassVar[str] = ADD_REMOVE
    precision: ClassVar[float] = 4e-4
    confirms: ClassVar[bool] = False

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon of every row; equal rows are worked out once."""
        first, kinds = distinct([delta, *(column for segment in segments for column in segment._values())])
        found = np.array([pld_epsilon(_cases(segments, row), float(delta[row])) for row in first])
        return found[kinds], np.zeros(delta.size)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return the epsilon of every row; a hint is of no use here."""
        return self.epsilon(segments, delta)[0]


@dataclass(frozen=True)
class RDP(_OfHistories):
    """Account by Renyi divergences of orders 1.01 to 131072, converted by Theorem B.6: for comparison with
    the papers.

    **Guarantee.** The epsilon is at least that of the composed sampled Gaussian mechanisms, for one record
    added or removed. It is 4 to 10 % above PLD for many steps, and far above it for a few steps or tiny
    sample rates.

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 1.0, 1000, 1e-5, accountant=RDP()), 3))
    2.101
    """

    name: ClassVar[str] = "rdp"
    unit: ClassVar[str] = ADD_REMOVE
    precision: ClassVar[float] = 1e-4
    confirms: ClassVar[bool] = True

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon of every row, and the place of the best order in the list of orders."""
        return best_epsilon(segments, delta)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return what the order says whose place is the hint, or, looking closely, the best order around it."""
        places = np.rint(hint).astype(np.int64)
        return best_epsilon(segments, delta, places)[0] if closely else epsilon_at_each(segments, delta, places)


ACCOUNTANTS: dict[str, PLD | RDP] = {"pld": PLD(), "rdp": RDP()}
"""Accountants by the name that plans keep."""


def chosen(accountant: Accountant | None) -> Accountant:
    """Return the accountant that was asked for, PLD() if none was."""
    if isinstance(accountant, str | type):
        raise TypeError(f"accountant must be PLD() or RDP(), got {accountant!r}")
    return PLD() if accountant is None else accountant


def _cases(segments: Sequence[Segment], row: int) -> tuple[tuple[float, float, int], ...]:
    """Return what was done in one row as the cases that a distribution is composed of."""
    return tuple((float(s.sample_rate[row]), float(s.noise_multiplier[row]), int(s.steps[row])) for s in segments)


def _epsilons_of(accountant: Accountant, histories: Sequence[History], deltas: Sequence[float]) -> np.ndarray:
    """Write histories of different lengths below one another, the shorter ones with steps that cost nothing."""
    longest = max(map(len, histories), default=0)
    padded = np.array([[*history, *[(0.0, 1.0, 0)] * (longest - len(history))] for history in histories])
    columns = padded.reshape(len(histories), longest, 3).transpose(1, 2, 0)
    return epsilon_of_rows([Segment(*column) for column in columns], np.asarray(deltas, dtype=np.float64), accountant)
