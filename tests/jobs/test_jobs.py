import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_tasks import LEASE, STEPS, Walk, added, outcome_of, specs
from patience import wait_until

from inosgm import JobMismatch, Ledger, Owners
from inosgm.jobs import (
    JobSpec,
    ProcessExecutor,
    Result,
    SerialExecutor,
    Store,
    StoreDamaged,
    StoreUnwritable,
    interrupts,
)
from inosgm.jobs._liveness import gone, here
from inosgm.jobs._seals import seal
from inosgm.jobs.status import status
from inosgm.jobs.work import attempt
from inosgm.ledger.cost import Cost

SCRIPT = Path(__file__).parents[1] / "support" / "job_tasks.py"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", lease=LEASE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Twelve walks, one after the other."""
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    SerialExecutor().run(Walk(), added(store, specs(12)), store, progress=False)
    return outcome_of(store)


def run(store, jobs, executor=None, task=None, **more):
    return (executor or SerialExecutor()).run(task or Walk(), jobs, store, progress=False, **more)


def one(**changes):
    base = {"kind": "walk", "configuration": {"seed": 5}, "data_fingerprint": "d", "code_version": "1", "index": 0}
    return JobSpec(**{**base, **changes})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


class TestSpec:
    @given(st.dictionaries(st.text(), json_values, max_size=4))
    def test_text_and_id_are_a_function_of_the_content(self, configuration):
        spec = one(configuration=configuration)
        turned = one(configuration=dict(reversed(configuration.items())))
        read = JobSpec.from_json(spec.to_json())
        assert spec.id == turned.id == read.id
        assert read.configuration == configuration
        assert hash(spec) == hash(read)

    def test_any_change_is_another_job(self):
        changes = [{}, {"kind": "audit"}, {"configuration": {"seed": 6}}, {"configuration": {"seed": "5"}}]
        changes += [{"data_fingerprint": "e"}, {"code_version": "2"}, {"index": 1}]
        changes += [{"configuration": {"seed": 5, "epsilon": {key: 1.0}}} for key in (1, "1")]
        assert len({one(**change).id for change in changes}) == len(changes)

    def test_seeds_are_children_by_index(self):
        children = np.random.SeedSequence(5).spawn(3)
        for index, child in enumerate(children):
            assert np.array_equal(one(index=index).seed_sequence.generate_state(4), child.generate_state(4))
        assert len({one(index=index).seed for index in range(1000)}) == 1000

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, np.zeros(2), b"x"])
    def test_what_json_cannot_hold_is_named(self, value):
        with pytest.raises(ValueError, match=r"configuration\.inner must be something that JSON can hold"):
            one(configuration={"inner": value})

    def test_other_text_is_refused(self):
        with pytest.raises(ValueError, match="not the JSON text of a job"):
            JobSpec.from_json('{"kind": "walk"}')


