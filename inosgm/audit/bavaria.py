"""BaVarIA: LiRA with Student's t predictive densities, whose prior is learned from all records."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from inosgm.audit.attack import LARGEST, Attack
from inosgm.audit.fits import RESOLUTION, Columns, Moments, slices
from inosgm.audit.pool import Shadows

FREEDOM = 32
"""Degrees of freedom of the prior of a variance: the pooled variance counts as much as so many scores of a record.
Of 1, 4, 8 and 32, 32 was best on the digits of docs/results/audit.md, with and without privacy."""


class Bavaria(Attack):
    """Bayesian variance inference: the log-ratio of predictive densities of the score, in over out.

    The scores of a record with it, and those without it, are Gaussian with unknown mean and variance under a
    normal-inverse-gamma prior, so that a further score has a Student's t density. The prior makes it stable with few
    shadow models; with many, the statistic is that of LiRA.

    This is the idea of BaVarIA-t (Brännvall, arXiv 2603.11799), of which only the abstract was at hand. The prior is
    ours: variances are around the pooled variance of their group, with `FREEDOM` degrees of freedom. The mean with the
    record is around the mean without it plus the shift that all records have on average, and the other way
    round; how far single records differ from that shift is estimated from all of them (DerSimonian, Laird 1986). A
    record needs one shadow model at least, whether with it or without it.

    >>> shadows = Shadows(
    ...     scores=np.array([[3.0], [5.0], [4.0], [-1.0], [1.0], [0.0]], np.float32),
    ...     members=np.array([[True]] * 3 + [[False]] * 3),
    ...     owners=np.array([0]), labels=("a",), asked=6,
    ... )
    >>> bool(Bavaria().against(shadows, np.array([4.0])) > 0 > Bavaria().against(shadows, np.array([1.0])))
    True
    """

    name = "bavaria"

    def _statistics(self, shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
        prior = _prior(shadows, targets, outside)
        normalisers = _normalisers(shadows.count)
        statistics = np.empty((len(targets), shadows.records), np.float32)
        for records in slices(shadows):
            here = Columns(shadows, records, targets, outside)
            groups = here.moments(True), here.moments(False)
            inside, out = (
                _log_density(here.scores, own, other, prior.shift * sign, prior.spread, variance, normalisers)
                for own, other, sign, variance in zip(groups, groups[::-1], (1, -1), prior.variances, strict=True)
            )
            statistics[:, records] = np.clip(inside - out, -LARGEST, LARGEST)
        return statistics


@dataclass(frozen=True)
class _Prior:
    """For each target: the variances of scores in and out, the mean shift, and its variance over that of a score."""

    variances: tuple[np.ndarray, np.ndarray]
    shift: np.ndarray
    spread: np.ndarray


def _prior(shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> _Prior:
    """Return the prior of each target from sums over all records."""
    scores, counts, squares, freedom = np.zeros((4, 2, len(targets)))
    weights, weighted, quadratic, weights2, both = np.zeros((5, len(targets)))
    own = []
    for records in slices(shadows):
        here = Columns(shadows, records, targets, outside)
        own.append(here.scores)
        groups = here.moments(True), here.moments(False)
        for group, moments in enumerate(groups):
            scores[group] += (moments.count * moments.mean).sum(axis=1)
            counts[group] += moments.count.sum(axis=1)
            squares[group] += np.where(moments.count > 1, moments.squares, 0).sum(axis=1)
            freedom[group] += np.maximum(moments.count - 1, 0).sum(axis=1)
        inside, out = groups
        weight = inside.count * out.count / np.maximum(inside.count + out.count, 1)
        difference = inside.mean - out.mean
        weights += weight.sum(axis=1)
        weights2 += (weight**2).sum(axis=1)
        weighted += (weight * difference).sum(axis=1)
        quadratic += (weight * difference**2).sum(axis=1)
        both += (weight > 0).sum(axis=1)
    overall = np.array([np.nanvar(row) if np.isfinite(row).any() else np.nan for row in np.concatenate(own, axis=1)])
    means, known = scores / np.maximum(counts, 1), freedom > 0
    joint = np.where(known.any(axis=0), squares.sum(axis=0) / np.maximum(freedom.sum(axis=0), 1), overall)
    variances = np.where(known, squares / np.maximum(freedom, 1), joint)
    paired = weights > 0
    shift = np.where(
        paired, weighted / np.where(paired, weights, 1), np.where(counts.all(axis=0), means[0] - means[1], 0)
    )
    excess = quadratic - weights * shift**2 - (both - 1) * joint
    scale = weights - weights2 / np.where(paired, weights, 1)
    between = np.where(scale > 0, np.maximum(excess, 0) / np.where(scale > 0, scale, 1), 0)
    return _Prior((variances[0], variances[1]), shift, between / np.where(joint > 0, joint, 1))


def _normalisers(most: int) -> np.ndarray:
    """Return log(Gamma((v + 1) / 2) / Gamma(v / 2)) - log(v) / 2 for v = FREEDOM + n degrees of freedom, by n."""
    freedom = FREEDOM + np.arange(most + 1)
    return np.asarray(gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - np.log(freedom) / 2)


def _log_density(
    scores: np.ndarray,
    own: Moments,
    other: Moments,
    shift: np.ndarray,
    spread: np.ndarray,
    variance: np.ndarray,
    normalisers: np.ndarray,
) -> np.ndarray:
    """Return the logarithm of the predictive density of scores in a group, up to a constant; NaN if nothing is known.

    The prior of the mean counts as many scores as 1 / (1 / n + spread), where n scores of the other group are known.
    """
    seen = other.count > 0
    worth = np.where(seen, 1 / (1 / np.maximum(other.count, 1) + spread[:, None]), 0.0)
    total = np.where(worth + own.count > 0, worth + own.count, np.nan)
    surprise = np.where(seen, other.mean + shift[:, None], 0.0) - own.mean
    location = own.mean + worth / total * surprise
    freedom = FREEDOM + own.count
    between = np.where(own.count > 0, worth * own.count / total * surprise**2, 0.0)
    scale = (FREEDOM * variance[:, None] + own.squares + between) / freedom * (1 + 1 / total)
    scale = np.maximum(scale, (RESOLUTION * (1 + np.abs(location))) ** 2)
    distance = (scores - location) ** 2 / scale
    return np.asarray(normalisers[own.count] - np.log(scale) / 2 - (freedom + 1) / 2 * np.log1p(distance / freedom))
