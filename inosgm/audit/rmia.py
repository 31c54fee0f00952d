"""RMIA: how much a model prefers a record to what is usual, compared with how much it prefers other records."""

import numpy as np
from scipy.special import expit

from inosgm._internal import validate as _validate
from inosgm.audit.attack import Attack
from inosgm.audit.fits import Columns, slices
from inosgm.audit.pool import Shadows

CERTAIN = 1 - 2.0**-53
"""Largest 1 - p: the logarithm of p is taken."""


class Rmia(Attack):
    """The robust membership inference attack (Zarifzadeh, Liu and Shokri, arXiv 2312.03262).

    A record's ratio is p(record | target) / p(record): the probability that the target gives to the true class, over
    what models usually give, half of them trained with the record and half without. The statistic is the share of
    all records z of the pool with ratio(record) / ratio(z) >= gamma. It needs few shadow models, one at least.

    Scores are taken for log odds, p = 1 / (1 + exp(-score)). Where a record was in all shadow models, or in none, the
    other half follows from 1 - p_in = a (1 - p_out). The offline form uses this for all records, and so the shadow
    models without the record only: p(record) = ((1 + a) p_out + 1 - a) / 2. The paper chooses a on shadow models; here
    it is the mean of 1 - p over all members of all other shadow models divided by that over all others, and 1 at most.

    Args:
        offline: Whether p(record) follows from the shadow models without the record alone.
        gamma: The threshold of ratios. The paper takes 2 for models without privacy. Ratios of private models rarely
            differ by that much, so that most statistics would be tied at 0; hence the default 1.
        coefficient: The coefficient a, between 0 and 1, instead of the computed one.

    Raises:
        ValueError: for a gamma that is not positive, and for a coefficient outside [0, 1].

    >>> shadows = Shadows(  # p is 1/2 in one model with each record and 1/4 in one without: 3/8 is usual
    ...     scores=np.log(np.array([[1.0, 1 / 3, 1.0], [1 / 3, 1.0, 1 / 3]])).astype(np.float32),
    ...     members=np.array([[True, False, True], [False, True, False]]),
    ...     owners=np.zeros(3, np.int64), labels=("a",), asked=2,
    ... )
    >>> Rmia().against(shadows, np.array([1.0, 0.0, -1.0]))  # three records, the first preferred to all three
    array([1.        , 0.6666667 , 0.33333334], dtype=float32)
    """

    def __init__(self, *, offline: bool = False, gamma: float = 1.0, coefficient: float | None = None) -> None:
        self.name = "rmia-offline" if offline else "rmia"
        self._offline = offline
        self._log_gamma = float(np.log(_validate.number("gamma", gamma, above=0)))
        if coefficient is not None:
            coefficient = _validate.number("coefficient", coefficient, least=0, most=1)
        self._coefficient = coefficient

    def _statistics(self, shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
        if self._coefficient is None:
            coefficients = _coefficients(shadows, targets, outside)[:, None]
        else:
            coefficients = np.full((len(targets), 1), self._coefficient)
        ratios = np.empty((len(targets), shadows.records), np.float32)
        for records in slices(shadows):
            here = Columns(shadows, records, targets, outside, doubt)
            ratios[:, records] = _log(here.scores) - _log(self._usual(here, coefficients))
        for row in ratios:
            row[:] = self._share_beaten(row)
        return ratios

    def _usual(self, columns: Columns, coefficients: np.ndarray) -> np.ndarray:
        """Return 1 - p(record): the mean with and without the record."""
        _, without = columns.means(False)
        if self._offline:
            return np.asarray((1 + coefficients) / 2 * without)
        count, with_record = columns.means(True)
        with_record = np.where(count > 0, with_record, coefficients * without)
        supposed = np.minimum(with_record / np.where(coefficients > 0, coefficients, 1), 1)
        return np.asarray((with_record + np.where(np.isnan(without), supposed, without)) / 2)

    def _share_beaten(self, ratios: np.ndarray) -> np.ndarray:
        """Return for each record of one target the share of records whose ratio is smaller by a factor of gamma."""
        order = np.argsort(ratios)  # NaN last
        ranked = ratios[order]
        known = ranked[: ranked.size - np.count_nonzero(np.isnan(ranked))]
        shares = np.full(ratios.size, np.nan, np.float32)
        shares[order[: known.size]] = np.searchsorted(known, known - np.float32(self._log_gamma), "right")
        return np.asarray(shares / max(known.size, 1))


def doubt(scores: np.ndarray) -> np.ndarray:
    """Return 1 - p, of which scores are minus the log odds; it is exact where p is nearly 1."""
    return np.asarray(expit(-scores))


def _log(doubts: np.ndarray) -> np.ndarray:
    """Return log p."""
    return np.asarray(np.log1p(-np.minimum(doubts, CERTAIN)))


def _coefficients(shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
    """Return the mean of 1 - p of members over that of others, for all shadow models but each target; 1 at most."""
    sums, counts = np.zeros((2, 2, shadows.count))
    for row, (scores, members) in enumerate(zip(shadows.scores, shadows.members, strict=True)):
        finite = np.isfinite(scores)
        doubts = doubt(np.where(finite, scores, np.inf))
        for group in (0, 1):
            chosen = members == bool(group)
            sums[group, row], counts[group, row] = doubts @ chosen, (chosen & finite).sum()
    own = 1 if outside is None else 0
    totals, sizes = (each.sum(axis=1, keepdims=True) - own * each[:, targets] for each in (sums, counts))
    others, inside = totals / np.maximum(sizes, 1)
    return np.where(inside < others, inside / np.where(others > 0, others, 1), 1.0)
