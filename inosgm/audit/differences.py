"""Do attacks tell more about the members of one owner than about those of another? Student's t-test, by target."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import ttest_ind

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
    values = np.where(known, statistics.astype(np.float64), np.nan)
    columns = {place: np.flatnonzero(shadows.owners == place) for place in np.unique(shadows.owners)}
    found = []
    for first, second in combinations(columns, 2):
        with warnings.catch_warnings():  # that a target has too few members, or equal ones: the test is NaN there
            warnings.simplefilter("ignore", RuntimeWarning)
            test = ttest_ind(values[:, columns[first]], values[:, columns[second]], axis=1, nan_policy="omit")
        certain = np.isinf(test.statistic)  # all statistics of each owner are equal: their variance is not known
        difference = Difference(
            first=shadows.labels[first],
            second=shadows.labels[second],
            targets=numbers,
            t=np.where(certain, np.nan, test.statistic),
            p=np.where(certain, np.nan, test.pvalue),
            degrees=known[:, [*columns[first], *columns[second]]].sum(axis=1) - 2.0,
        )
        found.append(difference)
    return tuple(found)
