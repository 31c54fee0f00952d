"""A pool of worker processes on this machine."""

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
"""The variables from which numerical libraries read their number of threads when they are loaded."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that a terminal or a batch system sends to all processes: only the parent decides what they mean."""

STOP = "stop"
"""The message that asks a worker to write a checkpoint and stop."""


@dataclass(eq=False)
class _Worker:
    """A process, the pipe to it, and its attempt."""

    process: Any
    line: Connection
    ready: bool = False
    doing: tuple[str, int] | None = None


class ProcessPool:
    """Processes with one thread each; one that dies is replaced.

    Args:
        task: The function of the jobs.
        store: The store of the jobs.
        processes: The number of processes.
    """

    def __init__(self, task: Task, store: Store, processes: int) -> None:
        self._task, self._store = task, store
        self.about = f"in {processes} process{'es' * (processes > 1)}"
        self._context = get_context("spawn")
        self._workers: list[_Worker] = []
        try:
            for _ in range(processes):
                self._workers.append(self._start_worker())
        except BaseException:  # a second Ctrl-C: the caller has no pool to close
            self.close(kill=True)
            raise

    def idle(self) -> int:
        """Return how many workers are ready and have no work."""
        return sum(worker.ready for worker in self._workers)

    def start(self, job: str, attempt: int) -> None:
        """Give an attempt to an idle worker."""
        worker = next(worker for worker in self._workers if worker.ready)
        worker.ready, worker.doing = False, (job, attempt)
        with suppress(BrokenPipeError):  # it has just died: `reports` will notice
            worker.line.send(worker.doing)

    def reports(self, timeout: float) -> list[Report]:
        """Return the attempts that ended, and replace workers that died."""
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
        """Ask all running attempts to stop."""
        for worker in self._workers:
            if worker.doing is not None:
                with suppress(BrokenPipeError):
                    worker.line.send(STOP)

    def settled(self, kind: str, seconds: float | None) -> None:
        """Count nothing."""

    def close(self, *, kill: bool) -> None:
        """Stop all workers."""
        for worker in self._workers:
            if kill:
                worker.process.kill()
            worker.line.close()
        for worker in self._workers:
            worker.process.join()

    def _replace(self, worker: _Worker) -> list[Report]:
        """Start a worker in place of one that died, and report the attempt that died with it."""
        worker.process.kill()
        worker.process.join()
        worker.line.close()
        if not worker.ready and worker.doing is None and not interrupts.asked():
            raise RuntimeError(
                f"a worker ended before it had begun, with exit code {worker.process.exitcode}: is the work of the "
                'script below `if __name__ == "__main__":`, and can the task be imported there?'
            )
        self._workers[self._workers.index(worker)] = self._start_worker()
        return [Report(job=worker.doing[0], attempt=worker.doing[1], status="died")] if worker.doing else []

    def _start_worker(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._store, self._task)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        try:
            with _one_thread(), _signals_blocked():
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Worker(process, ours)


def _work(line: Connection, store: Store, task: Task) -> None:
    """Make the attempts that come through the pipe, until its other end is closed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the terminal signals all processes; the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def stopping() -> bool:
        return line.poll()  # during an attempt only STOP, or the end of the pipe, can arrive

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        line.send(None)
        while True:
            order = line.recv()
            if order != STOP:  # which arrived after the attempt had ended
                job, attempt = order
                line.send(work.attempt(store, task, job, attempt, stopping))


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Start processes with signals blocked, so that Ctrl-C cannot end them before they ignore it."""
    ensure_running()  # the tracker unblocks signals when it starts, so it must run before
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Start processes that compute with one thread, or with OMP_NUM_THREADS of them."""
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
