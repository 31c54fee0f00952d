"""One configuration, many seeds: runs as durable jobs, and what they come to."""

import io
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inosgm._internal import validate as _validate
from inosgm.accounting import ACCOUNTANTS
from inosgm.accounting.units import name_in
from inosgm.experiments.config import TrainingConfig, differences
from inosgm.experiments.directory import located
from inosgm.experiments.expense import Expense, expenses
from inosgm.experiments.parts import device_of
from inosgm.experiments.source import read
from inosgm.experiments.summary import Summary
from inosgm.experiments.task import TrainingTask, config_of, spec_of
from inosgm.jobs import Executor, Interrupted, JobSpec, Outcome, SerialExecutor, Store
from inosgm.jobs.purpose import STUDY, claim_purpose, require_purpose
from inosgm.jobs.scheduler import WRITERS
from inosgm.ledger.affordable import count_equal, require_affordable
from inosgm.ledger.ledger import Ledger


@dataclass(frozen=True, kw_only=True, eq=False)
class Seeds:
    """Runs of one configuration with many seeds.

    Attributes:
        store: Where they are.
        outcome: What has become of them.
    """

    store: Store
    outcome: Outcome

    def summary(self) -> Summary:
        """Return what the runs that are done came to."""
        return Summary.of(self.store)

    def write(self) -> Summary:
        """Write results.parquet (all results), summary.parquet and summary.svg into the store; return the summary."""
        summary = self.summary()
        self.store.compact()
        for name, write in (("summary.parquet", summary.to_parquet), ("summary.svg", summary.figure)):
            stream = io.BytesIO()
            write(stream)
            self.store.put(name, stream.getvalue())
        return summary


