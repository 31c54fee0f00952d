"""A study: jobs that answer one question together, in a store that belongs to it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from inosgm.jobs.executors import Executor, SerialExecutor
from inosgm.jobs.purpose import claim_purpose, require_purpose
from inosgm.jobs.scheduler import WRITERS, Outcome
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import Task

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger

StoreLike = Store | str | os.PathLike[str]
"""A store, or its path or URI."""


class StoredStudy(ABC):
    """Jobs that belong together, before the first begins: nothing is charged yet. Running it again resumes.

    A store belongs to one study: another one, or the same one with other data or code, is refused.

    Args:
        store: Where the jobs are kept: a path, a URI that fsspec knows, or a Store.

    Raises:
        ValueError: for a store that holds something else.

    Attributes:
        store: Where the jobs are kept.
        task: What they do.
        specs: The jobs.
    """

    purpose: ClassVar[str]
    """The document of the store that says what the study is, one of `inosgm.jobs.purpose`."""

    task: Task
    specs: Sequence[JobSpec]

    def __init__(self, store: StoreLike) -> None:
        self.store = open_store(store)
        require_purpose(self.store, self.purpose)

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the store says about the study, as JSON has it."""

    @abstractmethod
    def difference(self, known: Mapping[str, Any]) -> str:
        """Say what is different about the study that a store belongs to; return "" if it is this one."""

    def require_same(self) -> None:
        """Raise if the store belongs to another study; a new store belongs to none."""
        with suppress(FileNotFoundError):
            self.refuse(self.difference(self.store.claimed(self.purpose)))

    def claim(self) -> dict[str, Any]:
        """Make the store this study's, or raise if another study was first; return what the store says about it."""
        claim_purpose(self.store, self.purpose)
        known = self.store.claim(self.purpose, self.identity())
        self.refuse(self.difference(known))
        return known

    def refuse(self, why: str) -> None:
        """Raise if there is a reason why the store cannot be used."""
        if why:
            raise ValueError(f"store: {self.store.uri} {why} take another store (--store)")

    def unfinished(self) -> list[JobSpec]:
        """Return the jobs that have no result."""
        states = self.store.states()
        return [spec for spec in self.specs if spec.id not in states or not states[spec.id].done]

    def begin(self) -> "Ledger | None":
        """Make the store this study's, and return the ledger that is charged as well, if there is one."""
        self.claim()
        return None

    def add(self, spec: JobSpec) -> str:
        """Put a job into the store, and return its id."""
        return self.store.add(spec)

    def run_jobs(self, executor: Executor | None = None, *, attempts: int = 5, progress: bool = True) -> Outcome:
        """Do the jobs that are not done.

        Args:
            executor: Who works: this process if not given, or `ProcessExecutor`, or `ray_jobs.RayExecutor`.
            attempts: How many attempts of a job may fail before it fails permanently.
            progress: Show how many jobs are done.

        Raises:
            Interrupted: after Ctrl-C, when all running jobs have written a checkpoint.
        """
        ledger = self.begin()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self.add, self.specs))
        executor = SerialExecutor() if executor is None else executor
        return executor.run(self.task, self.specs, self.store, attempts=attempts, ledger=ledger, progress=progress)


def open_store(store: StoreLike) -> Store:
    """Return a store, given it or its place."""
    return store if isinstance(store, Store) else Store(store)
