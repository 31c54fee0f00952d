"""LiRA: the score of a record is compared with Gaussians, fitted to the shadow models with and without the record."""

from abc import abstractmethod
from typing import Literal

import numpy as np

from inosgm.audit.attack import LARGEST, Attack
from inosgm.audit.fits import Columns, Moments, pooled_variances, slices
from inosgm.audit.pool import Shadows

Variance = Literal["record", "global"]


class _GaussianAttack(Attack):
    """An attack that compares scores with Gaussians, fitted to the shadow models record by record."""

    groups: tuple[bool, ...]
    """The scores that it needs: of models trained with the record (True), or without it (False)."""

    def __init__(self, name: str, variance: Variance) -> None:
        if variance not in ("record", "global"):
            raise ValueError(f"variance must be 'record' or 'global', got {variance!r}")
        self._variance = variance
        self.name = name if variance == "record" else f"{name}-global"

    def _statistics(self, shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
        def columns(records: slice) -> Columns:
            return Columns(shadows, records, targets, outside)

        pooled: dict[bool, np.ndarray] = {}

        def fit(group: bool, moments: Moments) -> tuple[np.ndarray, np.ndarray]:
            if group not in pooled and (self._variance == "global" or (moments.count < 2).any()):
                pooled[group] = pooled_variances(columns, shadows, group)
            if self._variance == "global":
                variance = moments.floored(pooled[group][:, None])
            else:
                variance = moments.variance(otherwise=pooled.get(group, np.full(len(targets), np.nan)))
            return np.where(moments.count > 0, moments.mean, np.nan), variance

        statistics = np.empty((len(targets), shadows.records), np.float32)
        for records in slices(shadows):
            here = columns(records)
            gaussians = [fit(group, here.moments(group)) for group in self.groups]
            statistics[:, records] = np.clip(self._compare(here.scores, gaussians), -LARGEST, LARGEST)
        return statistics

    @abstractmethod
    def _compare(self, scores: np.ndarray, gaussians: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Return the statistics of scores, given mean and variance in each group."""


class Online(_GaussianAttack):
    """LiRA (Carlini et al. 2022): the logarithm of the ratio of the score's densities, in over out.

    Means are arithmetic, and variances have n - 1 in the denominator. A variance is never below the resolution of
    float32. A record with fewer than two shadow models in a group gets the pooled variance of the group.

    Args:
        variance: "record": every record has variances of its own, which takes many shadow models (64 and more).
            "global": in and out have one variance each, pooled WITHIN records: squared distances from the record's own
            mean. The published code takes that of all scores together, which differences between records make larger.

    >>> shadows = Shadows(
    ...     scores=np.array([[3.0], [5.0], [4.0], [-1.0], [1.0], [0.0]], np.float32),
    ...     members=np.array([[True]] * 3 + [[False]] * 3),
    ...     owners=np.array([0]), labels=("a",), asked=6,
    ... )
    >>> Online("global").against(shadows, np.array([4.0]))  # (4 - 0)**2 / 2 more likely in than out
    array([8.], dtype=float32)
    """

    groups = (True, False)

    def __init__(self, variance: Variance = "record") -> None:
        super().__init__("online", variance)

    def _compare(self, scores: np.ndarray, gaussians: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        inside, outside = (_negative_log_density(scores, *gaussian) for gaussian in gaussians)
        return np.asarray(outside - inside)


class Offline(_GaussianAttack):
    """LiRA with only the shadow models without the record: the statistic says how unusual the score is among them.

    Args:
        form: "density": minus the logarithm of the density, as in the published code; low scores are unusual as well.
            "tail": the probability of a lower score without the record, as in the paper; given as the standardised
            score, which has the same order.
        variance: As in `Online`.
    """

    groups = (False,)

    def __init__(self, form: Literal["density", "tail"], variance: Variance = "record") -> None:
        if form not in ("density", "tail"):
            raise ValueError(f"form must be 'density' or 'tail', got {form!r}")
        super().__init__(f"offline-{form}", variance)
        self._form = form

    def _compare(self, scores: np.ndarray, gaussians: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        ((mean, variance),) = gaussians
        return (
            _negative_log_density(scores, mean, variance)
            if self._form == "density"
            else (scores - mean) / np.sqrt(variance)
        )


def _negative_log_density(scores: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return minus the logarithm of the Gaussian density, up to a constant."""
    return np.asarray(((scores - mean) ** 2 / variance + np.log(variance)) / 2)
