"""A statistic that survives whatever happens to those who compute it: as jobs, in a store, released once."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from inosgm.jobs import Executor, JobSpec, Result, SerialExecutor, Store
from inosgm.jobs.purpose import STATISTIC, claim_purpose, require_purpose
from inosgm.ledger.affordable import require_affordable
from inosgm.ledger.cost import Cost
from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.streaming import OrderedSum
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_scale
from inosgm.statistics.answering import Planner, answer, costs_of, keys_for, plans_for
from inosgm.statistics.estimate import Estimate
from inosgm.statistics.queries import Procedure, Stage, single
from inosgm.statistics.registry import PROCEDURES
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.summing import places_of
from inosgm.statistics.tables import BadTable, Table
from inosgm.statistics.task import FAN, SCRIPTS, RoundTask, code_of, merged

ESTIMATE = "estimate.json"
"""Where a store says what came out."""


def run_statistic(
    question: str | type[Statistic],
    table: Table,
    owners: Owners,
    *,
    store: Store | str | os.PathLike[str],
    executor: Executor | None = None,
    plan: Plan | None = None,
    share: float = 1.0,
    planner: Planner = plan_scale,
    ledger: Ledger | None = None,
    key: int | None = None,
    attempts: int = 5,
    progress: bool = True,
    **parameters: Any,
) -> Estimate:
    """Ask a question about a table of any size, as `ask` does, with jobs that any executor does.

    A job sums up a fragment of the table, others merge such sums, and this process releases the whole: the same bits
    as in memory with the same key. The same call goes on where it was stopped; once it is finished, it returns what
    came out.

    **Guarantee.** That of the statistic. Owners pay for a round once, before its value exists, however often fragments
    are read, workers die or this call is made again: the key of a stage is made once and kept in the store until all of
    its rounds are released, so that a release that is repeated has the same noise, and what was released is written
    down once. Partial sums, which hold records, and keys are deleted when they have been used. Nobody else must read
    the store before.

    Args:
        question: The name of the question, one of `PROCEDURES`, or a statistic.
        table: The records; workers must see its files under the same names.
        owners: Whose they are.
        store: Where jobs are kept, one store for one question: a path, a URI that fsspec knows, or a Store.
        executor: Who works: this process if not given, or `ProcessExecutor`, `ray_jobs.RayDataExecutor`.
        plan: As for `ask`.
        share: As for `ask`.
        planner: As for `ask`.
        ledger: As for `ask`.
        key: Makes coins and noise a function of it; a secret is made up if not given.
        attempts: How many attempts of a job may fail before it is given up.
        progress: Show how far it has got.
        parameters: Of the question.

    Raises:
        BadTable: for records that cannot be used; nothing is charged then.
        ValueError: for a store of something else.
        RuntimeError: if jobs had to be given up.
        Interrupted: after Ctrl-C; the same call goes on.
    """
    procedure = _procedure(question)
    procedure.require(parameters)
    first = next(procedure.stages(**parameters))
    table.check(owners)
    store = store if isinstance(store, Store) else Store(store)
    require_purpose(store, STATISTIC)
    asked = {
        "statistic": question if isinstance(question, str) else question.name,
        "parameters": json.loads(json.dumps(parameters)),
        "share": share,
        "planner": planner.__name__,
        "key": None if key is None else store.fingerprint([str(key).encode()]),
        "ledger": ledger is not None,
        "plan": None if plan is None else plan.digest,
        "data": store.fingerprint(_parts(table, owners)),
        "code": _code(first.statistic),
    }
    try:
        known = store.claimed(STATISTIC)
    except FileNotFoundError:
        plans = plans_for(procedure, parameters, owners, plan=plan, share=share, planner=planner)
        require_affordable(ledger, [costs_of(plans, keys_for(key, procedure, parameters, plans))])
        first.statistic(plans[0], **first.parameters)  # raises for parameters that cannot be
        for each in plans:
            places_of(owners, each)
        claim_purpose(store, STATISTIC)
        known = store.claim(STATISTIC, {"asked": asked, "plans": [json.loads(each.to_json()) for each in plans]})
    _require_same(store, known["asked"], asked)
    followed = [Plan.from_json(json.dumps(each)) for each in known["plans"]]
    asking = _Asking(
        store=store,
        table=table,
        owners=owners,
        executor=SerialExecutor() if executor is None else executor,
        ledger=ledger,
        keys=keys_for(key, procedure, parameters, followed),
        fingerprint=asked["data"],
        attempts=attempts,
        progress=progress,
    )
    estimate = answer(procedure, parameters, followed, asking.respond)
    store.put(ESTIMATE, json.dumps(estimate.to_dict()).encode())
    return estimate


@dataclass(frozen=True, kw_only=True, eq=False)
class _Asking:
    """Answers stages of a question with jobs of a store."""

    store: Store
    table: Table
    owners: Owners
    executor: Executor
    ledger: Ledger | None
    keys: Sequence[int | None]
    fingerprint: str
    attempts: int
    progress: bool

    def respond(self, number: int, stage: Stage, plan: Plan) -> Estimate:
        """Answer a stage, or go on with it."""
        spec = self._spec(number, stage, plan)
        values = self._released(number, plan.steps)
        if len(values) < plan.steps:
            job = self.store.add(spec, self.keys[number])
            key, books = self.store.key(job), _Books(self.store, job, plan, self.ledger)
            while len(values) < plan.steps:
                statistic = stage.statistic(plan, key=key, ledger=books, **stage.parameters).after(values)
                values.append(self._release(number, spec, statistic))
        estimate = stage.statistic(plan, **stage.parameters).after(values).estimate()
        self._finish(spec.id, estimate, plan.steps)
        return estimate

    def _release(self, number: int, spec: JobSpec, statistic: Statistic) -> np.ndarray:
        """Return the released sum of the next round: release it, unless somebody else has just done it."""
        name = f"released-{number}-{statistic.released}.json"
        task = RoundTask(self.store, spec, statistic, self.table, self.owners)
        try:
            total = self._sum(task)
        except LookupError:  # forgotten, so somebody has released it
            known = self.store.claimed(name)
        else:
            value = np.asarray(statistic.release(total).value)
            known = self.store.claim(name, {"value": value.tolist()})
            self._forget(spec.id, statistic.released)
        return np.asarray(known["value"], dtype=np.float64)

    def _sum(self, task: RoundTask) -> OrderedSum:
        """Return the whole sum of a round, of parts that jobs make. NOT PRIVATE."""
        jobs = self._done(task, task.fragments())
        for job in jobs:
            if "problem" in (values := self.store.values(job)):
                raise BadTable(values["problem"])
        while len(jobs) > FAN:
            jobs = self._done(task, task.merges(jobs))
        return merged(self.store, jobs)

    def _done(self, task: RoundTask, specs: Sequence[JobSpec]) -> list[str]:
        """Get jobs done."""
        outcome = self.executor.run(task, specs, self.store, attempts=self.attempts, progress=self.progress)
        if outcome.failed:
            why = next(iter(outcome.failed.values()))
            raise RuntimeError(
                f"{len(outcome.failed)} of {len(specs)} jobs were given up ({why}), and nothing was released of them: "
                f"`inosgm jobs status {self.store.uri}` says more; the same call tries again"
            )
        return [spec.id for spec in specs]

    def _released(self, number: int, rounds: int) -> list[np.ndarray]:
        """Return what was released of a stage."""
        values: list[np.ndarray] = []
        with suppress(FileNotFoundError):
            for each in range(rounds):
                known = self.store.claimed(f"released-{number}-{each}.json")
                values.append(np.asarray(known["value"], dtype=np.float64))
        return values

    def _spec(self, number: int, stage: Stage, plan: Plan) -> JobSpec:
        return JobSpec(
            kind="stage",
            configuration={
                "statistic": stage.statistic.name,
                "parameters": dict(stage.parameters),
                "plan": plan.digest,
                "stage": number,
            },
            data_fingerprint=self.fingerprint,
            code_version=code_of(stage.statistic),
            index=number,
        )

    def _finish(self, job: str, estimate: Estimate, rounds: int) -> None:
        """Write down what a stage came to, which deletes its key, and whatever holds records."""
        if not self.store.done(job):
            with suppress(FileExistsError):
                self.store.begin(job, 1)
            self.store.commit(job, 1, Result(values=estimate.to_dict()))
        self.store.tidy(job)
        self._forget(job, rounds)

    def _forget(self, stage: str, rounds: int) -> None:
        """Delete the partial sums of rounds that are released, and no others: somebody may be at the next round.

        A job without a result was not needed: the table was cut into other fragments then. Its attempts may have left
        sums all the same.
        """
        for job, state in self.store.states().items():
            if state.arrays or not (state.done or state.forgotten):
                about = self.store.spec(job).configuration
                if about.get("stage") == stage and about["round"] < rounds:
                    self.store.discard(job)


class _Books:
    """Where a stage is charged: the ledger, if there is one, and then the store, for the whole plan at once."""

    def __init__(self, store: Store, job: str, plan: Plan, ledger: Ledger | None) -> None:
        self._store, self._job, self._plan, self._ledger = store, job, plan, ledger

    def charge(self, cost: Cost) -> None:
        """Charge rounds, or raise."""
        if self._ledger is not None:
            self._ledger.charge(cost)
        self._store.charge(self._job, (replace(cost, job=self._job, step=0, steps=self._plan.steps),))

    def bind(self, job: str, step: int, digest: str) -> None:
        """Note what noise is added to, or raise."""
        if self._ledger is not None:
            self._ledger.bind(job, step, digest)


def _procedure(question: str | type[Statistic]) -> Procedure:
    """Return how a question is answered."""
    if not isinstance(question, str):
        return single(question)
    if question not in PROCEDURES:
        raise ValueError(f"question must be one of {', '.join(sorted(PROCEDURES))}, got {question!r}")
    return PROCEDURES[question]


def _parts(table: Table, owners: Owners) -> Iterator[Any]:
    """Yield what stands for the records and their owners."""
    yield from table.parts()
    yield json.dumps(owners.labels).encode()
    yield from (owners.sizes, owners.epsilon, owners.delta)
    if table.owner is None:
        step = 1 << 20
        for start in range(0, table.rows, step):
            yield np.ascontiguousarray(owners.of_range(start, min(start + step, table.rows)))


def _code(statistic: type[Statistic]) -> str:
    """Return what stands for the code of a statistic, the script that is running included, if it is made there."""
    file = getattr(sys.modules.get(statistic.__module__), "__file__", None)
    if statistic.__module__ not in SCRIPTS or file is None:
        return code_of(statistic)
    return f"{code_of(statistic)}+{blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()}"


def _require_same(store: Store, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise if a store belongs to another question."""
    if known == asked:
        return
    names = {"data": "its data (records, files or owners have changed)", "code": "the code that it was begun with"}
    differing = [names.get(name, name) for name in asked if known.get(name) != asked[name]]
    raise ValueError(
        f"store: {store.uri} holds another statistic, which differs in {', '.join(differing)}: "
        "take another store (--store)"
    )
