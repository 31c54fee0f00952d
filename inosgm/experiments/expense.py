"""The cost of many runs for every owner, composed, before any of them begins."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._internal.text import MAX_ROWS, columns
from inosgm.accounting import ACCOUNTANTS, Accountant, Segment
from inosgm.accounting.batched_epsilon import epsilon_of_rows
from inosgm.accounting.units import ADD_REMOVE, described, name_in, other_unit, relation_of
from inosgm.ledger.affordable import Costs
from inosgm.ledger.cost import Cost
from inosgm.owners import Label, Owners

BROKEN = 1.002
"""From which multiple of what an owner granted on a budget is called broken: of very many owners epsilons are read off
tables, which may be 0.1 % above them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expense:
    """The cost of runs in one unit of privacy for every owner.

    Attributes:
        labels: The owners.
        granted: The epsilon that each grants to one run.
        one: The epsilon of one run; of the most expensive, if they differ.
        together: The epsilon of all runs, composed.
        runs: How many.
        unit: What the epsilons are about, of `inosgm.accounting.units`.
    """

    labels: tuple[Label, ...]
    granted: np.ndarray
    one: np.ndarray
    together: np.ndarray
    runs: int
    unit: str = ADD_REMOVE

    @property
    def heads(self) -> tuple[str, str]:
        """The headings of the columns of one run and of all runs."""
        unit = "" if self.unit == ADD_REMOVE else f" ({self.unit})"
        return f"one run{unit}", f"all {self.runs} runs{unit}"

    @property
    def kept(self) -> bool:
        """Whether no run costs anybody more than it grants."""
        return bool((self.one <= self.granted * BROKEN).all())

    def by_owner(self) -> dict[Label, tuple[float, float, float]]:
        """Return what each owner grants to one run, what one run costs it, and what all cost it together."""
        columns = (column.tolist() for column in (self.granted, self.one, self.together))
        return dict(zip(self.labels, zip(*columns, strict=True), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = ("granted", "one_run", "together")
        rows = [
            {"owner": label, **dict(zip(names, numbers, strict=True))} for label, numbers in self.by_owner().items()
        ]
        return {"runs": self.runs, "unit": self.unit, "owners": rows}

    def table(self) -> str:
        """Return a table for people; of very many owners those that pay most."""
        most_expensive = np.argsort(-self.together, kind="stable")[:MAX_ROWS]
        numbers = (self.granted, self.one, self.together)
        shown = np.sort(most_expensive).tolist()
        rows = [[str(self.labels[owner]), *(f"{column[owner]:.4g}" for column in numbers)] for owner in shown]
        lines = columns(["owner", "epsilon granted", *self.heads], rows)
        hidden = len(self.labels) - MAX_ROWS
        lines += [f"({hidden} owners that pay less are not shown)"] * (hidden > 0)
        lines += [f"{self.unit}: epsilons are {described(self.unit)}"] * (self.unit != ADD_REMOVE)
        return "\n".join(lines)


def expenses(owners: Owners, counts: Mapping[Costs, int], accountant: Accountant) -> tuple[Expense, ...]:
    """Say what runs cost every owner, each and together; those of another unit are not added to the others.

    Args:
        owners: Who grants what to one run.
        counts: How many runs have which costs.
        accountant: What composes them, or its sibling in their unit.

    Returns:
        One expense for every unit that runs are in.

    Raises:
        ValueError: for a cost of somebody who is no owner, and for a run whose costs are in several units.

    >>> from inosgm.accounting import RDP
    >>> owners = Owners(of_record=["a", "b"], epsilon={"a": 1.0, "b": 4.0}, delta=1e-5)
    >>> run = Cost(labels=("a", "b"), sample_rates=[0.1, 0.1], noise_multipliers=[10, 2], steps=100)
    >>> print(expenses(owners, {(run,): 16}, RDP())[0].table())
    owner  epsilon granted  one run  all 16 runs
    a                    1   0.3834        1.707
    b                    4    2.581         11.8
    """
    units: dict[str, dict[Costs, int]] = {}
    for costs, count in counts.items():
        unit, *others = {cost.unit for cost in costs}
        if others:
            raise ValueError(f"the costs of a run must be in one unit, got {other_unit(unit, others[0])}")
        units.setdefault(unit, {})[costs] = count
    found = []
    for unit, some in units.items():
        chosen = accountant if accountant.unit == relation_of(unit) else ACCOUNTANTS[name_in(unit, accountant.name)]
        found.append(_expense(owners, some, chosen, unit))
    return tuple(found)


def _expense(owners: Owners, counts: Mapping[Costs, int], accountant: Accountant, unit: str) -> Expense:
    runs = [[_segment(owners, cost, 1) for cost in costs] for costs in counts]
    every = [_segment(owners, cost, count) for costs, count in counts.items() for cost in costs]
    each = [epsilon_of_rows(segments, owners.delta, accountant) for segments in runs]
    return Expense(
        labels=owners.labels,
        granted=owners.epsilon,
        one=np.max(each, axis=0),
        together=epsilon_of_rows(every, owners.delta, accountant),
        runs=sum(counts.values()),
        unit=unit,
    )


def _segment(owners: Owners, cost: Cost, count: int) -> Segment:
    """Return what some runs do to the records of every owner."""
    place = {label: index for index, label in enumerate(owners.labels)}
    unknown = [label for label in cost.labels if label not in place]
    if unknown:
        raise ValueError(f"costs must be those of the owners, got one of {unknown[0]!r}")
    where = [place[label] for label in cost.labels]
    shape = (len(place), *cost.sample_rates.shape[1:])
    rates, multipliers = np.zeros(shape), np.ones(shape)
    rates[where], multipliers[where] = cost.sample_rates, cost.noise_multipliers
    return Segment(rates, multipliers, np.full(len(place), cost.steps * count))
