"""Student's t-test, for each target, of whether attacks reveal more about members of one owner than of another."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import ttest_ind_from_stats

from inosgm.audit.attack import Attack
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
    rows, statistics = shadows.rows_of(targets), attack.statistics(shadows, targets)
    known = shadows.members[rows] & np.isfinite(statistics)
    owners = np.unique(shadows.owners)
    moments = {owner: _moments(statistics, known, np.flatnonzero(shadows.owners == owner)) for owner in owners}
    pairs = []
    for first, second in combinations(owners, 2):
        (means, deviations, counts), (other_means, other_deviations, other_counts) = moments[first], moments[second]
        degrees = counts + other_counts - 2
        testable = (counts > 0) & (other_counts > 0) & (degrees > 0) & (deviations + other_deviations > 0)
        with np.errstate(divide="ignore", invalid="ignore"):  # where a test is not possible, the result is NaN
            t, p = ttest_ind_from_stats(means, deviations, counts, other_means, other_deviations, other_counts)
        pairs.append(
            Difference(
                first=shadows.labels[first],
                second=shadows.labels[second],
                targets=np.array(shadows.numbers)[rows],
                t=np.where(testable, t, np.nan),
                p=np.where(testable, p, np.nan),
                degrees=degrees,
            )
        )
    return tuple(pairs)


def _moments(statistics: np.ndarray, known: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return mean, standard deviation and count of an owner's members, a column per target."""
    rows = []
    for values, members in zip(statistics, known, strict=True):
        own = values[records][members[records]].astype(np.float64)
        rows.append((own.mean() if own.size else 0.0, own.std(ddof=1) if own.size > 1 else 0.0, own.size))
    return np.array(rows).T
