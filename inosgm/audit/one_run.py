"""A lower bound on epsilon from a single run: by the number of correct guesses about membership."""

import math

import numpy as np
from scipy import special

from inosgm._internal import validate as _validate
from inosgm.audit.bounds import MOST_EPSILON, Bound
from inosgm.audit.claims import Claim

SHARES = (1 / 4, 1 / 16)
"""Shares of all records that are guessed about, the most certain ones first; the error is divided between them."""

FEWEST_GUESSES = 48
"""Smallest number of guesses: fewer give no bound above 0 with the usual confidence."""


def one_run_bound(
    statistics: np.ndarray,
    members: np.ndarray,
    claim: Claim,
    confidence: float = 0.95,
    *,
    canaries: np.ndarray | None = None,
) -> Bound:
    """Return a lower bound on epsilon by guesses about many records of one run (Steinke, Nasr and Jagielski 2023).

    Half of the guesses are "in", for the records with the largest statistics, and half "out", for those with the
    smallest; there is no guess about the others. Several independent runs, a row each, count as one run of all.

    **Guarantee.** With the stated confidence the bound is at most the epsilon of the owner's records, one added or
    removed, at the claim's delta, if each record was in by its own fair coin, and statistics are functions of what the
    run released and of things that are independent of these coins.

    Args:
        statistics: One number per record; the larger, the more likely a member. NaN is never guessed about.
        members: Whether each record was in, in the same form.
        claim: The claim about the owner of the records.
        confidence: The confidence of the bound, over all numbers of guesses together.
        canaries: Positions of the records to guess about, chosen without looking at members or statistics; all if not
            given.

    Raises:
        ValueError: for statistics and members that do not pair up.
    """
    error = 1 - _validate.number("confidence", confidence, above=0, most=1)
    statistics, members = np.asarray(statistics), np.asarray(members, dtype=bool)
    if statistics.shape != members.shape:
        raise ValueError(f"statistics and members must pair up: got {statistics.shape} and {members.shape}")
    if canaries is not None:
        statistics, members = statistics[..., canaries], members[..., canaries]
    values, truth = statistics.ravel(), members.ravel()
    known = np.flatnonzero(~np.isnan(values))
    ranked = known[np.argsort(values[known], kind="stable")]
    halves = [half for share in SHARES if (half := int(share * values.size / 2)) >= FEWEST_GUESSES // 2]
    best, evidence = 0.0, f"too few records to guess: {ranked.size}"
    for half in (half for half in halves if 2 * half <= ranked.size):
        right = int(truth[ranked[ranked.size - half :]].sum() + (~truth[ranked[:half]]).sum())
        refuted = guessed_epsilon(values.size, 2 * half, right, claim.delta, error / len(halves))
        if refuted >= best:
            best, evidence = refuted, f"{right} of {2 * half} guesses right, about {values.size} records"
    return Bound(
        epsilon=best,
        delta=claim.delta,
        confidence=confidence,
        route="one run",
        contradicts=best > claim.spent,
        plain=best,
        scale=None,
        evidence=evidence,
    )


def guessed_epsilon(records: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return the largest epsilon that the number of correct guesses refutes, or 0 if there is none.

    >>> round(guessed_epsilon(100, 100, 100, 0.0, 0.05), 2)
    3.49
    """
    if chance_of_guesses(records, guesses, right, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, MOST_EPSILON
    while high - low > 1e-4:  # finer than any bound is shown
        middle = (low + high) / 2
        refuted = chance_of_guesses(records, guesses, right, middle, delta) <= error
        low, high = (middle, high) if refuted else (low, middle)
    return low


def chance_of_guesses(records: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of so many correct guesses under (epsilon, delta).

    P(B >= v) + 2 m delta max_i P(v > B >= v - i) / i, B binomial with r trials of probability e^epsilon /
    (1 + e^epsilon): the theorem of Steinke et al. for m records, r guesses of which v are right, and delta above 0.
    """
    probability = 1 / (1 + math.exp(-epsilon))
    beyond = float(special.betainc(right, guesses - right + 1, probability)) if right else 1.0
    # the mean of the masses below v grows towards the mode of B and falls soon after it: 12 standard deviations suffice
    spread = math.sqrt(guesses * probability * (1 - probability))
    reach = np.arange(1, int(min(right, max(right - guesses * probability, 0) + 12 * spread + 12)) + 1)
    if not reach.size or not delta:
        return min(beyond, 1.0)
    below = np.cumsum(_binomial_mass(right - reach, guesses, epsilon))
    return min(beyond + 2 * records * delta * float((below / reach).max()), 1.0)


def _binomial_mass(successes: np.ndarray, trials: int, epsilon: float) -> np.ndarray:
    """Return the mass of a binomial distribution of probability e^epsilon / (1 + e^epsilon)."""
    failures = trials - successes
    ways = special.gammaln(trials + 1) - special.gammaln(successes + 1) - special.gammaln(failures + 1)
    return np.asarray(np.exp(ways - successes * np.logaddexp(0, -epsilon) - failures * np.logaddexp(0, epsilon)))
