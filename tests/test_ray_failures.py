"""Whatever dies: every job is done once, charged once, and comes to what the undisturbed run came to."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from job_tasks import Walk, added, outcome_of, specs
from ray.util.state import list_actors
from ray_worker import Leaves, begun, running, wait_until

from inosgm.jobs import SerialExecutor, Store
from inosgm.jobs.status import status
from ray_jobs import RayExecutor

JOBS = 10
SCRIPT = Path(__file__).with_name("ray_worker.py")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store", lease=20.0)


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


def script(*arguments, **more):
    """Start a process of its own, with its own group, as a terminal would."""
    paths = os.pathsep.join([str(SCRIPT.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
        **more,
    )


def ended(process):
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def gone(group):
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.usefixtures("embedded_ray")
def test_workers_are_killed_at_random_points(store, undisturbed):
    jobs = added(store, specs(JOBS))
    rng, over, killed = np.random.default_rng(0), Event(), []

    def kill():
        while len(killed) < 6 and not over.wait(rng.uniform(0, 1)):
            at_work = running(store)
            if at_work:
                victim = store.begun(*at_work[rng.integers(len(at_work))])["pid"]
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

    killer = Thread(target=kill)
    killer.start()
    try:
        outcome = RayExecutor(max_concurrent=2).run(Walk(0.05), jobs, store, attempts=20, progress=False)
    finally:
        over.set()
        killer.join()
    assert len(outcome.done) == JOBS
    assert len(set(killed)) >= 4
    assert 1 <= whole(store, undisturbed) <= len(set(killed))


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
    crew = RayExecutor(max_concurrent=1).crew(Walk(), store)

    def reports(job, attempt):
        found = []
        wait_until(lambda: crew.reports(0.1) == [] and crew.idle())
        crew.start(job, attempt)
        wait_until(lambda: found.extend(crew.reports(0.1)) or found)
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
        crew.close(kill=True)


def test_a_node_comes_and_is_lost_while_it_works(store, undisturbed):
    code, out, err = ended(script("lose", store.uri, JOBS, 0))
    assert code == 0, err
    assert f"done {JOBS}\n" in out
    assert whole(store, undisturbed) == 1  # the attempt on that node; the one on the other node went on


def test_the_driver_is_killed_and_started_again(store, undisturbed, embedded_ray):
    for least in (2, 6):
        process = script("drive", embedded_ray["address"], store.uri, JOBS, 0.1)
        wait_until(begun(store, least))
        process.kill()
        ended(process)
    assert ended(script("drive", embedded_ray["address"], store.uri, JOBS, 0))[0] == 0
    assert 1 <= whole(store, undisturbed) <= 8


def test_two_drivers_do_nothing_twice(store, undisturbed, embedded_ray):
    assert os.environ["RAY_AUTH_MODE"] == "token"  # Ray's default, which `embedded_ray` has left as it is
    first, second = (script("drive", embedded_ray["address"], store.uri, JOBS, 0.05) for _ in range(2))
    assert [ended(first)[0], ended(second)[0]] == [0, 0]
    assert whole(store, undisturbed) == 0
    assert all(len(state.attempts) == 1 for state in store.states().values())


def test_ctrl_c_saves_and_the_ray_that_was_started_is_stopped(store, undisturbed):
    """The terminal sends it to all processes of the group; workers must not hear it."""
    process = script("drive", "local", store.uri, JOBS, 0.3)
    wait_until(begun(store, 2))
    workers = {store.begun(*attempt)["pid"] for attempt in running(store)}
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    assert code == 130, err
    counts = status(store).counts()
    assert counts["running"] == counts["failed"] == 0
    assert out == f"left {counts['left']}\n"
    assert "stopped" in {ending for state in store.states().values() for ending in state.attempts.values()}
    assert all("jobs" in line for line in err.splitlines()), err  # nothing of Ray
    wait_until(lambda: gone(process.pid) and not any(Path(f"/proc/{worker}").exists() for worker in workers))
    SerialExecutor().run(Walk(), specs(JOBS), store, progress=False)  # anybody can go on
    whole(store, undisturbed)
