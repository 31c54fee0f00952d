"""The interface between durable jobs and what they compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from inosgm.jobs.spec import JobSpec
from inosgm.ledger.cost import Cost, LedgerHook


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of a job.

    Attributes:
        values: Numbers and text, as JSON has them.
        arrays: Arrays by name.
        secret: Whether it was never released, such as a model that was trained without noise: it is readable by its
            owner only, as keys are, and no document of the store repeats it. NOT PRIVATE.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    secret: bool = False


class Stopped(Exception):
    """Raised by a job that was asked to stop and has written a checkpoint."""


class Attempt(Protocol):
    """One attempt at a job, as the job sees it."""

    number: int
    """The number of the attempt, from 1."""

    key: int
    """The secret key of the job's noise: the same in every attempt, another for every job."""

    @property
    def ledger(self) -> LedgerHook:
        """A ledger that accepts what was charged for the job, each step once, and nothing else; noise must have a key,
        such as the job's."""

    def stopping(self) -> bool:
        """Return whether the job should write a checkpoint and raise `Stopped`. Cheap: call it after every step."""

    def latest(self) -> bytes | None:
        """Return the latest complete checkpoint of any attempt at this job."""

    def save(self, step: int, content: bytes) -> None:
        """Save a checkpoint, whole or not at all; the one of the latest step counts."""

    def result(self, job: str) -> Result:
        """Return the result of another job of the same store; raise FileNotFoundError if it is not done."""


class Task(Protocol):
    """The function of all jobs of a run; it is sent to workers once, with its data, and must be picklable.

    `run` must give the same result, bit for bit, wherever it is called with a spec and a key, however often it
    was stopped in between. Arrays of a task may be shared and read-only.
    """

    def cost(self, spec: JobSpec) -> tuple[Cost, ...] | None:
        """Return what a job costs owners, None or () for nothing; called before its first attempt, by the scheduler.

        There is a cost for every stage of a job, and for each of its side releases.
        """

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Run a job."""


@runtime_checkable
class BuildingTask(Task, Protocol):
    """A task whose jobs depend on results of other jobs of the same task."""

    def before(self, spec: JobSpec) -> Sequence[JobSpec]:
        """Return the jobs that this one depends on; they depend on none.

        They are of another kind, so that they cannot be confused with the jobs of the run.
        """
