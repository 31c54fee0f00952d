"""Processes of tests of Ray jobs. As a script: drive ADDRESS STORE FIRST, lose STORE, or spill FOLDER; then COUNT."""

import hashlib
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import ray
from job_tasks import LEASE, STEPS, Waiting, Walk, added, specs
from patience import lives, wait_until  # which makes Ray patient with a busy machine

from inosgm._internal.records import gather
from inosgm.jobs import Interrupted, Result, Store
from ray_jobs import RayExecutor
from ray_jobs.connection import connect


@dataclass(frozen=True)
class Meeting:
    """Jobs that end only when so many of them run at once; each says where it is."""

    folder: str
    together: int

    def cost(self, spec):
        return None

    def run(self, spec, attempt):
        (Path(self.folder) / str(spec.index)).touch()
        wait_until(lambda: len(os.listdir(self.folder)) >= self.together)
        threads = [os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")]
        values = {
            "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "process": os.getpid(),
            "threads": threads,
            "torch": "torch" in sys.modules,
        }
        return Result(values=values)


@dataclass(frozen=True)
class Spoil:
    """Jobs that try to change the data that they share."""

    data: np.ndarray

    def cost(self, spec):
        return None

    def run(self, spec, attempt):
        import torch

        from inosgm.training.batches import batch_of

        refused = 0
        for change in (lambda: self.data.__setitem__(0, 7.0), lambda: self.data.setflags(write=True), self.data.sort):
            try:
                change()
            except ValueError:
                refused += 1
        inputs, targets = batch_of((self.data, self.data[:, 0]), np.arange(len(self.data)), torch.zeros(1))
        part = gather(self.data, slice(0, 10))
        inputs.zero_(), targets.zero_()
        tensors = batch_of((part, part[:, 0]), np.arange(10), torch.zeros(1, dtype=torch.float64))
        tensors[0].zero_(), tensors[1].zero_()
        values = {
            "refused": refused,
            "owned": self.data.flags.owndata,
            "mapping": mapping_of(self.data),
            "digest": hashlib.sha256(self.data.tobytes()).hexdigest(),
        }
        return Result(values=values)


@dataclass(frozen=True)
class Held(Walk):
    """Walks that do not begin before there is a file."""

    go: str = ""

    def misbehave(self, spec, attempt):
        wait_until(lambda: os.path.exists(self.go))


@dataclass(frozen=True)
class Endless(Walk):
    """Walks that do not end before there is a file."""

    enough: str = ""

    def rest(self, spec, attempt, step):
        super().rest(spec, attempt, step)
        if step == STEPS:
            wait_until(lambda: os.path.exists(self.enough))


@dataclass(frozen=True)
class Leaves(Walk):
    """Walks of which one takes its worker away, in a way that Ray takes for intended and does not mend."""

    def misbehave(self, spec, attempt):
        if spec.index == 1 and attempt.number == 1:
            ray.actor.exit_actor()


@dataclass(frozen=True)
class Tells(Walk):
    """Walks of which one fails with words that nobody must hear."""

    def misbehave(self, spec, attempt):
        if spec.index == 1:
            raise ValueError(f"{self.labels[0]} has key {attempt.key}")


def mapping_of(array):
    """Return device and inode of the file in memory that an array lies in; "00:00 0" for memory of its own."""
    place = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, _, _, device, inode, *_ = line.split()
        low, high = (int(end, 16) for end in ends.split("-"))
        if low <= place < high:
            return f"{device} {inode}"
    raise AssertionError("an array lies nowhere")


def begun(store, least):
    return lambda: sum(bool(state.attempts) for state in store.states().values()) >= least


def running(store):
    """The latest attempts that have begun and not ended, as (job, attempt)."""
    return [(job, state.last) for job, state in store.states().items() if state.status == "running"]


def drive(address, uri, first, count):
    store = Store(uri, lease=LEASE)
    try:
        RayExecutor(address).run(Waiting(first=int(first)), added(store, specs(count)), store)
    except Interrupted as interrupted:
        print("left", len(interrupted.outcome.left))
        sys.exit(130)


def lose(uri, count):
    """Run jobs on one node, then on two, of which one is taken away while it works."""
    from threading import Thread

    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.connect()
    store = Store(uri, lease=LEASE)
    added(store, specs(count))
    go = Path(uri + ".go")

    outcome = []

    def work():
        outcome.append(RayExecutor().run(Held(go=str(go)), specs(count), store, progress=False))

    worker = Thread(target=work)
    worker.start()
    wait_until(begun(store, 1))
    guest = cluster.add_node(num_cpus=1)
    raylet = guest.all_processes["raylet"][0].process.pid
    guests = []

    def at_work():
        pids = [store.begun(*attempt)["pid"] for attempt in running(store)]
        guests[:] = [pid for pid in pids if parent(pid) == raylet]
        return guests

    wait_until(at_work)
    cluster.remove_node(guest, allow_graceful=False)
    wait_until(lambda: not any(map(lives, guests)))  # workers outlive their raylet a little
    go.touch()
    worker.join()
    print("done", len(outcome[0].done))
    ray.shutdown()
    cluster.shutdown()


def spill(folder, count):
    """Give a Ray that is started here more than it has memory for; only its user may read what goes to disk."""
    tempfile.tempdir, begin = folder, ray.init
    ray.init = partial(begin, num_cpus=1, object_store_memory=80_000_000)
    leave = connect("local")
    held = [ray.put(np.zeros(20_000_000, dtype=np.uint8)) for _ in range(count)]
    wait_until(lambda: any(path.stat().st_size >= 20_000_000 for path in Path(folder).glob("*/*/*")))
    (private,) = Path(folder).iterdir()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert len(held) == count
    leave()


def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    kind, *where, jobs = sys.argv[1:]
    {"drive": drive, "lose": lose, "spill": spill}[kind](*where, int(jobs))
