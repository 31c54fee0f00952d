"""One attempt at a job, as every worker makes it: claim it, send heartbeats, run it, commit its result."""

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from time import monotonic
from typing import Literal

from inosgm._internal.once import Uncopied, this_process
from inosgm.jobs.store import Failure, Store
from inosgm.jobs.task import Result, Stopped, Task
from inosgm.ledger.charges import merged, uncovered
from inosgm.ledger.cost import Cost
from inosgm.ledger.refusals import JobMismatch

BEATS = 6
"""Heartbeats within a lease: five may be lost before a living worker is taken for dead."""

Status = Literal["done", "failed", "stopped", "taken", "fenced", "died", "unwritable"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """How an attempt ended. It holds nothing but ids, numbers and the type of an error.

    Attributes:
        job: The id of the job.
        attempt: Its number.
        status: done; failed (an error, whose traceback is in the store); stopped (on request); taken (another worker
            makes this attempt); fenced (another attempt was faster); died (with its worker); unwritable (the store
            cannot be written to).
        seconds: Its duration.
        about: The type of the error, or what is wrong with the store.
    """

    job: str
    attempt: int
    status: Status
    seconds: float = 0.0
    about: str = ""


class StoreUnwritable(OSError):
    """A store can no longer be written to: it is full, read-only, or out of reach."""


class PrepaidLedger(Uncopied):
    """A ledger for one attempt at a job: it accepts what the job was charged with, and nothing else.

    Each cost that was charged pays for one noise, that of the first job name that it is asked for under: as in any
    ledger, the same steps under another name are other releases. Noise must have a key: another attempt repeats it.
    Within an attempt each step is released once. Unlike a `Ledger`, this one does not remember the sums that noise was
    added to, and the difference of two sums with the same noise holds none.
    """

    def __init__(self, paid: tuple[Cost, ...] | None) -> None:
        self._paid = paid
        self._used: dict[str, tuple[Cost, list[tuple[int, int]]]] = {}
        self._lock, self._process = Lock(), this_process()

    def charge(self, *costs: Cost) -> None:
        """Raise unless each cost is part of one that was charged; all of them are accepted, or none.

        Raises:
            JobMismatch: for anything else, for a cost that is not repeatable, and for a step that was asked for before.
            RuntimeError: in another process than that of the attempt.
        """
        if self._paid is None:
            raise JobMismatch("the job was not charged: its task must say what it costs")
        if this_process() != self._process:
            raise RuntimeError(
                "a job pays only in the process that makes its attempt: a forked process would use what was charged "
                "once for other noise; release there, or make it a job of its own"
            )
        with self._lock:
            used = dict(self._used)
            for cost in costs:
                used[cost.job] = _accept(self._paid, used, cost)
            self._used = used


def _accept(
    paid: tuple[Cost, ...], used: Mapping[str, tuple[Cost, list[tuple[int, int]]]], cost: Cost
) -> tuple[Cost, list[tuple[int, int]]]:
    """Return the charged cost that covers a cost, and all steps requested under its name, these included."""
    if not cost.repeatable:
        raise JobMismatch(
            f"job {paid[0].job!r} releases with noise that another attempt at it cannot repeat: give the mechanism "
            "key=attempt.key, or a key made from it, and name the job of a Cost that you charge yourself"
        )
    mine, steps = used.get(cost.job, (None, []))
    free = [mine] if mine is not None else [one for one in paid if not any(one is other for other, _ in used.values())]
    asked = cost.step, cost.step + cost.steps
    if uncovered(*asked, steps) != [asked]:
        raise JobMismatch(
            f"a step of job {paid[0].job!r} was released before in this attempt, and its noise must not be added to "
            "two sums, whose difference it would not hide: make one mechanism with this key (and derive other keys "
            "for others), and release each step once; to repeat a step let the attempt fail, and the next one repeats "
            "its noise"
        )
    for one in free:
        if one.step <= asked[0] and asked[1] <= one.step + one.steps and one.same_step(cost):
            return one, merged([*steps, asked])
    raise JobMismatch(f"job {paid[0].job!r} was charged with another cost than it now requests")


class StoredAttempt:
    """An attempt whose checkpoints are records of a store."""

    def __init__(self, store: Store, job: str, number: int, key: int, stopping: Callable[[], bool]) -> None:
        self.number, self.key, self.stopping = number, key, stopping
        self._store, self._job = store, job
        try:
            self.ledger = PrepaidLedger(store.charged(job))
        except FileNotFoundError:
            self.ledger = PrepaidLedger(None)

    def latest(self) -> bytes | None:
        """Return the latest complete checkpoint of any attempt."""
        return self._store.latest(self._job)

    def save(self, step: int, content: bytes) -> None:
        """Save a checkpoint."""
        with _writing():
            self._store.save(self._job, self.number, step, content)

    def result(self, job: str) -> Result:
        """Return the result of another job of the store."""
        return self._store.result(job)


def attempt(store: Store, task: Task, job: str, number: int, stopping: Callable[[], bool]) -> Report:
    """Make an attempt at a job, and record how it ended.

    Args:
        store: The store of the job.
        task: The function of the jobs.
        job: Its id.
        number: The number of the attempt; the first worker that claims it makes it.
        stopping: Returns whether to stop.
    """
    began = monotonic()

    def report(status: Status, about: str = "") -> Report:
        return Report(job=job, attempt=number, status=status, seconds=monotonic() - began, about=about)

    try:
        with _writing():
            store.begin(job, number)
    except FileExistsError:
        return report("taken")
    except StoreUnwritable as error:
        return report("unwritable", str(error))
    try:
        with _alive(store, job, number):
            try:
                key = store.key(job)
            except FileNotFoundError:
                key = None
            if store.done(job):  # checked after the key was read, so the key of a finished job is never used
                with _writing():
                    store.end(job, number, "stopped")
                return report("taken")
            if key is None:
                raise FileNotFoundError(f"the key of job {job} is gone from {store.uri}: it cannot be repeated")
            result = task.run(store.spec(job), StoredAttempt(store, job, number, key, stopping))
            with _writing():
                return report("done" if store.commit(job, number, result) else "fenced")
    except StoreUnwritable as error:
        return report("unwritable", str(error))
    except Exception as error:
        about = "" if isinstance(error, Stopped) else type(error).__name__
        try:
            with _writing():
                if isinstance(error, Stopped):
                    store.end(job, number, "stopped")
                else:
                    store.end(job, number, "failed", Failure(about, "".join(traceback.format_exception(error))))
        except StoreUnwritable as refusal:
            return report("unwritable", str(refusal))
        return report("stopped" if isinstance(error, Stopped) else "failed", about)
    except BaseException:  # a second Ctrl-C, or the end of the process: the next run need not wait for the lease
        with suppress(Exception):
            store.end(job, number, "stopped")
        raise


@contextmanager
def _writing() -> Iterator[None]:
    """Turn errors of the store into `StoreUnwritable`, so that they are no failures of the job."""
    try:
        yield
    except (FileExistsError, StoreUnwritable):
        raise
    except OSError as error:
        raise StoreUnwritable(str(error)) from error


@contextmanager
def _alive(store: Store, job: str, number: int) -> Iterator[None]:
    """Send heartbeats from another thread."""
    over = Event()
    pause = store.lease / BEATS

    def beat() -> None:
        while not over.wait(pause):
            with suppress(OSError):  # a missed heartbeat is no reason to stop
                store.heartbeat(job, number)

    thread = Thread(target=beat, name=f"beat-{os.getpid()}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
