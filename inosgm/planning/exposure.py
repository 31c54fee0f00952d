"""What an attacker can learn about a record under a plan, and how much of it is due to the budgets of other owners.

An (epsilon, delta) is one point of a trade-off curve: the largest true-positive rate of any membership attack at each
false-positive rate. Two plans may give an owner the same (epsilon, delta) and different curves. If owners are told
apart by sample rates, the curve of one owner follows from the budgets of all others (Kaiser et al. 2026, "Your privacy
depends on others"). They propose to promise (epsilon, delta, Delta), where Delta bounds this excess by the
Delta-divergence from the curve of a reference (Kaissis et al. 2024): the least k >= 0 such that no attack has more than
k true positives beyond those of the reference, at k false positives more. Here the reference is the plan that gives
this owner's budget to everybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from inosgm._internal import text
from inosgm.accounting import Segment, chosen
from inosgm.accounting.accountants import ACCOUNTANTS
from inosgm.accounting.discrete import Change
from inosgm.accounting.inverses import multipliers
from inosgm.accounting.segments import undominated
from inosgm.accounting.tradeoff import Power, Stretch, composed_power
from inosgm.accounting.unique_rows import unique_rows
from inosgm.accounting.units import REPLACE_ONE, relation_of
from inosgm.owners import Label

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
"""The false-positive rates at which exposures are reported."""

MAX_KINDS = 1000
"""Largest number of different budgets whose curves are computed: each takes some tens of milliseconds."""

LEAST_RATE = 1e-6
"""The least rate of either error at which curves are compared: below it they are known less precisely, because
truncation adds `inosgm.accounting.tradeoff.LOST` to them."""

LEVELS = special.ndtr(np.linspace(special.ndtri(LEAST_RATE), -special.ndtri(LEAST_RATE), 4001))
"""False-positive rates at which curves are compared, equally spaced on the normal scale."""

PlanNumbers = Any  # a Plan: its module imports this one


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposure:
    """How exposed a record of each owner is, as one number per owner. All of it is public.

    Attributes:
        labels: The owners.
        advantage: The largest difference between the true-positive and the false-positive rate of any attack.
        true_positive_rate: The largest true-positive rate of any attack: one row per owner, one column for each of
            `false_positive_rates`.
        false_positive_rates: .001, .01 and .1.
        mu: The least mu with which a Gaussian mechanism is at least as easy to attack, wherever both errors of an
            attack have rates of at least 1e-6; infinite if an attack has both below that.
        excess: Delta, how much easier an attack is than under the plan that gives the budget of this owner to
            everybody; 0 if it is not easier at all. NaN if the plan knows no budgets.
    """

    labels: tuple[Label, ...]
    advantage: np.ndarray
    true_positive_rate: np.ndarray
    mu: np.ndarray
    excess: np.ndarray
    false_positive_rates: tuple[float, ...] = FALSE_POSITIVE_RATES

    def report(self) -> str:
        """Return a table for people, one row per owner."""
        rates = [f"TPR at FPR {rate:g}" for rate in self.false_positive_rates]
        rows = [
            [str(label), *(f"{value:.3g}" for value in (advantage, *powers, mu, excess))]
            for label, advantage, powers, mu, excess in zip(
                self.labels, self.advantage, self.true_positive_rate, self.mu, self.excess, strict=True
            )
        ]
        return "\n".join(text.columns(["owner", "advantage", *rates, "mu", "Delta"], rows))


def exposure_of(plan: PlanNumbers, labels: Sequence[Label] | None = None) -> Exposure:
    """Return the exposure of owners under a plan; `Plan.exposure` documents it."""
    places = {label: place for place, label in enumerate(plan.labels)}
    unknown = [label for label in labels or () if label not in places]
    if unknown:
        raise ValueError(f"labels must be owners of the plan, got {unknown[0]!r}")
    rows = np.array([places[label] for label in (plan.labels if labels is None else labels)], dtype=np.int64)
    segments = [segment.rows(rows) for segment in plan.segments_until(plan.steps)]
    grants = [] if plan.epsilon is None else [plan.epsilon[rows], plan.delta[rows]]
    first, kinds = unique_rows([*grants, *(column for segment in segments for column in segment.columns())])
    if first.size > MAX_KINDS:
        raise ValueError(f"labels must name owners of at most {MAX_KINDS} kinds, got {first.size}: choose some of them")
    change: Change = "replaced" if relation_of(plan.unit) == REPLACE_ONE else "removed"
    found = [composed_power(_stretches(segments, row), change) for row in first.tolist()]
    powers = np.array([power(LEVELS) for power in found])
    excess = np.full(first.size, np.nan)
    if grants:
        alone = [composed_power(row, change) for row in _alone(plan, rows[first])]
        excess = np.array([_excess(values, power) for values, power in zip(powers, alone, strict=True)])
    named = np.array([power(np.array(FALSE_POSITIVE_RATES)) for power in found])
    inner = np.where(powers <= 1 - LEAST_RATE, powers, LEVELS)  # a power of 1 is rounded up from below it
    mu = np.maximum(special.ndtri(inner) - special.ndtri(LEVELS), 0.0).max(axis=1)
    mu[powers[:, 0] > 1 - LEAST_RATE] = np.inf  # no level is left to compare at
    return Exposure(
        labels=tuple(plan.labels[row] for row in rows.tolist()),
        advantage=np.array([_advantage(row) for row in powers])[kinds],
        true_positive_rate=np.clip(named, FALSE_POSITIVE_RATES, 1.0)[kinds],
        mu=mu[kinds],
        excess=excess[kinds],
    )


def _stretches(segments: Sequence[Segment], row: int) -> list[Stretch]:
    """Return what happens to a record of one row."""
    stretches = []
    for segment in segments:
        menu = undominated(np.atleast_1d(segment.sample_rate[row]), np.atleast_1d(segment.noise_multiplier[row]))
        entries = tuple(zip(*(values.tolist() for values in menu), strict=True))
        if entries:
            stretches.append((entries, int(segment.steps[row])))
    return stretches


def _alone(plan: PlanNumbers, rows: np.ndarray) -> list[list[Stretch]]:
    """Return the steps of the plans that give the budget of each row to everybody, after the same past."""
    rate = min(plan.expected_batch / float(plan.sizes.sum()), 1.0)
    past = [segment.rows(rows) for segment in plan.past]
    noise = multipliers(
        plan.epsilon[rows],
        plan.delta[rows],
        np.full(rows.size, rate),
        np.full(rows.size, float(plan.steps)),
        past,
        chosen(ACCOUNTANTS[plan.accountant]),
    )
    return [
        [*_stretches(past, row), *([(((rate, float(noise[row])),), plan.steps)] if np.isfinite(noise[row]) else [])]
        for row in range(rows.size)
    ]


def _advantage(powers: np.ndarray) -> float:
    """Return the largest distance of a curve from its levels, not below it between them.

    A curve is concave. So between two levels it is below the line through the two levels before, and below that through
    the two after; below the first level it is at most as high as there.
    """
    slopes, steps, gaps = np.diff(powers) / np.diff(LEVELS), np.diff(LEVELS), powers - LEVELS
    before = gaps[1:-2] + np.maximum(slopes[:-2] - 1, 0.0) * steps[1:-1]
    after = gaps[2:-1] + np.maximum(1 - slopes[2:], 0.0) * steps[1:-1]
    most = max(powers[0], gaps.max(), np.minimum(before, after).max(), gaps[1] + steps[0], gaps[-2])
    return float(np.clip(most, 0.0, 1.0))


def _excess(powers: np.ndarray, reference: Power) -> float:
    """Return the least k >= 0 with powers <= reference(levels + k) + k at all levels."""
    low, high = 0.0, 1.0
    if (powers <= reference(LEVELS)).all():
        return 0.0
    for _ in range(40):  # halves the interval to 1e-12
        middle = (low + high) / 2
        holds = (powers <= reference(np.minimum(LEVELS + middle, 1.0)) + middle).all()
        low, high = (low, middle) if holds else (middle, high)
    return high
