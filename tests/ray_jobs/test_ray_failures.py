"""Whatever dies: every job is done once, charged once, and comes to what the undisturbed run came to."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from job_tasks import LEASE, Walk, added, outcome_of, specs
from patience import lives, wait_until
from ray.util.state import list_actors
from ray_worker import Endless, Leaves, begun, running

from inosgm.jobs import SerialExecutor, Store
from inosgm.jobs.status import status
from ray_jobs import RayExecutor

pytestmark = pytest.mark.long  # kills workers, nodes and drivers of Rays

JOBS = 10
SCRIPT = Path(__file__).parents[1] / "support" / "ray_worker.py"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", lease=LEASE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("undisturbed"))
    SerialExecutor().run(Walk(), added(store, specs(JOBS)), store, progress=False)
    return outcome_of(store)


def whole(store, undisturbed):
    """Every job has one result, of one attempt, one row in the ledger, and no key any more."""
    states = store.states().values()
    assert outcome_of(store) == undisturbed
    assert [list(state.attempts.values()).count("") for state in states] == [1] * JOBS
    assert len(store.charges()) == JOBS
    assert not any(state.leftovers for state in states)
    return sum(ending == "died" for state in states for ending in state.attempts.values())


@pytest.fixture
def script(start):
    """Starts a process of its own, with its own group, as a terminal would."""
    return lambda *words: start(SCRIPT, *words)


def group_lives(group):
    """Say whether a process of a group runs."""
    members = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, its, *_ = place.read_text().rpartition(")")[2].split()
            members.append(int(its) == group and state not in "ZX")
    return any(members)


@pytest.mark.usefixtures("embedded_ray")
def test_workers_are_killed_at_random_points(store, undisturbed, tmp_path):
    jobs = added(store, specs(JOBS))
    rng, over, killed, enough = np.random.default_rng(0), Event(), set(), tmp_path / "enough"

    def kill():
        while len(killed) < 6 and not over.wait(rng.uniform(0, 0.5)):
            at_work = [pid for attempt in running(store) if (pid := store.begun(*attempt)["pid"]) not in killed]
            if at_work:
                victim = at_work[rng.integers(len(at_work))]
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed.add(victim)
        enough.touch()

    killer = Thread(target=kill)
    killer.start()
    try:
        task = Endless(0.05, enough=str(enough))
        outcome = RayExecutor(max_concurrent=2).run(task, jobs, store, attempts=20, progress=False)
    finally:
        over.set()
        killer.join()
    assert len(outcome.done) == JOBS
    assert len(killed) == 6
    assert 1 <= whole(store, undisturbed) <= 6


@pytest.mark.usefixtures("embedded_ray")
def test_a_worker_that_leaves_for_good_is_replaced(store, undisturbed):
    RayExecutor(max_concurrent=1).run(Leaves(), added(store, specs(JOBS)), store, progress=False)
    assert whole(store, undisturbed) == 0
    assert [len(state.attempts) for state in store.states().values()].count(2) == 1


def test_a_worker_that_was_restarted_while_it_waited_gets_no_work_before_it_has_answered(store, embedded_ray):
    jobs = added(store, specs(2))
    first, second = (job.id for job in jobs)
    for job in jobs:
        store.charge(job.id, Walk().cost(job))
    pool = RayExecutor(max_concurrent=1).pool(Walk(), store)

    def reports(job, attempt):
        found = []
        wait_until(lambda: pool.reports(0.1) == [] and pool.idle())
        pool.start(job, attempt)
        wait_until(lambda: found.extend(pool.reports(0.1)) or found)
        return [report.status for report in found]

    try:
        assert reports(first, 1) == ["done"]
        worker = store.begun(first, 1)["pid"]
        os.kill(worker, signal.SIGKILL)
        alive = {"address": f"http://{embedded_ray['webui_url']}", "filters": [("state", "=", "ALIVE")]}
        wait_until(lambda: any(actor.pid != worker for actor in list_actors(**alive)))
        assert reports(second, 1) == ["taken"]
        assert store.states()[second].attempts == {}
        assert reports(second, 1) == ["done"]
    finally:
        pool.close(kill=True)


def test_a_node_comes_and_is_lost_while_it_works(store, script, undisturbed):
    code, out, err = script("lose", store.uri, JOBS).ended()
    assert code == 0, err
    assert f"done {JOBS}\n" in out
    assert whole(store, undisturbed) == 1  # the attempt on that node; the one on the other node went on


def test_the_driver_is_killed_and_started_again(store, script, undisturbed, embedded_ray):
    for least in (2, 6):
        process = script("drive", embedded_ray["address"], store.uri, least - 1, JOBS)
        wait_until(begun(store, least), process)
        process.kill()
        process.wait()
    assert script("drive", embedded_ray["address"], store.uri, JOBS, JOBS).ended()[0] == 0
    assert whole(store, undisturbed) <= 8
    assert any(len(state.attempts) > 1 for state in store.states().values())  # which died, or were cancelled before


def test_two_drivers_do_nothing_twice(store, script, undisturbed, embedded_ray):
    assert os.environ["RAY_AUTH_MODE"] == "token"  # Ray's default, which `embedded_ray` has left as it is
    first, second = (script("drive", embedded_ray["address"], store.uri, JOBS, JOBS) for _ in range(2))
    assert [first.ended()[0], second.ended()[0]] == [0, 0]
    assert whole(store, undisturbed) == 0
    assert all(len(state.attempts) == 1 for state in store.states().values())


def test_ctrl_c_saves_and_the_ray_that_was_started_is_stopped(store, script, undisturbed):
    """The terminal sends it to all processes of the group; workers must not hear it."""
    process = script("drive", "local", store.uri, 1, JOBS)
    wait_until(begun(store, 2), process)
    workers = {store.begun(*attempt)["pid"] for attempt in running(store)}
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = process.ended()
    assert code == 130, err
    counts = status(store).counts()
    assert counts["running"] == counts["failed"] == 0
    assert out == f"left {counts['left']}\n"
    assert "stopped" in {ending for state in store.states().values() for ending in state.attempts.values()}
    assert all("jobs" in line for line in err.splitlines()), err  # nothing of Ray
    wait_until(lambda: not group_lives(process.pid) and not any(map(lives, workers)))
    SerialExecutor().run(Walk(), specs(JOBS), store, progress=False)  # anybody can go on
    whole(store, undisturbed)
