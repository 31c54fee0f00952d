"""The two ways to account, exactly by privacy loss distributions, or as the papers do by Renyi divergences, and the two
units of privacy: one record added or removed, or one replaced by another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.choices import undominated
from inosgm.accounting.pld import Case, pld_epsilon
from inosgm.accounting.rdp import POISSON, Renyi, best_epsilon, epsilon_at_each
from inosgm.accounting.replacement import REPLACED
from inosgm.accounting.segments import Segment, _unchecked
from inosgm.accounting.unique_rows import distinct
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE

Stretch = tuple[float | tuple[float, ...], float | tuple[float, ...], int]
"""Equal steps, as a ledger keeps them: (sample rate, noise multiplier, number of steps), tuples of the first two for a
menu."""

History = Sequence[Stretch]


class Accountant(Protocol):
    """Says what segments of steps cost; every row is an owner, and every array has one entry per row."""

    name: ClassVar[str]
    """What plans call it."""

    unit: ClassVar[str]
    """What the guarantee is about: one record "add/remove", or "replace-one". Epsilons of different units compare with
    each other as little as metres with feet."""

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


class _Distributions(_OfHistories):
    """Accounting by privacy loss distributions, to four digits."""

    precision: ClassVar[float] = 4e-4
    confirms: ClassVar[bool] = False
    moved: ClassVar[float] = 1.0
    """How far a record that changes moves the sum, in units of its bound."""

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon of every row; equal rows are worked out once."""
        first, kinds = distinct([delta, *(column for segment in segments for column in segment.columns())])
        found = [
            pld_epsilon(
                tuple(_case(segment, row, self.moved) for segment in segments),
                float(delta[row]),
                replaced=self.moved == 2,
            )
            for row in first
        ]
        return np.array(found)[kinds], np.zeros(delta.size)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return the epsilon of every row; a hint is of no use here."""
        return self.epsilon(segments, delta)[0]


class _Divergences(_OfHistories):
    """Accounting by Renyi divergences, of the best order for every row."""

    precision: ClassVar[float] = 1e-4
    confirms: ClassVar[bool] = True
    renyi: ClassVar[Renyi]
    moved: ClassVar[float] = 1.0

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon of every row, and the place of the best order in the list of orders."""
        return best_epsilon(self._relative(segments), delta, renyi=self.renyi)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return what the order says whose place is the hint, or, looking closely, the best order around it."""
        places = np.rint(hint).astype(np.int64)
        if closely:
            return best_epsilon(self._relative(segments), delta, places, self.renyi)[0]
        return epsilon_at_each(self._relative(segments), delta, places, self.renyi)

    def _relative(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return segments whose multipliers are relative to how far a record that changes moves the sum."""
        return [_unchecked(s.sample_rate, s.noise_multiplier / self.moved, s.steps) for s in segments]


@dataclass(frozen=True)
class PLD(_Distributions):
    """Account by privacy loss distributions, to four digits: the default.

    **Guarantee.** The epsilon is at least that of the composed sampled Gaussian mechanisms, for one record
    added or removed, in exact arithmetic, whichever choices are made from menus by what was released before. Up to a
    million steps and epsilons up to 100 it is at most 0.05 % above it (0.01 % in most cases); beyond that it may be a
    few percent above. A step from a menu costs the pair that dominates all choices.

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 1.0, 1000, 1e-5, accountant=PLD()), 3))
    1.828
    """

    name: ClassVar[str] = "pld"
    unit: ClassVar[str] = ADD_REMOVE


@dataclass(frozen=True)
class RDP(_Divergences):
    """Account by Renyi divergences of orders 1.01 to 131072, converted by Theorem B.6: for comparison with
    the papers.

    **Guarantee.** The epsilon is at least that of the composed sampled Gaussian mechanisms, for one record
    added or removed, whichever choices are made from menus by what was released before. It is 4 to 10 % above PLD for
    many steps, and far above it for a few steps or tiny sample rates. A step from a menu costs the greatest divergence
    of its choices at every order.

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 1.0, 1000, 1e-5, accountant=RDP()), 3))
    2.101
    """

    name: ClassVar[str] = "rdp"
    unit: ClassVar[str] = ADD_REMOVE
    renyi: ClassVar[Renyi] = POISSON