class Study:
    """Runs of one configuration, or of several, with many seeds, before the first begins: nothing is charged yet.

    Args:
        config: What to train. Its `seed` is the root of all seeds, its `run` is not used.
        seeds: How many runs; those that are there already count.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store.
        points: What to train instead, with the same data, owners and seeds: a sweep, to which points may be added
            later. All get their first seed before any gets its second.
        more: Runs that may come and are not known yet: for each, a configuration that costs as much, and its index.

    Raises:
        ValueError: for a configuration that cannot be trained, and for a store of another configuration, data or code.

    Attributes:
        store: Where they are kept.
        task: What they do.
        specs: The jobs.
    """

    def __init__(
        self,
        config: TrainingConfig,
        seeds: int,
        *,
        store: Store | str | os.PathLike[str],
        points: Sequence[TrainingConfig] | None = None,
        more: Sequence[tuple[TrainingConfig, int]] = (),
    ) -> None:
        seeds = _validate.count("seeds", seeds, least=1)
        self._config, self._sweeps = _whole(config), points is not None
        self.store = store if isinstance(store, Store) else Store(store)
        require_purpose(self.store, STUDY)
        source = read(self._config)
        self.task = TrainingTask(source)
        self._keyed: dict[str, TrainingConfig] = {}
        self._jobs: dict[str, JobSpec] = {}
        chosen = [config] if points is None else points
        for point in chosen:
            self.task.check(spec_of(_whole(point), 0, data_fingerprint=""), on_cpu=True)
        self._fingerprint = self.store.fingerprint(source.parts(self._config))
        self._base = self.job(config, 0)
        with suppress(FileNotFoundError):
            self._require_same(self.store.claimed(STUDY))
        self.turn_to(chosen, range(seeds), more=more)
        self._owners = self.task.owners(self._base)

    def turn_to(
        self,
        points: Sequence[TrainingConfig],
        indices: Sequence[int],
        *,
        more: Sequence[tuple[TrainingConfig, int]] = (),
    ) -> None:
        """Take up other runs of this study: configurations that were checked when it was made, and indices of seeds."""
        self.specs = [self.job(point, index) for index in indices for point in points]
        self._costs = [self.task.cost(spec) for spec in self.specs]
        dear = [self.task.cost(spec_of(_whole(point), index, data_fingerprint="")) for point, index in more]
        self._costs += [tuple(replace(one, job=f"to come: {i}") for one in costs) for i, costs in enumerate(dear)]

    def job(self, config: TrainingConfig, index: int) -> JobSpec:
        """Return the job that trains a configuration of this study with the seed that belongs to an index."""
        spec = spec_of(_whole(config), index, data_fingerprint=self._fingerprint)
        self._keyed[spec.id], self._jobs[spec.id] = _whole(config), spec
        return spec

    def add(self, spec: JobSpec) -> str:
        """Put a job into the store, with the key that `train` would take with its seed, and return its id."""
        return self.store.add(spec, self._keyed[spec.id].model_copy(update={"seed": spec.seed}).noise_key())

    def index(self, job: str) -> int:
        """Return which of the runs a job is, from 0."""
        return next(spec.index for spec in self.specs if spec.id == job)

    def left(self) -> int:
        """Return how many runs are not done."""
        states = self.store.states()
        return sum(spec.id not in states or not states[spec.id].done for spec in self.specs)

    def expenses(self) -> tuple[Expense, ...]:
        """Return what one run and all runs together cost every owner, once for every unit that runs are in."""
        return expenses(self._owners, count_equal(self._costs), ACCOUNTANTS[self._config.plan.accountant])

    def report(self) -> str:
        """Say what the runs cost, for people."""
        found = self.expenses()
        if self._config.ledger is not None:
            who_pays = f"every run is charged to {self._config.ledger}, which must be able to pay for all as they begin"
        elif all(expense.kept for expense in found):
            who_pays = "every run keeps the budgets by itself, and all together spend what the last column says"
        else:
            who_pays = "WARNING: not every run keeps the budgets: one run costs some owners more than they grant"
        return "\n".join([*(expense.table() for expense in found), who_pays])

    def run(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Seeds:
        """Do the runs that are not done; see `train_seeds`."""
        executor = SerialExecutor() if executor is None else executor
        if not executor.elsewhere:
            for spec in self.specs:
                if spec.index == 0 and device_of(config_of(spec)).type != "cpu":
                    self.task.check(spec)
        ledger = self.begin()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self.add, self.specs))
        try:
            outcome = executor.run(
                self.task, self.specs, self.store, attempts=attempts, ledger=ledger, progress=progress
            )
        except Interrupted:
            self.forget()
            raise
        self.forget()
        return Seeds(store=self.store, outcome=outcome)

    def forget(self) -> None:
        """Delete what runs that are done have built on: it has served its purpose, and is not for keeping."""
        states = self.store.states()
        for job, spec in self._jobs.items():
            if job in states and states[job].done:
                for earlier in self.task.before(spec):
                    if earlier.id in states and states[earlier.id].arrays:
                        self.store.forget(earlier.id)

    def begin(self) -> Ledger | None:
        """Make the store this study's, and open the shared ledger, which must now be able to pay for everything."""
        self._require_same_code()
        claim_purpose(self.store, STUDY)
        ledger = self._ledger()
        self._require_same(self.store.claim(STUDY, self._identity()))
        return ledger

    def _identity(self) -> dict[str, Any]:
        """Return what a store of seeds says about the one study that it belongs to; the key only by a fingerprint."""
        key = None if self._config.key is None else self.store.fingerprint([str(self._config.key).encode()])
        told = {"key": key, "ledger": self._config.ledger, "sweep": self._sweeps}
        return {"spec": json.loads(self._base.to_json()), **told}

    def _require_same(self, known: dict[str, Any]) -> None:
        """Raise if the store belongs to something else."""
        here, there = self._base, JobSpec.from_json(json.dumps(known["spec"]))
        if known == self._identity():
            return
        if known["sweep"] != self._sweeps:
            why = "holds a sweep:" if known["sweep"] else "holds runs of one configuration, and no sweep:"
        elif changed := changes(there, here, _written(there), _written(here)):
            why = changed
        elif known["ledger"] != self._config.ledger:
            there_and_here = (path or "no ledger" for path in (known["ledger"], self._config.ledger))
            why = "holds runs that were charged to another ledger ({} there, {} here):".format(*there_and_here)
        else:
            why = "holds runs with another key:"
        raise ValueError(f"store: {self.store.uri} {why} take another store (--store)")

    def _require_same_code(self) -> None:
        """Raise if the store has runs of these configurations by other code, that of an import path perhaps."""
        wanted = {replace(spec, code_version="").id: spec for spec in self.specs}
        for spec in self.store.specs().values():
            here = wanted.get(replace(spec, code_version="").id)
            if here is not None and here.code_version != spec.code_version:
                why = changes(spec, here, _written(spec), _written(here))
                raise ValueError(f"store: {self.store.uri} {why} take another store (--store)")

    def _ledger(self) -> Ledger | None:
        """Open the shared ledger, which must now be able to pay for everything; it is made if it is not there."""
        if self._config.ledger is None:
            return None
        unit, path = self._costs[0][0].unit, Path(self._config.ledger)
        accountant = ACCOUNTANTS[name_in(unit, self._config.plan.accountant)]
        there = path.exists()
        ledger = Ledger(path if there else None, owners=None if there else self._owners, accountant=accountant)
        require_affordable(ledger, self._costs)
        return ledger if there else Ledger(path, owners=self._owners, accountant=accountant)


