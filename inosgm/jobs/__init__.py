"""Durable work: jobs that are functions of their specs, a store that decides, and executors that get them done."""

from inosgm.jobs._seals import StoreDamaged
from inosgm.jobs.executors import Executor, ProcessExecutor, SerialExecutor
from inosgm.jobs.scheduler import Crew, Interrupted, Outcome
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import Attempt, BuildingTask, Result, Stopped, Task
from inosgm.jobs.work import Report, StoreUnwritable

__all__ = [
    "Attempt",
    "BuildingTask",
    "Crew",
    "Executor",
    "Interrupted",
    "JobSpec",
    "Outcome",
    "ProcessExecutor",
    "Report",
    "Result",
    "SerialExecutor",
    "Stopped",
    "Store",
    "StoreDamaged",
    "StoreUnwritable",
    "Task",
]
