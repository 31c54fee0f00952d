"""The ledger: what every owner has spent, written down before anything is released."""

import io
import json
import os
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from inosgm._internal import validate as _validate
from inosgm._internal.extras import require_extra
from inosgm.accounting import ACCOUNTANTS, PLD, Segment, Stretch
from inosgm.accounting.units import ADD_REMOVE, UNITS, name_in, other_unit
from inosgm.ledger.charges import Charge, Job, Table, length, merged, uncovered
from inosgm.ledger.cost import Cost
from inosgm.ledger.journal import FileJournal, Journal, LedgerDamaged, MemoryJournal, Row
from inosgm.ledger.refusals import BudgetExceeded, JobMismatch
from inosgm.ledger.report import charge_lines, owner_lines, torn_lines, undone_lines, unit_lines
from inosgm.owners import Label, Owners

__all__ = ["BudgetExceeded", "Charge", "HistoryAccountant", "JobMismatch", "Ledger", "LedgerDamaged"]


_GRANT = (
    "change budgets with `grant` (`inosgm ledger grant LEDGER OWNERS.csv`), and add owners with its add_owners=True "
    "(--add-owners)"
)


class HistoryAccountant(Protocol):
    """Whatever says what a history costs, such as PLD() and RDP() of inosgm.accounting.

    It may have a `unit` of `inosgm.accounting.units`; without one, it counts records added or removed. Of steps that
    were charged as a menu, the rate and the multiplier of a stretch are tuples, with the entries of the menu.
    One that also has `epsilons_of(histories, deltas)`, the same for many histories at once, is asked that
    instead: with a budget per record there may be a million of them.
    """

    def epsilon_of(self, segments: Sequence[Stretch], delta: float) -> float:
        """Return an epsilon such that the composed segments are (epsilon, delta)-private for one record."""


