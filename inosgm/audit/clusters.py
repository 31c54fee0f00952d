"""Confidence intervals of rates whose points are not independent: they share target models, and they share records."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrik, betaincinv, stdtrit


class Products(NamedTuple):
    """Products of two influences, summed over clusters; an influence is first summed over the points of a cluster."""

    by_target: np.ndarray
    by_record: np.ndarray
    by_point: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """The clusters of points, and the confidence of intervals.

    Attributes:
        targets: The number of target models.
        records: The number of records.
        confidence: The probability that an interval contains the true value.
    """

    targets: int
    records: int
    confidence: float

    @property
    def clusters(self) -> int:
        """The number of targets or of records, whichever is smaller; a single one is not a cluster."""
        return min((count for count in (self.targets, self.records) if count > 1), default=1)

    @property
    def tail(self) -> float:
        """The probability that the true value lies above an interval, and also that it lies below."""
        return (1 - self.confidence) / 2

    def covariance(self, products: Products) -> np.ndarray:
        """Return a covariance that is robust to both kinds of clusters (Cameron, Gelbach, Miller 2011)."""
        by_target, by_record = self._each(products)
        if self.targets > 1 and self.records > 1:
            return np.asarray(by_target + by_record - products.by_point)  # both contain the variance of the points
        return np.asarray(by_target + by_record)

    def variance(self, products: Products) -> np.ndarray:
        """Return the variance in the same way; it is at least that of either kind of clusters alone."""
        return np.asarray(np.maximum(self.covariance(products), np.maximum(*self._each(products))))

    def correlation(self, covariance: np.ndarray, squared: np.ndarray, events: np.ndarray) -> np.ndarray:
        """Return a correlation; for a positive one the lower end of its interval (Fisher), but at least 0.

        Args:
            covariance: The covariance.
            squared: The product of the variances.
            events: The number of events, which counts if it is smaller than that of clusters.
        """
        value = np.clip(covariance / np.sqrt(np.where(squared > 0, squared, np.inf)), -1, 1)
        # 1e-9: with three events or fewer, the interval of a correlation is the whole line
        error = -stdtrit(np.inf, self.tail) / np.sqrt(np.maximum(np.minimum(events, self.clusters) - 3, 1e-9))
        least = np.tanh(np.arctanh(np.clip(value, 0, 1 - 1e-9)) - error)
        return np.where(value > 0, np.maximum(least, 0), value)

    def effective(self, rate: np.ndarray, variance: np.ndarray, most: float = np.inf) -> np.ndarray:
        """Return the number of independent points that determine a rate equally well (Korn, Graubard 1998).

        The number is smaller for few clusters, whose variance is uncertain. Without a variance (the rate is 0 or 1),
        every cluster counts as one point.

        Args:
            rate: The rate.
            variance: Its variance.
            most: The number of points.
        """
        known = variance > 0
        count = np.where(known, rate * (1 - rate) / np.where(known, variance, 1), self.clusters)
        unsure = stdtrit(max(self.clusters - 1, 1), self.tail) / stdtrit(np.inf, self.tail)
        return np.asarray(np.maximum(np.minimum(count, most) / unsure**2, 1))

    def interval(self, rate: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval of Clopper and Pearson for a rate among a number of independent points."""
        hits, misses = rate * count, (1 - rate) * count
        low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1), misses + 1, self.tail), 0)
        high = np.where(misses > 0, betaincinv(hits + 1, np.where(misses > 0, misses, 1), 1 - self.tail), 1)
        return np.minimum(low, rate), np.maximum(high, rate)

    def beyond(self, rate: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval of the share of independent points beyond the threshold of a rate below 1.

        The lower end is 0 where possibly no point lies beyond.
        """
        least, most = (bdtrik(level, count, rate) for level in (self.tail, 1 - self.tail))
        some = (1 - rate) ** count <= self.tail
        return np.where(some, np.minimum(least / count, rate), 0), np.clip((most + 1) / count, rate, 1)

    def _each(self, products: Products) -> tuple[np.ndarray, np.ndarray]:
        """Return the variance from each kind of clusters, or 0 if there is only one cluster."""
        of_targets, of_records = (count / (count - 1) if count > 1 else 0.0 for count in (self.targets, self.records))
        return products.by_target * of_targets, products.by_record * of_records
