"""Membership inference: an attack is a statistic from scores of models that is large for probable members."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from inosgm.audit.pool import Shadows

LARGEST = float(np.finfo(np.float32).max)
"""Statistics are cut to it, because they are kept in float32, and an infinity would not be ranked."""


class Attack(ABC):
    """Guesses the records that a model was trained on. NOT PRIVATE: its statistics are as secret as the records.

    A statistic is larger for a more likely member; only the order of statistics counts. It is NaN where the target's
    own score is not finite (a model that diverged), and where no shadow model has a finite score to compare with;
    `success` never counts these as guessed members.
    """

    name: str

    def statistics(self, shadows: Shadows, targets: Sequence[int] | None = None) -> np.ndarray:
        """Attack shadow models, each with all others: its own scores and members are left out of the fits.

        Args:
            shadows: The shadow models.
            targets: The numbers of those to attack; every one in turn if not given.

        Returns:
            A row per target and a column per record, float32.

        Raises:
            ValueError: for targets that are not numbers of different shadow models.
        """
        return self._statistics(shadows, shadows.rows_of(targets), None)

    def against(self, shadows: Shadows, scores: np.ndarray) -> np.ndarray:
        """Attack a model that is none of the shadow models, with all of them.

        Args:
            shadows: The shadow models.
            scores: The scores of the model for each record of the pool.

        Returns:
            One statistic per record, float32.

        Raises:
            ValueError: for scores that are not one per record.
        """
        outside = np.asarray(scores)
        if outside.shape != (shadows.records,):
            raise ValueError(f"scores must be one per record, {shadows.records}: got shape {outside.shape}")
        return self._statistics(shadows, np.zeros(1, np.int64), outside).ravel()

    @abstractmethod
    def _statistics(self, shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
        """Return the statistics of the targets, or of the model outside."""


class LossThreshold(Attack):
    """Guesses that scores of members are higher: the statistic is the score itself, with one threshold for all.

    The score rises as the cross-entropy loss falls, so this is the attack by a threshold on the loss (Yeom et al.
    2018). It needs no shadow models, and is the baseline of the other attacks.
    """

    name = "loss"

    def _statistics(self, shadows: Shadows, targets: np.ndarray, outside: np.ndarray | None) -> np.ndarray:
        scores = shadows.scores[targets] if outside is None else outside[None]
        return np.where(np.isfinite(scores), scores, np.nan).astype(np.float32)
