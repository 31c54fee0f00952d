"""Durable statistics: computed as jobs of a store, released and charged once, resumable at any point."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from inosgm.jobs import Executor, JobSpec, Result, SerialExecutor, Store
from inosgm.jobs.purpose import STATISTIC
from inosgm.jobs.stored_study import StoredStudy, StoreLike
from inosgm.ledger.affordable import require_affordable
from inosgm.ledger.cost import Cost
from inosgm.ledger.ledger import Ledger
from inosgm.mechanism.rank_window import PassTask, RankCounts
from inosgm.mechanism.streaming import OrderedSum
from inosgm.owners import Owners
from inosgm.planning.plan import Plan
from inosgm.planning.planners import plan_scale
from inosgm.statistics.answering import Planner, costs_of, keys_for, plans_for, run_stages
from inosgm.statistics.conditional import conditional
from inosgm.statistics.estimate import Estimate, storable
from inosgm.statistics.queries import Query, Stage, single
from inosgm.statistics.registry import PROCEDURES
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.summing import plan_positions, sum_table
from inosgm.statistics.tables import BadTable, Table
from inosgm.statistics.task import MERGED_SUMS, SCRIPTS, RoundTask, code_of
from inosgm.statistics.views import View

ESTIMATE = "estimate.json"  # the file of the final estimate in a store


def run_statistic(
    question: str | type[Statistic],
    table: Table,
    owners: Owners,
    *,
    store: StoreLike,
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
    """Answer a query about a table of any size, as `answer_query` does, with jobs of any executor.

    Jobs sum fragments of the table and merge such sums, and this process releases the total: the same bits as in memory
    with the same key. The same call resumes where it was stopped; once it is finished, it returns the stored estimate.

    **Guarantee.** That of the statistic. Owners pay for a round once, before its value exists, however often fragments
    are read, workers die or this call is repeated. The key of a stage is made once and kept in the store until all of
    its rounds are released, so that a repeated release has the same noise, and a released value is recorded once.
    Partial sums, which hold records, and keys are deleted after use. Nobody else may read the store before.

    Args:
        question: The name of the query, one of `PROCEDURES`, or a statistic.
        table: The records; workers must see its files under the same names.
        owners: Their owners.
        store: The store of the jobs, one for each query: a path, a URI that fsspec knows, or a Store.
        executor: Runs the jobs: this process if not given, or `ProcessExecutor`, `ray_jobs.RayDataExecutor`.
        plan: As for `answer_query`.
        share: As for `answer_query`.
        planner: As for `answer_query`.
        ledger: As for `answer_query`.
        key: Makes coins and noise a function of it; a secret is drawn if not given.
        attempts: The number of attempts of a job that may fail before it fails permanently.
        progress: Show the progress.
        parameters: The parameters of the query.

    Raises:
        BadTable: for invalid records; nothing is charged then.
        ValueError: for a store of something else.
        RuntimeError: if jobs failed permanently.
        Interrupted: after Ctrl-C; the same call resumes.
    """
    study = StatisticStudy(
        store, question, parameters, table, owners, plan=plan, share=share, planner=planner, ledger=ledger, key=key
    )
    return study.run(executor, attempts=attempts, progress=progress)


class StatisticStudy(StoredStudy):
    """A query about a table, answered stage by stage with jobs of a store; see `run_statistic`.

    Attributes:
        plans: The plan of every stage: those of the store, if it was begun before.
    """

    purpose = STATISTIC

    def __init__(
        self,
        store: StoreLike,
        question: str | type[Statistic],
        parameters: Mapping[str, Any],
        table: Table,
        owners: Owners,
        *,
        plan: Plan | None,
        share: float,
        planner: Planner,
        ledger: Ledger | None,
        key: int | None,
    ) -> None:
        self._query, self._parameters = _query_of(question), parameters
        self._query.require(parameters)
        if table.selection.some:
            self._query = conditional(self._query, table.selection, table.rows)
        first = next(self._query.stages(**parameters))
        table.check(owners)
        super().__init__(store)
        self._table, self._owners, self._ledger, self._key = table, owners, ledger, key
        self._asked = {
            "statistic": question if isinstance(question, str) else question.name,
            "parameters": json.loads(json.dumps(parameters)),
            "share": share,
            "planner": planner.__name__,
            "key": None if key is None else self.store.fingerprint([str(key).encode()]),
            "ledger": ledger is not None,
            "plan": None if plan is None else plan.digest,
            "data": self.store.fingerprint(_parts(table, owners)),
            "code": _code(first.statistic),
        }
        self.require_same()
        try:
            known = self.store.claimed(STATISTIC)
        except FileNotFoundError:
            how: dict[str, Any] = {"plan": plan, "share": share, "planner": planner}
            self.plans = plans_for(self._query, parameters, owners, **how)
            require_affordable(ledger, [costs_of(self.plans, self._keys())])
            first.statistic(self.plans[0], **first.parameters)  # raises for invalid parameters
            for made in self.plans:
                plan_positions(owners, made)
            known = self.claim()
        self.plans = tuple(Plan.from_json(json.dumps(values)) for values in known["plans"])

    def identity(self) -> dict[str, Any]:
        """Return the identity of the query, and its plans, as the store records them."""
        return {"asked": self._asked, "plans": [json.loads(plan.to_json()) for plan in self.plans]}

    def difference(self, known: Mapping[str, Any]) -> str:
        """Return the difference from the query of the store; plans follow from the query."""
        names = {"data": "its data (records, files or owners have changed)", "code": "the code that it was begun with"}
        there, here = known["asked"], self._asked
        differing = [names.get(name, name) for name in here if there.get(name) != here[name]]
        return f"holds another statistic, which differs in {', '.join(differing)}:" if there != here else ""

    def run(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Estimate:
        """Answer the query, or resume it."""
        self._executor = SerialExecutor() if executor is None else executor
        self._work: dict[str, Any] = {"attempts": attempts, "progress": progress}
        costs = costs_of(self.plans, self._keys())
        with nullcontext() if self._ledger is None else self._ledger.together(*costs):
            estimate = run_stages(self._query, self._parameters, self.plans, self._respond)
        self.store.put(ESTIMATE, json.dumps(estimate.to_dict()).encode())
        return estimate

    def _keys(self) -> tuple[int | None, ...]:
        return keys_for(self._key, self._query, self._parameters, self.plans)

    def _respond(self, number: int, stage: Stage, plan: Plan) -> Estimate:
        """Answer a stage, or resume it."""
        spec = self._spec(number, stage, plan)
        values = self._released(number, plan.steps)
        if len(values) < plan.steps:
            job = self.store.add(spec, self._keys()[number])
            key, books = self.store.key(job), StageLedger(self.store, job, plan, self._ledger)
            while len(values) < plan.steps:
                statistic = stage.statistic(plan, key=key, ledger=books, **stage.parameters).after(values)
                values.append(self._release(number, spec, statistic, stage.view))
        estimate = stage.statistic(plan, **stage.parameters).after(values).answer()
        self._finish(spec.id, estimate, plan.steps)
        return estimate

    def _release(self, number: int, spec: JobSpec, statistic: Statistic, view: View | None) -> Any:
        """Return the released sum of the next round: release it, unless another process has just done so."""
        name = f"released-{number}-{statistic.released}.json"

        def read(task: PassTask | None) -> OrderedSum | RankCounts:
            return self._sum(RoundTask(self.store, spec, statistic, self._table, self._owners, view, task))

        try:
            if statistic.in_one_process or statistic.blind:
                total = sum_table(statistic, self._table, self._owners, view=view)
            else:
                total = statistic.sum_in_passes(read)
        except LookupError:  # the partial sums were deleted, so another process has released it
            known = self.store.claimed(name)
        else:
            known = self.store.claim(name, {"value": _plain(statistic.release(total).value)})
            self._forget(spec.id, statistic.released)
        return _restored(known["value"])

    def _sum(self, task: RoundTask) -> OrderedSum | RankCounts:
        """Return the sum of a round, or the counts of a pass, from the partial ones of jobs. NOT PRIVATE."""
        jobs = self._done(task, task.fragments())
        for job in jobs:
            if "problem" in (values := self.store.values(job)):
                raise BadTable(values["problem"])
        while len(jobs) > MERGED_SUMS:
            jobs = self._done(task, task.merges(jobs))
        return task.merged(jobs)

    def _done(self, task: RoundTask, specs: Sequence[JobSpec]) -> list[str]:
        """Run jobs, and return their ids."""
        outcome = self._executor.run(task, specs, self.store, **self._work)
        if outcome.failed:
            why = next(iter(outcome.failed.values()))
            raise RuntimeError(
                f"{len(outcome.failed)} of {len(specs)} jobs were given up ({why}), and nothing was released of them: "
                f"`inosgm jobs status {self.store.uri}` says more; the same call tries again"
            )
        return [spec.id for spec in specs]

    def _released(self, number: int, rounds: int) -> list[np.ndarray]:
        """Return the released sums of a stage."""
        values: list[np.ndarray] = []
        with suppress(FileNotFoundError):
            for step in range(rounds):
                known = self.store.claimed(f"released-{number}-{step}.json")
                values.append(_restored(known["value"]))
        return values

    def _spec(self, number: int, stage: Stage, plan: Plan) -> JobSpec:
        return JobSpec(
            kind="stage",
            configuration={
                "statistic": stage.statistic.name,
                "parameters": dict(stage.parameters),
                "plan": plan.digest,
                "stage": number,
                **({} if stage.view is None else {"view": repr(stage.view)}),
            },
            data_fingerprint=self._asked["data"],
            code_version=code_of(stage.statistic),
            index=number,
        )

    def _finish(self, job: str, estimate: Estimate, rounds: int) -> None:
        """Record the estimate of a stage, which deletes its key and everything that holds records."""
        if not self.store.done(job):
            with suppress(FileExistsError):
                self.store.begin(job, 1)
            self.store.commit(job, 1, Result(values=storable(estimate.to_dict())))
        self.store.cleanup(job)
        self._forget(job, rounds)

    def _forget(self, stage: str, rounds: int) -> None:
        """Delete the partial sums of released rounds, and no others: another process may be at the next round.

        A job without a result was not needed, because the table was cut into other fragments then. Its attempts may
        have left sums nevertheless.
        """
        for job, state in self.store.states().items():
            if state.arrays or not (state.done or state.forgotten):
                about = self.store.spec(job).configuration
                if about.get("stage") == stage and about["round"] < rounds:
                    self.store.discard(job)


def _plain(value: Any) -> Any:
    """Return a released value for JSON: sums, or sums by name."""
    return {name: float(total) for name, total in value.items()} if isinstance(value, dict) else value.tolist()


def _restored(value: Any) -> Any:
    """Return the released value of which `_plain` returned this."""
    return value if isinstance(value, dict) else np.asarray(value, dtype=np.float64)


class StageLedger:
    """Charges a stage to the ledger, if there is one, and then to the store, for the whole plan at once."""

    def __init__(self, store: Store, job: str, plan: Plan, ledger: Ledger | None) -> None:
        self._store, self._job, self._plan, self._ledger = store, job, plan, ledger

    def charge(self, cost: Cost) -> None:
        """Charge rounds, or raise."""
        if self._ledger is not None:
            self._ledger.charge(cost)
        self._store.charge(self._job, (replace(cost, job=self._job, step=0, steps=self._plan.steps),))

    def bind(self, job: str, step: int, digest: str) -> None:
        """Record the sum to which noise is added, or raise."""
        if self._ledger is not None:
            self._ledger.bind(job, step, digest)


def _query_of(question: str | type[Statistic]) -> Query:
    """Return the query of a name or a statistic."""
    if not isinstance(question, str):
        return single(question)
    if question not in PROCEDURES:
        raise ValueError(f"question must be one of {', '.join(sorted(PROCEDURES))}, got {question!r}")
    return PROCEDURES[question]


def _parts(table: Table, owners: Owners) -> Iterator[Any]:
    """Yield the bytes that identify the records and their owners."""
    yield from table.parts()
    yield json.dumps(owners.labels).encode()
    yield from (owners.sizes, owners.epsilon, owners.delta)
    if table.owner is None:
        step = 1 << 20  # records at once: a few megabytes
        for start in range(0, table.rows, step):
            yield np.ascontiguousarray(owners.of_range(start, min(start + step, table.rows)))


def _code(statistic: type[Statistic]) -> str:
    """Return a digest of the code of a statistic, including the running script if it is defined there."""
    file = getattr(sys.modules.get(statistic.__module__), "__file__", None)
    if statistic.__module__ not in SCRIPTS or file is None:
        return code_of(statistic)
    return f"{code_of(statistic)}+{blake2b(Path(file).read_bytes(), digest_size=8).hexdigest()}"