class TestStore:
    def test_the_first_result_wins_and_the_key_is_gone(self, store):
        job = store.add(one(), key=7)
        store.begin(job, 1), store.begin(job, 2)
        store.save(job, 1, 3, b"half")
        assert store.key(job) == 7
        assert store.commit(job, 2, Result(values={"by": 2}, arrays={"x": np.arange(3)}))
        assert not store.commit(job, 1, Result(values={"by": 1}, arrays={"x": np.arange(4)}))
        assert store.result(job).values == {"by": 2}
        assert store.states()[job].attempts == {1: "fenced", 2: ""}
        assert store.latest(job) is None
        with pytest.raises(FileNotFoundError):
            store.key(job)

    def test_what_a_killed_worker_was_writing_goes_with_the_checkpoints(self, store, monkeypatch):
        job = store.add(one())
        store.begin(job, 1)
        with monkeypatch.context() as patch:
            patch.setattr("os.replace", lambda *_: sys.exit("killed"))
            patch.setattr("os.unlink", lambda *_: None)
            with pytest.raises(SystemExit):
                store.save(job, 1, 3, b"what nobody may see")

        def seen():
            return [p for p in Path(store.uri).rglob("*") if p.is_file() and b"nobody" in p.read_bytes()]

        assert len(seen()) == 1
        store.commit(job, 1, Result(values={}))
        assert not seen()

    def test_what_was_used_is_forgotten_also_by_those_who_come_late(self, store):
        job = store.add(one())
        with pytest.raises(FileNotFoundError):
            store.forget(job)
        store.begin(job, 1), store.begin(job, 2)
        store.commit(job, 1, Result(values={"by": 1}, arrays={"x": np.arange(3)}))
        store.forget(job), store.forget(job)
        assert not store.commit(job, 2, Result(values={"by": 2}, arrays={"x": np.arange(3)}))
        assert store.done(job)
        assert store.result(job).values == {"by": 1}
        assert not store.result(job).arrays
        assert not list(Path(store.uri).rglob("arrays.npz"))
        store.compact()

    def test_an_answer_that_gets_lost_does_not_fence_its_own_result(self, store, monkeypatch):
        jobs, create = added(store, specs(2)), store._records.create

        def lossy(name, content, **more):
            create(name, content, **more)
            if "/" in name:
                create(name, content, **more)  # as a library does that got no answer

        monkeypatch.setattr(store._records, "create", lossy)
        assert len(run(store, jobs).done) == 2
        assert [state.attempts for state in store.states().values()] == [{1: ""}] * 2
        assert all(result.arrays["place"].size == STEPS for result in store.results().values())

    def test_opening_writes_nothing(self, tmp_path):
        assert Store(tmp_path / "none").states() == {}
        assert list(tmp_path.iterdir()) == []

    def test_fingerprints_are_keyed_by_the_store(self, tmp_path):
        one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
        data = [np.arange(5), b"labels"]
        assert one.fingerprint(data) == Store(tmp_path / "one").fingerprint(data) != other.fingerprint(data)
        assert one.fingerprint([b"ab", b"c"]) != one.fingerprint([b"a", b"bc"])
        assert (tmp_path / "one" / "salt").stat().st_mode & 0o777 == 0o600

    def test_keys_are_secret_and_differ(self, store, tmp_path):
        jobs = [store.add(spec) for spec in specs(3)]
        assert len({store.key(job) for job in jobs}) == 3
        assert {(tmp_path / "store" / "jobs" / job / "key").stat().st_mode & 0o777 for job in jobs} == {0o600}

    def test_a_job_is_charged_once(self, store):
        job = store.add(one())
        cost = Walk().cost(one())
        store.charge(job, cost), store.charge(job, cost)
        assert [(row.labels, row.steps) for (row,) in store.charges().values()] == [(("a", "b"), STEPS)]
        for other in ((cost[0].at(0, STEPS + 1),), cost * 2, Walk(labels=("a", "c")).cost(one())):
            with pytest.raises(JobMismatch):
                store.charge(job, other)

    def test_no_two_jobs_of_a_store_have_the_same_noise(self, store):
        first, second = store.add(one(), key=5), store.add(one(index=1), key=5)
        store.charge(first, Walk().cost(one())), store.charge(first, Walk().cost(one()))
        with pytest.raises(JobMismatch, match="has the noise of another job"):
            store.charge(second, Walk().cost(one()))
        assert list(store.charges()) == [first]

    def test_a_job_whose_records_are_gone_is_not_made_up_anew(self, store, tmp_path):
        ledger = Ledger(owners=Owners(of_record=["a", "b"] * 50, epsilon=3.0, delta=1e-5))
        (job,) = run(store, specs(1), ledger=ledger).done
        shutil.rmtree(tmp_path / "store" / "jobs" / job)
        with pytest.raises(StoreDamaged, match="was charged before"):
            run(store, specs(1), ledger=ledger)
        (tmp_path / "store" / "ledger" / f"{job}.json").unlink()
        run(store, specs(1), ledger=ledger)  # another key, so another noise: it is paid for
        assert len(ledger.history()) == 2

    def test_a_mechanism_gets_what_was_charged_and_nothing_else(self, store):
        job = store.add(one())
        cost = Cost(labels=("a", 1), sample_rates=[0.1, 0.3], noise_multipliers=[2.0, 3.0], steps=10, job="noise")
        asked = [cost.at(0, 10), cost.at(9, 1)]
        refused = [cost.at(9, 2), cost.at(10, 1)]
        refused += [Cost(labels=("a", 1), sample_rates=[0.1, 0.3], noise_multipliers=[2.0, 2.9], steps=10, job="n")]
        refused += [Cost(labels=("a", "1"), sample_rates=[0.1, 0.3], noise_multipliers=[2.0, 3.0], steps=10, job="n")]

        class Asks:
            def __init__(self, cost):
                self.asked = cost

            def run(self, spec, attempt):
                attempt.ledger.charge(self.asked)
                return Result()

        assert attempt(store, Asks(cost), job, 1, bool).about == "JobMismatch"  # nothing was charged yet
        store.charge(job, (cost,))
        for number, part in enumerate(refused, start=2):
            assert attempt(store, Asks(part), job, number, bool).about == "JobMismatch"
        for number, part in enumerate(asked, start=20):
            job = store.add(one(index=number))
            store.charge(job, (cost,))
            assert attempt(store, Asks(part), job, 1, bool).status == "done"

    def test_noise_is_never_shared_by_jobs_that_a_ledger_knows(self, tmp_path):
        ledger = Ledger(owners=Owners(of_record=["a", "b"] * 50, epsilon=3.0, delta=1e-5))
        for place, data, expected in (("one", "d", "done"), ("other", "changed", "failed")):
            store, job = Store(tmp_path / place), one(data_fingerprint=data)
            store.add(job, key=7)
            run(store, [job], ledger=ledger)
            assert store.states()[job.id].status == expected
        assert "JobMismatch" in store.reason(job.id, 0)
        assert len(ledger.history()) == 1

    def test_a_key_that_is_not_the_one_that_was_charged_for_is_not_used(self, store, tmp_path):
        job = store.add(one(), key=7)
        store.charge(job, Walk().cost(one()))
        file = tmp_path / "store" / "jobs" / job / "key"
        written = file.read_bytes()
        file.write_bytes(written[:8])
        assert attempt(store, Walk(), job, 1, bool).about == "StoreDamaged"
        file.write_bytes(seal({"key": "8"}))
        assert attempt(store, Walk(), job, 2, bool).about == "JobMismatch"
        file.write_bytes(written)
        assert attempt(store, Walk(), job, 3, bool).status == "done"

    def test_nothing_but_the_result_stays_of_a_job(self, store):
        """Also of attempts that died between their arrays and the result, or came back when all was over."""
        job = store.add(one(), key=7)
        store.charge(job, Walk().cost(one()))
        for number in (1, 2, 3):
            store.begin(job, number)
        store._records.replace(f"jobs/{job}/attempts/1/arrays.npz", b"parameters")
        store.commit(job, 2, Result(values={"by": 2}, arrays={"x": np.arange(3)}))
        store.save(job, 3, 7, b"late")
        store.commit(job, 3, Result(values={"by": 3}, arrays={"x": np.arange(4)}))
        store._records.replace(f"jobs/{job}/attempts/1/arrays.npz", b"once more")
        run(store, [one()])
        endings = {"begun.json", "fenced.json"}
        left = [name.removeprefix(f"jobs/{job}/") for name in store._records.names(f"jobs/{job}")]
        assert [name for name in left if name.rpartition("/")[2] not in endings] == [
            "attempts/2/arrays.npz",
            "result.json",
            "spec.json",
        ]

    def test_what_is_not_a_result_is_for_its_user_alone(self, store, tmp_path):
        (job,) = (spec.id for spec in added(store, specs(1, bad={"0": "raise"})))
        run(store, specs(1, bad={"0": "raise"}), attempts=1)
        store.save(job, 1, 7, b"checkpoint")
        folder = tmp_path / "store" / "jobs" / job
        for name in ("key", "attempts/1/failed.json", "attempts/1/checkpoint-7"):
            assert (folder / name).stat().st_mode & 0o777 == 0o600

    def test_the_furthest_whole_checkpoint_counts(self, store, tmp_path):
        job = store.add(one())
        store.save(job, 1, 5, b"five"), store.save(job, 2, 3, b"three"), store.save(job, 1, 6, b"six")
        assert store.latest(job) == b"six"
        six = tmp_path / "store" / "jobs" / job / "attempts" / "1" / "checkpoint-6"
        six.write_bytes(six.read_bytes()[:-1])
        assert store.latest(job) == b"three"

    @pytest.mark.parametrize("record", ["result.json", "attempts/1/arrays.npz"])
    @pytest.mark.parametrize(
        "damage", [lambda content: content[:-5], lambda content: content[:40] + b"?" + content[41:]]
    )
    def test_a_damaged_result_is_an_error(self, store, tmp_path, record, damage):
        (job,) = run(store, specs(1)).done
        file = tmp_path / "store" / "jobs" / job / record
        file.write_bytes(damage(file.read_bytes()))
        with pytest.raises(StoreDamaged, match=record):
            store.result(job)
        store.save(job, 7, 1, b"left behind")
        run(store, specs(1))  # it is done: nothing is computed or charged anew
        with pytest.raises(StoreDamaged, match=record):
            store.results()

    def test_results_become_one_parquet_file(self, store, tmp_path):
        run(store, specs(3))
        store.compact()
        rows = pq.read_table(tmp_path / "store" / "results.parquet").to_pylist()
        assert [row["index"] for row in rows] == [0, 1, 2]
        for row in rows:
            (place, _), result = row["arrays"], store.result(row["job"])
            assert np.frombuffer(place["content"], place["dtype"]).tolist() == result.arrays["place"].tolist()

    def test_a_damaged_record_keeps_nobody_elses_job(self, store, tmp_path):
        jobs = added(store, specs(4))
        folder = tmp_path / "store" / "jobs"
        store.begin(jobs[0].id, 1)
        (folder / jobs[0].id / "attempts" / "1" / "begun.json").write_bytes(b"{}")
        (folder / jobs[1].id / "key").unlink()
        outcome = run(store, jobs)
        assert len(outcome.done) == 2
        assert "begun.json is not what was written" in outcome.failed[jobs[0].id]
        assert "StoreDamaged" in outcome.failed[jobs[1].id]

    def test_what_a_task_says_about_its_cost_is_not_shown(self, store):
        class Careless(Walk):
            def cost(self, spec):
                raise KeyError("somebody's record")

        outcome = run(store, specs(1), task=Careless())
        assert list(outcome.failed.values()) == ["KeyError in its cost"]

    def test_another_format_is_refused(self, store, tmp_path):
        store.add(one())
        (tmp_path / "store" / "store.json").write_bytes(seal({"format": 2, "lease": 1.0}))
        with pytest.raises(ValueError, match="format 2"):
            Store(tmp_path / "store").add(one())

    @pytest.mark.parametrize("name", ["a/b", "salt", "store.json", "..", ""])
    def test_documents_cannot_replace_records(self, store, name):
        with pytest.raises(ValueError, match="name must be"):
            store.put(name, b"")