@dataclass(frozen=True)
class PLDReplaceOne(_Distributions):
    """Account tightly for batches of a fixed size without replacement, one record replaced by another.

    A rate is the fraction of the owner's records that a batch holds, a multiplier is noise / bound as everywhere; that
    a replaced record moves the sum by twice the bound is counted here. Epsilons of this unit are not comparable with
    those of one record added or removed: the same run has about twice the epsilon, or more, in this one.

    **Guarantee.** The epsilon is at least that of the composed mechanisms, for one record replaced by any other, in
    exact arithmetic, whichever choices are made from menus by what was released before, and as close to it as PLD().

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 2.0, 1000, 1e-5, accountant=PLDReplaceOne()), 3))
    2.199
    """

    name: ClassVar[str] = "pld-replace-one"
    unit: ClassVar[str] = REPLACE_ONE
    moved: ClassVar[float] = 2.0


@dataclass(frozen=True)
class RDPReplaceOne(_Divergences):
    """Account for batches of a fixed size without replacement, one record replaced by another, as dp_accounting does.

    Numbers mean what they mean for `PLDReplaceOne`. The bound on the divergences of whole orders is that of Wang et al.
    2019, Theorem 27, converted by Theorem B.6.

    **Guarantee.** The epsilon is at least that of the composed mechanisms, for one record replaced by any other,
    whichever choices are made from menus by what was released before. It asks for nearly twice the noise of
    PLDReplaceOne().

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 2.0, 1000, 1e-5, accountant=RDPReplaceOne()), 3))
    3.576
    """

    name: ClassVar[str] = "rdp-replace-one"
    unit: ClassVar[str] = REPLACE_ONE
    renyi: ClassVar[Renyi] = REPLACED
    moved: ClassVar[float] = 2.0


ACCOUNTANTS: dict[str, PLD | RDP | PLDReplaceOne | RDPReplaceOne] = {
    accountant.name: accountant for accountant in (PLD(), RDP(), PLDReplaceOne(), RDPReplaceOne())
}
"""Accountants by the name that plans keep."""


def chosen(accountant: Accountant | None) -> Accountant:
    """Return the accountant that was asked for, PLD() if none was."""
    if isinstance(accountant, str | type):
        raise TypeError(f"accountant must be PLD() or RDP(), or one of those for replaced records, got {accountant!r}")
    return PLD() if accountant is None else accountant


def _case(segment: Segment, row: int, moved: float) -> Case:
    """Return what was done in one row as a case that a distribution is composed of; equal menus are equal cases."""
    rate, multiplier, steps = segment.sample_rate[row], segment.noise_multiplier[row] / moved, int(segment.steps[row])
    if not segment.is_menu:
        return float(rate), float(multiplier), steps
    rates, multipliers = undominated(rate, multiplier)
    if rates.size <= 1:
        return float(rates.sum()), float(multipliers.sum()), steps
    return tuple(rates.tolist()), tuple(multipliers.tolist()), steps


def _epsilons_of(accountant: Accountant, histories: Sequence[History], deltas: Sequence[float]) -> np.ndarray:
    """Write histories of different lengths below one another, the shorter ones with steps that cost nothing."""
    longest = max(map(len, histories), default=0)
    padded = [[*history, *[(0.0, 1.0, 0)] * (longest - len(history))] for history in histories]
    segments = [_written([history[place] for history in padded]) for place in range(longest)]
    return epsilon_of_rows(segments, np.asarray(deltas, dtype=np.float64), accountant)


def _written(stretches: Sequence[Stretch]) -> Segment:
    """Write one stretch per owner below one another, the shorter menus with their last choice again."""
    if not any(isinstance(rate, tuple) or isinstance(multiplier, tuple) for rate, multiplier, _ in stretches):
        return Segment(*np.array(stretches, dtype=np.float64).T)
    menus = [[np.atleast_1d(value) for value in stretch[:2]] for stretch in stretches]
    widest = max(value.size for menu in menus for value in menu)
    rates, multipliers = (
        [np.pad(menu[part], (0, widest - menu[part].size), mode="edge") for menu in menus] for part in (0, 1)
    )
    return Segment(rates, multipliers, [steps for _, _, steps in stretches])
