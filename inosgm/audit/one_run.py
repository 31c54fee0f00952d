"""A lower bound on epsilon from a single run: how often can membership be guessed rightly?"""

import math

import numpy as np
from scipy import special

from inosgm._internal import validate as _validate
from inosgm.audit.bounds import Bound
from inosgm.audit.claims import Claim

SHARES = (1 / 4, 1 / 16)
"""Which parts of all records are guessed about, the surest ones; each is a try, among which the error is divided."""

FEWEST = 48
"""With fewer guesses than that nothing comes out, so it is not tried."""

MOST_EPSILON = 40.0
"""Bounds are looked for up to it."""


def one_run_bound(
    statistics: np.ndarray,
    members: np.ndarray,
    claim: Claim,
    confidence: float = 0.95,
    *,
    canaries: np.ndarray | None = None,
) -> Bound:
    """Bound epsilon from below by guesses about many records of one run (Steinke, Nasr and Jagielski 2023).

    Half of the guesses say "in", of the records with the largest statistics, and half say "out", of those with the
    smallest; about the others nothing is said. Several independent runs, a row each, count as one run of all of them.

    **Guarantee.** With the stated confidence the bound is at most the epsilon of the owner's records, one added or
    removed, at the claim's delta, if each record was in by its own fair coin, and statistics are functions of what the
    run released and of things that are independent of these coins.

    Args:
        statistics: One number per record; the larger, the more likely a member. NaN is never guessed about.
        members: Which records were in, in the same form.
        claim: What is claimed about the owner whose records they are.
        confidence: Of the bound; the tries with different numbers of guesses are paid for.
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
    halves = [half for share in SHARES if (half := int(share * values.size / 2)) >= FEWEST // 2]
    best, evidence = 0.0, f"too few records to guess: {ranked.size}"
    for half in (half for half in halves if 2 * half <= ranked.size):
        right = int(truth[ranked[ranked.size - half :]].sum() + (~truth[ranked[:half]]).sum())
        found = guessed_epsilon(values.size, 2 * half, right, claim.delta, error / len(halves))
        if found >= best:
            best, evidence = found, f"{right} of {2 * half} guesses right, about {values.size} records"
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
    """Return the greatest epsilon that right guesses refute, 0 if they refute none.

    >>> round(guessed_epsilon(100, 100, 100, 0.0, 0.05), 2)
    3.49
    """
    if chance_of_guesses(records, guesses, right, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, MOST_EPSILON
    while high - low > 1e-4:
        middle = (low + high) / 2
        refuted = chance_of_guesses(records, guesses, right, middle, delta) <= error
        low, high = (middle, high) if refuted else (low, middle)
    return low


def chance_of_guesses(records: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the greatest probability that (epsilon, delta) allows of so many right guesses, from above.

    P(B >= v) + 2 m delta max_i P(v > B >= v - i) / i, B binomial with r trials of probability e^epsilon /
    (1 + e^epsilon): the theorem of Steinke et al. for m records, r guesses of which v are right, and delta above 0.
    """
    probability = 1 / (1 + math.exp(-epsilon))
    beyond = float(special.betainc(right, guesses - right + 1, probability)) if right else 1.0
    # the mean of the masses below v grows towards the mode of B and falls soon after it
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
