"""A worker on a cluster."""

from contextlib import suppress
from typing import Any

import ray

from inosgm.jobs import Report, Store, StoreDamaged, Task, work
from ray_jobs.nodes import opened


class TrainerActor:
    """Makes attempts at jobs, one at a time, for as long as it is wanted.

    Nothing is sent to it but where the store is, the task, ids of jobs and numbers of attempts: whatever is secret or
    names an owner is read from the store.

    Args:
        uri: Where the store is.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._store: Store | None = None
        self._task: Task | None = None
        self._last: Report | None = None

    def hello(self, task: list[Any]) -> Report | None:
        """Answer, which is what a worker must do before it gets work.

        Args:
            task: The reference to the task in Ray's object store, in a list: so it is fetched here, once.

        Returns:
            The last report of `attempt`.

        Raises:
            StoreOutOfReach: where the store cannot be used; in `__init__` it would end the worker, again and again.
        """
        if self._store is None:
            self._store = opened(self._uri)
        if self._task is None:
            (self._task,) = ray.get(task)
        return self._last

    def attempt(self, job: str, number: int) -> Report | None:
        """Make an attempt, until it ends or `ray.cancel` is called for it.

        Returns:
            The report; nothing from a worker that was restarted and has not been greeted.

        Raises:
            FileNotFoundError: where the store cannot be seen.
        """
        if self._task is None or self._store is None:
            return None
        with suppress(StoreDamaged):  # which the report will say
            self._store.spec(job)  # or else it is another place than the one where the job is
        stopping = ray.get_runtime_context().is_canceled
        self._last = work.attempt(self._store, self._task, job, number, stopping)
        return self._last
