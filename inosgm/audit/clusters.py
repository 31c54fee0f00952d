"""How sure one can be of a rate whose points are not independent: they share target models, and they share records."""

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
class Design:
    """How points hang together, and how sure one wants to be.

    Attributes:
        targets: How many target models.
        records: How many records.
        confidence: How often an interval holds what it is for.
    """

    targets: int
    records: int
    confidence: float

    @property
    def clusters(self) -> int:
        """How many clusters there are, targets or records, whichever are fewer; one alone is taken as given."""
        return min((count for count in (self.targets, self.records) if count > 1), default=1)

    @property
    def tail(self) -> float:
        """How often what an interval is for lies above it, and how often below."""
        return (1 - self.confidence) / 2

    def covariance(self, products: Products) -> np.ndarray:
        """Return a covariance that is robust to both kinds of clusters (Cameron, Gelbach, Miller 2011)."""
        by_target, by_record = self._each(products)
        if self.targets > 1 and self.records > 1:
            return np.asarray(by_target + by_record - products.by_point)  # each of them has that of the points in it
        return np.asarray(by_target + by_record)

    def variance(self, products: Products) -> np.ndarray:
        """Return a variance in the same way, which is at least that of either kind of clusters alone."""
        return np.asarray(np.maximum(self.covariance(products), np.maximum(*self._each(products))))

    def correlation(self, covariance: np.ndarray, squared: np.ndarray, events: np.ndarray) -> np.ndarray:
        """Return a correlation; of a positive one what is left at the lower end of its interval (Fisher), or 0.

        Args:
            covariance: The covariance.
            squared: The product of the variances.
            events: How many events it rests on, if those are fewer than the clusters.
        """
        value = np.clip(covariance / np.sqrt(np.where(squared > 0, squared, np.inf)), -1, 1)
        error = -stdtrit(np.inf, self.tail) / np.sqrt(np.maximum(np.minimum(events, self.clusters) - 3, 1e-9))
        least = np.tanh(np.arctanh(np.clip(value, 0, 1 - 1e-9)) - error)
        return np.where(value > 0, np.maximum(least, 0), value)

    def effective(self, rate: np.ndarray, variance: np.ndarray, most: float = np.inf) -> np.ndarray:
        """Return how many independent points would know a rate as well (Korn, Graubard 1998).

        They are fewer for few clusters, whose spread is itself not well known. Where there is no variance to go by
        (the rate is 0 or 1) every cluster counts as one point.

        Args:
            rate: The rate.
            variance: Its variance.
            most: How many points there are.
        """
        known = variance > 0
        count = np.where(known, rate * (1 - rate) / np.where(known, variance, 1), self.clusters)
        unsure = stdtrit(max(self.clusters - 1, 1), self.tail) / stdtrit(np.inf, self.tail)
        return np.asarray(np.maximum(np.minimum(count, most) / unsure**2, 1))

    def interval(self, rate: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval of Clopper and Pearson for a rate among so many independent points."""
        hits, misses = rate * count, (1 - rate) * count
        low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1), misses + 1, self.tail), 0)
        high = np.where(misses > 0, betaincinv(hits + 1, np.where(misses > 0, misses, 1), 1 - self.tail), 1)
        return np.minimum(low, rate), np.maximum(high, rate)

    def beyond(self, rate: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which shares of so many independent points may lie beyond the threshold that has a rate below 1.

        The least is 0 where it may be that not one does.
        """
        least, most = (bdtrik(level, count, rate) for level in (self.tail, 1 - self.tail))
        some = (1 - rate) ** count <= self.tail
        return np.where(some, np.minimum(least / count, rate), 0), np.clip((most + 1) / count, rate, 1)

    def _each(self, products: Products) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of each kind of clusters, 0 if there is but one."""
        of_targets, of_records = (count / (count - 1) if count > 1 else 0.0 for count in (self.targets, self.records))
        return products.by_target * of_targets, products.by_record * of_records
