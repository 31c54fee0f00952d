"""The contents of a ledger: grants, charges and spent epsilons, rebuilt from the rows of its journal."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS, PLD, Stretch
from inosgm.accounting.units import ADD_REMOVE, RELATIONS, described, is_unit, name_in, name_of, other_unit, relation_of
from inosgm.ledger.charges import Charge, ChargedJob, CostTable, length, merged, uncovered
from inosgm.ledger.cost import Cost
from inosgm.ledger.journal import Row
from inosgm.ledger.refusals import BudgetExceeded
from inosgm.owners import Label, Owners

_HOW_TO_GRANT = (
    "change budgets with `grant` (`inosgm ledger grant LEDGER OWNERS.csv`), and add owners with its add_owners=True "
    "(--add-owners)"
)


class HistoryAccountant(Protocol):
    """An accountant of histories, such as PLD() and RDP() of inosgm.accounting.

    It may have a `unit` of `inosgm.accounting.units`; without one, its unit is "add/remove". If steps were charged as a
    menu, the rate and the multiplier of a stretch are tuples with the entries of the menu. If it also has
    `epsilons_of(histories, deltas)`, the same for many histories at once, the ledger calls that instead: with a budget
    per record there may be a million histories.
    """

    def epsilon_of(self, segments: Sequence[Stretch], delta: float) -> float:
        """Return an epsilon such that the composed segments are (epsilon, delta)-private for one record."""


def accountant_of(unit: str) -> HistoryAccountant:
    """Return the default accountant of a unit: privacy loss distributions."""
    return ACCOUNTANTS[name_in(unit, PLD.name)]


def relation_in(accountant: HistoryAccountant) -> str:
    """Return the neighbouring relation of an accountant."""
    relation: str = getattr(accountant, "unit", ADD_REMOVE)
    if relation not in RELATIONS:
        raise ValueError(f"accountant must count in one of the units {', '.join(RELATIONS)}, got {relation!r}")
    return relation


class Accounts:
    """Every owner's grant and history, and the epsilon that each has spent by the accountant of the ledger.

    Owners are indices into `labels`. `tables` holds each distinct cost once by its digest, and `steps` counts the
    charged steps of each. `spent` is None until it is computed after a change.
    """

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.labels: list[Label] = []
        self.position: dict[Label, int] = {}
        self.granted = self.delta = np.empty(0)
        self.tables: dict[str, CostTable] = {}
        self.steps: dict[str, int] = {}
        self.jobs: dict[str, ChargedJob] = {}
        self.coins: dict[str, tuple[str, int]] = {}
        self.charges: list[Charge] = []
        self.undone: list[Row] = []
        self.torn: list[Row] = []
        self.spent: np.ndarray | None = None
        self._classes: tuple[np.ndarray, np.ndarray] | None = None
        self._last_table: tuple[Cost, str, CostTable] | None = None

    def use(self, accountant: HistoryAccountant, path: str | None) -> None:
        """Set the accountant; it must count in the unit of the ledger."""
        relation = relation_in(accountant)
        if relation != relation_of(self.unit):
            raise ValueError(
                f"accountant must count in the unit of {path}: {other_unit(relation, self.unit)}; open it with an "
                "accountant of its unit (or none), and keep another ledger for the other unit"
            )
        self.accountant = accountant
        self._epsilon_of = lru_cache(maxsize=2**16)(accountant.epsilon_of)  # owners with equal histories ask once

    def apply(self, row: Row) -> None:
        """Enter one row of the journal."""
        self.spent = None
        if row.get("format", 1) != 1:
            raise ValueError(f"unknown format {row['format']!r}")
        if "ledger" in row:
            self.unit = row.get("unit", ADD_REMOVE)
            if not is_unit(self.unit):
                raise ValueError(f"unknown unit {self.unit!r}")
        if row["kind"] == "grant":
            self._apply_grant(row)
        elif row["kind"] == "charge":
            self._apply_charge(row)
        elif row["kind"] == "bind":
            self.jobs[row["job"]].sums[row["step"]] = row["sum"]
        elif row["kind"] == "undo":
            job = self.jobs[row["job"]]
            kept = [(start, min(stop, row["step"])) for start, stop in job.spans if start < row["step"]]
            undone = length(job.spans) - length(kept)
            job.spans[:] = kept
            self.steps[job.cost] -= undone
            self.undone.append({**{name: row[name] for name in ("job", "step", "time")}, "steps": undone})
        elif row["kind"] == "torn":
            self.torn.append(row)
        else:
            raise ValueError(f"unknown kind {row['kind']!r}")

    def _apply_grant(self, row: Row) -> None:
        new = [label for label in row["labels"] if label not in self.position]
        self.position.update((label, len(self.labels) + i) for i, label in enumerate(new))
        self.labels += new
        where = [self.position[label] for label in row["labels"]]
        missing = np.zeros(len(new))
        self.granted = np.concatenate([self.granted, missing])
        self.delta = np.concatenate([self.delta, missing])
        self.granted[where], self.delta[where] = row["epsilon"], row["delta"]
        self._classes = None  # owners and deltas may have changed, by which classes are formed

    def _apply_charge(self, row: Row) -> None:
        digest, spans = row["cost"], tuple((start, stop) for start, stop in row["spans"])
        if row["table"] is not None:  # only the first charge of a cost carries its table
            self.tables[digest] = table = CostTable.from_row(row["table"])
            self._classes = self.classes({digest: table})
        names = ("job", "fingerprint", "note", "time", "cost")
        charge = Charge(**{name: row[name] for name in names}, spans=spans)
        job = self.jobs.setdefault(charge.job, ChargedJob(digest, charge.fingerprint))
        job.spans[:] = merged([*job.spans, *spans])
        job.charged[:] = merged([*job.charged, *spans])
        if "coins" in row:
            step, coins = row["coins"]
            job.coins[step], self.coins[coins] = coins, (charge.job, step)
        self.steps[digest] = self.steps.get(digest, 0) + charge.steps
        self.charges.append(charge)

    def per_owner(self, values: np.ndarray) -> dict[Label, float]:
        """Return values by the label of their owner."""
        return dict(zip(self.labels, values.tolist(), strict=True))

    def require_known(self, labels: Sequence[Label], advice: str = "") -> None:
        """Raise if a label is not that of an owner."""
        unknown = [label for label in labels if label not in self.position]
        if unknown:
            known = _validate.some(self.labels)
            raise ValueError(f"owners must be those of the ledger ({known}), got {_validate.some(unknown)}{advice}")

    def require_same_unit(self, owners: Owners) -> None:
        """Raise if owners grant their budgets for another unit than that of the ledger."""
        if owners.unit_name != name_of(self.unit):
            raise ValueError(
                f"owners must have the unit of the ledger, whose epsilons are {described(self.unit)}: they grant their "
                f"budgets for one {owners.unit_name}; keep a ledger of its own for that unit"
            )

    def require_same_grants(self, owners: Owners, path: str | None) -> None:
        """Raise unless these are all owners of the ledger, with the same budgets for the same unit."""
        self.require_same_unit(owners)
        where = [self.position.get(label, -1) for label in owners.labels]
        unknown = [label for label, index in zip(owners.labels, where, strict=True) if index < 0]
        if unknown or len(where) != len(self.labels):
            missing = unknown or sorted(set(self.labels).difference(owners.labels), key=repr)
            side = "the ledger does not know" if unknown else "the ledger also knows"
            raise ValueError(f"owners must be those of {path}: {side} {_validate.some(missing)}; {_HOW_TO_GRANT}")
        differs = (self.granted[where] != owners.epsilon) | (self.delta[where] != owners.delta)
        if differs.any():
            i = int(np.argmax(differs))
            raise ValueError(
                f"owners must grant what {path} says: owner {owners.labels[i]!r} grants (epsilon, delta) "
                f"({owners.epsilon[i]:g}, {owners.delta[i]:g}) here and ({self.granted[where[i]]:g}, "
                f"{self.delta[where[i]]:g}) there; leave owners out, or {_HOW_TO_GRANT}"
            )

    def table_of(self, cost: Cost) -> tuple[str, CostTable]:
        """Return a cost as a table, with its digest; steps that share their (read-only) arrays are grouped once."""
        last = self._last_table
        if last is not None and all(
            getattr(cost, name) is getattr(last[0], name) for name in ("labels", "sample_rates", "noise_multipliers")
        ):
            return last[1:]
        self.require_known(cost.labels)
        table = CostTable.of(cost, np.array([self.position[label] for label in cost.labels], dtype=np.int64))
        self._last_table = cost, table.digest(), table
        return self._last_table[1:]

    def cost_of(self, digest: str, steps: int) -> Cost:
        """Return a number of steps of a table as a cost of a new job."""
        table = self.tables[digest]
        paying = np.flatnonzero(table.group >= 0)
        return Cost(
            labels=tuple(self.labels[owner] for owner in paying.tolist()),
            sample_rates=table.sample_rates[table.group[paying]],
            noise_multipliers=table.noise_multipliers[table.group[paying]],
            steps=steps,
            unit=self.unit,
        )

    def charged_job(self, job: str, step: int) -> ChargedJob | None:
        """Return a job if the step is paid for: it was charged and not undone since."""
        known = self.jobs.get(job)
        return None if known is None or uncovered(step, step + 1, known.spans) else known

    def spent_now(self) -> np.ndarray:
        """Return the epsilon that each owner has spent, computed once per distinct history and delta."""
        if self.spent is None:
            first, inverse = self.classes({})
            self.spent = self._epsilons([self.segments(owner) for owner in first.tolist()], first)[inverse]
        return self.spent

    def spent_after(self, tables: dict[str, CostTable], more: Sequence[tuple[CostTable, int]]) -> np.ndarray | None:
        """Return the spent epsilons after more steps of tables; None if they are not known for all owners.

        Raises:
            BudgetExceeded: if an owner cannot pay.
        """
        first, inverse = self.classes(tables)
        pays = np.any([table.groups(len(self.labels)) >= 0 for table, _ in more], axis=0)
        paying = first[pays[first]]
        epsilons = np.zeros(len(self.labels))
        epsilons[paying] = self._epsilons([self.segments(owner, more) for owner in paying.tolist()], paying)
        total: np.ndarray = epsilons[first][inverse]
        short = pays & ~(total <= self.granted)  # a NaN is short as well
        if short.any():
            worst = int(np.argmax(np.where(short, total / self.granted, -np.inf)))
            spent = float(self._epsilons([self.segments(worst)], np.array([worst]))[0])
            granted = float(self.granted[worst])
            raise BudgetExceeded(self.labels[worst], granted, spent, float(total[worst]), int(short.sum()))
        if pays.all():
            return total
        return None if self.spent is None else np.where(pays, total, self.spent)

    def classes(self, more: dict[str, CostTable]) -> tuple[np.ndarray, np.ndarray]:
        """Return one owner of each class of owners with equal delta and history, and the class of every owner."""
        known, tables = self._classes, more
        if known is None:
            _, first, inverse = np.unique(self.delta, return_index=True, return_inverse=True)
            known, tables = (first, inverse), {**self.tables, **more}
        for table in tables.values():
            key = known[1] * (len(table.sample_rates) + 1) + table.groups(len(self.labels)) + 1
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            known = first, inverse
        return known

    def segments(self, owner: int, more: Sequence[tuple[CostTable, int]] = ()) -> tuple[Stretch, ...]:
        """Return the history of an owner, with more steps if given; equal steps are added up, menus come last."""
        counts: dict[Any, int] = {}
        for table, count in [*((self.tables[digest], count) for digest, count in self.steps.items()), *more]:
            group = table.group[owner] if owner < table.group.size else -1
            if group >= 0 and count:
                step = table.step(group)
                counts[step] = counts.get(step, 0) + count
        ordered = sorted(counts.items(), key=lambda item: (isinstance(item[0][0], tuple), item[0]))
        return tuple((*step, count) for step, count in ordered)

    def _epsilons(self, histories: list[tuple[Stretch, ...]], owners: np.ndarray) -> np.ndarray:
        """Return the accountant's epsilons of the histories of some owners."""
        epsilons, deltas = np.zeros(len(histories)), self.delta[owners].tolist()
        some = [i for i, history in enumerate(histories) if history]
        many = getattr(self.accountant, "epsilons_of", None)
        if many is None:
            epsilons[some] = [self._epsilon_of(histories[i], deltas[i]) for i in some]
        elif some:
            epsilons[some] = many([histories[i] for i in some], [deltas[i] for i in some])
        bad = np.flatnonzero(~(epsilons >= 0))  # also a NaN
        if bad.size:
            what = f"{epsilons[bad[0]]} for {histories[bad[0]][:3]} at delta {deltas[bad[0]]}"
            raise ValueError(f"accountant must return an epsilon >= 0, got {what}: nothing was charged")
        return epsilons
