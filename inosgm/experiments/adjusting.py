"""From the `adjustment` section of a configuration to a corrected loss and model."""

from collections.abc import Sequence

import numpy as np
from torch import nn

from inosgm._internal.labels import match_labels, unknown
from inosgm.datasets import Dataset
from inosgm.datasets.settings import SETTINGS
from inosgm.experiments.config import ClassOwners, SettingOwners, TrainingConfig
from inosgm.planning.plan import Plan
from inosgm.training.logit_adjustment import LogitAdjustment


class Adjusting:
    """What a configuration changes about losses and models: nothing without an `adjustment`.

    The model that is trained returns logits that are corrected for predictions already, so that every checkpoint,
    evaluation and saved state is of that model. The loss undoes this, and sees logits with the strength in the loss.

    Args:
        config: The configuration.
        dataset: Names the classes.
        plan: Implies the class prior; None if there is no plan, which goes without an adjustment only.
    """

    def __init__(self, config: TrainingConfig, dataset: Dataset, plan: Plan | None) -> None:
        self._inside = self._after = None
        wish = config.adjustment
        if wish is not None:
            assert plan is not None  # configurations of IPATE, which has none, have no adjustment
            shares = class_shares(config, dataset, plan.labels)
            self._inside = LogitAdjustment(plan, shares, wish.loss + wish.after)
            self._after = LogitAdjustment(plan, shares, wish.after) if wish.after else None

    @property
    def shifts(self) -> tuple[np.ndarray | float, np.ndarray | float]:
        """What the loss and what a prediction adds to the logits of the model without correction."""
        if self._inside is None:
            return 0.0, 0.0
        after = 0.0 if self._after is None else self._after.offsets
        return self._inside.offsets - after, -after

    def loss(self, loss: nn.Module) -> nn.Module:
        """Return the loss to train with."""
        return loss if self._inside is None else self._inside.loss(loss)

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model to train; itself without a strength in predictions."""
        return model if self._after is None else self._after.adjusted(model)


def class_shares(config: TrainingConfig, dataset: Dataset, labels: Sequence[str | int]) -> np.ndarray:
    """Return the public class shares of some owners, one row per owner; no record is looked at.

    Raises:
        ValueError: for shares that are missing, or of other owners or classes.
    """
    given, classes = config.adjustment and config.adjustment.class_shares, len(dataset.classes)
    if given:
        meant = match_labels(given, labels)
        rows = {meant[label]: row for label, row in given.items()}
        wrong = [*(label for label in rows if label not in labels), *(label for label in labels if label not in rows)]
        if wrong:
            raise ValueError(f"class_shares must have a row for each owner: {unknown(wrong[0], labels)}")
        if any(len(row) != classes for row in rows.values()):
            raise ValueError(f"class_shares must have one number for each of the {classes} classes in every row")
        return np.array([rows[label] for label in labels])
    holders = _owner_of_class(config, dataset)
    shares: np.ndarray = np.array([[owner == label for owner in holders] for label in labels], dtype=float)
    if not shares.size or not shares.any(axis=1).all():
        raise ValueError(
            "class_shares must be given, because owners do not hold classes of their own: a mapping from owner to the "
            "share of each class among its records, which must be public (or released, see release_class_shares)"
        )
    normalised: np.ndarray = shares / shares.sum(axis=1, keepdims=True)
    return normalised


def _owner_of_class(config: TrainingConfig, dataset: Dataset) -> list[str | int]:
    """Return the owner of each class by the rule that assigns owners; nobody where there is no such rule."""
    if isinstance(config.owners, ClassOwners):
        return list(dataset.classes)
    if isinstance(config.owners, SettingOwners):
        found: list[str | int] = (
            SETTINGS[config.owners.setting].groups(range(len(dataset.classes)), config.seed).tolist()
        )
        return found
    return []
