"""A lower bound on epsilon from many runs: one record and one threshold, chosen on half of the runs."""

import numpy as np
from scipy import special

from inosgm._internal import validate as _validate
from inosgm.audit.bounds import Bound, Counts, bound_by_counts
from inosgm.audit.claims import Claim

_CHUNK = 1 << 21  # scores that are sorted at once: temporary arrays then take some tens of megabytes


def many_run_bound(scores: np.ndarray, members: np.ndarray, claim: Claim, confidence: float = 0.95) -> Bound:
    """Return a lower bound on epsilon from runs with a record and runs without it.

    The even runs choose the record, and the threshold above which the record is guessed to be in. The guesses in the
    odd runs are counted, and `bound_by_counts` gives the bound.

    **Guarantee.** With the stated confidence a training that keeps the claim is not contradicted, if in every run
    each record was in by its own fair coin.

    Args:
        scores: One row per run, one column per record of the owner: any function of what a run reveals about a record.
            NaN counts as the smallest.
        members: Whether each record was in, in the same form.
        claim: The claim about the owner.
        confidence: The joint confidence of all parts of the bound.

    Raises:
        ValueError: for scores and members that do not pair up.
    """
    _validate.number("confidence", confidence, above=0, most=1)
    scores, members = np.asarray(scores), np.asarray(members, dtype=bool)
    if scores.ndim != 2 or scores.shape != members.shape or not scores.shape[1]:
        raise ValueError(f"scores and members must be tables of one form: got {scores.shape} and {members.shape}")
    record, threshold = choose_test(scores[::2], members[::2])
    column, inside = _without_nan(scores[1::2, record]), members[1::2, record]
    guessed_in = column > threshold
    counts = Counts(
        true_positives=int((guessed_in & inside).sum()),
        members=int(inside.sum()),
        false_positives=int((guessed_in & ~inside).sum()),
        others=int((~inside).sum()),
    )
    return bound_by_counts(counts, claim, confidence)


def choose_test(scores: np.ndarray, members: np.ndarray) -> tuple[int, float]:
    """Return the record and the threshold with the largest z(TPR) - z(FPR), less its standard error, on these runs."""
    best = (-np.inf, 0, np.inf)
    width = max(1, _CHUNK // max(len(scores), 1))
    for start in range(0, scores.shape[1], width):
        merit, record, threshold = _best_of(scores[:, start : start + width], members[:, start : start + width])
        best = max(best, (merit, start + record, threshold), key=lambda entry: entry[0])
    return best[1], best[2]


def _best_of(scores: np.ndarray, members: np.ndarray) -> tuple[float, int, float]:
    """Return the merit of the best test of some records, its record and its threshold."""
    scores = _without_nan(scores)
    order = np.argsort(-scores, axis=0, kind="stable")
    ranked, inside = np.take_along_axis(scores, order, axis=0), np.take_along_axis(members, order, axis=0)
    right, wrong = np.cumsum(inside[:-1], axis=0), np.cumsum(~inside[:-1], axis=0)
    insiders = members.sum(axis=0)
    merit = _merit(right, insiders) - _merit(wrong, len(scores) - insiders, sign=-1.0)
    merit = np.where(ranked[:-1] > ranked[1:], merit, -np.inf)  # a threshold lies between two different scores
    if not merit.size:
        return -np.inf, 0, np.inf
    rank, record = np.unravel_index(int(np.argmax(merit)), merit.shape)
    return float(merit[rank, record]), int(record), float(ranked[rank + 1, record])


def _merit(successes: np.ndarray, trials: np.ndarray, sign: float = 1.0) -> np.ndarray:
    """Return z of a rate, moved by its standard error towards less merit; 1/2 is added so that z is finite."""
    rate = (successes + 0.5) / (trials + 1)
    z = special.ndtri(rate)
    slope = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(z - sign * np.sqrt(rate * (1 - rate) / (trials + 1)) / slope)


def _without_nan(scores: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(scores), -np.inf, scores)
