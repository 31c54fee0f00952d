"""A crew of processes of this machine."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from typing import Any

from inosgm.jobs import interrupts, work
from inosgm.jobs.store import Store
from inosgm.jobs.task import Task
from inosgm.jobs.work import Report

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOP = "stop"


@dataclass(eq=False)
class _Worker:
    """A process, the line to it, and what it does."""

    process: Any
    line: Connection
    ready: bool = False
    doing: tuple[str, int] | None = None


class ProcessCrew:
    """Processes with one thread each; one that dies is replaced.

    Args:
        task: What jobs do.
        store: Where they are.
        processes: How many.
    """

    def __init__(self, task: Task, store: Store, processes: int) -> None:
        self._task, self._store = task, store
        self.about = f"in {processes} process{'es' * (processes > 1)}"
        self._context = get_context("spawn")
        self._workers: list[_Worker] = []
        try:
            for _ in range(processes):
                self._workers.append(self._hire())
        except BaseException:  # a second Ctrl-C: nobody else could let them go
            self.close(kill=True)
            raise

    def idle(self) -> int:
        """Return how many have answered and wait."""
        return sum(worker.ready for worker in self._workers)

    def start(self, job: str, attempt: int) -> None:
        """Give an attempt to one of them."""
        worker = next(worker for worker in self._workers if worker.ready)
        worker.ready, worker.doing = False, (job, attempt)
        with suppress(BrokenPipeError):  # it has just died: `reports` will notice
            worker.line.send(worker.doing)

    def reports(self, timeout: float) -> list[Report]:
        """Return what has ended, and replace who has died."""
        heard = wait([worker.line for worker in self._workers], timeout)
        ended = []
        for worker in [worker for worker in self._workers if worker.line in heard]:
            try:
                report = worker.line.recv()
            except (EOFError, OSError):
                ended += self._replace(worker)
                continue
            worker.ready, worker.doing = True, None
            ended += [report] * (report is not None)
        return ended

    def interrupt(self) -> None:
        """Tell all that work to stop."""
        for worker in self._workers:
            if worker.doing is not None:
                with suppress(BrokenPipeError):
                    worker.line.send(STOP)

    def settled(self, kind: str, seconds: float | None) -> None:
        """Nobody counts."""

    def close(self, *, kill: bool) -> None:
        """Let all go."""
        for worker in self._workers:
            if kill:
                worker.process.kill()
            worker.line.close()
        for worker in self._workers:
            worker.process.join()

    def _replace(self, worker: _Worker) -> list[Report]:
        """Hire somebody in place of a worker that is gone, and report what it was doing."""
        worker.process.kill()
        worker.process.join()
        worker.line.close()
        if not worker.ready and worker.doing is None and not interrupts.asked():
            raise RuntimeError(
                f"a worker ended before it had begun, with exit code {worker.process.exitcode}: is the work of the "
                'script below `if __name__ == "__main__":`, and can the task be imported there?'
            )
        self._workers[self._workers.index(worker)] = self._hire()
        return [Report(job=worker.doing[0], attempt=worker.doing[1], status="died")] if worker.doing else []

    def _hire(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._store, self._task)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        try:
            with _one_thread(), _deaf():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Worker(process, ours)


def _work(line: Connection, store: Store, task: Task) -> None:
    """Do what comes along the line, until nobody is at its other end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the terminal tells all processes; who started this one decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def stopping() -> bool:
        return line.poll()  # while an attempt is made there is nothing to hear but STOP, or the end of the line

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        line.send(None)
        while True:
            order = line.recv()
            if order != STOP:  # one that came too late
                job, attempt = order
                line.send(work.attempt(store, task, job, attempt, stopping))


@contextmanager
def _deaf() -> Iterator[None]:
    """Let processes that start now not hear Ctrl-C before they know what to do about it."""
    ensure_running()  # which would let signals through again if it came later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that start now compute with one thread, or with as many as OMP_NUM_THREADS says."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
