"""Lower bounds on epsilon from the counts of a test: the smallest leak that explains how often it was right."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from inosgm._internal import validate as _validate
from inosgm.accounting import PLDReplaceOne, epsilon
from inosgm.accounting.discrete import Change
from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.accounting.pld import LEAST_DELTA
from inosgm.accounting.tradeoff import Power, plain_power, sampled_gaussian_power
from inosgm.accounting.units import REPLACE_ONE
from inosgm.audit.claims import Claim

RESOLUTION = 1000
"""Scales and epsilons are searched in steps of 1/1000, rounded down, so that a bound is never too large."""

MOST_SCALE = 1000.0
"""Leaks are searched between 1/1000 of the claimed sensitivity and 1000 times as much: no real leak is outside."""

MOST_EPSILON = 40.0
"""Largest bound without assumptions that is searched; a larger one needs 1e17 runs."""

_FINE, _COARSE = 2000, 250  # points of the grid of false-positive rates, for a bound and for the choice of a level
# candidates for the false-positive rate of a test; the likely ones first, because ties go to the first
_LEVELS = (0.3, 0.2, 0.4, 0.5, 0.1, 0.6, 0.05, 0.7, 0.02, 0.8, 0.01, 0.9, 0.005, 0.95, 0.002, 0.001)
_ACCOUNTED_ABOVE = 1.0005  # an accounted epsilon may exceed the true one by this factor, and a lower bound must not


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A lower bound on the epsilon of an owner's records, in the unit of the claim.

    **Guarantee.** With the stated confidence a mechanism that keeps the claim gives no `contradicts`, whatever else is
    true of it. `plain` is, with that confidence and jointly with `contradicts`, at most the true epsilon, whatever the
    mechanism. `epsilon` of the Gaussian routes is tighter, and assumes that the mechanism leaks like the claimed one
    with another sensitivity. A bound does not show privacy: a better attack may find more.

    Attributes:
        epsilon: A lower bound on the epsilon that is spent, at delta.
        delta: The delta of the claim.
        confidence: The confidence of the bound.
        route: The method: "gaussian", "sampled gaussian" or "one run".
        contradicts: Whether the claim is refuted.
        plain: A lower bound on the epsilon that is spent, without assumptions about the mechanism.
        scale: The smallest multiple of the claimed sensitivity that explains the counts; None in one run.
        evidence: The counts as text.
    """

    epsilon: float
    delta: float
    confidence: float
    route: str
    contradicts: bool
    plain: float
    scale: float | None
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The number of times that a test fixed in advance said "in", for records that were in and that were not.

    All outcomes must be independent of each other.
    """

    true_positives: int
    members: int
    false_positives: int
    others: int

    def __str__(self) -> str:
        return (
            f"said of {self.true_positives} of {self.members} members and of {self.false_positives} of "
            f"{self.others} others"
        )


def clopper_pearson(successes: int, trials: int, error: float) -> tuple[float, float]:
    """Return a lower and an upper bound on a probability, each wrong with probability `error` at most.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> low, round(high, 4)
    (0.0, 0.0295)
    """
    low = special.betaincinv(successes, trials - successes + 1, error) if successes else 0.0
    high = special.betainccinv(successes + 1, trials - successes, error) if successes < trials else 1.0
    return float(low), float(high)


class Refutation:
    """The claims that counts refute.

    For every false-positive rate the exact binomial tails of both counts (those of Clopper and Pearson) are two
    independent p-values of "this is the rate, and the power is at most the allowed one"; Fisher's method combines them.
    A claim about the power of tests is refuted if the p-value is at most `error` for all rates.

    **Guarantee.** A true claim is refuted with probability `error` at most: rates between two points of the grid
    get the greater tail of either end.

    Args:
        counts: The counts of a test that was fixed in advance.
        points: The number of points of the grid of rates; a coarse grid refutes a little less.

    >>> from inosgm.accounting.tradeoff import gaussian_power
    >>> refutation = Refutation(Counts(true_positives=900, members=1000, false_positives=100, others=1000))
    >>> refutation.refutes(gaussian_power(2.3), 0.05), refutation.refutes(gaussian_power(2.5), 0.05)
    (True, False)
    """

    def __init__(self, counts: Counts, points: int = _FINE) -> None:
        logits = np.linspace(-26.0, 26.0, points)  # tails from 5e-12 on; beyond, a claim is not refuted
        wrong, right = counts.false_positives, counts.true_positives
        self._hopeless = wrong == counts.others or not right
        if not self._hopeless:
            self._levels = special.betaincinv(wrong + 1, counts.others - wrong, special.expit(logits))
            self._few = np.append(1.0, special.expit(-logits))  # P(as few false positives) at 0 and at every level
            self._shape = (right, counts.members - right + 1)

    def refutes(self, power: Power, error: float) -> bool:
        """Return whether the counts refute that no test has more than this power."""
        if self._hopeless:
            return False
        many = np.append(special.betainc(*self._shape, np.clip(power(self._levels), 0.0, 1.0)), 1.0)
        product = self._few * many
        with np.errstate(divide="ignore", invalid="ignore"):
            combined = np.where(product > 0, product * (1 - np.log(product)), 0.0)
        return bool(combined.max() <= error)


def bound_by_counts(counts: Counts, claim: Claim, confidence: float) -> Bound:
    """Return a lower bound on epsilon from counts, with the claimed trade-off of false and true positives and without.

    The bound follows from the largest multiple of the claimed sensitivity that the counts refute; without sampling this
    is mu = z(1 - FPR) + z(1 - FNR) with confidence, the Gaussian route. If the claim itself is refuted, its sample rate
    may be wrong instead: the largest refuted multiple of the rate is used if it gives a smaller epsilon.

    Args:
        counts: The counts of a test that was fixed in advance.
        claim: The claim. One with hardly any noise is never refuted, and its bound is the plain one.
        confidence: The joint confidence of all parts of the bound.
    """
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    scale = refuted_scale(counts, claim, error)
    least = epsilon_of_scale(claim, scale)
    boundless = math.isinf(claim.spent)
    refuted = scale >= 1 and not boundless
    if refuted and claim.sample_rate < 1:
        factor = _refuted_multiple(counts, lambda multiple: _with_rate(claim, multiple), error)
        least = min(least, _epsilon_from_below(_with_rate(claim, factor), claim.delta))
    refutation = Refutation(counts)
    plain = _greatest(lambda guess: refutation.refutes(plain_power(guess, claim.delta), error), 0.0, MOST_EPSILON)
    return Bound(
        epsilon=plain if boundless else max(least, plain),
        delta=claim.delta,
        confidence=confidence,
        route="gaussian" if claim.sample_rate == 1 or boundless else "sampled gaussian",
        contradicts=refuted,
        plain=plain,
        scale=None if boundless else scale,
        evidence=str(counts),
    )


def refuted_scale(counts: Counts, claim: Claim, error: float, *, roughly: bool = False) -> float:
    """Return the largest multiple of the claimed sensitivity that counts refute, or 0 if they refute none.

    For a claim with hardly any noise, it is the largest refuted mu of a Gaussian.
    """
    return _refuted_multiple(counts, lambda multiple: _with_scale(claim, multiple), error, roughly=roughly)


@lru_cache(maxsize=64)
def best_level(claim: Claim, runs: int, error: float) -> float:
    """Return the false-positive rate at which a number of runs gives the best bound, if the claim is true."""
    power = sampled_gaussian_power(*_with_scale(claim, 1.0))

    def expected(level: float) -> float:
        right = int(runs * float(power(np.array(level))))
        wrong = math.ceil(runs * level)
        counts = Counts(true_positives=right, members=runs, false_positives=wrong, others=runs)
        return refuted_scale(counts, claim, error, roughly=True)

    return max(_LEVELS, key=expected)


def epsilon_of_scale(claim: Claim, scale: float) -> float:
    """Return a lower bound on the epsilon of the claim with a multiple of its sensitivity."""
    return _epsilon_from_below(_with_scale(claim, scale), claim.delta) if scale else 0.0


Steps = tuple[float, float, int, Change]
"""A sample rate, noise over the distance that a change moves a sum, a number of steps, and the change."""


def _with_scale(claim: Claim, scale: float) -> Steps:
    if math.isinf(claim.spent):
        return 1.0, 1 / scale, 1, "removed"
    return _steps(claim, claim.sample_rate, claim.noise_multiplier / scale)


def _with_rate(claim: Claim, multiple: float) -> Steps:
    """Return the claim with a multiple of its rate; a factor beyond rate 1 multiplies the sensitivity."""
    rate = claim.sample_rate * multiple
    return _steps(claim, min(rate, 1.0), claim.noise_multiplier / max(rate, 1.0))


def _steps(claim: Claim, rate: float, multiplier: float) -> Steps:
    if claim.relation == REPLACE_ONE:
        return rate, multiplier / 2, claim.steps, "replaced"
    return rate, multiplier, claim.steps, "removed"


def _epsilon_from_below(steps: Steps, delta: float) -> float:
    rate, multiplier, count, change = steps
    if rate == 1:
        return float(gaussian_epsilon(math.sqrt(count) / multiplier, delta)) * (1 - 1e-9)  # rounding must not raise it
    if delta < LEAST_DELTA:  # the accountant has no answer below it, so only the plain bound remains
        return 0.0
    if change == "replaced":
        return float(epsilon(rate, 2 * multiplier, count, delta, PLDReplaceOne())) / _ACCOUNTED_ABOVE
    return float(epsilon(rate, multiplier, count, delta)) / _ACCOUNTED_ABOVE


def _refuted_multiple(counts: Counts, steps: Callable[[float], Steps], error: float, *, roughly: bool = False) -> float:
    """Return the largest multiple for which the power of the steps is refuted, or 0 if there is none."""
    refutation = Refutation(counts, _COARSE if roughly else _FINE)

    def refuted(log_multiple: float) -> bool:
        return refutation.refutes(sampled_gaussian_power(*steps(math.exp(log_multiple))), error)

    most = math.log(MOST_SCALE)
    log_multiple = _greatest(refuted, -most, most, 50 if roughly else RESOLUTION)
    return 0.0 if log_multiple == -most else math.exp(log_multiple)


def _greatest(holds: Callable[[float], bool], least: float, most: float, resolution: int = RESOLUTION) -> float:
    """Return the largest multiple of 1 / resolution for which a falling predicate holds, or `least` if none."""
    below, above = math.floor(least * resolution), math.floor(most * resolution) + 1
    low, high = below, above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle / resolution) else (low, middle)
    return low / resolution if low > below else least
