"""Sweeps by Ray Tune: its schedulers stop runs early, its searchers choose points; what counts is in the store."""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from inosgm._internal import validate as _validate
from inosgm.experiments.sweep_results import STOPPED, Metric, stopped_early
from inosgm.experiments.sweeps import SweepStudy
from inosgm.jobs import Executor, Interrupted, Outcome, Store, interrupts
from inosgm.jobs.progress import JobProgress
from ray_jobs.connection import connect, require_raylet
from ray_jobs.executor import RayExecutor
from ray_jobs.nodes import check_nodes, living
from ray_jobs.searchers import Given, NotKept, Searched, searcher_called
from ray_jobs.trials import JobTrial, Told

SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}
"""Let Tune print nothing, write nothing but its own state, and leave Ctrl-C and the current directory alone."""


@dataclass(frozen=True, kw_only=True)
class Asha:
    """Asynchronous successive halving: a run continues beyond a rung if it is among the best that have reached it.

    Which runs are stopped depends on which are faster, and on what else runs: it is not a function of the seed.

    Args:
        first: The first rung, in steps: a run is judged at its first evaluation from there on. A ninth of the steps if
            not given.
        keep: One of this many runs continues to the next rung, which is this many times as far.

    Raises:
        ValueError: for numbers that cannot be.
    """

    first: int | None = None
    keep: float = 3.0

    def __post_init__(self) -> None:
        if self.first is not None:
            _validate.count("first", self.first, least=1)
        _validate.number("keep", self.keep, above=1)

    def scheduler(self, steps: int, metric: Metric, store: Store) -> TrialScheduler:
        """Return the scheduler of Tune, for runs of a number of steps."""
        first = max(1, steps // 9) if self.first is None else min(self.first, steps)
        return NotedAsha(
            store=store,
            time_attr="step",
            metric=metric.value,
            mode="max",
            max_t=steps,
            grace_period=first,
            reduction_factor=self.keep,
            stop_last_trials=False,
        )


class NotedAsha(NotKept, ASHAScheduler):
    """Writes down which runs it has stopped: they stay stopped when the sweep is begun again."""

    def __init__(self, *, store: Store, **options: Any) -> None:
        super().__init__(**options)
        self._store = store
        self._told: dict[str, list[Told]] = {}

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Told) -> str:
        """Return whether a run continues."""
        job = trial.config["job"]
        told = self._told.setdefault(job, [])
        told.append({name: result[name] for name in ("step", *(metric.value for metric in Metric))})
        action: str = super().on_trial_result(tune_controller, trial, result)
        if action == TrialScheduler.STOP and not self._store.done(job):
            self._store.put(STOPPED.format(job), json.dumps(told).encode())
        return action


class _Progress(NotKept, tune.Callback):
    """Shows how many trials have ended."""

    def __init__(self, bar: JobProgress) -> None:
        self._bar = bar

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Show it."""
        states = [trial.status for trial in trials]
        if not interrupts.asked():  # which ends trials whose jobs are not done
            self._bar.show(states.count("TERMINATED"), states.count("ERROR"), states.count("RUNNING"))


class _Traces(NotKept, tune.Callback, AbstractContextManager["_Traces"]):
    """Removes what Tune writes into the directory of Ray's session, where everybody may read."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Take down where it is."""
        self._folders.add(Path(trial.local_experiment_path).parent)

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


class _Asked(tune.Stopper):
    """Stops everything after Ctrl-C."""

    def __call__(self, trial_id: str, result: Told) -> bool:
        return False

    def stop_all(self) -> bool:
        return interrupts.asked()


