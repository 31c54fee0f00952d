"""Training runs as one study: what they cost together, whether a ledger can pay, and how they are run."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from inosgm.accounting import ACCOUNTANTS
from inosgm.accounting.units import name_in
from inosgm.experiments.components import device_of
from inosgm.experiments.config import TrainingConfig, differences
from inosgm.experiments.directory import with_absolute_paths
from inosgm.experiments.expense import Expense, expenses
from inosgm.experiments.features import Keeper
from inosgm.experiments.input_files import read
from inosgm.experiments.task import TrainingTask, config_of, spec_of
from inosgm.jobs import Executor, Interrupted, JobSpec, Outcome, Store
from inosgm.jobs.purpose import STUDY, claim_purpose
from inosgm.jobs.stored_study import StoredStudy, StoreLike
from inosgm.ledger.affordable import count_equal, fixed_together, require_affordable
from inosgm.ledger.ledger import Ledger

Run = tuple[TrainingConfig, int]
"""A configuration, and the index of its seed."""


class TrainingStudy(StoredStudy):
    """Training runs of one configuration, or of several on the same data with the same owners and seeds.

    All get their first seed before any gets its second.

    Args:
        config: Says what the study is about: data, owners, seeds and ledger. Its `seed` is the root of all seeds, its
            `run` is not used.
        points: The configurations that are trained.
        seeds: The indices of the seeds of each.
        store: Where the runs are kept: a path, a URI that fsspec knows, or a Store.
        sweeps: Whether points may be added to the store later.
        more: Runs that will follow and are not known yet: for each, one that costs as much.

    Raises:
        ValueError: for a configuration that cannot be trained, and for a store of another configuration, data or code.

    Attributes:
        config: The configuration, with absolute paths.
    """

    purpose = STUDY
    task: TrainingTask

    def __init__(
        self,
        config: TrainingConfig,
        points: Sequence[TrainingConfig],
        seeds: Sequence[int],
        *,
        store: StoreLike,
        sweeps: bool,
        more: Sequence[Run] = (),
    ) -> None:
        super().__init__(store)
        self._fixed = ExitStack()  # holds that an adaptive ledger composes all runs as one event
        self.config, self._sweeps = _for_jobs(config), sweeps
        source = self._source = read(self.config, keeper=Keeper(self.store))
        self.task = TrainingTask(source)
        self._made: dict[str, tuple[JobSpec, TrainingConfig]] = {}
        for point in points:
            self.task.check(spec_of(_for_jobs(point), 0, data_fingerprint=""), on_cpu=True)
        self._fingerprint = self.store.fingerprint(source.parts(self.config))
        self._base = self.job(config, 0)
        self.require_same()
        self.select(points, seeds, more=more)
        self._owners = self.task.owners(self._base)

    def select(self, points: Sequence[TrainingConfig], seeds: Sequence[int], *, more: Sequence[Run] = ()) -> None:
        """Turn to other runs of this study; arguments are those of the class, and points were checked by it."""
        self.specs = [self.job(point, index) for index in seeds for point in points]
        later = [self.task.cost(spec_of(_for_jobs(point), index, data_fingerprint="")) for point, index in more]
        self._costs = [self.task.cost(spec) for spec in self.specs]
        self._costs += [tuple(replace(cost, job=f"to come: {i}") for cost in costs) for i, costs in enumerate(later)]

    def job(self, config: TrainingConfig, index: int) -> JobSpec:
        """Return the job that trains a configuration of this study with the seed of an index."""
        spec = spec_of(_for_jobs(config), index, data_fingerprint=self._fingerprint)
        self._made[spec.id] = spec, _for_jobs(config)
        return spec

    def add(self, spec: JobSpec) -> str:
        """Put a job into the store, with the key that `train` would take with its seed, and return its id."""
        _, config = self._made[spec.id]
        return self.store.add(spec, config.model_copy(update={"seed": spec.seed}).noise_key())

    @property
    def runs(self) -> int:
        """The number of runs in total."""
        return len(self._costs)

    def left(self) -> int:
        """Return how many runs are not done."""
        return len(self.unfinished())

    def expenses(self) -> tuple[Expense, ...]:
        """Return what one run and all runs together cost every owner, once for every unit that runs are in."""
        return expenses(self._owners, count_equal(self._costs), ACCOUNTANTS[self.config.plan.accountant])

    def report(self) -> str:
        """Say what the runs cost every owner, for people."""
        found = self.expenses()
        if self.config.ledger is not None:
            who_pays = f"every run is charged to {self.config.ledger}, which must be able to pay for all as they begin"
        elif all(expense.kept for expense in found):
            who_pays = "every run keeps the budgets by itself, and all together spend what the last column says"
        else:
            who_pays = "WARNING: not every run keeps the budgets: one run costs some owners more than they grant"
        return "\n".join([*(expense.table() for expense in found), who_pays])

    def announcement(self) -> str:
        """Say what the runs cost every owner, or that all are done."""
        return self.report() if self.left() else f"all {self.runs} runs are done: nothing more is charged"

    def run_jobs(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Outcome:
        """Do the runs that are not done; see `StoredStudy.run_jobs`."""
        if executor is None or not executor.elsewhere:
            for spec in self.specs:
                if spec.index == 0 and device_of(config_of(spec)).type != "cpu":
                    self.task.check(spec)
        try:
            with ExitStack() as self._fixed:
                outcome = super().run_jobs(executor, attempts=attempts, progress=progress)
        except Interrupted:
            self.forget()
            raise
        self.forget()
        return outcome

    def forget(self) -> None:
        """Delete the results that finished runs have built on, such as teachers: nobody needs them any more."""
        states = self.store.states()
        for job, (spec, _) in self._made.items():
            if job in states and states[job].done:
                for earlier in self.task.before(spec):
                    if earlier.id in states and states[earlier.id].arrays:
                        self.store.forget(earlier.id)

    def begin(self) -> Ledger | None:
        """Make the store this study's, and open the shared ledger, which must be able to pay for everything.

        The ledger is asked before the store is claimed, so that a study that cannot be paid leaves the store free.
        """
        self._require_same_code()
        claim_purpose(self.store, self.purpose)
        ledger = self._ledger()
        self.claim()
        self._source.keep_features()
        return ledger

    def identity(self) -> dict[str, Any]:
        """Return what the store says about the study; the key only by a fingerprint."""
        key = None if self.config.key is None else self.store.fingerprint([str(self.config.key).encode()])
        told = {"key": key, "ledger": self.config.ledger, "sweep": self._sweeps}
        return {"spec": json.loads(self._base.to_json()), **told}

    def difference(self, known: Mapping[str, Any]) -> str:
        """Say what is different about the study that the store belongs to."""
        if known == self.identity():
            return ""
        if known["sweep"] != self._sweeps:
            return "holds a sweep:" if known["sweep"] else "holds runs of one configuration, and no sweep:"
        if changed := changes(JobSpec.from_json(json.dumps(known["spec"])), self._base):
            return changed
        if known["ledger"] != self.config.ledger:
            there, here = (path or "no ledger" for path in (known["ledger"], self.config.ledger))
            return f"holds runs that were charged to another ledger ({there} there, {here} here):"
        return "holds runs with another key:"

    def _require_same_code(self) -> None:
        """Raise if the store has runs of these configurations by other code, perhaps that of an import path."""
        wanted = {replace(spec, code_version="").id: spec for spec in self.specs}
        for spec in self.store.specs().values():
            here = wanted.get(replace(spec, code_version="").id)
            if here is not None and here.code_version != spec.code_version:
                self.refuse(changes(spec, here))

    def _ledger(self) -> Ledger | None:
        """Open the shared ledger, which must be able to pay for everything; make it if it does not exist."""
        if self.config.ledger is None:
            return None
        unit, path = self._costs[0][0].unit, Path(self.config.ledger)
        accountant = ACCOUNTANTS[name_in(unit, self.config.plan.accountant)]
        there = path.exists()
        ledger = Ledger(path if there else None, owners=None if there else self._owners, accountant=accountant)
        if not there:
            require_affordable(ledger, self._costs)
            return Ledger(path, owners=self._owners, accountant=accountant)
        self._fixed.enter_context(fixed_together(ledger, self._costs))
        return ledger


def holds_sweep(store: Store) -> bool:
    """Say whether a store holds runs of several configurations."""
    try:
        return bool(store.claimed(STUDY)["sweep"])
    except FileNotFoundError:
        return False


def changes(there: JobSpec, here: JobSpec) -> str:
    """Say why runs in a store cannot be resumed, if code, configuration or data have changed; "" if none has."""
    if there.code_version != here.code_version:
        return f"was made by other code ({there.code_version} there, {here.code_version} here): go on with that, or"
    if changed := differences(written(there), written(here), names=("there", "here")):
        return f"holds runs of another configuration, which differs in {changed}:"
    if there.data_fingerprint != here.data_fingerprint:
        return "holds runs on other data, which have changed since:"
    return ""


def written(spec: JobSpec) -> TrainingConfig:
    """Return the configuration that a job trains, as it was written: its seed is the root of all seeds."""
    more = ("audit", "block")  # the job of a shadow model says more than what is trained
    return TrainingConfig.from_dict({name: value for name, value in spec.configuration.items() if name not in more})


def _for_jobs(config: TrainingConfig) -> TrainingConfig:
    """Return a configuration with absolute paths and its key, without its run."""
    return with_absolute_paths(config).model_copy(update={"key": config.key})
