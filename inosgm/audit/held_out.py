"""Bounds from a statistic of many runs: some runs choose the threshold of a test, and the others are counted."""

import numpy as np

from inosgm.audit.bounds import Bound, Counts, best_level, bound_by_counts, refuted_scale
from inosgm.audit.claims import Claim

HELD_OUT = 0.1
"""The share of all runs that choose the threshold of a test; only the others are counted."""

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


def bound_of_runs(without: np.ndarray, with_record: np.ndarray, claim: Claim, error: float) -> Bound:
    """Return the bound from the counts of later runs, with a threshold chosen by the first ones.

    Args:
        without: A statistic for each run without the record; runs are alike, or shuffled.
        with_record: As many for runs with it; larger ones speak for the record.
        claim: The claim.
        error: The probability that a true claim is refuted.
    """
    first = int(HELD_OUT * without.size)
    threshold = _threshold(without[:first], with_record[:first], claim, without.size - first, error)
    return bound_by_counts(_counts(without[first:], with_record[first:], threshold), claim, 1 - error)


def _threshold(without: np.ndarray, with_record: np.ndarray, claim: Claim, runs: int, error: float) -> float:
    """Return the threshold with the best rate of false positives if the claim is true.

    If the claim does not seem true, return the threshold that refutes most.
    """

    def refuted(threshold: float) -> float:
        return refuted_scale(_counts(without, with_record, threshold), claim, error, roughly=True)

    threshold = float(np.quantile(without, 1 - best_level(claim, runs, error)))
    if refuted(threshold) < 1:
        return threshold
    thresholds: list[float] = np.quantile(np.concatenate([without, with_record]), _SHARES).tolist()
    return max(thresholds, key=refuted)


def _counts(without: np.ndarray, with_record: np.ndarray, threshold: float) -> Counts:
    return Counts(
        true_positives=int((with_record > threshold).sum()),
        members=with_record.size,
        false_positives=int((without > threshold).sum()),
        others=without.size,
    )
