"""The contents of a ledger: grants, charges and spent epsilons, rebuilt from the rows of its journal."""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import numpy as np

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS, PLD, Stretch
from inosgm.accounting.units import ADD_REMOVE, RELATIONS, described, is_unit, name_in, name_of, other_unit, relation_of
from inosgm.ledger.charges import Charge, ChargedJob, CostTable, Spans, length, merged, uncovered
from inosgm.ledger.commitments import Commitments, Part, steps_by_digest
from inosgm.ledger.cost import Cost
from inosgm.ledger.filter import Filter, Grants, State
from inosgm.ledger.journal import Row
from inosgm.ledger.refusals import BudgetExceeded
from inosgm.owners import Label, Owners

_HOW_TO_GRANT = (
    "change budgets with `grant` (`inosgm ledger grant LEDGER OWNERS.csv`), and add owners with its add_owners=True "
    "(--add-owners)"
)

_SHOWN_SHORT = 64  # owners that cannot pay, among which the one that exceeds its budget most is named


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
    charged steps of each. `spent` is None until it is computed after a change. `filter` is None if the ledger composes
    costs that are fixed in advance; otherwise it decides about `commitments`.
    """

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.labels: list[Label] = []
        self.position: dict[Label, int] = {}
        self.granted = self.delta = np.empty(0)
        self.lowered: set[int] = set()  # owners that have ever granted less than before
        self.tables: dict[str, CostTable] = {}
        self.steps: dict[str, int] = {}
        self.jobs: dict[str, ChargedJob] = {}
        self.coins: dict[str, tuple[str, int]] = {}
        self.charges: list[Charge] = []
        self.undone: list[Row] = []
        self.torn: list[Row] = []
        self.spent: np.ndarray | None = None
        self.filter: Filter | None = None
        self.commitments = Commitments()
        self.grants = Grants(self.granted, self.delta)
        self._classes: tuple[np.ndarray, np.ndarray] | None = None
        self._classed = 0  # tables that the classes tell apart
        self._last_table: tuple[Cost, str, CostTable] | None = None

    def take_over(self, other: "Accounts") -> None:
        """Continue from a copy of other accounts, without their jobs."""
        self.labels, self.position = list(other.labels), dict(other.position)
        self.granted, self.delta, self.grants = other.granted, other.delta, other.grants
        self.lowered = set(other.lowered)
        self.tables, self.steps, self.commitments = dict(other.tables), dict(other.steps), deepcopy(other.commitments)
        self._classes, self._last_table, self.spent = None, None, None
        if other.filter is not None:
            self.filter = other.filter.copied()

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
        if row.get("format", 1) not in (1, 2):
            raise ValueError(f"unknown format {row['format']!r}")
        if "ledger" in row:
            self.unit = row.get("unit", ADD_REMOVE)
            if not is_unit(self.unit):
                raise ValueError(f"unknown unit {self.unit!r}")
            if "reserve" in row:  # what only a ledger for adaptive analysts has; older versions refuse its format
                self.filter = Filter(self.unit, row["reserve"])
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
            if self.filter is not None:
                self.commitments.release(job.cost, row["job"], length(kept))
                self.filter.forget()
            self.undone.append({**{name: row[name] for name in ("job", "step", "time")}, "steps": undone})
        elif row["kind"] == "announce":
            self._apply_commitments(row)
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
        before = self.granted[where], self.delta[where]
        self.granted[where], self.delta[where] = row["epsilon"], row["delta"]
        less = (self.granted[where] < before[0]) | (self.delta[where] < before[1])
        self.lowered.update(np.array(where)[less].tolist())
        self._classes = None  # owners and deltas may have changed, by which classes are formed
        self.grants = Grants(self.granted.copy(), self.delta.copy())

    def _apply_commitments(self, row: Row) -> None:
        """Enter the event of a row, if it has one."""
        for digest, table in row.get("tables", {}).items():
            self.tables[digest] = CostTable.from_row(table)
        if "commit" in row:
            self.commitments.add((digest, job, steps) for digest, job, steps in row["commit"])

    def _apply_charge(self, row: Row) -> None:
        digest, spans = row["cost"], tuple((start, stop) for start, stop in row["spans"])
        if row["table"] is not None:  # only the first charge of a cost carries its table
            self.tables[digest] = CostTable.from_row(row["table"])
        self._apply_commitments(row)
        if "taken" in row:
            self.commitments.take(digest, row["job"], row["taken"])
        names = ("job", "fingerprint", "note", "time", "cost")
        event = None if self.filter is None else self.commitments.latest.get(row["job"], 0)
        charge = Charge(**{name: row[name] for name in names}, spans=spans, event=event, by=row.get("by", ""))
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

    def event_for(
        self, asked: Sequence[tuple[Cost, str, Spans]], together: Sequence[Mapping[str, int]]
    ) -> tuple[list[Part], list[int]]:
        """Return what an adaptive ledger must commit to for a charge, and the announced steps that each cost takes.

        A cost whose steps are not all committed to commits to the rest of its plan, and to everything else that was
        fixed `together` with it.
        """
        known, parts, taken = self.commitments, [], []
        announced, free = dict(known.announced), dict[tuple[str, str], int]()
        for cost, digest, spans in asked:
            job = self.jobs.get(cost.job)
            paid = [] if job is None else job.spans
            name = digest, cost.job
            left = free.setdefault(name, known.committed.get(name, 0) - length(paid))
            wanted = max(length(uncovered(cost.step, cost.planned, paid)), length(spans)) - left
            taken.append(0)
            if length(spans) > left:
                for digests in together if wanted > announced.get(digest, 0) else ():
                    if digest in digests:
                        missing = {other: steps - announced.get(other, 0) for other, steps in digests.items()}
                        parts += [(other, "", steps) for other, steps in missing.items() if steps > 0]
                        announced |= {other: max(steps, announced.get(other, 0)) for other, steps in digests.items()}
                taken[-1] = min(wanted, announced.get(digest, 0))
                announced[digest] = announced.get(digest, 0) - taken[-1]
                if wanted > taken[-1]:
                    parts.append((digest, cost.job, wanted - taken[-1]))
                free[name] += wanted
            free[name] -= length(spans)
        return parts, taken

    def charged_job(self, job: str, step: int) -> ChargedJob | None:
        """Return a job if the step is paid for: it was charged and not undone since."""
        known = self.jobs.get(job)
        return None if known is None or uncovered(step, step + 1, known.spans) else known

    def spent_now(self) -> np.ndarray:
        """Return the epsilon that each owner has spent: by the filter, or computed once per history and delta."""
        if self.spent is None:
            self.spent = self.planned_now() if self.filter is None else self._committed_now(self.filter)
        return self.spent

    def planned_now(self) -> np.ndarray:
        """Return the epsilon of each owner's charges if none of them was chosen by looking at a release."""
        first, inverse = self.classes({})
        return np.asarray(self._epsilons([self.segments(owner) for owner in first.tolist()], first)[inverse])

    def state(self) -> State:
        """Return the state of the filter."""
        assert self.filter is not None
        return self.filter.state(self.commitments, self.tables, self.grants)

    def _committed_now(self, filtering: Filter) -> np.ndarray:
        state = self.state()
        committed = Counter[str]()
        for event in self.commitments.events:
            committed.update(steps_by_digest(event))
        charged = all(committed[digest] == steps for digest, steps in self.steps.items()) and not state.dominated.any()
        if charged and committed.total() == sum(self.steps.values()) and self.accountant == filtering.accountant:
            return self.planned_now()  # nothing is lost to adaptivity: the same number, to the last digit
        return filtering.epsilons(state, np.arange(len(self.labels)), filtering.level(state, self.grants))

    def state_after(self, parts: Sequence[Part], tables: dict[str, CostTable]) -> State:
        """Return the state of the filter after one more event.

        Raises:
            BudgetExceeded: if an owner cannot pay.
        """
        filtering, before = self.filter, self.state()
        assert filtering is not None
        steps = steps_by_digest(parts)
        known = [(digest, tables.get(digest) or self.tables[digest], count) for digest, count in steps.items()]
        after = filtering.after(before, known, self.grants)
        over = filtering.over(before, after, self.grants)
        if not over.size:
            return after
        raise self._refusal(filtering, before, after, over)

    def require_lowered_grants(self, tables: Sequence[CostTable]) -> None:
        """Raise if an owner that has lowered its grant, and pays in one of the tables, has committed to more than that.

        Steps that were committed to before are charged without asking the filter again. Without this an owner who
        grants less during a run would pay for all of the rest.
        """
        if self.filter is None or not self.lowered or not tables:
            return
        pays = np.any([table.groups(len(self.labels)) >= 0 for table in tables], axis=0)
        lowered = np.array(sorted(self.lowered), dtype=np.int64)
        state = self.state()
        over = self.filter.over_now(state, lowered[pays[lowered]], self.grants)
        if over.size:
            refusal = self._refusal(self.filter, state, state, over)
            refusal.advice = (
                "it has lowered its grant below what was committed to before: `undo` the steps that were not made, and "
                "plan the rest within the new grant"
            )
            raise refusal

    def _refusal(self, filtering: Filter, before: State, after: State, over: np.ndarray) -> BudgetExceeded:
        """Return the refusal of a step from one state to the next, which names the owner that is farthest over."""
        some = over[np.argsort(-after.squares[over], kind="stable")[:_SHOWN_SHORT]]
        level = np.where(after.later[some], 1 - filtering.reserve, 1.0) * self.delta[some]
        totals = filtering.epsilons(after, some, level)
        worst = int(np.argmax(totals / self.granted[some]))
        spent = float(filtering.epsilons(before, some[[worst]], level[[worst]])[0])
        owner = int(some[worst])
        return BudgetExceeded(
            self.labels[owner], float(self.granted[owner]), spent, float(totals[worst]), int(over.size)
        )

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
        if self._classes is None:
            _, first, inverse = np.unique(self.delta, return_index=True, return_inverse=True)
            self._classes, self._classed = (first, inverse), 0
        for table in islice(self.tables.values(), self._classed, None):
            self._classes, self._classed = self._divided(self._classes, table), self._classed + 1
        known = self._classes
        for digest, table in more.items():
            known = known if digest in self.tables else self._divided(known, table)
        return known

    def _divided(self, classes: tuple[np.ndarray, np.ndarray], table: CostTable) -> tuple[np.ndarray, np.ndarray]:
        """Return classes in which all owners pay the same in a table as well."""
        key = classes[1] * (len(table.sample_rates) + 1) + table.groups(len(self.labels)) + 1
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse

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
