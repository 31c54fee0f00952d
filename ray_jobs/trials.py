"""A job as Ray Tune sees it: every evaluation of the training run is a step of a trial."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from queue import Queue
from threading import Semaphore, Thread
from typing import Any

from ray import tune

from inosgm.experiments.sweep_results import Metric, stopped_early
from inosgm.experiments.task import TrainingTask, config_of
from inosgm.jobs import Attempt, Executor, JobSpec, Report, Result, Stopped, Store, Task, WorkerPool
from inosgm.jobs.executors import InlinePool
from inosgm.ledger.cost import Cost
from inosgm.training.curve import LearningCurve

Told = dict[str, Any]


class JobTrial(tune.Trainable):
    """A trial that does one job of a store, exactly once: what is done is told again, and not computed.

    Its configuration is the id of the job, and nothing else.
    """

    def setup(  # type: ignore[override]
        self, config: dict[str, Any], uri: str, task: TrainingTask, attempts: int
    ) -> None:
        """Begin with a job."""
        self._store, self._task, self._attempts = Store(uri), task, attempts
        self._begin(config["job"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin with another job, in the same process."""
        self.cleanup()
        self._begin(new_config["job"])
        return True

    def step(self) -> Told:
        """Return the next evaluation."""
        return next(self._tellings)

    def cleanup(self) -> None:
        """Let a job that is being done save how far it has got."""
        if self._run is not None:
            self._run.stop()

    def _begin(self, job: str) -> None:
        self._run: JobThread | None = None
        early = stopped_early(self._store, job)
        if self._store.done(job):
            self._tellings = finished(self._store, job)
        elif early is not None:
            self._tellings = iter([*early[:-1], {**early[-1], "done": True}])
        else:
            self._run = JobThread(self._store, self._task, job, self._attempts)
            self._tellings = self._run.tellings()


class JobThread:
    """Does a job in a thread, which waits after every evaluation until it may continue."""

    def __init__(self, store: Store, task: TrainingTask, job: str, attempts: int) -> None:
        self._store, self._task, self._job, self._attempts = store, task, job, attempts
        self._spec = store.spec(job)
        self._steps = config_of(self._spec).plan.steps
        self._told: Queue[Told | BaseException | None] = Queue()
        self._go = Semaphore(0)
        self._last = 0
        self._stopped = False
        self._thread = Thread(target=self._work, name="job", daemon=True)
        self._thread.start()

    def tellings(self) -> Iterator[Told]:
        """Yield what the run is worth at each evaluation; the last one says that it is done."""
        while True:
            self._go.release()
            told = self._told.get()
            if told is None:
                yield from list(finished(self._store, self._job))[-1:]
            elif isinstance(told, BaseException):
                raise told
            else:
                yield told

    def stop(self) -> None:
        """Let the run save how far it has got, and wait until it has."""
        self._stopped = True
        self._go.release()
        self._thread.join()

    def stopping(self) -> bool:
        """Return whether to stop."""
        return self._stopped

    def _work(self) -> None:
        self._go.acquire()
        if self._stopped:
            return
        try:
            task = _Watched(self._task, self._look)
            outcome = OneJob(self).run(task, [self._spec], self._store, attempts=self._attempts, progress=False)
            if outcome.failed:
                self._told.put({"done": True, **{metric.value: math.nan for metric in Metric}})
            else:
                self._told.put(None)
        except Stopped:
            pass
        except BaseException as error:
            self._told.put(error)

    def _look(self, curve: LearningCurve) -> None:
        """Tell what is new on a curve, but for its end: that is told when the result is in the store."""
        if not curve.steps or curve.steps[-1] <= self._last:
            return
        for told in _tellings(curve):
            if self._last < told["step"] < self._steps and not self._stopped:
                self._last = told["step"]
                self._told.put(told)
                self._go.acquire()


class _Watched:
    """A task that tells how far its job has got."""

    def __init__(self, task: TrainingTask, look: Callable[[LearningCurve], None]) -> None:
        self._task, self._look = task, look

    def cost(self, spec: JobSpec) -> tuple[Cost, ...]:
        return self._task.cost(spec)

    def before(self, spec: JobSpec) -> Sequence[JobSpec]:
        return self._task.before(spec)

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        return self._task.run(spec, attempt, watch=self._look)


class OneJob(Executor):
    """Does one job, in the thread that asks for it, and raises `Stopped` when it was stopped."""

    def __init__(self, thread: JobThread) -> None:
        self._thread = thread

    def pool(self, task: Task, store: Store) -> WorkerPool:
        """Return a pool of one."""
        return _One(task, store, self._thread.stopping)


class _One(InlinePool):
    """A pool of one who leaves when it is stopped."""

    def reports(self, timeout: float) -> list[Report]:
        if self._stopping():
            raise Stopped
        return super().reports(timeout)


def finished(store: Store, job: str) -> Iterator[Told]:
    """Tell again what a job that is done was worth; the last telling says that it is done."""
    curve = LearningCurve.from_json(json.dumps(store.values(job)["curve"]))
    told = list(_tellings(curve))
    return iter([*told[:-1], {**told[-1], "done": True}])


def _tellings(curve: LearningCurve) -> Iterator[Told]:
    """Return the evaluations of a curve after its first step, as Tune takes them; NaN is where there is no number."""
    for step, evaluation in zip(curve.steps, curve.evaluations, strict=True):
        if step:
            worth = {metric.value: metric.of(evaluation) for metric in Metric}
            yield {"step": step, **{name: math.nan if value is None else value for name, value in worth.items()}}
