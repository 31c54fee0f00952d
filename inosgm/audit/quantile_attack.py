"""Quantile regression: a score is unusual if it is high for a record that other models find equally hard."""

import numpy as np

from inosgm.audit.attack import LARGEST, Attack
from inosgm.audit.fits import RESOLUTION
from inosgm.audit.pool import Shadows

FEWEST = 64
"""Smallest number of records of a piece of the regression: a mean, a slope and a deviation are fitted to each."""

MOST_PIECES = 32
"""Largest number of pieces: a curve through so many lines follows any plausible dependence."""


class Quantile(Attack):
    """Membership inference by quantile regression, from scores alone.

    Bertran et al. (2023) regress the scores of the target on features of the records, and take a score for a member's
    if it is above a quantile. Stored scores have no features but one: how hard a record is, which is its mean score
    by the other models, with and without it. The regression is Gaussian, a line in each piece of up to 32 (equal
    numbers of records, 64 at least), and the statistic is the standardised residual. It knows no members at all, of
    the target or of shadow models; one other model is enough.

    >>> generator = np.random.default_rng(0)
    >>> hardness = generator.normal(size=1000)
    >>> shadows = Shadows(
    ...     scores=hardness[None].astype(np.float32), members=np.zeros((1, 1000), bool),
    ...     owners=np.zeros(1000, np.int64), labels=("a",), asked=1,
    ... )
    >>> scores = hardness + 0.1 * generator.normal(size=1000)
    >>> scores[7] += 1
    >>> int(Quantile().against(shadows, scores).argmax())
    7
    """

    name = "quantile"

    def _statistics(self, shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
        count = np.zeros(shadows.records, np.int64)
        total = np.zeros(shadows.records)
        for scores in shadows.scores:
            known = np.isfinite(scores)
            count += known
            total[known] += scores[known]
        statistics = np.empty((len(targets), shadows.records), np.float32)
        for row, target in enumerate(targets):
            own = shadows.scores[target].astype(np.float64) if outside is None else outside.astype(np.float64)
            own = np.where(np.isfinite(own), own, np.nan)
            left, rest = count, total
            if outside is None:
                left, rest = count - np.isfinite(own), total - np.nan_to_num(own)
            hardness = np.where(left > 0, rest / np.maximum(left, 1), np.nan)
            statistics[row] = np.clip(standardised_residuals(hardness, own), -LARGEST, LARGEST)
        return statistics


def standardised_residuals(hardness: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the residuals of scores from lines through pieces of similar hardness, over the deviation of the piece.

    NaN where one of them is NaN, and everywhere if fewer than 3 records have both.
    """
    residuals = np.full(scores.size, np.nan)
    known = np.flatnonzero(np.isfinite(hardness) & np.isfinite(scores))
    if known.size < 3:
        return residuals
    order = known[np.argsort(hardness[known])]
    pieces = int(np.clip(order.size // FEWEST, 1, MOST_PIECES))
    starts = np.linspace(0, order.size, pieces + 1).astype(np.int64)[:-1]
    sizes = np.diff(np.append(starts, order.size))
    x, y = hardness[order], scores[order]
    x, y = (values - np.repeat(np.add.reduceat(values, starts) / sizes, sizes) for values in (x, y))
    spread = np.add.reduceat(x * x, starts)
    slopes = np.add.reduceat(x * y, starts) / np.where(spread > 0, spread, 1)
    away = y - np.repeat(slopes, sizes) * x
    deviations = np.sqrt(np.add.reduceat(away * away, starts) / np.maximum(sizes - 2, 1))
    least = RESOLUTION * (1 + np.abs(scores[order]))
    residuals[order] = away / np.maximum(np.repeat(deviations, sizes), least)
    return residuals
