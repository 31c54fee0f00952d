"""The ledger: the budget that every owner has spent, recorded durably before anything is released."""

import io
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.extras import require_extra
from inosgm.accounting import PLD, Segment, Stretch
from inosgm.accounting.units import ADD_REMOVE, RECORD, name_of, relation_of, unit_of
from inosgm.ledger.accounts import Accounts, HistoryAccountant, accountant_of, relation_in
from inosgm.ledger.author import author
from inosgm.ledger.charges import Charge, CostTable, length
from inosgm.ledger.commitments import Part, steps_by_digest
from inosgm.ledger.cost import Cost
from inosgm.ledger.filter import RESERVE, Grants
from inosgm.ledger.journal import FileJournal, Journal, LedgerDamaged, MemoryJournal, Row
from inosgm.ledger.refusals import BudgetExceeded, JobMismatch
from inosgm.ledger.report import adaptive_lines, charge_lines, owner_lines, torn_lines, undone_lines, unit_lines
from inosgm.ledger.rules import new_coins, require_cost, uncharged_steps
from inosgm.owners import Label, Owners

__all__ = ["BudgetExceeded", "Charge", "HistoryAccountant", "JobMismatch", "Ledger", "LedgerDamaged"]


class Ledger:
    """The record of every owner's spending: a charge that an owner cannot pay is refused, and nothing is released.

    **Guarantee.** For every owner, all charges together are (epsilon, delta)-private for one of its records, with the
    epsilon and delta that the owner grants, in the one unit of the ledger (`unit`): one record added or removed, or
    replaced, with an accountant for that; or one unit of `Owners` with all its records, which is fixed when the ledger
    is made. A charge is on disk, file and directory synced, before `charge` returns, so
    no value is seen before it is paid for, and a job that dies stays charged. The guarantee assumes that every release
    about these owners is charged here.

    With `adaptive=True`, rates, multipliers, numbers of steps and when to stop may be chosen by looking at earlier
    releases. A privacy filter per owner admits a charge (`inosgm.ledger.filter`). Steps that are fixed in advance
    together enter it as one event, composed tightly: those of one charge, of one plan (`Cost.planned`), and what was
    announced (`announce`). Otherwise the guarantee assumes that costs are not chosen by looking at earlier releases,
    except among the entries of a menu that is charged, and all charges compose tightly as one. Which of the two it is,
    is written in the first row of the file.

    In a file, rows are chained by checksums. A torn last row (the writer was killed) counts for nothing: it was never
    acknowledged, so nothing was released for it; its bytes are kept beside the file and a row records it. Any other
    defect raises `LedgerDamaged`. The file alone cannot show that whole rows were cut off its end, that its last row
    was cut in the middle (that looks torn), or that all of it was rewritten: note `head()` elsewhere, and `check` it.
    Processes share a file through locks that end with the process.

    The file is as public as labels and budgets are: rows of an adaptive ledger name the user, the host and the program
    that have written them. It holds no data, and of the sums of a keyed mechanism only digests
    under the key. It also holds a digest of the key, so a reader can try out small keys: take keys from
    `secrets.randbits(128)`. The same holds for the secret of an `OrderedSum`. Two ledgers do not know each other: never
    use a key, or a secret, with both.

    Args:
        path: The file; it is opened, or created if it does not exist and owners are given. None keeps the ledger in
            memory, with the same rules, as long as the object lives.
        owners: The owners and their budgets. Must agree with the file if it exists; may then be left out.
        accountant: Composes costs that are fixed in advance, and determines the unit of the ledger. If not given,
            privacy loss distributions in the unit of the file; `inosgm.accounting.PLD()` for a new one.
        adaptive: Whether the analyst may choose costs by looking at releases. If not given, what the file says; for a
            new one, false. In an adaptive ledger an accountant determines the unit, and says what the charges would
            have cost if they had been fixed in advance.

    Raises:
        FileNotFoundError: if the file does not exist and no owners are given.
        LedgerDamaged: if the file is not what was written.
        ValueError: if owners do not grant what the file says, the accountant has another unit, or the file composes in
            another way.

    >>> class Classic:  # the textbook bound for Gaussian noise, added up; PLD is far tighter
    ...     def epsilon_of(self, segments, delta):
    ...         return sum(steps * (2 * np.log(1.25 / delta)) ** 0.5 / sigma for _, sigma, steps in segments)
    >>> owners = Owners(of_record=["a", "b"], epsilon={"a": 1.0, "b": 3.0}, delta=1e-5)
    >>> ledger = Ledger(owners=owners, accountant=Classic())
    >>> ledger.charge(Cost(labels=("a", "b"), sample_rates=[1, 1], noise_multipliers=[10, 5]))
    >>> {owner: round(epsilon, 2) for owner, epsilon in ledger.remaining().items()}
    {'a': 0.52, 'b': 2.03}
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        owners: Owners | None = None,
        accountant: HistoryAccountant | None = None,
        adaptive: bool | None = None,
    ) -> None:
        if adaptive not in (None, True, False):
            raise TypeError(f"adaptive must be True, False or None, got {adaptive!r}")
        if owners is not None and not isinstance(owners, Owners):
            raise TypeError(f"owners must be Owners, got {owners!r}")
        if accountant is not None and (
            not callable(getattr(accountant, "epsilon_of", None)) or isinstance(accountant, type)
        ):
            raise TypeError(f"accountant must be PLD() or RDP(), got {accountant!r}")
        self._path = None if path is None else str(Path(path).absolute())  # the process may change its directory
        relation = ADD_REMOVE if accountant is None else relation_in(accountant)
        self._accounts = Accounts(unit_of(relation, RECORD if owners is None else owners.unit_name))
        self._entered = 0  # rows in the accounts; always as many as the journal has heads
        self._together: list[dict[str, tuple[CostTable, int]]] = []  # what is charged together from its first step on
        filtering = bool(adaptive)  # of a new ledger
        self._journal: Journal
        if self._path is None:
            if owners is None:
                raise ValueError("owners must say who grants what: a ledger in memory starts with them")
            self._accounts.use(PLD() if accountant is None else accountant, None)
            self._journal = MemoryJournal()
            self._write(_first_row(owners, self.unit, filtering))
            return
        if not os.path.exists(self._path):
            if owners is None:
                raise FileNotFoundError(f"there is no ledger {self._path}: give owners to make one, or another path")
            FileJournal.create(self._path, _first_row(owners, self.unit, filtering))
        self._journal = FileJournal(self._path)
        with self._journal.turn, self._books(write=False):
            self._accounts.use(accountant_of(self.unit) if accountant is None else accountant, self._path)
            if adaptive not in (None, self.adaptive):
                how = "is adaptive" if self.adaptive else "composes costs that are fixed in advance"
                raise ValueError(f"adaptive must be what {self._path} says, which {how}; leave it out, got {adaptive}")
            if owners is not None:
                self._accounts.require_same_grants(owners, self._path)

    @property
    def unit(self) -> str:
        """The unit of its epsilons, as `inosgm.accounting.units` writes it: "add/remove", "add/remove of patient"."""
        return self._accounts.unit

    @property
    def adaptive(self) -> bool:
        """Whether its bound holds if costs are chosen by looking at earlier releases."""
        return self._accounts.filter is not None

    @property
    def durable(self) -> bool:
        """Whether it is in a file, so that other processes see its charges, now and later."""
        return self._path is not None

    @property
    def labels(self) -> tuple[Label, ...]:
        """The owners, in the order of every per-owner mapping."""
        with self._journal.turn, self._books(write=False):
            return tuple(self._accounts.labels)

    def charge(self, *costs: Cost) -> None:
        """Record costs durably, all or none, or raise; only after it returns may their values be computed.

        Steps of a repeatable job that were charged before are not charged again, so a job that is retried pays once. A
        retry must then repeat the same noise: new noise under an old id would be a release that nobody paid for. A step
        of a job that is not repeatable (`Cost.repeatable`), such as that of a mechanism without a key, is refused when
        it is charged a second time, also after an `undo`. Coins that were tossed before the charge (`Cost.coins`) are
        refused for a second step or job.

        Several costs are checked together, before the first of them is written: if one of them is refused, all are.
        Each has a row of its own. If the writer is killed, or the disk is full, between two of them, the earlier ones
        stay charged, and the caller is not told that anything may be released; the same charge once more adds the
        others.

        Args:
            costs: The steps of jobs, and their cost to each owner.

        Raises:
            BudgetExceeded: if an owner cannot pay for all.
            JobMismatch: if a job was charged with another cost or on other data, a step that is not repeatable was
                charged before, or coins were used before.
            TypeError: if a cost is no `Cost`.
            ValueError: if the ledger does not know an owner, or a cost is in another unit.
            OSError: if a row could not be made durable.
        """
        for cost in costs:
            require_cost(cost, self.unit)
        with self._journal.turn, self._books(write=True):
            accounts = self._accounts
            tables: dict[str, CostTable] = {}
            rows: list[Row] = []
            charged: list[Cost] = []
            for cost in costs:
                digest, tables[digest] = accounts.table_of(cost)
                spans = uncharged_steps(accounts, cost, digest, [row for row in rows if row["job"] == cost.job])
                coins = new_coins(accounts, cost, rows)
                if spans or coins:
                    row = {"kind": "charge", "job": cost.job, "fingerprint": cost.fingerprint, "note": cost.note}
                    rows.append({**row, "spans": spans, "cost": digest, **coins})
                    charged.append(cost)
            if accounts.filter is not None:
                self._commit(charged, rows, tables)
                return
            more = [(tables[row["cost"]], length(row["spans"])) for row in rows if row["spans"]]
            spent = accounts.spent_after(tables, more) if more else accounts.spent
            for row in rows:
                known = row["cost"] in accounts.tables
                self._write({**row, "table": None if known else tables[row["cost"]].to_row()})
            accounts.spent = spent

    def announce(self, *costs: Cost) -> None:
        """Commit to costs that are fixed now, durably, all or none, or raise; charging them later costs nothing more.

        An adaptive ledger composes everything that is announced at once tightly, in whatever order it is charged later
        and whatever is asked in between: a comparison of several runs, or a run that is trained after questions whose
        answers do not change its plan. It stays committed if it is never charged. In a ledger of costs that are fixed
        in advance, where all charges compose as one, this only checks them.

        Args:
            costs: The costs. Those of a named job are for that job, and announced once, however often this is called;
                those without a name are for any job with the same cost, and add up.

        Raises:
            BudgetExceeded: if an owner cannot pay for all.
            TypeError: if a cost is no `Cost`.
            ValueError: if the ledger does not know an owner, or a cost is in another unit.

        >>> owners = Owners(of_record=["a"], epsilon=1.0, delta=1e-5)
        >>> ledger = Ledger(owners=owners)
        >>> run = Cost(labels=("a",), sample_rates=[0.01], noise_multipliers=[2.0], steps=1000, job="run")
        >>> ledger.announce(run)
        >>> ledger.charge(Cost(labels=("a",), sample_rates=[1.0], noise_multipliers=[8.0]))
        >>> ledger.charge(run)  # paid for
        """
        for cost in costs:
            require_cost(cost, self.unit)
        if not self.adaptive:
            self.rehearsal().charge(*costs)
            return
        with self._journal.turn, self._books(write=True):
            accounts, parts = self._accounts, list[Part]()
            tables: dict[str, CostTable] = {}
            for cost in costs:
                digest, tables[digest] = accounts.table_of(cost)
                known = accounts.commitments.committed.get((digest, cost.job), 0) if cost.repeatable else 0
                if cost.steps > known:
                    parts.append((digest, cost.job if cost.repeatable else "", cost.steps - known))
            if parts:
                self._write_event({"kind": "announce", **self._new_tables(parts, tables)}, parts, tables)

    def _commit(self, costs: Sequence[Cost], rows: list[Row], tables: dict[str, CostTable]) -> None:
        """Write the rows of a charge to an adaptive ledger; the first commits to all that is not committed to yet."""
        accounts = self._accounts
        accounts.require_lowered_grants([tables[row["cost"]] for row in rows if row["spans"]])
        asked = [(cost, row["cost"], row["spans"]) for cost, row in zip(costs, rows, strict=True)]
        together = [{digest: steps for digest, (_, steps) in every.items()} for every in self._together]
        parts, taken = accounts.event_for(asked, together)
        tables |= {digest: table for every in self._together for digest, (table, _) in every.items()}
        for number, (row, count) in enumerate(zip(rows, taken, strict=True)):
            known = row["cost"] in accounts.tables
            row = {
                **row,
                "table": None if known else tables[row["cost"]].to_row(packed=True),
                **({"taken": count} if count else {}),
            }
            if parts and not number:
                others = [part for part in parts if part[0] != row["cost"]]
                self._write_event({**row, **self._new_tables(others, tables)}, parts, tables)
                committed = {digest for digest, job, _ in parts if not job}
                self._together = [every for every in self._together if not committed & every.keys()]
            else:
                self._write(row)

    def _write_event(self, row: Row, parts: list[Part], tables: dict[str, CostTable]) -> None:
        """Write a row that commits to an event, or raise if an owner cannot pay for it."""
        accounts = self._accounts
        state = accounts.state_after(parts, tables)
        self._write({**row, "commit": parts})
        if accounts.filter is not None:
            accounts.filter.played(state, len(accounts.commitments.events))

    def _new_tables(self, parts: Sequence[Part], tables: dict[str, CostTable]) -> Row:
        """Return the entry of a row for the tables of an event that the ledger does not hold yet."""
        new = {
            digest: tables[digest].to_row(packed=True) for digest, _, _ in parts if digest not in self._accounts.tables
        }
        return {"tables": new} if new else {}

    @contextmanager
    def together(self, *costs: Cost) -> Iterator[None]:
        """Compose costs tightly that are charged one after another within this block, because all are fixed now.

        The first charge of one of them in an adaptive ledger commits to all; if none is charged, nothing is.

        Raises:
            BudgetExceeded: if an owner cannot pay for all; nothing is charged then.
        """
        every: dict[str, tuple[CostTable, int]] = {}
        with self._journal.turn, self._books(write=False):
            for cost in costs:
                require_cost(cost, self.unit)
                digest, table = self._accounts.table_of(cost)
                every[digest] = table, cost.steps + every.get(digest, (table, 0))[1]
        self._together.append(every)
        try:
            yield
        finally:
            self._together = [other for other in self._together if other is not every]

    def job_with_coins(self, coins: str) -> str | None:
        """Return the job that was charged for a batch of these coins (`Cost.coins`); None if no job was."""
        with self._journal.turn, self._books(write=False):
            return self._accounts.coins.get(coins, (None, 0))[0]

    def is_charged(self, job: str, step: int) -> bool:
        """Return whether a step of a job is paid for: it was charged and not undone since."""
        with self._journal.turn, self._books(write=False):
            return self._accounts.charged_job(job, step) is not None

    def bind(self, job: str, step: int, digest: str) -> None:
        """Record the sum to which the noise of a step is added; only after it returns may the noise be added.

        The noise of a key must never be added to two different sums: their difference would contain no noise. The first
        sum of each step is therefore remembered, by a digest under the key, and any other one is refused.

        Raises:
            JobMismatch: if the step was bound to another sum before.
            ValueError: if the step was not charged.
        """
        with self._journal.turn, self._books(write=True):
            known = self._accounts.charged_job(job, step)
            if known is None:
                raise ValueError(f"step {step} of job {job!r} must be charged before its noise is used")
            bound = known.sums.get(step)
            if bound is None:
                self._write({"kind": "bind", "job": job, "step": step, "sum": digest})
            elif bound != digest:
                raise JobMismatch(
                    f"step {step} of job {job!r} had another sum before, and its noise must not be used twice: a retry "
                    "repeats data, configuration and code exactly; anything else needs a key of its own"
                )

    def bound(self, job: str) -> int:
        """Return the number of steps up to the last one whose noise was used by a keyed job; 0 if it used none."""
        with self._journal.turn, self._books(write=False):
            known = self._accounts.jobs.get(job)
            return 1 + max(known.sums, default=-1) if known is not None else 0

    def undo(self, job: str, step: int) -> None:
        """Record that a job never released its steps from one on, or that nobody has seen and will see them.

        The steps are no longer charged. This serves a plan that changes before its last step, and a run that is rolled
        back because an owner has lowered its budget. The ledger trusts the caller: a model, a log or a curve that
        somebody saw is not undone, and an adaptive analyst does not undo because of what was released. If records pay
        for themselves in a plan, any step may have used up everything: undo all of it, or nothing. The noise of the
        steps stays bound to its sums, coins stay used, and steps of a job
        without a key are never charged again: they need a new job. A mechanism that has paid for these steps in advance
        pays for them again under such a job, or is refused if it has a key. Steps that an adaptive ledger has committed
        to and that were not charged yet are let go as well. A job without such steps is left as it is.
        """
        step = _validate.count("step", step)
        with self._journal.turn, self._books(write=True):
            known = self._accounts.jobs.get(job)
            if known is None or not known.spans:
                return
            last = known.spans[-1][1]
            more = self._accounts.commitments.committed.get((known.cost, job), 0) > length(known.spans)
            if last > step or (last == step and more):
                self._write({"kind": "undo", "job": job, "step": step})

    def grant(self, owners: Owners, *, add_owners: bool = False) -> None:
        """Record new budgets of some owners; all others keep theirs.

        Spent epsilon stays spent: an owner whose new budget is below it pays for nothing more. In an adaptive ledger
        that includes steps that were committed to and not charged yet; `undo` lets go of them. Budgets must not be
        chosen by what was released.

        Args:
            owners: The owners and their budgets.
            add_owners: Whether unknown owners are added. Otherwise they are refused: a label with a typing error would
                leave the intended owner with its old budget.

        Raises:
            ValueError: if an owner is not known and owners are not to be added, or owners have units that are not those
                of the ledger. Owners without units grant their budgets for the unit of the ledger.
        """
        if not isinstance(owners, Owners):
            raise TypeError(f"owners must be Owners, got {owners!r}")
        with self._journal.turn, self._books(write=True):
            if owners.has_units:
                self._accounts.require_same_unit(owners)
            if not add_owners:
                advice = ": correct the label, or add them with add_owners=True (--add-owners)"
                self._accounts.require_known(owners.labels, advice)
            self._write(_grant_row(owners))

    def spent(self) -> dict[Label, float]:
        """Return the epsilon that each owner has spent, at its delta."""
        with self._journal.turn, self._books(write=False):
            return self._accounts.per_owner(self._accounts.spent_now())

    def remaining(self) -> dict[Label, float]:
        """Return the epsilon that each owner has left: the granted less the spent one.

        Costs compose to less than their sum, so several charges may fit whose own epsilons add up to more.
        """
        with self._journal.turn, self._books(write=False):
            accounts = self._accounts
            return accounts.per_owner(np.maximum(accounts.granted - accounts.spent_now(), 0.0))

    def history(self) -> tuple[Charge, ...]:
        """Return all charges, oldest first."""
        with self._journal.turn, self._books(write=False):
            return tuple(self._accounts.charges)

    def segments(self, owner: Label) -> tuple[Stretch, ...]:
        """Return the charges of one owner as (sample rate, noise multiplier, steps); equal steps are added up.

        If released values chose steps from a menu, rate and multiplier are tuples with the entries of the menu.
        """
        with self._journal.turn, self._books(write=False):
            known = self._accounts.position
            if owner not in known:
                raise ValueError(f"owner must be one of the ledger's ({_validate.some(list(known))}), got {owner!r}")
            return self._accounts.segments(known[owner])

    def past(self, owners: Owners) -> tuple[Segment, ...]:
        """Return what a plan for these owners must count as its past, to spend at most the remaining budgets.

        In an adaptive ledger this is one Gaussian step per owner, which leaves as much to a plan as the ledger does.
        Plan with `PLD()`, which counts the plan as the ledger will. In a ledger of costs that are fixed in advance it
        is all charges so far.

        >>> owners = Owners(of_record=["a", "b"], epsilon=2.0, delta=1e-5)
        >>> ledger = Ledger(owners=owners, adaptive=False)
        >>> ledger.charge(Cost(labels=("a",), sample_rates=[1.0], noise_multipliers=[5.0]))
        >>> ledger.past(owners)
        (Segment(sample_rate=[1. 0.], noise_multiplier=[5. 1.], steps=[1. 1.]),)
        """
        with self._journal.turn, self._books(write=False):
            accounts = self._accounts
            accounts.require_known(owners.labels)
            where = [accounts.position[label] for label in owners.labels]
            if accounts.filter is not None:
                grants = Grants(owners.epsilon, owners.delta)
                return accounts.filter.past(accounts.state(), np.array(where), accounts.grants, grants)
            return tuple(
                accounts.tables[digest].segment(steps, len(accounts.labels), where)
                for digest, steps in accounts.steps.items()
                if steps
            )

    def costs(self) -> tuple[Cost, ...]:
        """Return all charges so far; equal steps are added up, even of different jobs."""
        with self._journal.turn, self._books(write=False):
            accounts = self._accounts
            return tuple(accounts.cost_of(digest, count) for digest, count in accounts.steps.items() if count)

    def rehearsal(self) -> "Ledger":
        """Return a ledger in memory with the grants and the costs of this one so far, to test what could be paid."""
        with self._journal.turn, self._books(write=False):
            accounts = self._accounts
            epsilon, delta = accounts.per_owner(accounts.granted), accounts.per_owner(accounts.delta)
            owners = Owners.of_units(accounts.labels, epsilon=epsilon, delta=delta, unit_name=name_of(self.unit))
            trial = Ledger(owners=owners, accountant=accounts.accountant, adaptive=self.adaptive)
            if self.adaptive:
                trial._accounts.take_over(accounts)
                return trial
            for digest, count in accounts.steps.items():
                if count:
                    trial.charge(accounts.cost_of(digest, count))
        return trial

    def events(self) -> dict[Label, Any]:
        """Return the charges of each owner as an event of dp_accounting, for any of its accountants.

        Raises:
            ValueError: if dp_accounting has no such event: steps chosen from a menu, and replaced records, whose
                number it would have to know.
        """
        require_extra("dp_accounting")
        import dp_accounting

        if relation_of(self.unit) != ADD_REMOVE:
            raise ValueError(f"there are no events for a ledger of the unit {self.unit}: ask `spent` or `segments`")

        def event(owner: int) -> Any:
            events = []
            for rate, multiplier, steps in self._accounts.segments(owner):
                if isinstance(rate, tuple):
                    label = self._accounts.labels[owner]
                    raise ValueError(
                        f"there is no event for what owner {label!r} was charged: {steps} steps, each chosen from a "
                        f"menu of {len(rate)} (sample rate, noise multiplier); ask `spent`, or `segments`"
                    )
                gaussian = dp_accounting.GaussianDpEvent(multiplier)
                step = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
                events.append(dp_accounting.SelfComposedDpEvent(step, steps))
            return dp_accounting.ComposedDpEvent(events) if events else dp_accounting.NoOpDpEvent()

        with self._journal.turn, self._books(write=False):
            first, inverse = self._accounts.classes({})
            shared = [event(owner) for owner in first.tolist()]
            groups = zip(self._accounts.labels, inverse.tolist(), strict=True)
            return {label: shared[group] for label, group in groups}

    def head(self) -> str:
        """Return the number of rows and the last checksum: note it elsewhere, and `check` it later."""
        with self._journal.turn, self._books(write=False):
            return self._head()

    def check(self, head: str) -> None:
        """Raise unless this ledger continues the one that had this head.

        Raises:
            LedgerDamaged: if rows were cut off its end or it was rewritten since.
        """
        rows, _, checksum = head.partition("-")
        with self._journal.turn, self._books(write=False):
            heads = self._journal.heads
            if not rows.isdecimal() or not 1 <= int(rows) <= len(heads):
                raise LedgerDamaged(f"the ledger has {len(heads)} rows and does not reach the head {head}")
            if heads[int(rows) - 1] != checksum:
                raise LedgerDamaged(f"row {rows} of the ledger is not the one with the head {head}: it was rewritten")

    def to_json(self) -> str:
        """Return the whole ledger as JSON: each owner's grant, spending and history, and all charges."""
        with self._journal.turn, self._books(write=False):
            accounts = self._accounts
            first, inverse = accounts.classes({})
            histories = [accounts.segments(owner) for owner in first.tolist()]
            columns = (accounts.granted, accounts.delta, accounts.spent_now())
            names = ("owner", "epsilon", "delta", "spent", "history")
            owners = zip(
                accounts.labels,
                *(column.tolist() for column in columns),
                (histories[group] for group in inverse.tolist()),
                strict=True,
            )
            how: dict[str, Any] = {}
            if self.adaptive:
                planned = accounts.per_owner(accounts.planned_now())
                how = {"composition": "adaptive", "if_planned": list(planned.values())}
                how["events"] = [steps_by_digest(event) for event in accounts.commitments.events]
            content = {
                "head": self._head(),
                "unit": self.unit,
                **how,
                "owners": [dict(zip(names, owner, strict=True)) for owner in owners],
                "charges": [_plain(charge) for charge in accounts.charges],
                "undone": accounts.undone,
                "torn": [{name: row[name] for name in ("row", "time", "bytes", "kept")} for row in accounts.torn],
                "torn_bytes": self._journal.torn,
            }
            return json.dumps(content, indent=2)

    def report(self, *, rows: int = 20) -> str:
        """Return a page for people: the owners nearest to their limit, and the latest charges.

        For an adaptive ledger it also shows what the charges would have cost if all of them had been fixed in advance,
        what is left as one more question and as one more training run, and the event that has paid for each charge.

        Args:
            rows: Largest number of owners, and of charges, on the page.
        """
        with self._journal.turn, self._books(write=False):
            accounts = self._accounts
            if accounts.filter is not None:
                owners = adaptive_lines(accounts, accounts.filter, rows)
            else:
                owners = owner_lines(accounts.labels, accounts.granted, accounts.spent_now(), accounts.delta, rows)
            charges = [*charge_lines(accounts.charges, rows), *undone_lines(accounts.undone, rows)]
            lines = [*unit_lines(self.unit), *owners, "", *charges, *torn_lines(accounts.torn, self._journal.torn)]
            return "\n".join([*lines, "", f"head {self._head()}"])

    def __repr__(self) -> str:
        where = "in memory" if self._path is None else self._path
        return f"<Ledger {where}: {len(self._accounts.labels)} owners, {len(self._accounts.charges)} charges>"

    def __reduce__(self) -> Any:
        if self._path is None:
            raise TypeError("a ledger in memory cannot be copied: its copies would forget each other; give it a path")
        return _reopen, (self._path, self._accounts.accountant)

    def _head(self) -> str:
        return f"{len(self._journal.heads)}-{self._journal.heads[-1]}"

    def _books(self, *, write: bool) -> io.IOBase:
        """Return the file that holds the lock until it is closed, after entering all rows that anybody has written.

        This is not a context manager written in Python: Ctrl-C could keep that from releasing the lock (see `Journal`).
        """
        file, rows = self._journal.open(write=write)
        try:
            self._enter(rows)
            return file
        except BaseException:
            file.close()
            raise

    def _write(self, row: Row) -> None:
        """Make a row durable, then enter it."""
        self._enter(self._journal.mend())
        if self.adaptive and row["kind"] != "bind":  # the files of before have the rows that they had
            row = {**row, "by": author()}
        self._enter([self._journal.append(row)])

    def _enter(self, rows: list[Row]) -> None:
        """Enter durable rows; raise if an interruption has lost one, because the accounts would be incomplete."""
        for row in rows:
            try:
                self._accounts.apply(row)
            except Exception as error:
                raise LedgerDamaged(f"row {row['row']} says nothing that this version knows: {error!r}") from error
            self._entered += 1
        if self._entered != len(self._journal.heads):
            raise LedgerDamaged("this object was interrupted between a row and its entry: open the ledger anew")


def _plain(charge: Charge) -> Row:
    """Return a charge for JSON; event and author only in adaptive ledgers, which know them."""
    how = {} if charge.event is None else {"event": charge.event, "by": charge.by}
    plain = {name: value for name, value in vars(charge).items() if name not in ("event", "by")}
    return {**plain, "steps": charge.steps, **how}


def _first_row(owners: Owners, unit: str, adaptive: bool) -> Row:
    """Return the first row of a ledger; its random id keeps rows from fitting into another ledger."""
    how: Row = {"format": 2, "composition": "adaptive", "reserve": RESERVE} if adaptive else {"format": 1}
    return {"ledger": secrets.token_hex(16), **how, "unit": unit, **_grant_row(owners)}


def _grant_row(owners: Owners) -> Row:
    return {
        "kind": "grant",
        "labels": list(owners.labels),
        "epsilon": owners.epsilon.tolist(),
        "delta": owners.delta.tolist(),
    }


def _reopen(path: str, accountant: HistoryAccountant) -> Ledger:
    return Ledger(path, accountant=accountant)