@dataclass(frozen=True, kw_only=True)
class RayTuner:
    """Lets Ray Tune decide while a sweep runs.

    Args:
        scheduler: Stops runs early; no run is stopped if not given.
        searcher: Chooses points by the results of others: optuna, hyperopt, ... if that is installed, or
            "package.module:Class" of your own. Without one, points are given.
    """

    scheduler: Asha | None = None
    searcher: str | None = None

    @property
    def chooses(self) -> bool:
        """Whether points are chosen as the sweep goes on."""
        return self.searcher is not None

    def check(self, metric: Metric, seed: int) -> None:
        """Raise ValueError for a searcher that cannot be made here."""
        if self.searcher is not None:
            searcher_called(self.searcher, metric, seed)

    def run(self, study: SweepStudy, executor: Executor, *, attempts: int, progress: bool) -> Outcome:
        """Do the runs of a sweep as trials of Ray Tune, on a Ray cluster.

        Returns:
            What has become of the jobs; those that were stopped early are neither done nor left.

        Raises:
            Interrupted: after Ctrl-C, when all running jobs have written a checkpoint.
            RuntimeError: if Tune gave up a trial whose job was not, and for nodes that cannot work.
        """
        if not isinstance(executor, RayExecutor):
            raise TypeError(f"executor must be a RayExecutor where a scheduler or a searcher decides, got {executor!r}")
        ledger = study.begin()
        if self.searcher is None:
            given = Given(study, ledger)
        else:
            given = Searched(study, ledger, searcher_called(self.searcher, study.metric, study.config.seed))
        steps = max(config.plan.steps for config in (study.config, *(point.config for point in study.points)))
        scheduler = None if self.scheduler is None else self.scheduler.scheduler(steps, study.metric, study.store)
        return _tune(study, given, scheduler, executor, attempts, progress)


def _tune(
    study: SweepStudy,
    given: Given,
    scheduler: TrialScheduler | None,
    executor: RayExecutor,
    attempts: int,
    progress: bool,
) -> Outcome:
    """Do jobs as trials of Ray Tune."""
    store = study.store
    leave = connect(executor.address)
    try:
        request = executor.request
        request.check(living())
        check_nodes(request, store)
        room = sum(map(request.held_by, living()))
        with (
            interrupts.deferred(),
            JobProgress(given.number, enabled=progress) as bar,
            TemporaryDirectory(prefix="inosgm-tune-") as folder,
            _Traces() as traces,
            _settings(),
        ):
            trainable = tune.with_parameters(JobTrial, uri=store.uri, task=study.task, attempts=attempts)
            tuner = tune.Tuner(
                tune.with_resources(trainable, request.amounts),
                tune_config=tune.TuneConfig(
                    search_alg=given,
                    scheduler=scheduler,
                    num_samples=given.number,
                    max_concurrent_trials=max(1, room if executor.most is None else executor.most),
                    reuse_actors=True,
                ),
                run_config=tune.RunConfig(
                    name="sweep",
                    storage_path=folder,
                    verbose=0,
                    callbacks=[_Progress(bar), traces],
                    stop=_Asked(),
                    failure_config=tune.FailureConfig(max_failures=attempts),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            )
            errors = tuner.fit().errors
            asked = interrupts.asked()
        if errors and not asked:
            require_raylet()
    finally:
        leave()
    outcome = _outcome(store, given)
    if asked:
        raise Interrupted(outcome)
    if errors:
        raise RuntimeError(
            f"{len(errors)} runs could not be made ({type(errors[0]).__name__}): the logs of Ray's session say why; "
            "the same command resumes them"
        )
    return outcome


def _outcome(store: Store, given: Given) -> Outcome:
    """Return what has become of jobs."""
    states, jobs = store.states(), dict.fromkeys(given.jobs)
    failed = {job: store.reason(job, states[job].abandoned_after) for job in jobs if states[job].status == "failed"}
    left = [job for job in jobs if not (states[job].done or job in failed or stopped_early(store, job))]
    return Outcome(done=tuple(job for job in jobs if states[job].done), failed=failed, left=(*left, *given.to_come()))


@contextmanager
def _settings() -> Iterator[None]:
    """Quieten Tune for a while."""
    before = {name: os.environ.get(name) for name in SETTINGS}
    logger = logging.getLogger("ray.tune")
    level = logger.level
    os.environ.update(SETTINGS)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})
