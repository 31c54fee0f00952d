"""Executors: run jobs in this process, in processes of this machine, or in any pool of workers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from inosgm._internal import validate as _validate
from inosgm.jobs import interrupts, work
from inosgm.jobs.processes import ProcessPool
from inosgm.jobs.progress import JobProgress
from inosgm.jobs.scheduler import Interrupted, Outcome, Scheduler, WorkerPool
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import BuildingTask, Task
from inosgm.jobs.work import Report

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger


class Executor(ABC):
    """Runs jobs. Results are the same, bit for bit, with every executor and however often a run is resumed."""

    elsewhere: bool = False
    """Whether workers may be on other machines, with other devices than this one."""

    @abstractmethod
    def pool(self, task: Task, store: Store) -> WorkerPool:
        """Return the workers."""

    def __enter__(self) -> Self:
        """Keep connections from one run to the next."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was kept."""
        return

    def run(
        self,
        task: Task,
        specs: Sequence[JobSpec],
        store: Store,
        *,
        attempts: int = 5,
        ledger: "Ledger | None" = None,
        progress: bool = True,
    ) -> Outcome:
        """Run the jobs that have no result yet.

        **Guarantee.** A job has its ledger row before its first attempt, and one result, of one attempt; other attempts
        use the same noise and are not charged. A run may be killed and resumed at any moment, and several may work on
        one store. Jobs that others depend on (`BuildingTask.before`) run first; if one of them fails permanently, jobs
        that depend on it fail as well and are not charged.

        Args:
            task: The function of the jobs.
            specs: The jobs, in the order in which they begin.
            store: The store of the jobs.
            attempts: How many attempts of a job may fail, or die with their worker, before it fails permanently;
                attempts of earlier runs do not count.
            ledger: A ledger that is also charged.
            progress: Show the progress.

        Returns:
            The state of the jobs, without those that they depend on; a job that fails does not stop the others.

        Raises:
            Interrupted: after Ctrl-C, when running jobs have written a checkpoint.
            StoreUnwritable: if the store can no longer be written to.
        """
        attempts = _validate.count("attempts", attempts, least=1)
        for spec in specs:
            _validate.instance("specs", spec, JobSpec, "run takes a task, its jobs and a store")

        def scheduled(jobs: Sequence[JobSpec]) -> Outcome:
            if not jobs:
                return NOTHING
            with JobProgress(len(jobs), enabled=progress) as bar:
                pool = self.pool(task, store)
                clean = False
                try:
                    bar.say(f"{len(jobs)} jobs of {store.uri}, {pool.about}")
                    scheduler = Scheduler(pool, task, jobs, store, attempts=attempts, ledger=ledger, progress=bar)
                    outcome = scheduler.run()
                    clean = True
                finally:
                    pool.close(kill=not clean)
            return outcome

        with interrupts.deferred():
            needs = _needs(task, specs, store)
            earlier = scheduled(list(dict.fromkeys(one for before in needs.values() for one in before)))
            if earlier.left:
                done = tuple(spec.id for spec in specs if spec not in needs and store.done(spec.id))
                left = tuple(spec.id for spec in specs if spec.id not in done)
                raise Interrupted(Outcome(done=done, failed={}, left=left))
            failed = _abandon_dependents(store, needs, earlier.failed)
            outcome = scheduled([spec for spec in specs if spec.id not in failed])
        if outcome.left:
            raise Interrupted(outcome)
        return replace(outcome, failed={**failed, **outcome.failed})


NOTHING = Outcome(done=(), failed={}, left=())


def _needs(task: Task, specs: Sequence[JobSpec], store: Store) -> dict[JobSpec, Sequence[JobSpec]]:
    """Return the jobs that each unfinished job depends on, without jobs that depend on none."""
    if not isinstance(task, BuildingTask):
        return {}
    states = store.states()
    waiting = [spec for spec in specs if spec.id not in states or not states[spec.id].done]
    found = {spec: task.before(spec) for spec in waiting}
    return {spec: before for spec, before in found.items() if before}


def _abandon_dependents(
    store: Store, needs: Mapping[JobSpec, Sequence[JobSpec]], failed: Mapping[str, str]
) -> dict[str, str]:
    """Abandon jobs that depend on jobs that failed permanently, and return why."""
    found: dict[str, str] = {}
    for spec, before in needs.items():
        why = next((f"{one.kind} {one.index}: {failed[one.id]}" for one in before if one.id in failed), None)
        if why is not None:
            found[spec.id] = f"it depends on a job that failed permanently, {why}"
            store.abandon(store.add(spec), store.state(spec.id).last, found[spec.id])
    return found


class SerialExecutor(Executor):
    """Runs jobs one after the other, in this process."""

    def pool(self, task: Task, store: Store) -> WorkerPool:
        """Return a pool of one worker, this thread."""
        return InlinePool(task, store, interrupts.asked)


class ProcessExecutor(Executor):
    """Runs jobs in processes of this machine, each with one thread, or OMP_NUM_THREADS of them.

    Scripts that use it must start their work below `if __name__ == "__main__":`, as always with processes.

    Args:
        processes: How many.
    """

    def __init__(self, processes: int = 2) -> None:
        self._processes = _validate.count("processes", processes, least=1)

    def pool(self, task: Task, store: Store) -> WorkerPool:
        """Start the processes."""
        store.require_shared()
        return ProcessPool(task, store, self._processes)


class InlinePool:
    """A pool of one worker: the thread that calls it.

    Args:
        task: The function of the jobs.
        store: The store of the jobs.
        stopping: Returns whether to stop.
    """

    about = "one after the other"

    def __init__(self, task: Task, store: Store, stopping: Callable[[], bool]) -> None:
        self._task, self._store, self._stopping = task, store, stopping
        self._ended: list[Report] = []

    def idle(self) -> int:
        """Return 1 if the last report was taken."""
        return not self._ended

    def start(self, job: str, attempt: int) -> None:
        """Make an attempt, until it ends."""
        self._ended.append(work.attempt(self._store, self._task, job, attempt, self._stopping))

    def reports(self, timeout: float) -> list[Report]:
        """Return the attempts that ended."""
        if not self._ended and timeout:
            interrupts.pause(timeout)
        ended, self._ended = self._ended, []
        return ended

    def interrupt(self) -> None:
        """Do nothing: the attempt asks `stopping`."""

    def settled(self, kind: str, seconds: float | None) -> None:
        """Count nothing."""

    def close(self, *, kill: bool) -> None:
        """No worker is removed."""