class TestExecutors:
    @pytest.mark.parametrize("executor", [SerialExecutor(), ProcessExecutor(2)])
    def test_results_are_those_of_the_undisturbed_run(self, store, undisturbed, executor):
        outcome = run(store, added(store, specs(12)), executor)
        assert len(outcome.done) == 12
        assert not outcome.failed
        assert outcome_of(store) == undisturbed
        assert len(store.charges()) == 12
        again = run(store, specs(12), executor)
        assert set(again.done) == set(outcome.done)
        assert all(state.attempts == {1: ""} for state in store.states().values())

    @pytest.mark.parametrize("executor", [SerialExecutor(), ProcessExecutor(2)])
    def test_a_poisoned_job_does_not_keep_others(self, store, executor):
        bad = {"1": "raise", "2": "once"} | ({"3": "die"} if isinstance(executor, ProcessExecutor) else {})
        jobs = specs(6, bad=bad)
        outcome = run(store, jobs, executor, attempts=2)
        assert outcome.failed[jobs[1].id] == "ValueError in attempt 2"
        assert set(outcome.failed) == {jobs[int(index)].id for index, how in bad.items() if how != "once"}
        assert len(outcome.done) == 6 - len(outcome.failed)
        found = status(store)
        assert found.counts() == {"done": len(outcome.done), "running": 0, "failed": len(outcome.failed), "left": 0}
        assert "ValueError in attempt 2" in found.report()
        assert "is poisoned" not in found.report() + str(found.to_dict())  # what errors say may show data
        assert 'raise ValueError(f"job {spec.index} is poisoned")' in found.report(tracebacks=True)
        assert store.states()[jobs[1].id].spent == 2
        run(store, jobs, executor, attempts=2)  # who starts again wants them tried again
        assert store.states()[jobs[1].id].spent == 4
        assert len(store.charges()) == 6

    def test_a_shared_ledger_is_charged_once_per_job_and_may_refuse(self, store):
        owners = Owners(of_record=["a", "b"] * 50, epsilon=3.0, delta=1e-5)
        ledger = Ledger(owners=owners)
        run(store, specs(2), ledger=ledger)
        assert [charge.fingerprint for charge in ledger.history()] == [spec.id for spec in specs(2)]
        outcome = run(store, specs(40), ledger=ledger)
        assert outcome.failed
        assert all(line.startswith("BudgetExceeded") for line in outcome.failed.values())
        assert len(ledger.history()) == len(store.charges()) == len(outcome.done)
        assert max(ledger.spent().values()) <= 3.0

    def test_who_is_dead_elsewhere_is_replaced_after_the_lease(self, tmp_path):
        store, jobs = Store(tmp_path / "store", lease=0.2), specs(2)
        for job in jobs:
            store.add(job)
        store.begin(jobs[0].id, 1)
        begun = {**here(), "host": "elsewhere"}
        store._records.replace(f"jobs/{jobs[0].id}/attempts/1/begun.json", seal({**begun, "time": time.time()}))
        assert len(run(store, jobs).done) == 2
        assert store.states()[jobs[0].id].attempts == {1: "died", 2: ""}

    def test_a_process_that_is_gone_is_known_at_once(self):
        place = here()
        assert not gone(place)
        assert gone({**place, "started": "1"})
        assert not gone({**place, "host": "elsewhere", "started": "1"})

    def test_a_store_that_fills_up_stops_the_run(self, tmp_path, monkeypatch):
        store = Store(tmp_path / "store", lease=0.2)  # the attempt that cannot end holds its job for so long
        jobs = added(store, specs(3))
        create = store._records.create

        def full(name, content, **more):
            if name.endswith("result.json") and jobs[1].id in name:
                raise OSError(28, "No space left on device")
            create(name, content, **more)

        monkeypatch.setattr(store._records, "create", full)
        with pytest.raises(StoreUnwritable, match=r"cannot be written to.*No space left"):
            run(store, jobs)
        monkeypatch.undo()
        assert len(run(store, jobs).done) == 3
        assert len(store.charges()) == 3

    def test_a_store_that_others_cannot_see_is_refused(self):
        with pytest.raises(ValueError, match="one that other processes see"):
            run(Store("memory://alone"), specs(1), ProcessExecutor(1))
        assert len(run(Store("memory://alone"), specs(1)).done) == 1

    def test_no_handler_stays_behind(self, store):
        before = signal.getsignal(signal.SIGINT)
        run(store, specs(1))
        assert signal.getsignal(signal.SIGINT) is before
        assert not interrupts.asked()


