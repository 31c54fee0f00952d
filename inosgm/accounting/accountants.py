"""The four accountants: privacy loss distributions (exact) or Renyi divergences (as in the papers), each in two units
of privacy: one record added or removed, or one record replaced by another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inosgm.accounting.batched_epsilon import MAX_SINGLE_ROWS, epsilon_of_rows
from inosgm.accounting.domination import dominating_mu
from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.accounting.interface import Accountant
from inosgm.accounting.pld import Case, case_of, pld_epsilon
from inosgm.accounting.rdp import POISSON, Renyi, best_epsilon, epsilon_at_each
from inosgm.accounting.replacement import REPLACED
from inosgm.accounting.segments import Segment, Spent, unchecked_segment
from inosgm.accounting.unique_rows import unique_rows
from inosgm.accounting.units import ADD_REMOVE, REPLACE_ONE

Stretch = tuple[float | tuple[float, ...], float | tuple[float, ...], int]
"""Equal steps, as a ledger keeps them: (sample rate, noise multiplier, number of steps). For a menu, the first two are
tuples."""

History = Sequence[Stretch]


class _HistoryAccounting:
    """The interface for ledgers: the epsilon of whole histories, of many owners at once."""

    sensitivity_factor: ClassVar[float] = 1.0
    """Largest change of the sum by a neighbouring data set, in units of the clipping bound."""

    def epsilon_of(self: Accountant, segments: History, delta: float) -> float:
        """Return an upper bound on the epsilon of one history."""
        return float(_HistoryAccounting.epsilons_of(self, [segments], [delta])[0])

    def epsilons_of(self: Accountant, histories: Sequence[History], deltas: Sequence[float]) -> np.ndarray:
        """Return an upper bound on the epsilon of every history."""
        # Histories of different lengths are padded with segments of no steps, which cost nothing.
        longest = max(map(len, histories), default=0)
        padded = [[*history, *[(0.0, 1.0, 0)] * (longest - len(history))] for history in histories]
        segments = [_as_segment(stretches) for stretches in zip(*padded, strict=True)]
        return epsilon_of_rows(segments, np.asarray(deltas, dtype=np.float64), self)


class _Distributions(_HistoryAccounting):
    """Accounting by privacy loss distributions, to four digits."""

    precision: ClassVar[float] = 4e-4  # relative to epsilon; a search cannot be finer than the four digits
    confirms: ClassVar[bool] = False

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon of every row, with an empty hint; equal rows are computed once."""
        first, kinds = unique_rows([delta, *(column for segment in segments for column in segment.columns())])
        epsilons = np.full(first.size, np.nan)
        if first.size > MAX_SINGLE_ROWS:
            rows = [segment.rows(first) for segment in segments]
            epsilons = _of_full_batches(rows, delta[first], self.sensitivity_factor)
        for place in np.flatnonzero(np.isnan(epsilons)):
            row = first[place]
            epsilons[place] = pld_epsilon(
                _cases(segments, row, self.sensitivity_factor),
                float(delta[row]),
                replaced=self.sensitivity_factor == 2,
            )
        return epsilons[kinds], np.zeros(delta.size)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return the epsilon of every row; the hint is ignored."""
        return self.epsilon(segments, delta)[0]


class _Divergences(_HistoryAccounting):
    """Accounting by Renyi divergences at the best order for every row."""

    precision: ClassVar[float] = 1e-4  # relative to epsilon, where searches end
    confirms: ClassVar[bool] = True
    renyi: ClassVar[Renyi]

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the epsilon of every row, and the index of its best order as the hint."""
        return best_epsilon(self._relative(segments), delta, renyi=self.renyi)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return the epsilon at the order that the hint names, or at the best order near it if `closely`."""
        indices = np.rint(hint).astype(np.int64)
        if closely:
            return best_epsilon(self._relative(segments), delta, indices, self.renyi)[0]
        return epsilon_at_each(self._relative(segments), delta, indices, self.renyi)

    def _relative(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return segments with multipliers relative to the largest change of the sum instead of the bound."""
        return [
            unchecked_segment(s.sample_rate, s.noise_multiplier / self.sensitivity_factor, s.steps) for s in segments
        ]


@dataclass(frozen=True)
class PLD(_Distributions):
    """Account by privacy loss distributions, to four digits: the default.

    **Guarantee.** The epsilon is at least that of the composed sampled Gaussian mechanisms, for one record added or
    removed, in exact arithmetic, for every way in which released values choose from menus. Up to a million steps and
    epsilons up to 100 it is at most 0.05 % above it (0.01 % in most cases); beyond that it may be a few percent above.
    A step from a menu costs the pair that dominates all choices.

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 1.0, 1000, 1e-5, accountant=PLD()), 3))
    1.828
    """

    name: ClassVar[str] = "pld"
    unit: ClassVar[str] = ADD_REMOVE


