import hashlib
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import ray
from job_tasks import Walk, added, outcome_of, specs
from patience import wait_until
from ray._private import services
from ray.util.state import list_actors, list_tasks
from ray_worker import Meeting, Spoil, Tells, mapping_of

from inosgm.jobs import ProcessExecutor, SerialExecutor, Store
from inosgm.jobs.executors import InlinePool
from ray_jobs import RayExecutor, connection

pytestmark = pytest.mark.usefixtures("embedded_ray")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def run(store, jobs, executor, task=None, **more):
    return executor.run(task or Walk(), jobs, store, progress=False, **more)


def values_of(store, jobs, executor, task):
    assert len(run(store, jobs, executor, task).done) == len(jobs)
    return [result.values for result in store.results().values()]


def walks():
    return Walk(), specs(12)


def trainings():
    from seeds_worker import config

    from inosgm import experiments as runs
    from inosgm.experiments.task import TrainingTask, spec_of

    return TrainingTask(runs.read(config())), [spec_of(config(), index, data_fingerprint="d") for index in range(2)]


@pytest.mark.parametrize("work", [walks, pytest.param(trainings, marks=pytest.mark.long)])
def test_serial_processes_and_ray_agree_bit_for_bit_and_the_ray_is_left_as_it_was(tmp_path, work):
    task, jobs = work()
    found = []
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    here = RayExecutor("elsewhere:1", max_concurrent=2)  # the Ray that this process uses already comes first
    for executor in (SerialExecutor(), ProcessExecutor(2), here):
        store = Store(tmp_path / type(executor).__name__)
        outcome = run(store, added(store, jobs), executor, task)
        assert len(outcome.done) == len(store.charges()) == len(jobs)
        assert all(state.attempts == {1: ""} for state in store.states().values())
        found.append(outcome_of(store))
    assert found[0] == found[1] == found[2]
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    wait_until(lambda: ray.available_resources().get("CPU") == 4)  # all workers have gone


def test_between_runs_it_stays_connected_where_asked(tmp_path, monkeypatch):
    left = []

    class Here(InlinePool):
        """Works in this process, without workers."""

        def __init__(self, request, most, task, store, *, leave):
            super().__init__(task, store, stopping=lambda: False)
            self._leave = leave

        def close(self, *, kill):
            super().close(kill=kill)
            self._leave()

    monkeypatch.setattr("ray_jobs.executor.RayWorkerPool", Here)
    monkeypatch.setattr("ray_jobs.executor.connect", lambda address: lambda: left.append(address))
    executor = RayExecutor("here", max_concurrent=1)
    with executor:
        with executor:  # as `compare` does with one that it is given
            run(Store(tmp_path / "first"), specs(1), executor)
        run(Store(tmp_path / "second"), specs(1), executor)
        assert left == []
    assert left == ["here", "here"]
    run(Store(tmp_path / "third"), specs(1), executor)
    assert left == ["here"] * 3


def test_a_poisoned_job_does_not_keep_others(store):
    jobs = specs(5, bad={"1": "raise", "2": "once", "3": "die"})
    outcome = run(store, jobs, RayExecutor(max_concurrent=1), attempts=2)
    assert set(outcome.failed) == {jobs[1].id, jobs[3].id}
    assert outcome.failed[jobs[1].id].startswith("ValueError in attempt")
    assert store.states()[jobs[3].id].attempts == {1: "died", 2: "died"}
    assert len(outcome.done) == 3
    assert len(store.charges()) == 5


@pytest.mark.parametrize(
    "asked", [{"num_cpus": 5}, {"num_gpus": 3}, {"resources": {"tpu": 0.5}}, {"num_cpus": 8, "max_concurrent": 1}]
)
def test_what_can_never_be_placed_is_refused_before_anything_is_written(store, asked):
    with pytest.raises(ValueError, match=r"no node of the cluster can ever hold.*its nodes have .*CPU 4.*GPU 2"):
        run(store, specs(1), RayExecutor(**asked))
    assert not store.exists()


@pytest.mark.parametrize(
    ("executor", "together", "per_device"),
    [
        pytest.param(RayExecutor(num_cpus=0.5, num_gpus=0.5), 4, {"0": 2, "1": 2}, marks=pytest.mark.long),
        # 3 x 0.6 would be 1.8 of 2 devices, but not of one
        pytest.param(RayExecutor(num_cpus=0.5, num_gpus=0.6), 2, {"0": 1, "1": 1}, marks=pytest.mark.long),
        (RayExecutor(num_gpus=2), 1, {"0,1": 1}),
        pytest.param(RayExecutor(num_cpus=2, max_concurrent=2), 2, {"": 2}, marks=pytest.mark.long),
    ],
)
def test_workers_are_packed_onto_devices(store, tmp_path, executor, together, per_device):
    """The barrier shows that so many run at once; the job more than that, that no more do."""
    folder = tmp_path / "met"
    folder.mkdir()
    found = values_of(store, specs(together + 1), executor, Meeting(str(folder), together))
    workers = {values["process"]: values["device"] for values in found}
    assert Counter(workers.values()) == per_device
    threads = "2" if per_device == {"": 2} else "1"
    assert {(*values["threads"], values["torch"]) for values in found} == {(threads, threads, threads, False)}


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])  # each imports torch
def test_no_worker_can_write_to_the_data_that_all_share(store, workers):
    data = np.random.default_rng(0).normal(size=(5000, 10))
    found = values_of(store, specs(4), RayExecutor(max_concurrent=workers), Spoil(data))
    assert mapping_of(data) == "00:00 0"
    assert len({values["mapping"] for values in found} - {"00:00 0"}) == 1  # all see the same pages of one file
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    assert [(v["refused"], v["owned"], v["digest"]) for v in found] == [(3, False, digest)] * 4