@pytest.fixture
def driver(store, start):
    """Starts a driver of twelve jobs, of which those from an index on wait until they are asked to stop."""

    def begin(executor="processes", first=12, attempts=5, deaf="", count=12):
        return start(SCRIPT, store.uri, count, executor, attempts, first, deaf)

    return begin


def begun(store, least):
    return lambda: sum(bool(state.attempts) for state in store.states().values()) >= least


def attempted(store, times):
    return lambda: any(len(state.attempts) >= times for state in store.states().values())


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_ctrl_c_once_saves_and_says_what_is_left(store, driver, undisturbed, executor):
    process = driver(executor, first=2)
    wait_until(begun(store, 3), process)
    process.send_signal(signal.SIGINT)
    code, out, _ = process.ended()
    assert code == 130
    counts = status(store).counts()
    assert counts["running"] == counts["failed"] == 0
    assert out == f"left {counts['left']}\n"
    assert "stopped" in {ending for state in store.states().values() for ending in state.attempts.values()}
    run(store, specs(12))
    assert outcome_of(store) == undisturbed
    assert len(store.charges()) == 12


def test_ctrl_c_while_workers_start_is_as_clean(store, driver):
    process = driver(first=0)
    wait_until(lambda: len(store.states()) == 12, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to the workers too
    assert process.ended()[0] == 130
    run(store, specs(12))
    assert len(store.charges()) == len(store.results()) == 12


def test_deaths_of_earlier_runs_do_not_count(store, driver, undisturbed):
    for number in (1, 2, 3):
        process = driver("serial", first=0, attempts=2, count=1)
        wait_until(attempted(store, number), process)
        process.kill()
        process.wait()
    assert driver("serial", attempts=2).ended()[0] == 0
    assert outcome_of(store) == undisturbed


def test_ctrl_c_twice_stops_at_once(store, driver, tmp_path):
    process = driver(first=0, deaf=tmp_path / "asked")
    wait_until(begun(store, 2), process)
    process.send_signal(signal.SIGINT)
    wait_until((tmp_path / "asked").exists, process)
    process.send_signal(signal.SIGINT)
    assert process.ended()[0] not in (0, 130)
    assert status(store).counts()["done"] == 0


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_killed_driver_is_started_again(store, driver, undisturbed, executor):
    for least in (2, 6):
        process = driver(executor, first=least - 1)
        wait_until(begun(store, least), process)
        process.kill()
        process.wait()
    assert driver(executor).ended()[0] == 0
    assert outcome_of(store) == undisturbed
    assert len(store.charges()) == len(store.states()) == 12


def test_two_drivers_do_nothing_twice(store, driver, undisturbed):
    first, second = driver(), driver()
    assert first.ended()[0] == second.ended()[0] == 0
    assert outcome_of(store) == undisturbed
    assert all(list(state.attempts.values()) == [""] for state in store.states().values())
    assert len(store.charges()) == 12
