"""The success of an attack: the ROC curve of its statistics, with confidence intervals, by owner and for everyone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.audit.attack import Attack
from inosgm.audit.clusters import Clusters, Products
from inosgm.audit.curve import Curve, Thresholds
from inosgm.audit.pool import Shadows
from inosgm.owners import Label

GRID = 10.0 ** (np.arange(-100, 1) / 20)
"""The false positive rates of a curve: 1e-5 to 1, twenty to a decade."""
LOOKED_AT = (0.001, 0.01, 0.1)
"""The false positive rates that are reported by number."""


class Rate(NamedTuple):
    """A true positive rate and its confidence interval."""

    tpr: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Success:
    """The success of statistics at separating members from others. NOT PRIVATE.

    One threshold applies to all targets and records. Points with equal statistics are on the same side of a threshold,
    or are separated by a random choice: the curve is the polygon through all thresholds, and `auc` is the area below it
    (ties count half). Points without a statistic are tied below all others.

    Each interval holds for one number, not for all at once. It covers the variation over target models and over records
    of the same kind: the variance is robust to points that share a target and to points that share a record. With a
    single target, intervals are for this model. Everything is NaN, within [0, 1], if there are no members, no others or
    no statistics.

    Attributes:
        auc: The probability that a member has a larger statistic than another record.
        auc_low: The lower end of its confidence interval.
        auc_high: The upper end.
        fpr: False positive rates, 1e-5 to 1.
        tpr: The true positive rate at each.
        tpr_low: The lower ends of their confidence intervals.
        tpr_high: The upper ends.
        confidence: The probability that an interval contains its number.
        members: The number of points of members.
        others: The number of points of others.
        targets: The number of attacked models.
        records: The number of records.
        unknown: The number of points without a statistic.
    """

    auc: float
    auc_low: float
    auc_high: float
    fpr: np.ndarray
    tpr: np.ndarray
    tpr_low: np.ndarray
    tpr_high: np.ndarray
    confidence: float
    members: int
    others: int
    targets: int
    records: int
    unknown: int

    @property
    def at(self) -> dict[float, Rate]:
        """The true positive rates at false positive rates of 0.1 %, 1 % and 10 %."""
        places = np.searchsorted(self.fpr, np.array(LOOKED_AT) * (1 - 1e-9))  # 1e-9: rounding of powers of 10
        columns = (values[places].tolist() for values in (self.tpr, self.tpr_low, self.tpr_high))
        return dict(zip(LOOKED_AT, map(Rate, *columns), strict=True))


def success(statistics: np.ndarray, members: np.ndarray, *, confidence: float = 0.95) -> Success:
    """Return how well statistics separate members from others.

    Args:
        statistics: A row per target model and a column per record; NaN where there is none.
        members: Whether each record was in, in the same form.
        confidence: The confidence of each interval.

    Raises:
        ValueError: for arrays that do not fit together, and for a confidence that is not between 0 and 1.

    >>> result = success(np.array([[3.0, 1.0, 2.0, 0.0]]), np.array([[True, True, False, False]]))
    >>> result.auc, result.at[0.1]
    (0.75, Rate(tpr=0.5, low=0.0, high=1.0))
    """
    level = _validate.number("confidence", confidence, above=0)
    if level >= 1:
        raise ValueError(f"confidence must be below 1, got {confidence!r}: 0.95, say")
    if members.dtype != bool:
        raise ValueError(f"members must be true or false, got {members.dtype}")
    if statistics.ndim != 2 or members.shape != statistics.shape or not statistics.size:
        raise ValueError(
            "statistics and members must have a row per target and a column per record: got "
            f"{statistics.shape} and {members.shape}"
        )
    missing = np.isnan(statistics)
    inside = int(np.count_nonzero(members))
    clusters = Clusters(targets=statistics.shape[0], records=statistics.shape[1], confidence=level)
    intervals = _NOTHING
    if 0 < inside < members.size and not missing.all():
        known = np.where(missing, -np.inf, statistics) if missing.any() else statistics
        intervals = _intervals(Curve(known, members), clusters)
    return Success(
        **intervals,
        fpr=GRID,
        confidence=level,
        members=inside,
        others=members.size - inside,
        targets=clusters.targets,
        records=clusters.records,
        unknown=int(missing.sum()),
    )


def successes(
    shadows: Shadows, attack: Attack, targets: Sequence[int] | None = None, *, confidence: float = 0.95
) -> tuple[tuple[Label | None, Success], ...]:
    """Return the success of an attack on shadow models for each owner that has records, and for everyone.

    Args:
        shadows: The shadow models.
        attack: The attack.
        targets: The attacked models, each with all others; every one in turn if not given.
        confidence: The confidence of each interval.

    Returns:
        Pairs of an owner's label and the success, in the order of the labels; the last is that of everyone: None.
    """
    statistics, members = attack.statistics(shadows, targets), shadows.members[shadows.rows_of(targets)]
    by_owner: list[tuple[Label | None, Success]] = []
    for owner in np.unique(shadows.owners):
        own = shadows.owners == owner
        by_owner.append((shadows.labels[owner], success(statistics[:, own], members[:, own], confidence=confidence)))
    return (*by_owner, (None, success(statistics, members, confidence=confidence)))


_NOTHING: dict[str, Any] = {
    **{"auc": math.nan, "auc_low": 0.0, "auc_high": 1.0},
    **{"tpr": np.full(GRID.size, np.nan), "tpr_low": np.zeros(GRID.size), "tpr_high": np.ones(GRID.size)},
}


def _intervals(curve: Curve, clusters: Clusters) -> dict[str, Any]:
    """Return area and true positive rates with their confidence intervals."""
    at, area = curve.thresholds(GRID[:-1]), np.array(curve.area())
    products = curve.products(at)
    whole = Products(*(one[-1] + other[-1] + 2 * mixed[-1] for one, other, mixed in zip(*products, strict=True)))
    auc_low, auc_high = clusters.interval(area, clusters.effective(area, clusters.variance(whole)))
    tpr, low, high = _rates(curve, at, [Products(*(each[:-1] for each in three)) for three in products], clusters)
    return {
        **{"auc": float(area), "auc_low": float(auc_low), "auc_high": float(auc_high)},
        **{"tpr": np.append(tpr, 1.0), "tpr_low": np.append(low, 1.0), "tpr_high": np.append(high, 1.0)},
    }


def _rates(
    curve: Curve, at: Thresholds, products: Sequence[Products], clusters: Clusters
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the true positive rates at false positive rates below 1, with their confidence intervals.

    A rate is uncertain because the members beyond a threshold are a sample, and because the others are, which moves the
    threshold. Each has an exact interval (Clopper and Pearson; order statistics) with effective numbers of points.
    Their squares are added, less the common part that is certain (Zou, Donner 2008).
    """
    rates, (tpr_variance, fpr_variance) = GRID[:-1], map(clusters.variance, products[:2])
    inside = clusters.effective(at.tpr, tpr_variance, curve.inside.size)
    outside = clusters.effective(rates, fpr_variance, curve.outside.size)
    events = np.minimum(np.minimum(at.tpr, 1 - at.tpr) * inside, np.minimum(rates, 1 - rates) * outside)
    common = clusters.correlation(clusters.covariance(products[2]), tpr_variance * fpr_variance, events)
    moved = [np.where(share > 0, curve.thresholds(share).tpr, 0) for share in clusters.beyond(rates, outside)]
    below, above = (
        _combine_errors(end - at.tpr, other - at.tpr, common)
        for end, other in zip(clusters.interval(at.tpr, inside), moved, strict=True)
    )
    return at.tpr, np.maximum(at.tpr - below, 0), np.minimum(at.tpr + above, 1)


def _combine_errors(one: np.ndarray, other: np.ndarray, common: np.ndarray) -> np.ndarray:
    """Return the combined size of two errors, one of which is subtracted from the other."""
    return np.asarray(np.sqrt(np.maximum(one**2 + other**2 - 2 * common * one * other, 0)))
