"""Processes that are killed before each of their calls that change files, for tests of what is left behind.

Run by path: `store`, `statistic` or `run`, a directory, and N to kill before every N-th call; or `revise`, a directory,
N, the new epsilon, and "data" or "nothing".
"""

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

import numpy as np

CALLS = ("open", "link", "unlink", "replace", "fsync", "mkdir", "write")
"""The functions of `os` with which files are made, named, filled and removed."""

CHANGES = ("link", "unlink", "replace", "pwrite", "ftruncate")
"""Those after which a run directory, or its ledger, is another."""

KEY = 271828182845904523536028747135266249
"""The key that jobs are given; no file of a finished store may hold its digits."""

SECRET = b"an unreleased sum of records"
"""What checkpoints hold."""


def child(function, *arguments):
    """Run a function in a new process, and return how it ended."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        function(*arguments)
        os._exit(0)
    finally:
        os._exit(1)


def die_before(number, names=CALLS):
    """Kill this process where it would make this call, counted from 0."""
    calls = count()

    def counted(function):
        def call(*arguments, **options):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for name in names:
        setattr(os, name, counted(getattr(os, name)))


def killed_at(function, folder, number):
    die_before(number)
    function(folder)


def killed_everywhere(function, folder, every):
    """Kill a function before its first call, its (1 + every)-th, and so on; then let it finish, in its own folder."""
    for number in count(step=every):
        place = Path(folder) / str(number)
        place.mkdir()
        status = child(killed_at, function, place, number)
        after(place)
        assert child(function, place) == 0, number
        if status != signal.SIGKILL:
            assert status == 0, (number, status)
            return


def after(place):
    """Note the keys that a killed process has left, which are random: nobody must find them later.

    A run directory that holds a model is finished, and must not hold a key.
    """
    assert not ((place / "model.pt").exists() and (place / "key").exists())
    found = {path.read_text() for name in ("key", "store/jobs/*/key") for path in place.glob(name)}
    (place.parent / f"keys-{place.name}").write_text("".join(found))


def store(folder):
    """Do two jobs, one with a given key: each fails once, saves a checkpoint twice, and comes to an array."""
    from inosgm.jobs import JobSpec, Result, SerialExecutor, Store

    class Saving:
        def cost(self, spec):
            return None

        def run(self, spec, attempt):
            if attempt.number == 1:
                raise ValueError(SECRET)
            for step in (1, 2):
                attempt.save(step, SECRET)
            return Result(values={"done": True}, arrays={"sum": np.zeros(2)})

    place = Store(Path(folder) / "store")
    jobs = [JobSpec(kind="saving", configuration={}, data_fingerprint="", code_version="1", index=i) for i in (0, 1)]
    place.add(jobs[0], key=KEY)
    outcome = SerialExecutor().run(Saving(), jobs, place, progress=False)
    assert len(outcome.done) == 2, outcome


def statistic(folder):
    """Ask for the mean of the upper half of a table in two fragments."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from inosgm import Owners
    from inosgm.statistics import Table, run_statistic

    file = Path(folder).parent / "x.parquet"
    if not file.exists():
        pq.write_table(pa.table({"x": np.arange(40.0)}), file, row_group_size=20)
    owners = Owners(of_record=["a", "b"] * 20, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    table = Table.of(file, "x", megabytes=1e-9)
    asked = {"bounds": (0, 40), "level": 0.5, "progress": False}
    run_statistic("upper-tail-mean", table, owners, store=Path(folder) / "store", **asked)


def run(folder):
    """Train for three steps in a run directory, with a row in the private log."""
    import torch

    from inosgm import Owners, Trainer, plan_sample

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(20, 2), torch.arange(20) % 2
    owners = Owners(of_record=["a", "b"] * 10, epsilon={"a": 1.0, "b": 5.0}, delta=1e-5)
    plan = plan_sample(owners, steps=3, expected_batch=10, clip_norm=1.0)
    model = torch.nn.Linear(2, 2)
    trainer = Trainer(plan, model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
    trainer.fit(x, y, run=folder, checkpoint_every=1, progress=False)


def revise_everywhere(folder, every, *how):
    """Kill a revision of a run before every N-th change, and go on in two ways: by this revision, or by training."""
    import torch
    import training_worker as worker

    torch.set_num_threads(1)
    data = {"data": (worker.X, worker.Y), "nothing": ()}

    def revise(place, strict, given):
        worker.trainer(key=11).revise(worker.owners(strict=float(strict)), *data[given], run=place)

    def killed(place, number, *how):
        die_before(number, CHANGES)
        revise(place, *how)

    def revise_and_fit(place, *how):
        revise(place, *how)
        worker.fit(place)

    worker.fit(folder / "base", steps=12)
    shutil.copytree(folder / "base", folder / "unrevised")
    worker.fit(folder / "unrevised")
    os.fsync = lambda descriptor: None
    shutil.copytree(folder / "base", folder / "revised")
    revise_and_fit(folder / "revised", *how)
    for number in count(step=int(every)):
        place = folder / str(number)
        shutil.copytree(folder / "base", place)
        status = child(killed, place, number, *how)
        shutil.copytree(place, folder / f"{number}-fit")
        assert child(worker.fit, folder / f"{number}-fit") == 0, number
        assert child(revise_and_fit, place, *how) == 0, number
        if status != signal.SIGKILL:
            assert status == 0, (number, status)
            break


if __name__ == "__main__":
    command, place, *how = sys.argv[1:]
    if command == "revise":
        sys.exit(revise_everywhere(Path(place), *how))
    first = Path(place) / "undisturbed"
    first.mkdir()
    globals()[command](first)  # which imports everything, before processes are forked
    os.fsync = lambda descriptor: None  # a killed process, unlike a machine without power, loses nothing that it wrote
    killed_everywhere(globals()[command], place, int(*how))
