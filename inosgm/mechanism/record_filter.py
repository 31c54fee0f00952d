"""The filter of individual accounting: what every record may still contribute when records pay by their own norms."""

import numpy as np

from inosgm._internal.once import Uncopied
from inosgm.planning.plan import Plan

LEAST = 1e-6
"""A record that takes part counts for at least this part of C: over six orders of magnitude sums of norms are exact."""

_SHORT = 1 - 2.0**-40
"""Factor on the norm that is left: it exceeds the rounding of a float64 square root, so that no record overspends."""


class Filter(Uncopied):
    """What every record may still spend. PRIVATE: it follows the data, and must not leave the run but in checkpoints.

    **Guarantee.** The squares of (length / noise scale) that were settled for a record never add up to more than its
    budget. What a record may contribute depends on the record and on released values, not on other records.

    Args:
        squared_norm_budget: What each record may spend in all, in squares of norm over noise scale.
        clip_norm: C of each record.
        noise_scale: Standard deviation of the noise.

    >>> records = Filter(np.array([1.0, 1.0]), np.array([2.0, 2.0]), noise_scale=2.5)
    >>> records.ask(np.array([0, 1]), np.array([2.0, 0.5]))
    >>> records.settle()
    >>> records.bounds().round(2)
    array([1.5, 2. ])
    """

    def __init__(self, squared_norm_budget: np.ndarray, clip_norm: np.ndarray, *, noise_scale: float) -> None:
        self._budget, self._most, self._noise_scale = squared_norm_budget, clip_norm, noise_scale
        self._spent = np.zeros(squared_norm_budget.size)
        self._asked: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, plan: Plan, owners: np.ndarray) -> "Filter | None":
        """Return the filter of records that belong to owners of a plan, by place; None for a plan that needs none."""
        if plan.squared_norm_budget is None:
            return None
        return cls(plan.squared_norm_budget[owners], plan.sensitivities[owners], noise_scale=plan.noise_scale)

    @property
    def spent(self) -> np.ndarray:
        """What each record has spent: PRIVATE."""
        return self._spent.copy()

    @property
    def least(self) -> np.ndarray:
        """What each record counts for at least when it takes part."""
        return np.asarray(LEAST * self._most)

    def restore(self, spent: np.ndarray) -> None:
        """Go on from what each record has spent before."""
        if spent.shape != self._spent.shape:
            raise ValueError("what records have spent must be one number per record: these are other records")
        self._spent, self._asked = np.array(spent, dtype=np.float64), None

    def bounds(self) -> np.ndarray:
        """Return the norm that each record may contribute to the next step, 0 for those that have left."""
        left = _SHORT * self._noise_scale * np.sqrt(np.maximum(self._budget - self._spent, 0.0))
        return np.where(left < self.least, 0.0, np.minimum(left, self._most))

    def ask(self, positions: np.ndarray, lengths: np.ndarray) -> None:
        """Say what records would contribute; nothing is spent before it is settled."""
        self._asked = positions, lengths

    def asked(self, position: int) -> float:
        """Return the length that was asked for a record, 0 if it has left."""
        positions, lengths = self._asked if self._asked is not None else (np.empty(0), np.empty(0))
        return float(lengths[positions == position].sum())

    def settle(self) -> None:
        """Let the records pay for what was asked last, which is about to be released."""
        if self._asked is not None:
            positions, lengths = self._asked
            spent = self._spent[positions] + (lengths / self._noise_scale) ** 2
            if not (spent <= self._budget[positions]).all():
                raise RuntimeError("a record would spend more than its allowance: lengths must keep the bounds")
            self._spent[positions], self._asked = spent, None
