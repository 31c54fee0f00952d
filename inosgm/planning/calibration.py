"""Calibration: the sample rate and the sensitivity of every owner, and one noise scale, that budgets buy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from inosgm.accounting import Accountant, Segment
from inosgm.accounting.batched_epsilon import MAX_SINGLE_ROWS
from inosgm.accounting.curves import TARGET_MARGIN, interpolate, solve
from inosgm.accounting.inverses import LEAST_MULTIPLIER, LEAST_RATE, MOST_MULTIPLIER, multipliers, rates
from inosgm.accounting.unique_rows import unique_rows

BELOW_BUDGET = 1 - 1e-7
"""The part of a budget that calibration aims at. The epsilon of the numbers that are found may differ from the epsilon
that the search has seen by roundings, and must not exceed what an owner grants."""

# Relative excess over the expected batch at which the search for the common multiplier ends. Rates are then scaled down
# to the expected batch, which costs owners less; plans promise to spend 99.5 % of a budget, and this is well within.
_BATCH = 4e-4
# Relative error within which an interpolated rate has to meet its budget. The solver itself ends within 4e-4, so that a
# smaller tolerance would halve intervals for ever.
_MET = 6e-4
_ROUNDS = 5  # halvings of an interval of budgets; an interval that is still not met bends too sharply to interpolate
_MANY = 48  # up to so many distinct budgets it is faster to solve each than to interpolate


class Calibration(NamedTuple):
    """The numbers of a plan that are calibrated to budgets."""

    sample_rates: np.ndarray
    sensitivities: np.ndarray
    noise_scale: float


@dataclass(frozen=True)
class PlanRequest:
    """The request for a plan: owners with budgets and a past, and the steps to come."""

    labels: Sequence[str | int]
    sizes: np.ndarray
    epsilon: np.ndarray
    delta: np.ndarray
    past: Sequence[Segment]
    steps: int
    expected_batch: float
    clip_norm: float
    accountant: Accountant

    @property
    def records(self) -> int:
        """The number of records of all owners."""
        return int(self.sizes.sum())

    def some(self, rows: np.ndarray) -> "PlanRequest":
        """Return the request of some of the owners."""
        return replace(
            self,
            labels=[self.labels[row] for row in rows],
            sizes=self.sizes[rows],
            epsilon=self.epsilon[rows],
            delta=self.delta[rows],
            past=[segment.rows(rows) for segment in self.past],
        )

    def grouped(self) -> tuple["PlanRequest", np.ndarray]:
        """Return the request with one owner for each distinct budget and past, and the place of each owner there."""
        past = [column for segment in self.past for column in segment.columns()]
        first, kinds = unique_rows([self.epsilon, self.delta, *past])
        sizes = np.bincount(kinds, weights=self.sizes, minlength=first.size)
        # Very many owners with a past or several deltas are solved one by one, but their epsilons are read off a table
        # when they are charged: leave room for that.
        apart = bool(self.past) or np.unique(self.delta[first]).size > 1
        room = TARGET_MARGIN if apart and first.size > MAX_SINGLE_ROWS else 0.0
        return replace(self.some(first), sizes=sizes, epsilon=self.epsilon[first] * (1 - room)), kinds

    def common_rate(self) -> float:
        """Return the sample rate that gives the expected batch when all records have the same."""
        rate = self.expected_batch / self.records
        if rate > 1:
            raise ValueError(
                f"expected_batch must be at most the number of records, {self.records}, got {self.expected_batch:g}"
            )
        return rate

    def budget(self, row: int | np.integer) -> str:
        """Name an owner and its budget in an error message."""
        return f"owner {self.labels[int(row)]!r} (epsilon {self.epsilon[row]:g}, delta {self.delta[row]:g})"

    def _filled(self, value: float) -> np.ndarray:
        return np.full(self.epsilon.size, float(value))

    def multipliers(self, rate: float) -> np.ndarray:
        """Return the multiplier with which every owner spends its budget at one rate."""
        found = multipliers(
            self.epsilon * BELOW_BUDGET,
            self.delta,
            self._filled(rate),
            self._filled(self.steps),
            self.past,
            self.accountant,
        )
        for row in np.flatnonzero(np.isnan(found)):
            raise ValueError(
                f"{self.budget(row)} grants too little: at a sample rate of {rate:g} not even a noise "
                f"multiplier of {MOST_MULTIPLIER:g} keeps it for {self.steps} steps. Lower steps or expected_batch, "
                "or raise its epsilon"
            )
        # A search that ends at its lower limit returns that limit up to rounding.
        for row in np.flatnonzero(found <= LEAST_MULTIPLIER * (1 + 1e-9)):
            raise ValueError(
                f"{self.budget(row)} grants more than can be spent: at a sample rate of {rate:g} even a "
                f"noise multiplier of {LEAST_MULTIPLIER:g} costs less in {self.steps} steps. Raise steps or "
                "expected_batch, or lower its epsilon"
            )
        return found


def calibrate_scale(request: PlanRequest) -> Calibration:
    """Return Algorithm 3: one rate, sensitivities whose mean over the records is clip_norm."""
    groups, kinds = request.grouped()
    rate = request.common_rate()
    found = groups.multipliers(rate)
    sensitivities, noise_scale = _sensitivities(groups, found)
    return Calibration(np.full(kinds.size, rate), sensitivities[kinds], noise_scale)


def calibrate_uniform(request: PlanRequest) -> Calibration:
    """Return DP-SGD: everyone as strictly as the strictest owner needs."""
    groups, kinds = request.grouped()
    if not request.past:  # of the owners with one delta only the smallest epsilon matters
        order = np.lexsort([groups.epsilon, groups.delta])
        groups = groups.some(order[np.append(True, np.diff(groups.delta[order]) != 0)])
    rate = request.common_rate()
    multiplier = float(groups.multipliers(rate).max())
    return Calibration(
        np.full(kinds.size, rate), np.full(kinds.size, request.clip_norm), multiplier * request.clip_norm
    )


def calibrate_blend(request: PlanRequest, weight: float) -> Calibration:
    """Return rates and sensitivities that share the work; weight 1 is Algorithm 2 (rates alone), 0 is
    Algorithm 3.

    Multipliers are m * g_n, g_n the multipliers of Algorithm 3 to the power 1 - weight; m is the one for
    which the rates that then spend the budgets give the expected batch.
    """
    if weight == 0:
        return calibrate_scale(request)
    groups, kinds = request.grouped()
    rate = request.common_rate()
    if weight == 1:
        relative = np.ones(groups.epsilon.size)
        start = float(np.median(_few(groups).multipliers(rate)))
    else:
        alone = groups.multipliers(rate)
        start = math.exp(np.average(np.log(alone), weights=groups.sizes))
        relative = (alone / start) ** (1 - weight)
    middle, found = _common_multiplier(groups, relative, start)
    batch = float(np.nansum(found * groups.sizes))
    _refuse(groups, relative, found, middle)
    found = found * (request.expected_batch / batch)
    sensitivities, noise_scale = _sensitivities(groups, middle * relative)
    if weight == 1:
        sensitivities = groups._filled(request.clip_norm)
        noise_scale = middle * request.clip_norm
    return Calibration(found[kinds], sensitivities[kinds], noise_scale)


def _few(request: PlanRequest) -> PlanRequest:
    """Return the middle of the owners by budget: enough for a first guess."""
    order = np.argsort(request.epsilon)
    return request.some(order[[order.size // 2]])


def _sensitivities(request: PlanRequest, found: np.ndarray) -> tuple[np.ndarray, float]:
    """Return sensitivities in inverse proportion to the multipliers, with mean clip_norm over records, and
    the noise.
    """
    noise_scale = request.clip_norm * request.records / float((request.sizes / found).sum())
    return noise_scale / found, noise_scale


def _common_multiplier(request: PlanRequest, relative: np.ndarray, start: float) -> tuple[float, np.ndarray]:
    """Return m such that the rates at the multipliers m * relative give at least the expected batch, and the rates."""

    seen: dict[float, np.ndarray] = {}

    def question(s: np.ndarray, rows: np.ndarray) -> np.ndarray:
        usable = [rates for rates in seen.values() if not np.isnan(rates).any()]
        found = seen[s[0]] = _rates(request, math.exp(-s[0]) * relative, usable[-1] if usable else None)
        total = max(float(np.nansum(found * request.sizes)), 1e-300)  # all rates may be nan: then no batch, not 1 / 0
        return np.array([1 / total])

    found = solve(
        question,
        np.array([1 / request.expected_batch]),
        np.array([-math.log(start)]),
        -math.log(MOST_MULTIPLIER / relative.max()),
        -math.log(LEAST_MULTIPLIER / relative.min()),
        _BATCH,
    )
    if np.isnan(found[0]):
        raise ValueError(
            f"expected_batch {request.expected_batch:g} cannot be reached with noise multipliers up to "
            f"{MOST_MULTIPLIER:g}: "
            "lower expected_batch or steps"
        )
    middle = math.exp(-found[0])
    return middle, seen[found[0]]


def _rates(request: PlanRequest, at: np.ndarray, guess: np.ndarray | None = None) -> np.ndarray:
    """Return the rate at which every owner spends its budget with its multiplier, nan where none keeps it."""
    target, steps = request.epsilon * BELOW_BUDGET, request._filled(request.steps)
    if at.size <= _MANY or (at == at[0]).all() or request.past or (request.delta != request.delta[0]).any():
        return rates(target, request.delta, at, steps, request.past, request.accountant, guess)
    found = _rates_between(request, at, guess)
    if not request.accountant.confirms:
        return found
    exact, _ = request.accountant.epsilon([Segment(np.nan_to_num(found), at, steps)], request.delta)
    off = np.flatnonzero(~((exact <= target) & (exact >= target * (1 - 3 * TARGET_MARGIN / 2)) | (found >= 1)))
    near = np.where(np.isnan(found[off]), LEAST_RATE, found[off])
    found[off] = rates(target[off], request.delta[off], at[off], steps[off], (), request.accountant, near)
    return found


def _rates_between(request: PlanRequest, at: np.ndarray, guess: np.ndarray | None) -> np.ndarray:
    """Return the rates of many owners whose multipliers follow from their budgets: solved for some, read for
    the rest.

    As in accounting.curves: an interval of budgets is trusted once the budget in its middle is met within
    _MET, and all aim TARGET_MARGIN below what they grant.
    """
    order = np.argsort(request.epsilon)
    x, y = np.log(request.epsilon[order]), np.log(at[order])
    count = np.full(1, float(request.steps))

    def solved(points: np.ndarray) -> np.ndarray:
        aim = np.exp(points - TARGET_MARGIN)
        many = np.full(points.size, request.delta[0])
        steps = np.full(points.size, float(request.steps))
        near = None if guess is None else np.exp(np.interp(points, x, np.log(guess[order])))
        return np.asarray(
            np.log(rates(aim, many, np.exp(np.interp(points, x, y)), steps, (), request.accountant, near))
        )

    knots = np.linspace(x[0], x[-1], 4 + int((x[-1] - x[0]) / 0.4))  # a start: more are added where they are needed
    values = solved(knots)
    trusted: set[float] = set()
    for _ in range(_ROUNDS):
        kept = np.isfinite(values)
        left = [i for i in range(knots.size - 1) if knots[i] not in trusted and kept[i] and kept[i + 1]]
        if kept.sum() < 4 or not left:
            break
        middle = (knots[left] + knots[np.array(left) + 1]) / 2
        foreseen = interpolate(knots[kept], values[kept], middle)
        segment = Segment(np.exp(foreseen), np.exp(np.interp(middle, x, y)), count)
        exact, _ = request.accountant.epsilon([segment.rows_of(middle.size)], np.full(middle.size, request.delta[0]))
        # At a rate of 1 an owner may be unable to spend its budget; the caller says so.
        good = (np.abs(np.log(exact) - (middle - TARGET_MARGIN)) <= _MET) | (foreseen >= 0)
        good |= knots[np.array(left) + 1] - knots[left] < _MET
        trusted.update(float(knots[i]) for i, fine in zip(left, good, strict=True) if fine)
        if not good.all():
            new = middle[~good]
            merged = np.concatenate([knots, new])
            place = np.argsort(merged)
            knots, values = merged[place], np.concatenate([values, solved(new)])[place]
    kept = np.isfinite(values)
    found = np.full(at.size, np.nan)
    known = x >= knots[kept][0] if kept.any() else np.zeros(x.size, dtype=bool)
    if kept.any():
        found[order[known]] = np.exp(interpolate(knots[kept], values[kept], x[known]))
    # What is not trusted by now bends too sharply to be read: its owners are solved one by one.
    place = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, knots.size - 2)
    sharp = order[known & np.array([float(knot) not in trusted for knot in knots])[place]]
    if sharp.size:
        rest = request.some(sharp)
        count = np.full(sharp.size, float(request.steps))
        near = None if guess is None else guess[sharp]
        found[sharp] = rates(
            rest.epsilon * (1 - TARGET_MARGIN), rest.delta, at[sharp], count, (), request.accountant, near
        )
    return np.asarray(np.minimum(found, 1.0))


def _refuse(request: PlanRequest, relative: np.ndarray, found: np.ndarray, middle: float) -> None:
    """Raise for the first owner whose budget the rates cannot keep, or cannot spend."""
    for row in np.flatnonzero(np.isnan(found)):
        raise ValueError(
            f"{request.budget(row)} grants too little: at a noise multiplier of {middle * relative[row]:g} not "
            f"even a sample rate of {LEAST_RATE:g} keeps it for {request.steps} steps. Raise expected_batch, lower "
            "steps, raise its epsilon, or account by PLD()"
        )
    full = np.flatnonzero(found >= 1)
    if not full.size:
        return
    bold = int(full[np.argmax(request.epsilon[full])])
    worst = request.some(np.array([bold]))
    ahead = Segment([1.0], [middle * relative[bold]], [request.steps])
    # 0.2 % is more than the search leaves unspent by its tolerances: an owner that spends that much is not refused.
    if request.accountant.epsilon([*worst.past, ahead], worst.delta)[0][0] >= worst.epsilon[0] * (1 - 0.002):
        return
    # The largest batch that fits, less 0.2 %: the suggestion must not fail by a rounding of the search.
    limit = float(worst.multipliers(1.0)[0]) / relative[bold]
    most = float(np.nansum(_rates(request, limit * relative) * request.sizes))
    raise ValueError(
        f"{request.budget(bold)} cannot be spent: its sample rate would have to exceed 1 for an expected batch "
        "of "
        f"{request.expected_batch:g}. Lower expected_batch to {math.floor(0.998 * most)} or less, raise steps, "
        "lower its epsilon, or "
        "let sensitivities take a share (plan_scale, or plan_blend with a smaller weight)"
    )
