"""Durable jobs: functions of their specs, a store that decides which result counts, and executors that run them."""

from typing import TYPE_CHECKING

from inosgm._internal.lazy import lazy_names

if TYPE_CHECKING:
    from inosgm.jobs._seals import StoreDamaged as StoreDamaged
    from inosgm.jobs.executors import Executor as Executor
    from inosgm.jobs.executors import ProcessExecutor as ProcessExecutor
    from inosgm.jobs.executors import SerialExecutor as SerialExecutor
    from inosgm.jobs.scheduler import Crew as Crew
    from inosgm.jobs.scheduler import Interrupted as Interrupted
    from inosgm.jobs.scheduler import Outcome as Outcome
    from inosgm.jobs.scheduler import WorkerPool as WorkerPool
    from inosgm.jobs.spec import JobSpec as JobSpec
    from inosgm.jobs.store import Store as Store
    from inosgm.jobs.task import Attempt as Attempt
    from inosgm.jobs.task import BuildingTask as BuildingTask
    from inosgm.jobs.task import Result as Result
    from inosgm.jobs.task import Stopped as Stopped
    from inosgm.jobs.task import Task as Task
    from inosgm.jobs.work import Report as Report
    from inosgm.jobs.work import StoreUnwritable as StoreUnwritable

_NAMES_OF = {
    "_seals": ["StoreDamaged"],
    "executors": ["Executor", "ProcessExecutor", "SerialExecutor"],
    "scheduler": ["Crew", "Interrupted", "Outcome", "WorkerPool"],
    "spec": ["JobSpec"],
    "store": ["Store"],
    "task": ["Attempt", "BuildingTask", "Result", "Stopped", "Task"],
    "work": ["Report", "StoreUnwritable"],
}

__all__ = [name for names in _NAMES_OF.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _NAMES_OF)
