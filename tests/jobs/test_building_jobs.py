"""Jobs that build on what other jobs came to, and results that nobody else may see."""

import os
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest
from job_tasks import LEASE, Walk

from inosgm import Ledger, Owners
from inosgm.jobs import BuildingTask, JobSpec, ProcessExecutor, Result, SerialExecutor, Store, status

SHARED, OWN = 3, 1


@dataclass(frozen=True)
class School(Walk):
    """Students that build on teachers: three that all share, and one of their own."""

    def before(self, spec):
        about = {"bad": spec.configuration.get("bad", {})}
        shared = [_job("teacher", index, **about) for index in range(SHARED)]
        return [*shared, _job("teacher", 10 + spec.index, **about)]

    def cost(self, spec):
        return super().cost(spec) if spec.kind == "student" else None

    def run(self, spec, attempt):
        if spec.kind == "teacher":
            self.misbehave(spec, attempt)
            return Result(values={"level": spec.index}, arrays={"weights": np.arange(3.0)}, secret=True)
        attempt.ledger.charge(*self.cost(spec))
        taught = [attempt.result(one.id) for one in self.before(spec)]
        assert all(one.secret for one in taught)
        return Result(values={"level": sum(one.values["level"] for one in taught)})


def _job(kind, index, **configuration):
    return JobSpec(kind=kind, configuration=configuration, data_fingerprint="d", code_version="1", index=index)


def students(count, **configuration):
    return [_job("student", index, **configuration) for index in range(count)]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", lease=LEASE)


@pytest.mark.parametrize("executor", [SerialExecutor(), ProcessExecutor(2)])
def test_what_a_job_builds_on_is_done_first_and_once(store, executor):
    assert isinstance(School(), BuildingTask)
    assert not isinstance(Walk(), BuildingTask)
    jobs = students(2)
    outcome = executor.run(School(), jobs, store, progress=False)
    assert outcome.done == tuple(job.id for job in jobs)  # teachers are not among what was asked for
    assert [store.values(job.id)["level"] for job in jobs] == [13, 14]
    assert len(store.states()) == 2 + SHARED + 2 * OWN
    assert set(store.charges()) == set(outcome.done)
    before = store.states()
    assert executor.run(School(), jobs, store, progress=False) == outcome
    assert store.states() == before


def test_what_is_done_asks_for_nothing(store):
    class Alumni(School):
        def before(self, spec):
            raise AssertionError("asked")

    jobs = students(1)
    SerialExecutor().run(School(), jobs, store, progress=False)
    assert SerialExecutor().run(Alumni(), jobs, store, progress=False).done == (jobs[0].id,)


def test_who_builds_on_what_was_given_up_is_given_up_and_not_charged(store):
    ledger = Ledger(owners=Owners(of_record=["a", "b"] * 50, epsilon=3.0, delta=1e-5))
    jobs = students(2, bad={"10": "raise"})
    outcome = SerialExecutor().run(School(), jobs, store, attempts=2, ledger=ledger, progress=False)
    assert outcome.done == (jobs[1].id,)
    assert outcome.failed == {
        jobs[0].id: "it depends on a job that failed permanently, teacher 10: ValueError in attempt 2",
    }
    assert list(store.charges()) == [jobs[1].id]
    assert len(ledger.history()) == 1
    told = {one.job: (one.status, one.note) for one in status.status(store).jobs}
    assert told[jobs[0].id] == ("failed", outcome.failed[jobs[0].id])
    again = SerialExecutor().run(School(), jobs, store, attempts=1, progress=False)  # is tried again
    assert again.failed[jobs[0].id].endswith("ValueError in attempt 3")


def test_secret_results_are_for_their_owner_only_and_in_no_document(store, tmp_path):
    jobs, before = students(1), os.umask(0o022)
    SerialExecutor().run(School(), jobs, store, progress=False)
    os.umask(before)
    for job, spec in store.specs().items():
        folder = tmp_path / "store" / "jobs" / job
        found = [folder / "result.json", *folder.glob("attempts/*/arrays.npz")]
        modes = {path.stat().st_mode & 0o077 for path in found}
        assert (modes == {0}) == store.result(job).secret == (spec.kind == "teacher")
    store.compact()
    table = pq.read_table(tmp_path / "store" / "results.parquet").to_pylist()
    assert [row["job"] for row in table] == [jobs[0].id]
    teacher = next(job for job, spec in store.specs().items() if spec.kind == "teacher")
    store.forget(teacher)
    assert store.result(teacher).secret
