"""The least Gaussian mechanism that dominates sampled steps up to a slack: how they enter a filter of Gaussian DP.

Let H(x) = sup_S P(S) - x Q(S) be the hockey-stick curve of composed steps, in the worse direction, and G_mu that of the
Gaussian mechanism with sensitivity / noise = mu. `dominating_mu` returns a mu with H(x) <= G_mu(x) + slack for every
x >= 1; for x < 1 this follows from the curves of the other direction. Without a slack only the unsampled steps dominate
sampled ones: a record may be in every batch, which is improbable and not impossible. The slack pays for that.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np

from inosgm.accounting.discrete import Change, discretise, ends
from inosgm.accounting.gaussian import gaussian_delta
from inosgm.accounting.pld import LEAST_DELTA, Case, Composition, case_of, entries_of, with_joined_steps
from inosgm.accounting.segments import Segment
from inosgm.accounting.unique_rows import unique_rows
from inosgm.accounting.units import ADD_REMOVE

PRECISION = 2e-4
"""Largest relative distance of a mu above the least one by bisection."""

_FIRST_POINTS, _MOST_POINTS = 1 << 12, 1 << 17  # of the grid of one step
_COMPARED = 4096  # largest number of losses at which curves are compared
_TOLERANCE = 5e-4  # largest relative error that the grid may add to the epsilon at which delta is the slack


@lru_cache(maxsize=1 << 16)
def dominating_mu(cases: tuple[Case, ...], slack: float, *, replaced: bool = False) -> float:
    """Return a mu whose Gaussian mechanism dominates the composed cases up to a slack; each question is cached.

    **Guarantee.** The delta of the composed cases at any epsilon >= 0, in both directions, is at most that of the
    Gaussian mechanism plus the slack, in exact arithmetic and for every way in which released values choose from menus.

    Args:
        cases: Steps, with multipliers relative to the largest change of the sum by one record.
        slack: At least 0; below 1e-13 it is not used.
        replaced: Whether a record is replaced, in batches of a fixed size, instead of added or removed.

    >>> dominating_mu(((1.0, 2.0, 4),), 0.0)
    1.0
    >>> print(round(dominating_mu(((0.01, 1.0, 1000),), 1e-7), 3))
    0.473
    """
    cases = tuple(with_joined_steps(case) for case in cases if case[2] and case[0])
    exact = math.sqrt(sum(count / least_multiplier(multiplier) ** 2 for _, multiplier, count in cases))
    sampled = [case for case in cases if case[0] != 1]
    if not sampled or slack < LEAST_DELTA:
        return exact
    drawn = sum(case[2] * (max(case[0]) if isinstance(case[0], tuple) else case[0]) for case in sampled)
    if len(sampled) == len(cases) and drawn <= slack:
        return 0.0  # the record is sampled with a probability of slack at most
    changes: tuple[Change, ...] = ("replaced",) if replaced else ("removed", "added")
    return min(exact, max(_least_mu(*_curve(cases, slack, change), slack, exact) for change in changes))


def least_multiplier(multiplier: float | tuple[float, ...]) -> float:
    """Return a multiplier, or the least one of a menu."""
    return min(multiplier) if isinstance(multiplier, tuple) else multiplier


def _curve(cases: Sequence[Case], slack: float, change: Change) -> tuple[np.ndarray, np.ndarray]:
    """Return losses from 0 on and upper bounds on the deltas of the composed cases there."""
    counts, menus = [count for _, _, count in cases], [entries_of(case) for case in cases]
    between = [ends(menu, slack / sum(counts), change) for menu in menus]
    width = max(max(high - low, 1e-6 * abs(high), 1e-300) for low, high in between)  # as for `pld_epsilon`
    interval, finest = width / _FIRST_POINTS, width / _MOST_POINTS
    while True:
        pieces = [discretise(menu, pair, interval, change) for menu, pair in zip(menus, between, strict=True)]
        composed = Composition(pieces, counts, interval, slack)
        epsilon, slope, spread = composed.epsilon()
        excess = (slope + 1) * spread / (2 * _TOLERANCE * max(epsilon, 1e-300))
        if excess <= 1 or interval <= finest:
            break
        interval = max(interval / min(max(1.2, 1.1 * math.sqrt(excess)), 16), finest)
    losses, deltas = composed.curve()
    return losses, deltas + (slack - composed.left)


def _least_mu(losses: np.ndarray, deltas: np.ndarray, slack: float, most: float) -> float:
    """Return the least mu up to `most` that dominates a curve, or infinity."""
    stride = max(1, losses.size // _COMPARED)
    # Neither curve rises between two losses: the value at the lower one is compared with the Gaussian at the upper one.
    upper, needed = losses[stride::stride], deltas[:-stride:stride][: losses[stride::stride].size] - slack
    upper, needed = upper[needed > 0], needed[needed > 0]
    if not losses.size or not np.all(gaussian_delta(np.array(most), upper) >= needed):
        return math.inf
    low, high = math.log(most) - 30, math.log(most)
    while high - low > PRECISION:
        middle = (low + high) / 2
        enough = bool(np.all(gaussian_delta(np.array(math.exp(middle)), upper) >= needed))
        low, high = (low, middle) if enough else (middle, high)
    return math.exp(high)


class Dominating:
    """The interface of an accountant whose "epsilons" are mus, at a slack per row: `epsilon_of_rows` tabulates it.

    Along a chain of rising rates and falling multipliers mu rises as epsilon does, and as smoothly.
    """

    name: ClassVar[str] = "dominating"
    unit: ClassVar[str] = ADD_REMOVE  # of an accountant; the factor says which changes are meant
    precision: ClassVar[float] = PRECISION
    confirms: ClassVar[bool] = False

    def __init__(self, sensitivity_factor: float) -> None:
        self.sensitivity_factor = sensitivity_factor

    def epsilon(self, segments: Sequence[Segment], delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mu of every row, with an empty hint; equal rows are computed once."""
        first, kinds = unique_rows([delta, *(column for segment in segments for column in segment.columns())])
        mus = [
            dominating_mu(
                tuple(case_of(segment, row, self.sensitivity_factor) for segment in segments),
                float(delta[row]),
                replaced=self.sensitivity_factor == 2,
            )
            for row in first
        ]
        return np.array(mus)[kinds], np.zeros(delta.size)

    def confirm(self, segments: Sequence[Segment], delta: np.ndarray, hint: np.ndarray, *, closely: bool) -> np.ndarray:
        """Return the mu of every row; the hint is ignored."""
        return self.epsilon(segments, delta)[0]
