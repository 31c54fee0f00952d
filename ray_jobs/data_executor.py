"""Many short jobs through Ray Data, which is made for pieces of large tables."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

import ray
from ray.data import DataContext, TaskPoolStrategy
from ray.data import from_items as dataset_of
from ray.exceptions import RayError

from inosgm._internal import validate as _validate
from inosgm.jobs import Executor, Report, Store, StoreDamaged, Task, WorkerPool, work
from ray_jobs.capacity import Request
from ray_jobs.connection import connect, require_raylet
from ray_jobs.nodes import StoreOutOfReach, check_nodes, environment, first_words, living, opened

ROUNDS = 3
"""How many datasets in a row may end without a report before the run fails: one is lost with its node, not three."""

OUT_OF_REACH = "StoreOutOfReach: "
"""The beginning of an error that says why a worker cannot use the store."""

PATIENCE = 30.0
"""Seconds to wait at the end for fragments that are being read: one takes seconds, and the store has what is lost."""


class RayDataExecutor(Executor):
    """Runs jobs as a Ray dataset with a row per job, as many at once as the cluster holds.

    Ray Data places and repeats work, and the store decides what counts: an attempt has one worker, a job one
    result. What was lost with its worker is tried again with the next dataset. Jobs are not asked to stop; they should
    be short, like fragments of a table.

    Which Ray is used, and what a node needs, is as for `RayExecutor`.

    Args:
        address: Where Ray is; "auto" for one on this machine, "local" to start one in any case.
        num_cpus: CPUs of a job, which computes with as many threads (whole ones; at least one).
        max_concurrent: How many jobs at once; as many as the cluster holds if not given.

    Raises:
        ValueError: for numbers that no cluster could grant.
        ConnectionError: by `run`, if there is no Ray at the address.
    """

    elsewhere = True

    def __init__(self, address: str | None = None, num_cpus: float = 1, max_concurrent: int | None = None) -> None:
        self.address, self.request = address, Request(num_cpus=num_cpus)
        self.most = None if max_concurrent is None else _validate.count("max_concurrent", max_concurrent, least=1)

    def pool(self, task: Task, store: Store) -> WorkerPool:
        """Connect, and check that the cluster can hold a job."""
        store.require_shared()
        leave = connect(self.address)
        try:
            self.request.check(living())
            return DatasetPool(self.request, self.most, task, store, leave=leave)
        except BaseException:
            leave()
            raise


class DatasetPool:
    """A pool that collects attempts while nothing runs, and then makes them with one dataset.

    Args:
        request: The resources of a job.
        most: How many at once, None for as many as the cluster holds.
        task: The function of the jobs.
        store: The store of the jobs.
        leave: Ends the connection to Ray, if it is the pool's own.
    """

    def __init__(
        self, request: Request, most: int | None, task: Task, store: Store, *, leave: Callable[[], None]
    ) -> None:
        self._request, self._most, self._store, self._leave = request, most, store, leave
        self.about = f"as Ray datasets at {ray.get_runtime_context().gcs_address}, {len(living())} nodes"
        self._reference = ray.put(task)
        self._collected: list[tuple[str, int]] = []
        self._doing: set[tuple[str, int]] = set()
        self._said: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._enough = Event()
        self._thread: Thread | None = None
        self._silent, self._trouble, self._checked = 0, "", False

    def idle(self) -> int:
        """Return whether more attempts may be collected."""
        if not self._checked:
            check_nodes(self._request, self._store)
            self._checked = True
        return self._thread is None

    def start(self, job: str, attempt: int) -> None:
        """Collect an attempt."""
        self._collected.append((job, attempt))

    def reports(self, timeout: float) -> list[Report]:
        """Start a dataset if attempts are collected; return the attempts that ended."""
        if self._thread is None and self._collected:
            self._doing, self._collected = set(self._collected), []
            self._thread = Thread(target=self._consume, args=(sorted(self._doing),), daemon=True)
            self._thread.start()
        found: list[Report] = []
        try:
            row = self._said.get(timeout=timeout or 0.001)
            while True:
                found += self._over() if row is None else self._hear(row)
                row = self._said.get_nowait()
        except Empty:
            return found

    def interrupt(self) -> None:
        """Start nothing more; running attempts end by themselves."""
        self._enough.set()

    def settled(self, kind: str, seconds: float | None) -> None:
        """Ray Data has metrics of its own."""

    def close(self, *, kill: bool) -> None:
        """Leave Ray, after the fragments that are being read."""
        self._enough.set()
        if self._thread is not None and not kill:
            self._thread.join(PATIENCE)
        del self._reference
        self._leave()

    def _consume(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Make attempts, in a thread of its own, and pass on the reports of workers."""
        try:
            with _quiet():
                rows = [{"job": job, "attempt": number} for job, number in attempts]
                dataset = dataset_of(rows, override_num_blocks=len(rows)).map_batches(
                    attempted,  # type: ignore[arg-type]  # which does not know of fn_args
                    batch_size=1,
                    fn_args=(self._reference, self._store.uri),
                    num_cpus=self._request.num_cpus,
                    compute=TaskPoolStrategy(None if self._most is None else min(self._most, len(rows))),
                    runtime_env={"env_vars": environment(self._request)},
                )
                for row in dataset.iter_rows():
                    self._said.put(row)
                    if self._enough.is_set():
                        break
        except Exception as error:  # its words may show data; what has become of the jobs is in the store
            self._said.put({"error": first_words(error) if isinstance(error, RayError) else type(error).__name__})
        finally:
            self._said.put(None)

    def _hear(self, row: Mapping[str, Any]) -> list[Report]:
        """Take the report of a worker."""
        if row["error"] == "FileNotFoundError":
            raise RuntimeError(
                f"a worker does not see the store {self._store.uri}: use a path that all nodes of the cluster share, "
                "or an object store"
            )
        if row["error"].startswith(OUT_OF_REACH):
            raise RuntimeError(f"a worker cannot do the work: {row['error'].removeprefix(OUT_OF_REACH)}")
        if row["error"]:
            self._trouble = self._trouble or row["error"]
            return []
        said = Report(**{name: row[name] for name in ("job", "attempt", "status", "seconds", "about")})
        self._doing.discard((said.job, said.attempt))
        self._silent, self._trouble = 0, ""
        return [said]

    def _over(self) -> list[Report]:
        """End a dataset: report unreported attempts as taken, so that the scheduler asks the store."""
        self._thread = None
        lost, self._doing = self._doing, set()
        self._silent += 1
        if lost and self._silent > ROUNDS and not self._enough.is_set():
            require_raylet()
            raise RuntimeError(
                f"the last {ROUNDS} datasets ended with {self._trouble or 'nothing'} before any job had: the logs of "
                "Ray's session say why; do all nodes have the same packages, and memory for the task?"
            )
        return [Report(job=job, attempt=attempt, status="taken") for job, attempt in lost]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data from printing its progress, which the executor shows; its log has everything."""
    context = DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    # With reservations, Ray Data runs one job alone until it knows the size of its output.
    context.op_resource_reservation_enabled = False
    shown = [part for part in logging.getLogger("ray.data").handlers if isinstance(part, logging.StreamHandler)]
    levels = [part.level for part in shown]
    try:
        for part in shown:
            part.setLevel(logging.ERROR)
        with DataContext.current(context):
            yield
    finally:
        for part, level in zip(shown, levels, strict=True):
            part.setLevel(level)


def attempted(batch: Mapping[str, Any], reference: Any, uri: str) -> dict[str, list[Any]]:
    """Make the attempt that a row of a dataset is about, in a worker, and return the report.

    Args:
        batch: One row: the id of a job, and the number of the attempt.
        reference: The reference to the task in Ray's object store.
        uri: Where the store is.
    """
    job, number = str(batch["job"][0]), int(batch["attempt"][0])
    try:
        store = opened(uri)
        with suppress(StoreDamaged):  # which the report will say
            store.spec(job)  # or else it is another place than the one where the job is
        report, error = work.attempt(store, ray.get(reference), job, number, _never), ""
    except Exception as failure:
        about = f"{OUT_OF_REACH}{failure}" if isinstance(failure, StoreOutOfReach) else type(failure).__name__
        report, error = Report(job=job, attempt=number, status="taken"), about
    return {name: [value] for name, value in (asdict(report) | {"error": error}).items()}


def _never() -> bool:
    return False