@dataclass(frozen=True)
class RDP(_Divergences):
    """Account by Renyi divergences of orders 1.01 to 131072, converted by Theorem B.6: for comparison with the papers.

    **Guarantee.** The epsilon is at least that of the composed sampled Gaussian mechanisms, for one record added or
    removed, for every way in which released values choose from menus. It is 4 to 10 % above PLD for many steps, and far
    above it for a few steps or tiny sample rates. A step from a menu costs the greatest divergence of its choices at
    every order.

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

    A rate is the fraction of the owner's records that a batch holds. A multiplier is noise / bound, as everywhere; the
    accountant itself counts that a replaced record changes the sum by up to twice the bound. Epsilons of this unit are
    not comparable with those of one record added or removed: the same run has about twice the epsilon, or more.

    **Guarantee.** The epsilon is at least that of the composed mechanisms, for one record replaced by any other, in
    exact arithmetic, for every way in which released values choose from menus, and as close to it as with PLD().

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 2.0, 1000, 1e-5, accountant=PLDReplaceOne()), 3))
    2.199
    """

    name: ClassVar[str] = "pld-replace-one"
    unit: ClassVar[str] = REPLACE_ONE
    sensitivity_factor: ClassVar[float] = 2.0


@dataclass(frozen=True)
class RDPReplaceOne(_Divergences):
    """Account for batches of a fixed size without replacement, one record replaced by another, as dp_accounting does.

    Rates and multipliers are those of `PLDReplaceOne`. The bound on the divergences of whole orders is that of Wang et
    al. 2019, Theorem 27, converted by Theorem B.6.

    **Guarantee.** The epsilon is at least that of the composed mechanisms, for one record replaced by any other, for
    every way in which released values choose from menus. It needs nearly twice the noise of PLDReplaceOne().

    >>> from inosgm.accounting import epsilon
    >>> print(round(epsilon(0.01, 2.0, 1000, 1e-5, accountant=RDPReplaceOne()), 3))
    3.576
    """

    name: ClassVar[str] = "rdp-replace-one"
    unit: ClassVar[str] = REPLACE_ONE
    renyi: ClassVar[Renyi] = REPLACED
    sensitivity_factor: ClassVar[float] = 2.0


ACCOUNTANTS: dict[str, PLD | RDP | PLDReplaceOne | RDPReplaceOne] = {
    accountant.name: accountant for accountant in (PLD(), RDP(), PLDReplaceOne(), RDPReplaceOne())
}
"""Accountants by name."""


def chosen(accountant: Accountant | None) -> Accountant:
    """Return the given accountant, PLD() for None."""
    if isinstance(accountant, str | type):
        raise TypeError(f"accountant must be PLD() or RDP(), or one of those for replaced records, got {accountant!r}")
    return PLD() if accountant is None else accountant


def _of_full_batches(segments: Sequence[Segment], delta: np.ndarray, sensitivity_factor: float) -> np.ndarray:
    """Return the epsilon of many rows whose records are in every batch, in closed form; NaN for all others.

    It is what `pld_epsilon` computes for one of them, up to the last digits.
    """
    if any(segment.is_menu for segment in segments):
        return np.full(delta.size, np.nan)
    square, full = np.zeros(delta.size), np.ones(delta.size, dtype=np.bool_)
    for segment in segments:
        taken = (segment.steps > 0) & (segment.sample_rate > 0)
        full &= ~taken | (segment.sample_rate == 1)
        square += np.where(taken, segment.steps * (sensitivity_factor / segment.noise_multiplier) ** 2, 0.0)
    epsilons = np.full(delta.size, np.nan)
    known = full & (square > 0)
    epsilons[known] = gaussian_epsilon(np.sqrt(square[known]), delta[known])
    return epsilons


def _cases(segments: Sequence[Segment], row: int, factor: float) -> tuple[Case, ...]:
    """Return one row of segments as a question; after what an adaptive ledger has spent, everything is Gaussian."""
    spent = next((segment for segment in segments if isinstance(segment, Spent) and segment.sample_rate[row]), None)
    if spent is None:
        return tuple(case_of(segment, row, factor) for segment in segments)
    ahead = tuple(case_of(segment, row, factor) for segment in segments if segment is not spent)
    mu = dominating_mu(ahead, float(spent.slack[row]), replaced=factor == 2)
    return case_of(spent, row, factor), (1.0 if mu else 0.0, 1 / mu if mu else 1.0, 1)


def _as_segment(stretches: Sequence[Stretch]) -> Segment:
    """Return a segment with one stretch per owner; shorter menus repeat their last choice, which costs nothing more."""
    if not any(isinstance(rate, tuple) or isinstance(multiplier, tuple) for rate, multiplier, _ in stretches):
        return Segment(*np.array(stretches, dtype=np.float64).T)
    menus = [[np.atleast_1d(value) for value in stretch[:2]] for stretch in stretches]
    widest = max(value.size for menu in menus for value in menu)
    rates, multipliers = (
        [np.pad(values, (0, widest - values.size), mode="edge") for values in column]
        for column in zip(*menus, strict=True)
    )
    return Segment(rates, multipliers, [steps for _, _, steps in stretches])
