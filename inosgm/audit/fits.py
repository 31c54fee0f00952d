"""Gaussians fitted to the scores of a record when it is in and when it is out, with or without the target."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from inosgm.audit.pool import Shadows

CHUNK = 1 << 19
"""Number of scores that are processed at once, so that temporary arrays take a few megabytes."""

RESOLUTION = 2.0**-23
"""Smallest standard deviation relative to 1 + |mean|: scores are made of float32 logits, which resolve no less."""

CANCELLED = 1e-6
"""If leaving out one score leaves less than this share of the squares, they cancel, and are summed again."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations of scores, for each target (row) and record (column)."""

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    def variance(self, otherwise: np.ndarray) -> np.ndarray:
        """Return the variance with n - 1 in the denominator; for fewer than two scores, the given one of the target."""
        known = self.count > 1
        own = self.squares / np.where(known, self.count - 1, 1)
        return self.floored(np.where(known, own, otherwise[:, None]))

    def floored(self, variance: np.ndarray) -> np.ndarray:
        """Return variances that are not below the resolution of the scores."""
        return np.asarray(np.maximum(variance, (RESOLUTION * (1 + np.abs(self.mean))) ** 2))


class Columns:
    """The scores of some records by the targets, and by the shadow models with which each target is attacked.

    Scores that are not finite (a model that diverged) are left out of all fits.

    Args:
        shadows: The shadow models.
        records: The records.
        targets: The positions of the targets among the shadow models; each is left out when it is attacked itself.
        outside: The scores of another model instead, one per record of the pool; nothing is left out.
        transform: Is applied to all finite scores first.
    """

    def __init__(
        self,
        shadows: Shadows,
        records: slice,
        targets: np.ndarray,
        outside: np.ndarray | None,
        transform: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        scores = shadows.scores[:, records].astype(np.float64)
        self._finite = np.isfinite(scores)
        self._members = shadows.members[:, records]
        self._targets = targets if outside is None else None
        own = scores[targets] if outside is None else outside[None, records].astype(np.float64)
        self.scores = np.where(np.isfinite(own), own, np.nan)
        if transform is not None:
            scores, self.scores = transform(scores), transform(self.scores)
        self._scores = np.where(self._finite, scores, 0)

    def moments(self, member: bool) -> Moments:
        """Return the moments of scores of records that were in, or out, for each target without its own."""
        group = self._finite & (self._members == member)
        count = group.sum(axis=0)
        mean = (self._scores * group).sum(axis=0) / np.maximum(count, 1)
        away = (self._scores - mean) * group
        squares = (away**2).sum(axis=0)
        if self._targets is None:
            return Moments(count[None], mean[None], squares[None])
        own, away = group[self._targets], away[self._targets]
        left = count - own
        rest = np.maximum(left, 1)
        others = Moments(left, mean - away / rest, np.maximum(squares - away**2 * (count / rest), 0))
        self._sum_again(others, group, own & (left > 0) & (others.squares < CANCELLED * squares))
        return others

    def means(self, member: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of scores of records that were in, or out, and their means (NaN if none), as `moments`."""
        group = self._finite & (self._members == member)
        count = group.sum(axis=0)[None]
        total = np.einsum("ij,ij->j", self._scores, group)[None]
        if self._targets is not None:
            own = group[self._targets]
            count, total = count - own, total - self._scores[self._targets] * own
        return count, np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def _sum_again(self, moments: Moments, group: np.ndarray, where: np.ndarray) -> None:
        """Recompute moments that are differences of nearly equal numbers: about one target per record has them."""
        assert self._targets is not None
        rows, records = np.nonzero(where)
        kept = group[:, records]
        kept[self._targets[rows], np.arange(rows.size)] = False
        scores = self._scores[:, records]
        mean = (scores * kept).sum(axis=0) / kept.sum(axis=0)
        moments.mean[rows, records] = mean
        moments.squares[rows, records] = (((scores - mean) * kept) ** 2).sum(axis=0)


def slices(shadows: Shadows) -> Iterator[slice]:
    """Yield slices of records with at most `CHUNK` scores."""
    size = max(1, CHUNK // max(shadows.count, 1))
    return (slice(start, start + size) for start in range(0, shadows.records, size))


def pooled_variances(columns: Callable[[slice], Columns], shadows: Shadows, member: bool) -> np.ndarray:
    """Return for each target the variance within records, pooled over them; NaN if no record has two scores."""
    squares, freedom = 0.0, 0.0
    for records in slices(shadows):
        moments = columns(records).moments(member)
        squares = squares + np.where(moments.count > 1, moments.squares, 0).sum(axis=1)
        freedom = freedom + np.maximum(moments.count - 1, 0).sum(axis=1)
    return np.asarray(squares / np.where(np.asarray(freedom) > 0, freedom, np.nan))
