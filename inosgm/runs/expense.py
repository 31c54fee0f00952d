"""What many runs cost every owner, all together, before any of them begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inosgm._refusals import BudgetExceeded
from inosgm._text import MOST, columns
from inosgm.accounting import PLD, RDP, Accountant, Segment
from inosgm.accounting.along import epsilon_of_rows
from inosgm.cost import Cost
from inosgm.ledger import Ledger
from inosgm.owners import Label, Owners


@dataclass(frozen=True, kw_only=True, eq=False)
class Expense:
    """What runs cost every owner.

    Attributes:
        labels: The owners.
        granted: The epsilon that each grants to one run.
        one: The epsilon of one run; of the dearest, if they differ.
        together: The epsilon of all runs, composed.
        runs: How many.
    """

    labels: tuple[Label, ...]
    granted: np.ndarray
    one: np.ndarray
    together: np.ndarray
    runs: int

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
        return {"runs": self.runs, "owners": rows}

    def table(self) -> str:
        """Return a table for people; of very many owners those that pay most."""
        dearest = np.argsort(-self.together, kind="stable")[:MOST]
        numbers = (self.granted, self.one, self.together)
        rows = [
            [str(self.labels[owner]), *(f"{column[owner]:.4g}" for column in numbers)] for owner in np.sort(dearest)
        ]
        lines = columns(["owner", "epsilon granted", "one run", f"all {self.runs} runs"], rows)
        hidden = len(self.labels) - MOST
        return "\n".join([*lines, *[f"({hidden} owners that pay less are not shown)"] * (hidden > 0)])


def expense(owners: Owners, counts: Mapping[Cost, int], accountant: Accountant) -> Expense:
    """Say what runs cost every owner, each and together.

    Args:
        owners: Who grants what to one run.
        counts: How many runs have which cost.
        accountant: What composes them.

    Raises:
        ValueError: for a cost of somebody who is no owner.

    >>> from inosgm.accounting import RDP
    >>> owners = Owners(of_record=["a", "b"], epsilon={"a": 1.0, "b": 4.0}, delta=1e-5)
    >>> run = Cost(labels=("a", "b"), sample_rates=[0.1, 0.1], noise_multipliers=[10, 2], steps=100)
    >>> print(expense(owners, {run: 16}, RDP()).table())
    owner  epsilon granted  one run  all 16 runs
    a                    1   0.3834        1.707
    b                    4    2.581         11.8
    """
    segments = [_segment(owners, cost, 1) for cost in counts]
    every = [_segment(owners, cost, count) for cost, count in counts.items()]
    each = [epsilon_of_rows([segment], owners.delta, accountant) for segment in segments]
    return Expense(
        labels=owners.labels,
        granted=owners.epsilon,
        one=np.max(each, axis=0),
        together=epsilon_of_rows(every, owners.delta, accountant),
        runs=sum(counts.values()),
    )


def counted(costs: Sequence[Cost]) -> dict[Cost, int]:
    """Count equal costs; which job they belong to does not matter."""
    first: dict[object, Cost] = {}
    counts: dict[Cost, int] = {}
    for cost in costs:
        key = (cost.labels, cost.sample_rates.tobytes(), cost.noise_multipliers.tobytes(), cost.steps)
        same = first.setdefault(key, cost)
        counts[same] = counts.get(same, 0) + 1
    return counts


def require_affordable(ledger: Ledger, costs: Sequence[Cost], accountant: PLD | RDP) -> None:
    """Raise unless a ledger can pay for all jobs that it was not charged for before; nothing is charged.

    Args:
        ledger: Who pays.
        costs: One per job.
        accountant: That of the ledger.

    Raises:
        BudgetExceeded: with a note that says how many of the jobs it can pay for.
    """
    charged = {charge.fingerprint for charge in ledger.history()}
    left = [cost for cost in costs if cost.job not in charged]

    def refusal(jobs: int) -> BudgetExceeded | None:
        trial = ledger.rehearsal()
        try:
            for cost, count in counted(left[:jobs]).items():
                trial.charge(cost.at(0, cost.steps * count))
        except BudgetExceeded as error:
            return error
        return None

    error = refusal(len(left))
    if error is None:
        return
    fits, too_many = 0, len(left)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if refusal(middle) is None else (fits, middle)
    error.add_note(
        f"the ledger can pay for {fits} of the {len(left)} runs that it was not charged for yet: ask for fewer runs, "
        "let each ask for less (a smaller epsilon in the configuration), or grant more in the ledger"
    )
    raise error


def _segment(owners: Owners, cost: Cost, count: int) -> Segment:
    """Return what some runs do to the records of every owner."""
    place = {label: index for index, label in enumerate(owners.labels)}
    unknown = [label for label in cost.labels if label not in place]
    if unknown:
        raise ValueError(f"costs must be those of the owners, got one of {unknown[0]!r}")
    where = [place[label] for label in cost.labels]
    rates, multipliers = np.zeros(len(place)), np.ones(len(place))
    rates[where], multipliers[where] = cost.sample_rates, cost.noise_multipliers
    return Segment(rates, multipliers, np.full(len(place), cost.steps * count))
