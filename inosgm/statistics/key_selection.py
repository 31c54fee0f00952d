"""The names of groups that are not public: released only if many records have them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from inosgm.accounting import Accountant
from inosgm.mechanism.contributions import Cells
from inosgm.mechanism.thresholding import NEARLY_NO_NOISE, ThresholdedSums
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.statistic import Statistic

RISK = 0.05
"""The part of an owner's delta that pays for names of groups."""


class KeyRisk(Statistic):
    """The charge for the probability that the name of a group with a single record appears.

    **Guarantee.** It releases noise alone. What it charges is a sampled Gaussian with the accepted probability as its
    rate and nearly no noise: with that probability, everything about the record. That is what an owner pays for
    `KeySelection` beside its noisy counts; in terms of (epsilon, delta) it is the probability, taken off delta.

    Args:
        plan: One step; its rates are the probabilities, see `risk_plan`.
        owners: As for `Statistic`.
        options: As for `Statistic`.
    """

    name = "key-risk"
    key_name = "inosgm.statistics.key_selection.KeyRisk"
    blind = True

    def __init__(self, plan: Plan, owners: Owners | Any = None, **options: Any) -> None:
        super().__init__(plan, owners, **options)

    @classmethod
    def each_once(cls, **parameters: Any) -> bool:
        """Return False: the plan is charged as it is."""
        return False

    def contributions(self, batch: Any) -> np.ndarray:
        """Return 0 for every record."""
        return np.zeros(len(batch))

    def estimate(self) -> Estimate:
        """Return 0: there is nothing to know."""
        return Estimate(value=0.0, standard_error=0.0, estimand="the charge for names of groups")


def risk_plan(owners: Owners, accountant: Accountant) -> Plan:
    """Return the plan of `KeyRisk`: every owner accepts `RISK` of its delta."""
    return Plan(
        labels=owners.labels,
        sizes=owners.sizes,
        sample_rates=RISK * owners.delta,
        sensitivities=np.ones(owners.sizes.size),
        noise_scale=NEARLY_NO_NOISE,
        steps=1,
        epsilon=owners.epsilon,
        delta=owners.delta,
        accountant=accountant.name,
        unit_name=owners.unit_name,
    )


def risks_of(plan: Plan) -> np.ndarray:
    """Return the probability that each owner accepts."""
    if plan.delta is None:
        raise ValueError("plan must know the deltas of owners: private names of groups cost a part of them")
    return np.asarray(RISK * plan.delta)


class KeySelection(ThresholdedSums, Statistic):
    """The names of the groups that many records have, and how many.

    **What it estimates.** The names in a column whose noisy number of records exceeds a threshold, which a single
    record exceeds with at most 5 % of its owner's delta. A group of few records never appears otherwise.

    **Guarantee.** That of `ThresholdedSums`, together with a charge for `KeyRisk`.

    Args:
        plan: The public numbers; one step.
        owners: As for `Statistic`.
        options: As for `Statistic`.
    """

    name = "key-selection"
    key_name = "inosgm.statistics.key_selection.KeySelection"
    of_labels = True
    in_one_process = True

    def __init__(self, plan: Plan, owners: Owners | Any = None, **options: Any) -> None:
        self.risks = risks_of(plan)
        super().__init__(plan, owners, bins=2, **options)

    def name_cells(self, names: Sequence[str]) -> None:
        """Set the names of the cells: all that occur in the data. NOT PRIVATE."""
        super().name_cells(names)
        self._cell_of = {name: cell for cell, name in enumerate(names)}

    def contributions(self, batch: Any) -> Cells:
        """Return 1 in the cell of each record's name."""
        labels = np.asarray(batch).tolist()
        cells = np.fromiter((self._cell_of[str(label)] for label in labels), np.int64, len(labels))
        return Cells(np.ones(cells.size), cells, self._cells)

    def observe(self, value: Any) -> None:
        """Record the released names and sums."""
        self.selected = {str(name): float(total) for name, total in dict(value).items()}
        self.observed.append(np.array(list(self.selected.values())))

    def estimate(self) -> Estimate:
        """Return the number of records of each released name, the largest first."""
        scale = self.records / self.total
        ordered = sorted(self.selected.items(), key=lambda item: (-item[1], item[0]))
        return Estimate(
            value=scale * np.array([total for _, total in ordered]),
            standard_error=np.full(len(ordered), scale * self.noise),
            estimand="the names that many records have",
            details={"keys": [name for name, _ in ordered], "threshold": scale * self.threshold},
        )