def test_nothing_secret_reaches_ray(store, embedded_ray):
    label, keys = "stigma-xyz", [(0x5EC2E7 << 100) + place for place in range(3)]
    jobs = specs(3, epsilon={label: 1.0})
    for job, key in zip(jobs, keys, strict=True):
        store.add(job, key=key)
    outcome = run(store, jobs, RayExecutor(max_concurrent=1), Tells(labels=(label, "open")), attempts=1)
    assert len(outcome.done) == 2
    assert label in store.failure(jobs[1].id, 1).traceback  # it is told there, and only there

    def metrics():
        address = f"http://{embedded_ray['node_ip_address']}:{embedded_ray['metrics_export_port']}"
        with urllib.request.urlopen(address) as answer:
            return answer.read().decode()

    def listed():
        more = {"address": f"http://{embedded_ray['webui_url']}", "detail": True, "limit": 1000}
        return list_actors(**more), list_tasks(**more)

    wait_until(lambda: all(f"inosgm_{name}" in metrics() for name in ("jobs_done", "jobs_failed", "job_seconds")))
    wait_until(lambda: "TrainerActor.attempt" in str(listed()))
    session = Path(embedded_ray["session_dir"])
    logs = [file for file in session.rglob("*") if file.is_file() and not file.is_symlink()]
    assert len(logs) > 10
    told = [metrics().encode(), str(listed()).encode(), *(file.read_bytes() for file in logs)]
    for secret in (label, *map(str, keys), *(f"{key:x}" for key in keys)):
        assert not any(secret.encode() in text for text in told)
    tags = {line.partition("{")[2].partition("}")[0] for line in metrics().splitlines() if "inosgm_" in line}
    names = {tag.partition("=")[0] for line in tags for tag in line.split('",')} - {""}
    assert {name for name in names if name[0].islower() and not name.startswith("otel")} == {"kind", "le"}


def test_a_task_that_workers_cannot_load_is_an_error(store, monkeypatch):
    here = ModuleType("only_here")
    monkeypatch.setitem(sys.modules, "only_here", here)
    here.Unknown = type("Unknown", (Walk,), {"__module__": "only_here"})  # pickled by name
    with pytest.raises(RuntimeError, match=r"cannot load the task \(No module named 'only_here'\)"):
        run(store, specs(2), RayExecutor(max_concurrent=1), here.Unknown())


def test_a_store_that_workers_do_not_see_is_an_error(store):
    added(store, specs(1))
    pool = RayExecutor(max_concurrent=1).pool(Walk(), store)
    try:
        wait_until(lambda: pool.reports(0.1) == [] and pool.idle())
        pool.start("0" * 32, 1)
        with pytest.raises(RuntimeError, match=r"does not see the store .*that all nodes of the cluster share"):
            wait_until(lambda: pool.reports(0.1))
    finally:
        pool.close(kill=True)


def test_a_ray_that_is_started_is_given_a_place_on_disk_that_only_its_user_reads(monkeypatch):
    given = []
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(given))
    monkeypatch.setattr(ray, "init", lambda address, **options: given.append(options["object_spilling_directory"]))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    leave = connection.connect("local")
    assert stat.S_IMODE(os.stat(*given).st_mode) == 0o700
    leave()
    assert not os.path.exists(*given)


@pytest.mark.long
def test_what_a_ray_that_was_started_puts_on_disk_is_read_by_its_user_only(tmp_path):
    worker = Path(__file__).parents[1] / "support" / "ray_worker.py"
    subprocess.run([sys.executable, worker, "spill", tmp_path, "6"], check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("address", "variable"), [("127.0.0.1:1", ""), (None, "127.0.0.1:1"), ("auto", "localhost:1")])
def test_where_no_ray_answers_it_is_said(store, monkeypatch, address, variable):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(ConnectionError, match=r"no Ray could be reached at .*RAY_AUTH_MODE=token"):
        run(store, specs(1), RayExecutor(address))
    assert not store.exists()


@pytest.mark.parametrize(("last", "used"), [(None, None), ("127.0.0.1:1", "local"), ("here", "here")])
def test_a_ray_that_is_gone_is_not_waited_for(monkeypatch, embedded_ray, last, used):
    places = {"here": embedded_ray["address"]}
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: places.get(last, last))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert connection._reached(None) == places.get(used, used)
