"""What jobs do: the seam between durable work and whatever is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from inosgm.jobs.spec import JobSpec
from inosgm.ledger.cost import Cost, LedgerHook


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a job came to.

    Attributes:
        values: Numbers and text, as JSON has them.
        arrays: Arrays by name.
        secret: Whether it was never released, such as a model that was trained without noise: it is for the eyes of its
            owner only, as keys are, and no document of the store repeats it. NOT PRIVATE.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    secret: bool = False


class Stopped(Exception):
    """Raised by a job that was asked to stop and has saved what it needs to go on."""


class Attempt(Protocol):
    """One try of a job, as the job sees it."""

    number: int
    """Which try, from 1."""

    key: int
    """The secret of the job's noise: the same in every try, new for every job."""

    @property
    def ledger(self) -> LedgerHook:
        """Lets through what was charged for the job, each step once, and nothing else; noise must have a key, such as
        the job's."""

    def stopping(self) -> bool:
        """Say whether the job should save and raise `Stopped`. Cheap: ask after every step."""

    def latest(self) -> bytes | None:
        """Return the content of the furthest whole checkpoint that any try of this job has saved."""

    def save(self, step: int, content: bytes) -> None:
        """Save a checkpoint, whole or not at all; the furthest step counts."""

    def result(self, job: str) -> Result:
        """Return what another job of the same store came to; FileNotFoundError if it is not done."""


class Task(Protocol):
    """What all jobs of a run do; it is sent to workers once, with its data, and must survive pickling.

    `run` must give the same result, bit for bit, whenever and wherever it is called with a spec and a key, however
    often it was stopped in between. Arrays of a task may be shared and read-only.
    """

    def cost(self, spec: JobSpec) -> tuple[Cost, ...] | None:
        """Return what a job asks of owners, None or () for nothing; asked before its first try, where it was started.

        There is a cost for every stage of a job, and for whatever it releases beside.
        """

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Do a job."""


@runtime_checkable
class BuildingTask(Task, Protocol):
    """A task whose jobs build on what other jobs of the same task came to."""

    def before(self, spec: JobSpec) -> Sequence[JobSpec]:
        """Return the jobs that must be done before this one, which have none before them.

        They are of another kind, so that nobody takes them for the jobs that were asked for.
        """
