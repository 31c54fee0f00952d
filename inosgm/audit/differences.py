"""Do attacks tell more about the members of one owner than about those of another? Student's t-test, by target."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import stdtr

from inosgm.audit.attacks import Attack
from inosgm.audit.pool import Shadows
from inosgm.owners import Label


@dataclass(frozen=True, kw_only=True, eq=False)
class Difference:
    """The difference between the statistics of two owners' members (Table 12 of Boenisch et al. 2023). NOT PRIVATE.

    Each target has a test of its own. Targets share records, so that their p-values are not independent of each other:
    they are not to be combined as if they were.

    Attributes:
        first: One owner.
        second: The other.
        targets: The numbers of the attacked models.
        t: Student's t for each target, positive if members of the first have the larger mean; NaN where an owner has no
            member, both together fewer than three, or all statistics of each are equal.
        p: The two-sided p-value of each.
        degrees: The degrees of freedom of each.
    """

    first: Label
    second: Label
    targets: np.ndarray
    t: np.ndarray
    p: np.ndarray
    degrees: np.ndarray


def differences(shadows: Shadows, attack: Attack, targets: Sequence[int] | None = None) -> tuple[Difference, ...]:
    """Compare the statistics of members between all pairs of owners that have records.

    The test takes the same variance for both owners. The statistics of online LiRA are logarithms of likelihood ratios.

    Args:
        shadows: The shadow models.
        attack: The attack.
        targets: Which of them are attacked, each with all others; every one in turn if not given.

    Returns:
        One for each pair, in the order of the labels.
    """
    places, statistics = shadows.places(targets), attack.statistics(shadows, targets)
    numbers = np.array(shadows.numbers)[places]
    known = shadows.members[places] & np.isfinite(statistics)
    owners = np.unique(shadows.owners)
    moments = {place: _moments(statistics, known, np.flatnonzero(shadows.owners == place)) for place in owners}
    found = []
    for first, second in combinations(owners, 2):
        t, degrees = _student(moments[first], moments[second])
        labels = {"first": shadows.labels[first], "second": shadows.labels[second]}
        found.append(Difference(**labels, targets=numbers, t=t, p=2 * stdtr(degrees, -np.abs(t)), degrees=degrees))
    return tuple(found)


def _moments(statistics: np.ndarray, known: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return count, mean and squared deviations of an owner's members, a column per target."""
    rows = []
    for values, here in zip(statistics, known, strict=True):
        own = values[records][here[records]].astype(np.float64)
        mean = own.mean() if own.size else 0.0
        rows.append((own.size, mean, ((own - mean) ** 2).sum()))
    return np.array(rows).T


def _student(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Student's t and its degrees of freedom."""
    degrees = one[0] + other[0] - 2
    possible = (one[0] > 0) & (other[0] > 0) & (degrees > 0)
    error = np.sqrt((one[2] + other[2]) / np.where(possible, degrees, 1))
    error = error * np.sqrt(1 / np.maximum(one[0], 1) + 1 / np.maximum(other[0], 1))
    possible &= error > 0
    return np.where(possible, (one[1] - other[1]) / np.where(possible, error, 1), np.nan), degrees
