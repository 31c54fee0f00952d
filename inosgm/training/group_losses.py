"""Mean losses of owners' records, released: what steers a plan."""

from collections.abc import Callable
from typing import Any

import numpy as np

from inosgm.ledger.cost import LedgerHook
from inosgm.mechanism.contributions import Cells
from inosgm.mechanism.mechanism import INOSGM, Measured
from inosgm.owners import labels_at
from inosgm.planning.plan import Plan

LossesOf = Callable[[Any, np.ndarray], np.ndarray]
"""(data, positions) -> the loss of each of these records, by the model as it is now."""


class GroupLosses(INOSGM):
    """Releases one noisy sum of losses per owner: a record adds to that of its owner only.

    Losses are cut to [0, zeta] and moved by zeta / 2, so that a record moves a sum by at most zeta / 2 when it is added
    or removed, and by at most zeta when it is replaced; `means` moves them back, by public sizes.

    Args:
        plan: Its sensitivities are zeta / 2.
        owners: The owner of each record, as the plan has them.
        losses_of: What says the losses.
        key: As for `INOSGM`.
        ledger: As for `INOSGM`.
        released: How many of the releases were made before.
    """

    def __init__(
        self,
        plan: Plan,
        owners: np.ndarray,
        losses_of: LossesOf,
        *,
        key: int | None,
        ledger: LedgerHook | None,
        released: int,
        note: str,
    ) -> None:
        self._losses_of, self._half = losses_of, float(plan.sensitivities[0])
        labels = labels_at(plan.labels, owners)
        super().__init__(plan, labels, key=key, ledger=ledger, charge_steps=plan.steps, note=note)
        self._resume_at(released)

    def means(self, value: np.ndarray) -> np.ndarray:
        """Return the noisy mean loss of every owner's records from a released value, cut to where means can lie.

        The noise of a mean is the larger the smaller its group. Without the cut, which costs nothing, the smallest
        groups would soon have the whole batch by chance.
        """
        expected = self._plan.sample_rates * np.maximum(self._plan.sizes, 1)
        return np.asarray(np.clip(value / expected + self._half, 0, 2 * self._half))

    def measure(self, data: Any, positions: np.ndarray | None, owners: np.ndarray, step: int) -> Measured:
        """Return the moved loss of each record as a contribution to the sum of its owner; there is no order."""
        assert positions is not None
        losses = self._losses_of(data, positions)
        cut = np.clip(np.nan_to_num(losses, nan=2 * self._half), 0, 2 * self._half) - self._half
        return Cells(cut, owners, self._plan.sizes.size), np.zeros(positions.size)
