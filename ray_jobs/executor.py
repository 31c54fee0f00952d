"""Jobs on a Ray cluster."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Self

from inosgm._internal import validate as _validate
from inosgm.jobs import Executor, Store, Task, WorkerPool
from ray_jobs.capacity import Request
from ray_jobs.connection import connect
from ray_jobs.nodes import living
from ray_jobs.worker_pool import RayWorkerPool


class RayExecutor(Executor):
    """Does jobs in actors on a Ray cluster, as many at once as it can hold.

    A Ray that this process uses already is used as it is, whatever the address. Otherwise the process is connected to
    the address for as long as the run takes or, in `with RayExecutor() as executor:`, from the first run to the end. A
    Ray is started, on this machine, only if no address is given, there is no RAY_ADDRESS and `ray start` has started
    none; it is stopped when the connection ends. No other Ray is ever stopped.

    Nodes may come and go. A node needs the same packages and a store that it can see. Data of the task lie in Ray's
    object store once per node; actors see them in place, and cannot write to them.

    A worker takes the GPUs that Ray gives it: they are the only ones it sees, from `cuda:0` on.

    Args:
        address: Where Ray is; "auto" for one on this machine, "local" to start one in any case.
        num_cpus: CPUs of an actor, which computes with as many threads (whole ones; at least one). The last bits of
            results may depend on the number of threads; other executors compute with OMP_NUM_THREADS of them, or one.
        num_gpus: GPUs of an actor: none, a part of one, or a whole number.
        max_concurrent: How many actors; as many as the cluster holds at the time if not given.
        resources: Resources of the cluster that an actor needs, by name.

    Raises:
        ValueError: for numbers that no cluster could grant; by `run`, before anything is charged, if no node
            of this cluster can ever hold an actor.
        ConnectionError: by `run`, if there is no Ray at the address.
    """

    elsewhere = True

    def __init__(
        self,
        address: str | None = None,
        num_cpus: float = 1,
        num_gpus: float = 0,
        max_concurrent: int | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self.address = address
        self.request = Request(num_cpus=num_cpus, num_gpus=num_gpus, resources=dict(resources or {}))
        self.most = None if max_concurrent is None else _validate.count("max_concurrent", max_concurrent, least=1)
        self._kept: list[ExitStack] = []

    def __enter__(self) -> Self:
        """Stay connected from the first run on."""
        self._kept.append(ExitStack())
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the Ray that the runs were connected to."""
        self._kept.pop().close()

    def pool(self, task: Task, store: Store) -> WorkerPool:
        """Connect, and check that the cluster can hold an actor."""
        store.require_shared()
        leave = connect(self.address)
        if self._kept:
            self._kept[0].callback(leave)
            leave = _stay
        try:
            self.request.check(living())
            return RayWorkerPool(self.request, self.most, task, store, leave=leave)
        except BaseException:
            leave()
            raise


def _stay() -> None:
    """Leave nothing: others stay connected."""