def holds_sweep(store: Store) -> bool:
    """Say whether a store holds runs of several configurations."""
    try:
        return bool(store.claimed(STUDY)["sweep"])
    except FileNotFoundError:
        return False


def changes(there: JobSpec, here: JobSpec, written_there: TrainingConfig, written_here: TrainingConfig) -> str:
    """Say why runs in a store cannot be gone on with, if code, configuration or data have changed; else nothing."""
    if there.code_version != here.code_version:
        return f"was made by other code ({there.code_version} there, {here.code_version} here): go on with that, or"
    if changed := differences(written_there, written_here, names=("there", "here")):
        return f"holds runs of another configuration, which differs in {changed}:"
    if there.data_fingerprint != here.data_fingerprint:
        return "holds runs on other data, which have changed since:"
    return ""


def _whole(config: TrainingConfig) -> TrainingConfig:
    """Return a configuration with whole paths and its key, without its run."""
    return located(config).model_copy(update={"key": config.key})


def _written(spec: JobSpec) -> TrainingConfig:
    """Return the configuration of a job as it was written, with the root of all seeds."""
    return TrainingConfig.from_dict(spec.configuration)


def train_seeds(
    config: TrainingConfig,
    seeds: int,
    *,
    store: Store | str | os.PathLike[str],
    executor: Executor | None = None,
    attempts: int = 5,
    progress: bool = True,
) -> Seeds:
    """Train a configuration with many seeds, as jobs that survive whatever happens; the same call goes on with them.

    **Guarantee.** Each run is charged once, before it begins, and keeps the budgets by itself; with a `ledger:` in the
    configuration all runs together keep those of the ledger, and none begins unless it can pay for all when this is
    called; what others charge to it meanwhile may leave too little for the last ones, which then fail. Runs with a
    `key:` equal, bit for bit, those of `train` with the seed of the job and as many threads.

    Args:
        config: What to train. Its `seed` is the root of all seeds; its `run` is not used.
        seeds: How many runs; ask for more later, and only those are made.
        store: Where they are kept: a path, a URI that fsspec knows, or a Store. It belongs to one configuration.
        executor: Who works: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
        attempts: How many attempts of a run may fail before it is given up.
        progress: Show how far it has got.

    Returns:
        What has become of the runs.

    Raises:
        ValueError: for a configuration that cannot be trained, and for a store of another configuration, data or code.
        BudgetExceeded: if the ledger cannot pay for all runs.
        Interrupted: after Ctrl-C, when everything that was running has saved how far it had got.
    """
    return Study(config, seeds, store=store).run(executor, attempts=attempts, progress=progress)
