"""A pool of actors on a Ray cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError, TaskCancelledError

from inosgm.jobs import Report, Store, Task, interrupts
from ray_jobs.actor import TrainerActor
from ray_jobs.capacity import Request
from ray_jobs.connection import require_raylet
from ray_jobs.metrics import JobMetrics
from ray_jobs.nodes import check_nodes, environment, first_words, living

LOOK = 2.0
"""Seconds between two listings of the nodes: a new node waits that long for work, and a listing takes milliseconds."""

SILENT = 10
"""How many greetings per worker may fail in a row before the run fails: nodes that die cause a few, a task that no
node can load causes them all."""


@dataclass(eq=False)
class _Worker:
    """An actor, its unanswered call, and the attempt that it makes."""

    actor: Any
    asked: Any = None
    doing: tuple[str, int] | None = None
    known: bool = False
    """Whether it has answered since it was created, or last lost."""


class RayWorkerPool:
    """Actors that live as long as the run.

    An actor gets an attempt only after it has answered since Ray last (re)started it. Ray restarts actors without
    limit, on other nodes if it can, but never repeats an attempt: the store decides that.

    Args:
        request: The resources of an actor.
        most: The number of actors, None for as many as the cluster holds at the time.
        task: The function of the jobs.
        store: The store of the jobs.
        leave: Ends the connection to Ray, if it is the pool's own.
    """

    def __init__(
        self, request: Request, most: int | None, task: Task, store: Store, *, leave: Callable[[], None]
    ) -> None:
        self._request, self._most, self._store, self._leave = request, most, store, leave
        self.about = f"on Ray at {ray.get_runtime_context().gcs_address}, {len(living())} nodes"
        self._reference = ray.put(task)
        self._make: Any = ray.remote(
            num_cpus=request.num_cpus,
            num_gpus=request.num_gpus,
            resources=dict(request.resources),
            max_restarts=-1,
            max_task_retries=0,
            runtime_env={"env_vars": environment(request)},
        )(TrainerActor)
        self._workers: list[_Worker] = []
        self._metrics = JobMetrics()
        self._jobs: int | None = None
        self._look_at = 0.0
        self._silent, self._first_trouble = 0, ""

    def idle(self) -> int:
        """Return how many actors are ready and have no work."""
        return sum(worker.known and worker.asked is None for worker in self._workers)

    def start(self, job: str, attempt: int) -> None:
        """Give an attempt to an idle actor."""
        worker = next(worker for worker in self._workers if worker.known and worker.asked is None)
        worker.doing = job, attempt
        worker.asked = worker.actor.attempt.remote(job, attempt)

    def reports(self, timeout: float) -> list[Report]:
        """Return the attempts that ended; add or remove actors as nodes come and go."""
        self._look()
        asked = {worker.asked: worker for worker in self._workers if worker.asked is not None}
        if not asked:
            interrupts.pause(timeout)
            return []
        ray.wait(list(asked), timeout=timeout)
        answers, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
        return [report for answer in answers for report in self._hear(asked[answer])]

    def interrupt(self) -> None:
        """Cancel running attempts: they notice it, write a checkpoint and stop."""
        for worker in self._workers:
            if worker.doing is not None:
                ray.cancel(worker.asked)

    def settled(self, kind: str, seconds: float | None) -> None:
        """Count a job that is done, or failed permanently."""
        self._metrics.enter(kind, seconds)

    def close(self, *, kill: bool) -> None:
        """Stop all actors at once, with or without `kill`."""
        try:
            for worker in self._workers:
                ray.kill(worker.actor)
        finally:
            self._workers.clear()
            del self._reference
            self._leave()

    def _hear(self, worker: _Worker) -> Sequence[Report]:
        """Take the answer of a worker."""
        answer, worker.asked = worker.asked, None
        try:
            said = ray.get(answer)
        except TaskCancelledError:  # replaces the report, which the actor returns when it is greeted
            self._greet(worker)
            return []
        except RayTaskError as error:
            self._check(error, worker)
            return self._lost(worker, error, gone=False)
        except RayError as error:
            return self._lost(worker, error, gone=isinstance(error, ActorDiedError))
        self._silent, self._first_trouble = 0, ""
        worker.known = True
        doing, worker.doing = worker.doing, None
        if doing is None:
            return []
        if said is None or (said.job, said.attempt) != doing:  # it was restarted, or cancelled before it began
            self._greet(worker)
            return [Report(job=doing[0], attempt=doing[1], status="taken")]
        return [said]

    def _greet(self, worker: _Worker) -> None:
        """Ask an actor to answer, and give it the task."""
        worker.known = False
        worker.asked = worker.actor.hello.remote([self._reference])

    def _lost(self, worker: _Worker, error: RayError, *, gone: bool) -> Sequence[Report]:
        """Report the attempt of an actor that was lost; greet it again, unless Ray does not restart it."""
        if worker.doing is None:
            self._silent += 1
            self._first_trouble = self._first_trouble or first_words(error)
            if self._silent > SILENT * len(self._workers):
                require_raylet()
                raise RuntimeError(
                    f"the last {self._silent} workers that Ray started ended before they had answered, the first with "
                    f"{self._first_trouble}: the logs of Ray's session (worker-*.err) say more; is there memory for "
                    "the task on every node?"
                )
        doing, worker.doing = worker.doing, None
        if gone:
            self._workers.remove(worker)
        else:
            self._greet(worker)
        return [Report(job=doing[0], attempt=doing[1], status="died")] if doing else []

    def _check(self, error: RayTaskError, worker: _Worker) -> None:
        """Raise if an actor cannot work at all, so that every job would fail; hide messages, which may show data."""
        if worker.doing is None:
            raise RuntimeError(
                f"a worker cannot load the task ({first_words(error)}): all nodes of the cluster need the same "
                "packages, the store, and the modules that the task is made of"
            ) from None
        if isinstance(error.cause, FileNotFoundError):
            raise RuntimeError(
                f"a worker does not see the store {self._store.uri}: use a path that all nodes of the cluster share, "
                "or an object store"
            ) from None

    def _look(self) -> None:
        """Create as many actors as the cluster holds, and remove those that find no node."""
        if monotonic() < self._look_at:
            return
        self._look_at = monotonic() + LOOK
        if self._jobs is None:
            check_nodes(self._request, self._store)
            self._jobs = sum(not state.done for state in self._store.states().values())
        room = self._most if self._most is not None else sum(map(self._request.held_by, living()))
        room = min(room, self._jobs)
        for worker in [worker for worker in self._workers if not worker.known and self._most is None]:
            if len(self._workers) > room:
                self._workers.remove(worker)
                ray.kill(worker.actor)
        while len(self._workers) < room:
            self._workers.append(_Worker(self._make.remote(self._store.uri)))
            self._greet(self._workers[-1])
