"""The privacy loss of one step on a grid: rounded pessimistically, with the mass of every bin exact.

A step is discretised by connecting the dots (Doroshenko et al. 2022): the mass between two points of the grid is split
between these two points so that its probability under BOTH neighbours is unchanged, which can only make the pair easier
to distinguish. The mass above the grid moves to infinity, the mass below it to the first point. Mass is computed bin by
bin instead of by second differences of delta, because rounding would swamp losses of 1e-9 in the differences.

A step that released values choose from a menu costs the pair that dominates all entries: the pair whose hockey-stick
curve, H(x) = sup_S P(S) - x Q(S) as a function of x = exp(epsilon), is the maximum of theirs at every x. The maximum of
convex curves is convex, so such a pair exists (Zhu, Dong and Wang 2022), and it dominates adaptive compositions.
Connecting the dots needs it at the points of the grid only. If the same entry is the maximum at both ends of a bin, the
bin has the mass of that entry. If the maximum changes, the difference of the two curves at each end is added.

For one record replaced by another, in batches of a fixed size without replacement, the curve is
H(1 + g (y - 1)) = g H_Gauss(y) for y >= 1, g the sampled fraction, and H(1 / x) = 1 - 1 / x + H(x) / x. Losses above 0
are those of a removed record, losses below 0 are those of an added one, and the rest of the mass is at 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

Change = Literal["removed", "added", "replaced"]
"""The change of one record that turns the first of two neighbouring data sets into the second."""

Entry = tuple[float, float]
"""A sample rate and a noise multiplier."""

CUT = 1e-4
"""Fraction of delta that is spent on truncated tails, to keep grids short."""

_BLOCKS = 1 << 11  # of losses between which `_leaders` excludes entries; the grid has 2^12 to 2^20 points
_LOW_TAIL = 1e-11  # mass below a grid; it is moved up, which is safe, so it affects tightness only


@dataclass(frozen=True)
class Step:
    """One step on the grid: mass on the points first, first + 1, ..., mass at infinity, variance added by rounding."""

    first: int
    mass: np.ndarray
    infinite: float
    rounded: np.ndarray


def ends(entries: Sequence[Entry], delta: float, change: Change) -> tuple[float, float]:
    """Return the losses between which the grid of one step lies."""
    lows, highs = zip(*(_ends(rate, multiplier, delta, change) for rate, multiplier in entries), strict=True)
    return min(lows), max(highs)


def _ends(rate: float, multiplier: float, delta: float, change: Change) -> tuple[float, float]:
    far, near = -special.ndtri(CUT * delta / 4), -special.ndtri(_LOW_TAIL)
    top = multiplier * far
    highest = max(top, 1 - multiplier * special.ndtri(min(0.5, CUT * delta / 4 / rate)))
    if change == "added":
        return -_loss(rate, multiplier, multiplier * near), -_loss(rate, multiplier, -top)
    if change == "removed":
        return _loss(rate, multiplier, -multiplier * near), _loss(rate, multiplier, highest)
    return -_loss(rate, multiplier, 1 + multiplier * near), _loss(rate, multiplier, highest)


def _loss(rate: float, multiplier: float, point: float) -> float:
    """Return log(1 - q + q exp((2 x - 1) / (2 m^2))), the loss when the noisy sum is x and the record is removed."""
    exponent = (point - 0.5) / multiplier**2
    if rate == 1:
        return exponent
    # exp overflows above 709; there the term 1 - q does not change the sum any more.
    return math.log1p(rate * math.expm1(exponent)) if exponent < 700 else exponent + math.log(rate)


def discretise(entries: Sequence[Entry], between: tuple[float, float], interval: float, change: Change) -> Step:
    """Return the discretised loss of one step of the pair that dominates all entries."""
    first, last = math.floor(between[0] / interval), math.ceil(between[1] / interval)
    last = max(last, first + 1)
    points = np.arange(first, last + 1) * interval
    if change != "replaced":
        half = _Half(entries, points, interval, added=change == "added")
        half.total[0] += half.below()
        return Step(first, half.total, half.beyond(), half.rounded)
    lower = _Half(entries, points[: 1 - first], interval, added=True)
    upper = _Half(entries, points[-first:], interval, added=False)
    rate, multiplier = entries[upper.leader[0]]
    lower.total[0] += lower.below()
    lower.total[-1] += upper.total[0] + (1 - rate) * special.erf(0.5 / multiplier / math.sqrt(2))
    total = np.concatenate([lower.total, upper.total[1:]])
    return Step(first, total, upper.beyond(), np.concatenate([lower.rounded, upper.rounded[1:]]))


class _Half:
    """The mass between consecutive points of the grid, split between them, when a record is added or removed."""

    def __init__(self, entries: Sequence[Entry], points: np.ndarray, interval: float, *, added: bool) -> None:
        self.entries, self.points, self.interval, self.added = entries, points, interval, added
        self.leader = _leaders(entries, -points[::-1])[::-1] if added else _leaders(entries, points)
        self.total, self.rounded = np.zeros(points.size), np.zeros(points.size)
        turns = np.flatnonzero(np.diff(self.leader))
        for start, stop in zip([0, *(turns + 1)], [*(turns + 1), points.size], strict=True):
            left, right = max(start - 1, 0), min(stop + 1, points.size)
            mass, up = self._bins(entries[self.leader[start]], points[left:right])
            low = start - left  # the bin below the first point counts for that point, not for the one before
            self.total[start : right - 1] += (mass * (1 - up))[low:]
            self.total[left + 1 : stop] += (mass * up)[: stop - 1 - left]
            self.rounded[left + 1 : stop] = (up * (1 - up))[: stop - 1 - left] * interval**2
        if turns.size:
            self._connect(turns)

    def _connect(self, turns: np.ndarray) -> None:
        """Add the differences of the two curves at the ends of the bins in which the maximum changes."""
        for turn in turns:
            here, there = self.entries[self.leader[turn]], self.entries[self.leader[turn + 1]]
            ahead = self._excess(there, turn + 1) - self._excess(here, turn + 1)
            behind = self._excess(here, turn) - self._excess(there, turn)
            self.total[turn] += max(ahead, 0.0) / math.expm1(self.interval)
            self.total[turn + 1] += max(behind, 0.0) / -math.expm1(-self.interval)
            self.rounded[turn + 1] = self.interval**2 / 4

    def _excess(self, entry: Entry, index: int) -> float:
        """Return the excess of an entry's curve over that of equal neighbours at a point of the grid."""
        point = self.points[index]
        log = _log_excess(entry[0], entry[1], -point if self.added else point)
        return float(np.exp(log + point if self.added else log))

    def _bins(self, entry: Entry, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mass of an entry in every bin, and the fraction of it that moves to the upper point."""
        rate, multiplier = entry
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            edges = self._edges(rate, multiplier, points)
            absent, present = _between(edges), _between(edges - 1 / multiplier)
            if self.added:
                absent, present = -absent, -present
            ratio = rate * (present / absent - 1)  # the likelihood ratio of a bin, less one
            low = points[:-1]
            if self.added:
                mass, over = absent, (np.expm1(-low) - ratio) / (1 + ratio)
            else:
                mass, over = absent + rate * (present - absent), np.exp(-low) * (ratio - np.expm1(low))
            up = over / (1 + over) / -math.expm1(-self.interval)
        # If the tail underflows there is no ratio: all of the (tiny) mass moves up. The term 1e-13 moves up what the
        # rounding of the ratio (relative error 1e-16 per bin) may have lost.
        up = np.clip(np.where(np.isfinite(up), up + 1e-13 * (1 + rate / self.interval), 1.0), 0.0, 1.0)
        return np.where(np.isfinite(mass), np.maximum(mass, 0.0), 0.0), up

    def _edges(self, rate: float, multiplier: float, points: np.ndarray) -> np.ndarray:
        """Return the noisy sums that have these losses, in units of the noise."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            return _exponent(rate, -points if self.added else points) * multiplier + 0.5 / multiplier

    def beyond(self) -> float:
        """Return the mass above the last point."""
        rate, multiplier = self.entries[self.leader[-1]]
        edge = self._edges(rate, multiplier, self.points[-1:])[0]
        if self.added:
            return float(special.ndtr(edge))
        return float((1 - rate) * special.ndtr(-edge) + rate * special.ndtr(1 / multiplier - edge))

    def below(self) -> float:
        """Return the mass below the first point."""
        rate, multiplier = self.entries[self.leader[0]]
        edge = self._edges(rate, multiplier, self.points[:1])[0]
        if self.added:
            return float(special.ndtr(-edge))
        return float((1 - rate) * special.ndtr(edge) + rate * special.ndtr(edge - 1 / multiplier))


def _between(edges: np.ndarray) -> np.ndarray:
    """Return the standard normal mass between neighbouring edges, from the tail in which no digits cancel."""
    lower, upper = edges[:-1], edges[1:]
    right = lower + upper > 0
    return np.asarray(
        np.where(right, special.ndtr(-lower) - special.ndtr(-upper), special.ndtr(upper) - special.ndtr(lower))
    )


def _exponent(rate: np.ndarray | float, losses: np.ndarray) -> np.ndarray:
    """Return the loss without sampling, log(1 + (exp(loss) - 1) / rate), at which the sampled mechanism has a loss."""
    with np.errstate(divide="ignore", over="ignore"):
        inside = np.maximum(np.expm1(losses) / rate, -1.0)
        exponents = np.where(inside < np.inf, np.log1p(inside), losses - np.log(rate))
    return np.where(np.equal(rate, 1), losses, exponents)


def _log_excess(rate: np.ndarray | float, multiplier: np.ndarray | float, losses: np.ndarray) -> np.ndarray:
    """Return log(H(x) - max(1 - x, 0)) at x = exp(losses), H the curve of a sampled Gaussian, without cancellation.

    At y = exp(t) = 1 + (x - 1) / q it is q min(1, y) delta(|t|), delta that of the Gaussian mechanism.
    """
    exponent = _exponent(rate, losses)
    away, mu = np.abs(exponent), 1 / multiplier
    with np.errstate(divide="ignore", invalid="ignore"):
        above, below = special.log_ndtr(mu / 2 - away / mu), away + special.log_ndtr(-mu / 2 - away / mu)
        delta = above + np.log(-np.expm1(np.minimum(below - above, 0.0)))
    return np.where(np.isfinite(away), np.log(rate) + np.minimum(exponent, 0.0) + delta, -np.inf)


def _log_slope(rate: np.ndarray, multiplier: np.ndarray, losses: np.ndarray, sign: np.ndarray) -> np.ndarray:
    """Return the logarithm of the absolute slope of that excess; the slope is positive below x = 1, negative above."""
    return np.asarray(special.log_ndtr(-sign * _exponent(rate, losses) * multiplier - sign * 0.5 / multiplier))


def _leaders(entries: Sequence[Entry], losses: np.ndarray) -> np.ndarray:
    """Return the index of the entry whose curve is the maximum at each of the increasing losses.

    All entries are evaluated at the ends of blocks of losses. Within a block a convex curve lies below its chord, and
    the maximum lies above the tangents of the leaders at the two ends. An entry whose chord stays below these tangents
    is excluded; only the others are evaluated everywhere.
    """
    if len(entries) == 1:
        return np.zeros(losses.size, dtype=np.int64)
    stride = max(1, losses.size // _BLOCKS)
    zero = int(np.clip(np.searchsorted(losses, 0.0), 0, losses.size - 1))  # no block may span the kink at x = 1
    ends_of_blocks = np.unique([*range(0, losses.size, stride), zero, losses.size - 1])
    rates, multipliers = np.array(entries).T[:, :, None]
    logs = _log_excess(rates, multipliers, losses[ends_of_blocks])
    lead = np.asarray(logs.argmax(axis=0))
    if ends_of_blocks.size == losses.size:
        return lead
    possible = _possible(rates, multipliers, losses[ends_of_blocks], logs, lead)
    leader, best = np.zeros(losses.size, dtype=np.int64), np.full(losses.size, -np.inf)
    block = np.repeat(np.arange(ends_of_blocks.size - 1), np.diff(ends_of_blocks))
    alone = possible.sum(axis=0) == 1
    leader[:-1] = np.where(alone, possible.argmax(axis=0), 0)[block]
    for entry, (rate, multiplier) in enumerate(entries):
        points = np.flatnonzero((possible[entry] & ~alone)[block])
        if points.size:
            excess = _log_excess(rate, multiplier, losses[points])
            better = excess > best[points]
            leader[points[better]], best[points[better]] = entry, excess[better]
    leader[ends_of_blocks] = lead
    return leader


def _possible(
    rates: np.ndarray, multipliers: np.ndarray, losses: np.ndarray, logs: np.ndarray, lead: np.ndarray
) -> np.ndarray:
    """Return which entries may be the maximum somewhere in each block.

    Within a block x is measured in units of its value at the lower end, and excesses in units of the largest one.
    """
    most = logs.max(axis=0)
    unit = np.maximum(most[:-1], most[1:])
    unit[~np.isfinite(unit)] = 0.0
    low, high = np.exp(logs[:, :-1] - unit), np.exp(logs[:, 1:] - unit)
    width = np.expm1(np.diff(losses))
    start, stop = low.max(axis=0), high.max(axis=0)
    sign = np.where(losses[:-1] >= 0, 1.0, -1.0)

    def slope(entry: np.ndarray, at: np.ndarray) -> np.ndarray:
        log = _log_slope(rates[entry, 0], multipliers[entry, 0], at, sign)
        return np.asarray(-sign * np.exp(losses[:-1] + log - unit))

    first, last = slope(lead[:-1], losses[:-1]), slope(lead[1:], losses[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = np.clip(np.nan_to_num((start - stop + last * width) / (last - first)), 0.0, width)
    tangent = np.maximum(start + first * meet, stop + last * (meet - width))
    chord = low + (high - low) * (meet / width)
    # 1e-9 covers the rounding of values around 1: an entry that is kept in vain costs time, never correctness.
    possible = (low >= start * (1 - 1e-9)) | (high >= stop * (1 - 1e-9)) | (chord >= tangent - 1e-9)
    return np.asarray(possible)
