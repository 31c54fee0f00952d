"""Who gets jobs done: this process, processes of this machine, or whatever brings a crew."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from inosgm._internal import validate as _validate
from inosgm.jobs import interrupts, work
from inosgm.jobs.processes import ProcessCrew
from inosgm.jobs.progress import JobProgress
from inosgm.jobs.scheduler import Crew, Drive, Interrupted, Outcome
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import BuildingTask, Task
from inosgm.jobs.work import Report

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger


class Executor(ABC):
    """Gets jobs done. Whoever does it, and however often it is begun anew, results are the same, bit for bit."""

    elsewhere: bool = False
    """Whether workers may be on other machines, with other devices than this one."""

    @abstractmethod
    def crew(self, task: Task, store: Store) -> Crew:
        """Return those who work."""

    def __enter__(self) -> Self:
        """Keep from now on what one run can leave to the next."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go."""
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
        """Do those jobs that have no result yet.

        **Guarantee.** A job has its ledger row before its first attempt, and one result, of one attempt; other attempts
        use the same noise and are not charged. It may be killed and begun again at any moment, and several may run on
        one store. Jobs that others build on (`BuildingTask.before`) are done first; a job that builds on one that was
        given up is given up, too, and not charged.

        Args:
            task: What jobs do.
            specs: The jobs, in the order in which they are begun.
            store: Where they are.
            attempts: How many attempts of a job may fail, or die with their worker, before it is given up; those of
                earlier runs do not count.
            ledger: A ledger that is charged too.
            progress: Show how far it has got.

        Returns:
            What has become of the jobs, without those that they build on; those that fail do not keep others from
            being done.

        Raises:
            Interrupted: after Ctrl-C, when everything that was running has saved how far it had got.
            StoreUnwritable: if the store cannot be written to any more.
        """
        attempts = _validate.count("attempts", attempts, least=1)
        for spec in specs:
            _validate.instance("specs", spec, JobSpec, "run takes a task, its jobs and a store")

        def driven(jobs: Sequence[JobSpec]) -> Outcome:
            if not jobs:
                return NOTHING
            with JobProgress(len(jobs), enabled=progress) as bar:
                crew = self.crew(task, store)
                clean = False
                try:
                    bar.say(f"{len(jobs)} jobs of {store.uri}, {crew.about}")
                    drive = Drive(crew, task, jobs, store, attempts=attempts, ledger=ledger, progress=bar)
                    outcome = drive.run()
                    clean = True
                finally:
                    crew.close(kill=not clean)
            return outcome

        with interrupts.deferred():
            needs = _needs(task, specs, store)
            earlier = driven(list(dict.fromkeys(one for before in needs.values() for one in before)))
            if earlier.left:
                done = tuple(spec.id for spec in specs if spec not in needs and store.done(spec.id))
                left = tuple(spec.id for spec in specs if spec.id not in done)
                raise Interrupted(Outcome(done=done, failed={}, left=left))
            failed = _given_up(store, needs, earlier.failed)
            outcome = driven([spec for spec in specs if spec.id not in failed])
        if outcome.left:
            raise Interrupted(outcome)
        return replace(outcome, failed={**failed, **outcome.failed})


NOTHING = Outcome(done=(), failed={}, left=())


def _needs(task: Task, specs: Sequence[JobSpec], store: Store) -> dict[JobSpec, Sequence[JobSpec]]:
    """Return what each job that is not done builds on, if on anything."""
    if not isinstance(task, BuildingTask):
        return {}
    states = store.states()
    waiting = [spec for spec in specs if spec.id not in states or not states[spec.id].done]
    found = {spec: task.before(spec) for spec in waiting}
    return {spec: before for spec, before in found.items() if before}


def _given_up(store: Store, needs: Mapping[JobSpec, Sequence[JobSpec]], failed: Mapping[str, str]) -> dict[str, str]:
    """Give up what builds on jobs that were given up, and say why."""
    found: dict[str, str] = {}
    for spec, before in needs.items():
        why = next((f"{one.kind} {one.index}: {failed[one.id]}" for one in before if one.id in failed), None)
        if why is not None:
            found[spec.id] = f"it builds on a job that was given up, {why}"
            store.give_up(store.add(spec), store.state(spec.id).last, found[spec.id])
    return found


class SerialExecutor(Executor):
    """Does jobs one after the other, in this process."""

    def crew(self, task: Task, store: Store) -> Crew:
        """Return a crew of one."""
        return Alone(task, store, interrupts.asked)


class ProcessExecutor(Executor):
    """Does jobs in processes of this machine, each with one thread, or as many as OMP_NUM_THREADS says.

    Scripts that use it must begin their work below `if __name__ == "__main__":`, as always with processes.

    Args:
        processes: How many.
    """

    def __init__(self, processes: int = 2) -> None:
        self._processes = _validate.count("processes", processes, least=1)

    def crew(self, task: Task, store: Store) -> Crew:
        """Start the processes."""
        store.require_shared()
        return ProcessCrew(task, store, self._processes)


class Alone:
    """A crew of one, who works in the thread that asks.

    Args:
        task: What jobs do.
        store: Where they are.
        stopping: Says whether to stop.
    """

    about = "one after the other"

    def __init__(self, task: Task, store: Store, stopping: Callable[[], bool]) -> None:
        self._task, self._store, self._stopping = task, store, stopping
        self._ended: list[Report] = []

    def idle(self) -> int:
        """Return whether the last report was heard."""
        return not self._ended

    def start(self, job: str, attempt: int) -> None:
        """Make an attempt, until it ends."""
        self._ended.append(work.attempt(self._store, self._task, job, attempt, self._stopping))

    def reports(self, timeout: float) -> list[Report]:
        """Return what has ended."""
        if not self._ended and timeout:
            interrupts.pause(timeout)
        ended, self._ended = self._ended, []
        return ended

    def interrupt(self) -> None:
        """Do nothing: `stopping` says it."""

    def settled(self, kind: str, seconds: float | None) -> None:
        """Nobody counts."""

    def close(self, *, kill: bool) -> None:
        """Nobody is to be let go."""
