"""Lower bounds on epsilon from counts: what is the least leak that explains how often a test was right?"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from inosgm import _validate
from inosgm.accounting import epsilon
from inosgm.accounting.gaussian import gaussian_epsilon
from inosgm.audit.claims import Claim
from inosgm.audit.tradeoff import Power, gaussian_power, plain_power, sampled_gaussian_power

RESOLUTION = 1000
"""Scales and epsilons are looked for in steps of a thousandth, rounded down."""

MOST_SCALE = 1000.0
"""Leaks are looked for between a thousandth of the claimed sensitivity and a thousand times as much."""

_FINE, _COARSE = 4000, 250
_ACCOUNTED_ABOVE = 1.0005  # an accounted epsilon may be that much above the true one, and here it must not be


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A lower bound on the epsilon of an owner's records, one record added or removed.

    **Guarantee.** With the stated confidence a mechanism that keeps the claim gives no `contradicts`, whatever else is
    true of it. `plain` is, with that confidence and all at once with `contradicts`, at most the epsilon of any
    mechanism whatever. `epsilon` of the Gaussian routes is tighter, and takes for granted that the mechanism leaks like
    the claimed one with another sensitivity. It says nothing about privacy: a better attack may find more.

    Attributes:
        epsilon: At least so much is spent, at delta.
        delta: The delta of the claim.
        confidence: How sure it is.
        route: How it was found: "gaussian", "sampled gaussian" or "one run".
        contradicts: Whether the claim is refuted.
        plain: At least so much is spent, with nothing taken for granted.
        scale: How many times the claimed sensitivity (over the noise) explains the counts, at least; None in one run.
        evidence: The counts, for people.
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
    """How often a test that was fixed before said "in": about records that were in, and about records that were not.

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
    """What counts refute.

    For every false-positive rate the exact binomial tails of both counts (those of Clopper and Pearson) are two
    independent p-values of "this is the rate, and the power is at most what it may be"; Fisher's product makes one of
    the two. A claim about the power of tests is refuted if the p-value is at most `error` for all rates.

    **Guarantee.** A true claim is refuted with probability `error` at most: rates between two points of the grid
    get the greater tail of either end.

    Args:
        counts: Of a test that was fixed before.
        points: How fine the grid of rates is; a coarse one refutes a little less.

    >>> from inosgm.audit.tradeoff import gaussian_power
    >>> refutation = Refutation(Counts(true_positives=900, members=1000, false_positives=100, others=1000))
    >>> refutation.refutes(gaussian_power(2.3), 0.05), refutation.refutes(gaussian_power(2.5), 0.05)
    (True, False)
    """

    def __init__(self, counts: Counts, points: int = _FINE) -> None:
        logits = np.linspace(-26.0, 26.0, points)
        wrong, right = counts.false_positives, counts.true_positives
        self._hopeless = wrong == counts.others or not right
        if not self._hopeless:
            self._levels = special.betaincinv(wrong + 1, counts.others - wrong, special.expit(logits))
            self._few = np.append(1.0, special.expit(-logits))  # P(as few false positives) at 0 and at every level
            self._shape = (right, counts.members - right + 1)

    def refutes(self, power: Power, error: float) -> bool:
        """Say whether the counts refute that no test has more than this power."""
        if self._hopeless:
            return False
        many = np.append(special.betainc(*self._shape, np.clip(power(self._levels), 0.0, 1.0)), 1.0)
        product = self._few * many
        with np.errstate(divide="ignore", invalid="ignore"):
            combined = np.where(product > 0, product * (1 - np.log(product)), 0.0)
        return bool(combined.max() <= error)


def bound_by_counts(counts: Counts, claim: Claim, confidence: float) -> Bound:
    """Bound epsilon by counts: by the claimed trade-off between false and true positives, and with nothing claimed.

    The greatest multiple of the claimed sensitivity that the counts refute is looked for; without sampling this is
    mu = z(1 - FPR) + z(1 - FNR) with confidence, the Gaussian route.

    Args:
        counts: Of a test that was fixed before.
        claim: What to refute. Of one with hardly any noise nothing is refuted; its bound is that of a Gaussian.
        confidence: Of all that the bound says.
    """
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    scale = refuted_scale(counts, claim, error)
    refutation = Refutation(counts)
    plain = _greatest(lambda guess: refutation.refutes(plain_power(guess, claim.delta), error), 0.0, 40.0)
    return Bound(
        epsilon=max(epsilon_of_scale(claim, scale), plain),
        delta=claim.delta,
        confidence=confidence,
        route="gaussian" if claim.sample_rate == 1 or _boundless(claim) else "sampled gaussian",
        contradicts=scale >= 1 and not _boundless(claim),
        plain=plain,
        scale=None if _boundless(claim) else scale,
        evidence=str(counts),
    )


def refuted_scale(counts: Counts, claim: Claim, error: float, *, roughly: bool = False) -> float:
    """Return the greatest multiple of the claimed sensitivity that counts refute, 0 if they refute none."""
    refutation = Refutation(counts, _COARSE if roughly else _FINE)

    def refuted(log_scale: float) -> bool:
        return refutation.refutes(_power(claim, math.exp(log_scale)), error)

    most = math.log(MOST_SCALE)
    found = _greatest(refuted, -most, most)
    return 0.0 if found == -most else math.exp(found)


def epsilon_of_scale(claim: Claim, scale: float) -> float:
    """Return the epsilon of what is claimed with a multiple of the sensitivity, from below."""
    if not scale:
        return 0.0
    if _boundless(claim) or claim.sample_rate == 1:
        mu = scale if _boundless(claim) else scale * math.sqrt(claim.steps) / claim.noise_multiplier
        return float(gaussian_epsilon(mu, claim.delta)) * (1 - 1e-9)
    return (
        float(epsilon(claim.sample_rate, claim.noise_multiplier / scale, claim.steps, claim.delta)) / _ACCOUNTED_ABOVE
    )


def _boundless(claim: Claim) -> bool:
    return math.isinf(claim.spent)


def _power(claim: Claim, scale: float) -> Power:
    if _boundless(claim):
        return gaussian_power(scale)
    return sampled_gaussian_power(claim.sample_rate, claim.noise_multiplier / scale, claim.steps)


def _greatest(holds: Callable[[float], bool], least: float, most: float) -> float:
    """Return the greatest number in thousandths for which a falling predicate holds, `least` if it holds for none."""
    low, high = 0, math.floor((most - least) * RESOLUTION) + 1
    begin = math.ceil(least * RESOLUTION)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds((begin + middle) / RESOLUTION) else (low, middle)
    return (begin + low) / RESOLUTION if low else least