class Ledger:
    """What every owner has spent: a charge that an owner cannot pay is refused, and nothing is released.

    **Guarantee.** For every owner, everything that was charged is together (epsilon, delta)-private for one
    of its records, with the epsilon and delta that the owner grants, in the one unit of the ledger (`unit`): added or
    removed, or replaced, with an accountant for that. A charge is on disk,
    file and directory synced, before `charge` returns, so no value is seen before it is paid for, and a job
    that dies stays charged. It assumes that every release about these owners is charged here, and that
    rates, multipliers and numbers of steps are not chosen by looking at earlier releases, unless among the entries of
    a menu that is charged: what is computed may depend on those, but tight composition (of PLD, or of RDP at its best
    order) is proven for costs that do not.

    In a file, rows are chained by checksums. A torn last row (the writer was killed) counts for nothing: it
    was never acknowledged, so nothing was released for it; its bytes are kept beside the file and a row
    records it. Any other defect raises `LedgerDamaged`. The file alone cannot show that whole rows were cut
    off its end, that its last row was cut in the middle (that looks torn), or that somebody has rewritten
    all of it: note `head()` elsewhere, and `check` it. Processes share a file through locks that end with
    the process.

    The file is as public as labels and budgets are: it holds no data, and of the sums of a keyed mechanism
    only digests under the key. It holds a digest of the key too, so whoever reads it can try out small
    keys: take them from `secrets.randbits(128)`. The same holds for the secret of an `OrderedSum`. Two ledgers
    do not know each other: never use a key, or a secret, with both.

    Args:
        path: The file; it is opened, or made if it does not exist and owners are given. None keeps the ledger
            in memory, with the same rules, for as long as the object lives.
        owners: Who grants what. Must agree with the file if it exists; may then be left out.
        accountant: What adds up costs, and whose unit is that of the ledger. If not given, privacy loss distributions
            in the unit of the file; `inosgm.accounting.PLD()` for a new one.

    Raises:
        FileNotFoundError: for a file that does not exist, without owners.
        LedgerDamaged: for a file that is not what was written.
        ValueError: for owners whose grants are not those of the file, and for an accountant of another unit.

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
    ) -> None:
        if owners is not None and not isinstance(owners, Owners):
            raise TypeError(f"owners must be Owners, got {owners!r}")
        if accountant is not None and (
            not callable(getattr(accountant, "epsilon_of", None)) or isinstance(accountant, type)
        ):
            raise TypeError(f"accountant must be PLD() or RDP(), got {accountant!r}")
        self._path = None if path is None else str(Path(path).absolute())  # wherever the process goes
        self._unit = ADD_REMOVE if accountant is None else _unit_of(accountant)
        self._entered = 0  # rows; always as many as the journal has heads
        self._labels: list[Label] = []
        self._position: dict[Label, int] = {}
        self._granted = self._delta = np.empty(0)
        self._tables: dict[str, Table] = {}
        self._steps: dict[str, int] = {}
        self._jobs: dict[str, Job] = {}
        self._coins: dict[str, tuple[str, int]] = {}
        self._charges: list[Charge] = []
        self._undone: list[Row] = []
        self._torn: list[Row] = []
        self._spent: np.ndarray | None = None
        self._classes_now: tuple[np.ndarray, np.ndarray] | None = None
        self._last: tuple[Cost, str, Table] | None = None
        self._journal: Journal
        if self._path is None:
            if owners is None:
                raise ValueError("owners must say who grants what: a ledger in memory starts with them")
            self._count_by(PLD() if accountant is None else accountant)
            self._journal = MemoryJournal()
            self._write(_first_row(owners, self._unit))
            return
        if not os.path.exists(self._path):
            if owners is None:
                raise FileNotFoundError(f"there is no ledger {self._path}: give owners to make one, or another path")
            FileJournal.create(self._path, _first_row(owners, self._unit))
        self._journal = FileJournal(self._path)
        with self._journal.turn, self._books(write=False):
            self._count_by(accountant_of(self._unit) if accountant is None else accountant)
            if owners is not None:
                self._require_same_grants(owners)

    def _count_by(self, accountant: HistoryAccountant) -> None:
        """Take an accountant, which must count in the unit of the ledger."""
        unit = _unit_of(accountant)
        if unit != self._unit:
            raise ValueError(
                f"accountant must count in the unit of {self._path}: {other_unit(unit, self._unit)}; open it with an "
                "accountant of its unit (or none), and keep another ledger for the other unit"
            )
        self._accountant = accountant
        self._epsilon_of = lru_cache(maxsize=2**16)(accountant.epsilon_of)

    @property
    def unit(self) -> str:
        """What its epsilons are about, one of `inosgm.accounting.units.UNITS`: "add/remove" or "replace-one"."""
        return self._unit

    @property
    def durable(self) -> bool:
        """Whether it is in a file: other processes see, now and later, what it was charged for."""
        return self._path is not None

    @property
    def labels(self) -> tuple[Label, ...]:
        """The owners, in the order of every per-owner mapping."""
        with self._journal.turn, self._books(write=False):
            return tuple(self._labels)

    def charge(self, *costs: Cost) -> None:
        """Write costs down, durably, all or none, or raise; only then may their values be made.

        Steps of a repeatable job that were charged before are not charged again, so a job that is tried again pays
        once. It must then repeat the same noise: new noise under an old id would be a release that nobody
        paid for. A step of a job that is not repeatable (`Cost.repeatable`), such as that of a mechanism without a
        key, is refused when it is charged a second time, also after an `undo`. Coins that were tossed before the charge
        (`Cost.coins`) are refused for a second step or job.

        Several costs are checked together, before the first of them is written: what one of them is refused for
        refuses all. Each has a row of its own, so a writer that is killed, or a disk that is full, between two of them
        leaves the earlier ones charged, and nobody is told that anything may be released; the same charge once more
        adds the others.

        Args:
            costs: Which steps of which job, and what each of them costs each owner.

        Raises:
            BudgetExceeded: when an owner cannot pay for all.
            JobMismatch: when a job was charged with another cost or on other data, a step that is not repeatable was
                charged before, or coins were used before.
            TypeError: for what is no `Cost`.
            ValueError: for an owner that the ledger does not know, and for a cost in another unit.
            OSError: when a row could not be made durable.
        """
        for cost in costs:
            self._require_cost(cost)
        with self._journal.turn, self._books(write=True):
            tables: dict[str, Table] = {}
            rows: list[Row] = []
            for cost in costs:
                digest, tables[digest] = self._table_of(cost)
                spans = self._uncharged(cost, digest, [row for row in rows if row["job"] == cost.job])
                row = {"kind": "charge", "job": cost.job, "fingerprint": cost.fingerprint, "note": cost.note}
                new = self._require_free_coins(cost, rows)
                rows += [{**row, "spans": spans, "cost": digest, **new}] * bool(spans or new)
            more = [(tables[row["cost"]], length(row["spans"])) for row in rows if row["spans"]]
            spent = self._afford(tables, more) if more else self._spent
            for row in rows:
                self._write({**row, "table": None if row["cost"] in self._tables else tables[row["cost"]].to_row()})
            self._spent = spent

    def _require_cost(self, cost: Cost) -> None:
        if not isinstance(cost, Cost):
            raise TypeError(
                f"a ledger is charged with Cost, got {type(cost).__name__}: plan.cost() and course.costs() say what "
                "plans cost. The results of inosgm.methods.pdp_published are not costs and are never accepted: "
                "published PDP-SGD charges a round only to the records that it has sampled, and counts the "
                "amplification by that same sampling as well, which promises more than holds from the second round on"
            )
        if cost.unit != self._unit:
            raise ValueError(
                f"costs must be in the unit of the ledger: {other_unit(cost.unit, self._unit)}; charge it to a ledger "
                "of its own unit: Ledger(path, owners=..., accountant=...) with an accountant of that unit"
            )

    def _uncharged(self, cost: Cost, digest: str, before: Sequence[Row]) -> list[tuple[int, int]]:
        """Return the steps of a cost that are not charged yet, or about to be by the rows before; raise JobMismatch."""
        job = self._jobs.get(cost.job)
        known = [(job.cost, job.fingerprint)] if job is not None else []
        for other, fingerprint in [*known, *((row["cost"], row["fingerprint"]) for row in before)]:
            if (other, fingerprint) != (digest, cost.fingerprint):
                what = "another cost" if other != digest else "other data or another configuration"
                raise JobMismatch(
                    f"job {cost.job!r} was charged before with {what}: its noise must not be used twice; a "
                    "retry repeats the job exactly, anything else needs a job (or a key) of its own"
                )
        asked, added = (cost.step, cost.step + cost.steps), [span for row in before for span in row["spans"]]
        if not cost.repeatable:
            fresh = uncovered(*asked, merged([*(job.charged if job is not None else []), *added]))
            if fresh != [asked]:
                step = next(step for step in range(*asked) if not any(start <= step < stop for start, stop in fresh))
                raise JobMismatch(
                    f"step {step} of job {cost.job!r} was charged before, and the job is not repeatable: it has no "
                    "key, so a second value would have other noise, which nobody has paid for. Release each step once, "
                    "from the object and in the process that was charged for it. A charge that was interrupted before "
                    "its value existed stays charged: make a new mechanism, or a Cost with a new job, and charge that. "
                    "With a key, retries are free"
                )
        return uncovered(*asked, merged([*(job.spans if job is not None else []), *added]))

    def _require_free_coins(self, cost: Cost, before: Sequence[Row]) -> Row:
        """Return what a row has to say about the coins of a cost, nothing if that is known; raise JobMismatch."""
        job = self._jobs.get(cost.job)
        for step, coins in ({} if job is None else job.coins).items():
            if coins != cost.coins and cost.step <= step < cost.step + cost.steps:
                raise JobMismatch(
                    f"step {step} of job {cost.job!r} was charged before for a batch of other coins: a retry repeats "
                    "the sum exactly, coins included; anything else needs a job (or a key) of its own"
                )
        if not cost.coins:
            return {}
        added = {row["coins"][1]: (row["job"], row["coins"][0]) for row in before if "coins" in row}
        used = added.get(cost.coins, self._coins.get(cost.coins))
        if used == (cost.job, cost.step):
            return {}
        if used is not None:
            raise JobMismatch(
                f"the coins of this batch (digest {cost.coins}) were used by job {used[0]!r}: coins may be used once, "
                "because two releases of one batch are not the two independent ones that would be charged. Make "
                "another sum, with coins of its own; a retry needs the key of that job"
            )
        return {"coins": [cost.step, cost.coins]}

    def job_with_coins(self, coins: str) -> str | None:
        """Return the job that was charged for a batch of these coins (`Cost.coins`); None if no job was."""
        with self._journal.turn, self._books(write=False):
            return self._coins.get(coins, (None, 0))[0]

    def is_charged(self, job: str, step: int) -> bool:
        """Say whether a step of a job is paid for: it was charged, and not undone since."""
        with self._journal.turn, self._books(write=False):
            return self._charged_job(job, step) is not None

    def _charged_job(self, job: str, step: int) -> Job | None:
        """Return a job of which a step is paid for."""
        known = self._jobs.get(job)
        return None if known is None or uncovered(step, step + 1, known.spans) else known

    def bind(self, job: str, step: int, digest: str) -> None:
        """Write down what the noise of a step of a job is added to; only then may it be added.

        The noise of a key must never be added to two different sums, whose difference it would not hide. So the first
        sum of each step is remembered, by a digest under the key, and any other one is refused.

        Raises:
            JobMismatch: when the step was bound to something else before.
            ValueError: when the step was not charged.
        """
        with self._journal.turn, self._books(write=True):
            known = self._charged_job(job, step)
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
            known = self._jobs.get(job)
            return 1 + max(known.sums, default=-1) if known is not None else 0

    def undo(self, job: str, step: int) -> None:
        """Write down that a job never released the steps from one on, or that nobody has seen and will see them.

        They are no longer charged: for a plan that changes before it was followed to its end, and for a run that goes
        back because an owner has lowered its budget. It is the caller's word: a model, a log or a curve that somebody
        saw is not undone by it. Of a plan in which records pay for themselves any step may have used up everything:
        undo all of it, or nothing. The noise of the steps stays bound to the sums that it was added to, coins stay
        used, and steps of a job without a key are never charged again: they need a new job. A mechanism that has paid
        for these steps in advance pays for them anew under such a job, or is refused if it has a key. A job without
        such steps is left as it is.
        """
        step = _validate.count("step", step)
        with self._journal.turn, self._books(write=True):
            known = self._jobs.get(job)
            if known is not None and known.spans and known.spans[-1][1] > step:
                self._write({"kind": "undo", "job": job, "step": step})

    def grant(self, owners: Owners, *, add_owners: bool = False) -> None:
        """Write new budgets of some owners down; all others keep theirs.

        What was spent stays spent: an owner whose new budget is below it pays for nothing more.

        Args:
            owners: Who grants what.
            add_owners: Whether owners that the ledger does not know yet are added. Otherwise they are refused: a label
                with a typing error would leave the owner that was meant with its old budget.

        Raises:
            ValueError: for owners that are not known, unless they are to be added.
        """
        if not isinstance(owners, Owners):
            raise TypeError(f"owners must be Owners, got {owners!r}")
        with self._journal.turn, self._books(write=True):
            unknown = [label for label in owners.labels if label not in self._position]
            if unknown and not add_owners:
                known = _validate.some(self._labels)
                raise ValueError(
                    f"owners must be those of the ledger ({known}), got {_validate.some(unknown)}: correct the label, "
                    "or add them with add_owners=True (--add-owners)"
                )
            self._write(_grant_row(owners))

    def spent(self) -> dict[Label, float]:
        """Return the epsilon that each owner has spent, at its delta."""
        with self._journal.turn, self._books(write=False):
            return dict(zip(self._labels, self._spent_now().tolist(), strict=True))

    def remaining(self) -> dict[Label, float]:
        """Return what each owner has left: the epsilon it grants less the one it has spent.

        Costs compose to less than their sum, so several charges may fit whose own epsilons add up to more.
        """
        with self._journal.turn, self._books(write=False):
            left = np.maximum(self._granted - self._spent_now(), 0.0)
            return dict(zip(self._labels, left.tolist(), strict=True))

    def history(self) -> tuple[Charge, ...]:
        """Return all charges, oldest first."""
        with self._journal.turn, self._books(write=False):
            return tuple(self._charges)

    def segments(self, owner: Label) -> tuple[Stretch, ...]:
        """Return what one owner was charged: (sample rate, noise multiplier, steps), equal ones added up.

        For steps that released values chose from a menu, rate and multiplier are tuples, the entries of the menu.
        """
        with self._journal.turn, self._books(write=False):
            if owner not in self._position:
                raise ValueError(f"owner must be one of the ledger's ({_validate.some(self._labels)}), got {owner!r}")
            return self._segments(self._position[owner])

    def past(self, owners: Owners) -> tuple[Segment, ...]:
        """Return what was charged so far, one entry per owner, for planning with what is left.

        >>> owners = Owners(of_record=["a", "b"], epsilon=2.0, delta=1e-5)
        >>> ledger = Ledger(owners=owners)
        >>> ledger.charge(Cost(labels=("a",), sample_rates=[1.0], noise_multipliers=[5.0]))
        >>> ledger.past(owners)
        (Segment(sample_rate=[1. 0.], noise_multiplier=[5. 1.], steps=[1. 1.]),)
        """
        with self._journal.turn, self._books(write=False):
            self._require_known(owners.labels)
            where = [self._position[label] for label in owners.labels]
            return tuple(
                self._tables[digest].segment(steps, len(self._labels), where)
                for digest, steps in self._steps.items()
                if steps
            )

    def costs(self) -> tuple[Cost, ...]:
        """Return what was charged so far, equal steps added up, whatever their jobs are."""
        with self._journal.turn, self._books(write=False):
            return tuple(self._cost(digest, count) for digest, count in self._steps.items() if count)

    def _cost(self, digest: str, steps: int) -> Cost:
        table = self._tables[digest]
        paying = np.flatnonzero(table.group >= 0)
        return Cost(
            labels=tuple(self._labels[owner] for owner in paying.tolist()),
            sample_rates=table.sample_rates[table.group[paying]],
            noise_multipliers=table.noise_multipliers[table.group[paying]],
            steps=steps,
            unit=self._unit,
        )

    def rehearsal(self) -> "Ledger":
        """Return a ledger in memory, with the grants and the costs of this one so far: to see what could be paid."""
        with self._journal.turn, self._books(write=False):
            columns = (self._granted.tolist(), self._delta.tolist())
            epsilon, delta = (dict(zip(self._labels, column, strict=True)) for column in columns)
            owners = Owners(of_record=self._labels, epsilon=epsilon, delta=delta)
            trial = Ledger(owners=owners, accountant=self._accountant)
            for digest, count in self._steps.items():
                if count:
                    trial.charge(self._cost(digest, count))
        return trial

    def events(self) -> dict[Label, Any]:
        """Return what was charged to each owner as an event of dp_accounting, for any of its accountants.

        Raises:
            ValueError: for what dp_accounting has no event for: steps that were chosen from a menu, and records that
                are replaced, whose number it would have to know.
        """
        require_extra("dp_accounting")
        import dp_accounting

        if self._unit != ADD_REMOVE:
            raise ValueError(f"there are no events for a ledger of the unit {self._unit}: ask `spent` or `segments`")

        def event(owner: int) -> Any:
            parts = []
            for rate, multiplier, steps in self._segments(owner):
                if isinstance(rate, tuple):
                    raise ValueError(
                        f"there is no event for what owner {self._labels[owner]!r} was charged: {steps} steps, each "
                        f"chosen from a menu of {len(rate)} (sample rate, noise multiplier); ask `spent`, or `segments`"
                    )
                gaussian = dp_accounting.GaussianDpEvent(multiplier)
                step = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
                parts.append(dp_accounting.SelfComposedDpEvent(step, steps))
            return dp_accounting.ComposedDpEvent(parts) if parts else dp_accounting.NoOpDpEvent()

        with self._journal.turn, self._books(write=False):
            first, inverse = self._classes({})
            shared = [event(owner) for owner in first.tolist()]
            return {label: shared[group] for label, group in zip(self._labels, inverse.tolist(), strict=True)}

    def head(self) -> str:
        """Return the number of rows and the last checksum: note it elsewhere, and `check` it later."""
        with self._journal.turn, self._books(write=False):
            return self._head()

    def check(self, head: str) -> None:
        """Make sure that this ledger is a continuation of the one that had this head.

        Raises:
            LedgerDamaged: when rows were cut off its end or it was rewritten since.
        """
        rows, _, checksum = head.partition("-")
        with self._journal.turn, self._books(write=False):
            if not rows.isdecimal() or not 1 <= int(rows) <= len(self._journal.heads):
                raise LedgerDamaged(
                    f"the ledger has {len(self._journal.heads)} rows and does not reach the head {head}"
                )
            if self._journal.heads[int(rows) - 1] != checksum:
                raise LedgerDamaged(f"row {rows} of the ledger is not the one with the head {head}: it was rewritten")

    def to_json(self) -> str:
        """Return everything as JSON: what owners grant, have spent and were charged, and all charges."""
        with self._journal.turn, self._books(write=False):
            spent, first_inverse = self._spent_now(), self._classes({})
            histories = [self._segments(owner) for owner in first_inverse[0].tolist()]
            owners = [
                {
                    "owner": label,
                    "epsilon": epsilon,
                    "delta": delta,
                    "spent": used,
                    "history": histories[group],
                }
                for label, epsilon, delta, used, group in zip(
                    self._labels,
                    self._granted.tolist(),
                    self._delta.tolist(),
                    spent.tolist(),
                    first_inverse[1].tolist(),
                    strict=True,
                )
            ]
            charges = [{**vars(charge), "steps": charge.steps} for charge in self._charges]
            torn = [{name: row[name] for name in ("row", "time", "bytes", "kept")} for row in self._torn]
            head = self._head()
            return json.dumps(
                {
                    "head": head,
                    "unit": self._unit,
                    "owners": owners,
                    "charges": charges,
                    "undone": self._undone,
                    "torn": torn,
                    "torn_bytes": self._journal.torn,
                },
                indent=2,
            )

    def report(self, *, rows: int = 20) -> str:
        """Return a page for people: the owners nearest to their limit, and the latest charges.

        Args:
            rows: How many owners and how many charges are shown at most.
        """
        with self._journal.turn, self._books(write=False):
            owners = owner_lines(self._labels, self._granted, self._spent_now(), self._delta, rows)
            charges = [*charge_lines(self._charges, rows), *undone_lines(self._undone, rows)]
            lines = [*unit_lines(self._unit), *owners, "", *charges, *torn_lines(self._torn, self._journal.torn)]
            return "\n".join([*lines, "", f"head {self._head()}"])

    def __repr__(self) -> str:
        where = "in memory" if self._path is None else self._path
        return f"<Ledger {where}: {len(self._labels)} owners, {len(self._charges)} charges>"

    def __reduce__(self) -> Any:
        if self._path is None:
            raise TypeError("a ledger in memory cannot be copied: its copies would forget each other; give it a path")
        return _reopen, (self._path, self._accountant)

    def _head(self) -> str:
        return f"{len(self._journal.heads)}-{self._journal.heads[-1]}"

    def _books(self, *, write: bool) -> io.IOBase:
        """Return what holds the lock until it is closed, with everything read that anybody has written.

        It is no context manager in Python, which Ctrl-C could keep from letting go: see `Journal`.
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
        self._enter([self._journal.append(row)])

    def _enter(self, rows: list[Row]) -> None:
        """Enter durable rows; an object that was interrupted on the way to one knows too little to go on."""
        for row in rows:
            try:
                self._apply(row)
            except Exception as error:
                raise LedgerDamaged(f"row {row['row']} says nothing that this version knows: {error!r}") from error
            self._entered += 1
        if self._entered != len(self._journal.heads):
            raise LedgerDamaged("this object was interrupted between a row and its entry: open the ledger anew")

    def _apply(self, row: Row) -> None:
        self._spent = None
        if row.get("format", 1) != 1:
            raise ValueError(f"unknown format {row['format']!r}")
        if "ledger" in row:
            self._unit = row.get("unit", ADD_REMOVE)
            if self._unit not in UNITS:
                raise ValueError(f"unknown unit {self._unit!r}")
        if row["kind"] == "grant":
            new = [label for label in row["labels"] if label not in self._position]
            self._position.update((label, len(self._labels) + i) for i, label in enumerate(new))
            self._labels += new
            where = [self._position[label] for label in row["labels"]]
            missing = np.zeros(len(new))
            self._granted = np.concatenate([self._granted, missing])
            self._delta = np.concatenate([self._delta, missing])
            self._granted[where], self._delta[where] = row["epsilon"], row["delta"]
            self._classes_now = None
        elif row["kind"] == "charge":
            digest, spans = row["cost"], tuple((start, stop) for start, stop in row["spans"])
            if row["table"] is not None:
                self._tables[digest] = table = Table.from_row(row["table"])
                self._classes_now = self._classes({digest: table})
            names = ("job", "fingerprint", "note", "time", "cost")
            charge = Charge(**{name: row[name] for name in names}, spans=spans)
            job = self._jobs.setdefault(charge.job, Job(digest, charge.fingerprint))
            job.spans[:] = merged([*job.spans, *spans])
            job.charged[:] = merged([*job.charged, *spans])
            if "coins" in row:
                step, coins = row["coins"]
                job.coins[step], self._coins[coins] = coins, (charge.job, step)
            self._steps[digest] = self._steps.get(digest, 0) + charge.steps
            self._charges.append(charge)
        elif row["kind"] == "bind":
            self._jobs[row["job"]].sums[row["step"]] = row["sum"]
        elif row["kind"] == "undo":
            job = self._jobs[row["job"]]
            kept = [(start, min(stop, row["step"])) for start, stop in job.spans if start < row["step"]]
            undone = length(job.spans) - length(kept)
            job.spans[:] = kept
            self._steps[job.cost] -= undone
            self._undone.append({**{name: row[name] for name in ("job", "step", "time")}, "steps": undone})
        elif row["kind"] == "torn":
            self._torn.append(row)
        else:
            raise ValueError(f"unknown kind {row['kind']!r}")

    def _require_known(self, labels: Sequence[Label]) -> None:
        unknown = [label for label in labels if label not in self._position]
        if unknown:
            known = _validate.some(self._labels)
            raise ValueError(f"owners must be those of the ledger ({known}), got {_validate.some(unknown)}")

    def _require_same_grants(self, owners: Owners) -> None:
        where = [self._position.get(label, -1) for label in owners.labels]
        unknown = [label for label, place in zip(owners.labels, where, strict=True) if place < 0]
        if unknown or len(where) != len(self._labels):
            missing = unknown or sorted(set(self._labels).difference(owners.labels), key=repr)
            side = "the ledger does not know" if unknown else "the ledger also knows"
            raise ValueError(f"owners must be those of {self._path}: {side} {_validate.some(missing)}; {_GRANT}")
        differs = (self._granted[where] != owners.epsilon) | (self._delta[where] != owners.delta)
        if differs.any():
            i = int(np.argmax(differs))
            raise ValueError(
                f"owners must grant what {self._path} says: owner {owners.labels[i]!r} grants (epsilon, "
                f"delta) ({owners.epsilon[i]:g}, {owners.delta[i]:g}) here and ({self._granted[where[i]]:g}, "
                f"{self._delta[where[i]]:g}) there; leave "
                f"owners out, or {_GRANT}"
            )

    def _table_of(self, cost: Cost) -> tuple[str, Table]:
        """Group a cost, once for all steps that share its (read-only) arrays."""
        last = self._last
        if last is not None and all(
            getattr(cost, name) is getattr(last[0], name) for name in ("labels", "sample_rates", "noise_multipliers")
        ):
            return last[1:]
        self._require_known(cost.labels)
        table = Table.of(cost, np.array([self._position[label] for label in cost.labels], dtype=np.int64))
        self._last = cost, table.digest(), table
        return self._last[1:]

    def _afford(self, tables: dict[str, Table], more: Sequence[tuple[Table, int]]) -> np.ndarray | None:
        """Return what everybody will have spent after some more steps of tables (None if not known for all).

        Raises:
            BudgetExceeded: if somebody cannot pay.
        """
        first, inverse = self._classes(tables)
        pays = np.any([table.groups(len(self._labels)) >= 0 for table, _ in more], axis=0)
        paying = first[pays[first]]
        epsilons = np.zeros(len(self._labels))
        epsilons[paying] = self._epsilons([self._segments(owner, more) for owner in paying.tolist()], paying)
        total: np.ndarray = epsilons[first][inverse]
        short = pays & ~(total <= self._granted)
        if short.any():
            worst = int(np.argmax(np.where(short, total / self._granted, -np.inf)))
            spent = float(self._epsilons([self._segments(worst)], np.array([worst]))[0])
            granted = float(self._granted[worst])
            raise BudgetExceeded(self._labels[worst], granted, spent, float(total[worst]), int(short.sum()))
        if pays.all():
            return total
        return None if self._spent is None else np.where(pays, total, self._spent)

    def _spent_now(self) -> np.ndarray:
        """Return what each owner has spent, computed once per distinct history and delta."""
        if self._spent is None:
            first, inverse = self._classes({})
            self._spent = self._epsilons([self._segments(owner) for owner in first.tolist()], first)[inverse]
        return self._spent

    def _classes(self, more: dict[str, Table]) -> tuple[np.ndarray, np.ndarray]:
        """Put owners with equal delta and history together: one of each class, and everybody's class."""
        known, tables = self._classes_now, more
        if known is None:
            _, first, inverse = np.unique(self._delta, return_index=True, return_inverse=True)
            known, tables = (first, inverse), {**self._tables, **more}
        for table in tables.values():
            group = table.groups(len(self._labels))
            key = known[1] * (len(table.sample_rates) + 1) + group + 1
            _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
            known = first, inverse
        return known

    def _segments(self, owner: int, more: Sequence[tuple[Table, int]] = ()) -> tuple[Stretch, ...]:
        """Return the history of an owner, with some more steps if given; equal steps are added up, menus come last."""
        found: dict[Any, int] = {}
        for table, count in [*((self._tables[digest], count) for digest, count in self._steps.items()), *more]:
            group = table.group[owner] if owner < table.group.size else -1
            if group >= 0 and count:
                step = table.step(group)
                found[step] = found.get(step, 0) + count
        ordered = sorted(found.items(), key=lambda item: (isinstance(item[0][0], tuple), item[0]))
        return tuple((*step, count) for step, count in ordered)

    def _epsilons(self, histories: list[tuple[Stretch, ...]], owners: np.ndarray) -> np.ndarray:
        """Ask the accountant about the histories of some owners."""
        epsilons, deltas = np.zeros(len(histories)), self._delta[owners].tolist()
        some = [i for i, history in enumerate(histories) if history]
        many = getattr(self._accountant, "epsilons_of", None)
        if many is None:
            epsilons[some] = [self._epsilon_of(histories[i], deltas[i]) for i in some]
        elif some:
            epsilons[some] = many([histories[i] for i in some], [deltas[i] for i in some])
        bad = np.flatnonzero(~(epsilons >= 0))  # also a NaN
        if bad.size:
            what = f"{epsilons[bad[0]]} for {histories[bad[0]][:3]} at delta {deltas[bad[0]]}"
            raise ValueError(f"accountant must return an epsilon >= 0, got {what}: nothing was charged")
        return epsilons


def accountant_of(unit: str) -> HistoryAccountant:
    """Return what adds up costs of a unit where nobody has said it: privacy loss distributions."""
    return ACCOUNTANTS[name_in(unit, PLD.name)]


def _unit_of(accountant: HistoryAccountant) -> str:
    unit: str = getattr(accountant, "unit", ADD_REMOVE)
    if unit not in UNITS:
        raise ValueError(f"accountant must count in one of the units {', '.join(UNITS)}, got {unit!r}")
    return unit


def _first_row(owners: Owners, unit: str) -> Row:
    """Return the row that begins a ledger; its own id keeps rows from fitting into another ledger."""
    return {"ledger": secrets.token_hex(16), "format": 1, "unit": unit, **_grant_row(owners)}


def _grant_row(owners: Owners) -> Row:
    return {
        "kind": "grant",
        "labels": list(owners.labels),
        "epsilon": owners.epsilon.tolist(),
        "delta": owners.delta.tolist(),
    }


def _reopen(path: str, accountant: HistoryAccountant) -> Ledger:
    return Ledger(path, accountant=accountant)
