"""A round of a statistic as jobs: partial sums of the fragments of a table, merged in a tree."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

import inosgm
from inosgm._internal.source_digest import digest_of
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import Attempt, Result
from inosgm.ledger.cost import Cost
from inosgm.mechanism.rank_window import PassTask, RankCounts
from inosgm.mechanism.streaming import OrderedSum
from inosgm.owners import Owners
from inosgm.statistics.statistic import Statistic
from inosgm.statistics.summing import read_table
from inosgm.statistics.tables import BadTable, Fragment, Table, Unreadable
from inosgm.statistics.views import View

FRAGMENT, MERGE = "fragment", "merge"
SCRIPTS = ("__main__", "__mp_main__")
MERGED_SUMS = 32
"""Number of sums that one job merges: few jobs at 1,000 fragments, and each holds little in memory."""


class RoundTask:
    """The sum of one round of a statistic: one job for every fragment of a table, and jobs that merge their sums.

    The result of a job is one array, `sum`: the bytes of an `OrderedSum`, which do not depend on the worker. For an
    invalid fragment, the result is the value `problem` instead, a message that shows no record.

    Jobs are not charged: they release nothing. NOT PRIVATE: sums hold the records of their tail.

    Args:
        store: The store of the jobs and of the stage's key, which samples the batch if rates are below 1.
        stage: The job that has the key.
        statistic: The statistic, after the rounds that are released; workers construct the same one.
        table: The records.
        owners: Their owners.
        view: What the statistic sees of the records.
        task: What the pass over the records does; None for a sum in one pass. The window of ranks in it is not public,
            so it is sent to workers, and not written into the descriptions of jobs, which stay in the store.
    """

    def __init__(
        self,
        store: Store,
        stage: JobSpec,
        statistic: Statistic,
        table: Table,
        owners: Owners,
        view: View | None = None,
        task: PassTask | None = None,
    ) -> None:
        self._task = task
        self._store, self._stage, self._table, self._owners, self._view = store, stage, table, owners, view
        self._statistic, self._plan, self._parameters = type(statistic), statistic.plan, statistic.parameters
        self._released = list(statistic.observed)
        values = json.dumps([value.tolist() for value in self._released])
        self._about = {
            "stage": stage.id,
            "round": len(self._released),
            "released": blake2b(values.encode(), digest_size=16).hexdigest(),
            **({} if task is None else {"pass": task.number, "counting": task.counting}),
        }

    def fragments(self) -> list[JobSpec]:
        """Return the jobs that sum fragments."""
        return [
            self._spec(FRAGMENT, index, {"fragment": fragment.to_dict()})
            for index, fragment in enumerate(self._table.fragments)
        ]

    def merges(self, jobs: Sequence[str]) -> list[JobSpec]:
        """Return the jobs that merge the sums of others, in groups."""
        groups = [list(jobs[start : start + MERGED_SUMS]) for start in range(0, len(jobs), MERGED_SUMS)]
        return [self._spec(MERGE, index, {"jobs": group}) for index, group in enumerate(groups)]

    def cost(self, spec: JobSpec) -> tuple[Cost, ...] | None:
        """Return nothing: no value is released."""
        return None

    def run(self, spec: JobSpec, attempt: Attempt) -> Result:
        """Sum a fragment, or merge sums.

        Raises:
            RuntimeError: for a job of another round, or of other code.
            Unreadable: for a file that this worker cannot read.
        """
        spec.require_code(code_of(self._statistic))
        if any(spec.configuration[name] != value for name, value in self._about.items()):
            raise RuntimeError("this job belongs to another round than the worker was given")
        if spec.kind == MERGE:
            return _result(self.merged(spec.configuration["jobs"]))
        fragment = Fragment.from_dict(spec.configuration["fragment"])
        key = self._store.key(self._stage.id)
        statistic = self._statistic(self._plan, key=key, **self._parameters).after(self._released)
        try:
            how: dict[str, Any] = {"view": self._view, "task": self._task, "stopping": attempt.stopping}
            return _result(read_table(statistic, self._table, self._owners, [fragment], **how))
        except Unreadable:
            raise
        except BadTable as error:
            return Result(values={"problem": str(error)})

    def merged(self, jobs: Sequence[str]) -> OrderedSum | RankCounts:
        """Return the merged sum of jobs, or their counts. NOT PRIVATE.

        Raises:
            LookupError: if they were deleted because the round is released.
        """
        total: OrderedSum | RankCounts | None = None
        for job in jobs:
            addend = self._restored(self._store.result(job).arrays)
            if total is None:
                total = addend
            else:
                total.merge(addend)
        if total is None:
            raise ValueError("there must be at least one job to merge, got none")
        return total

    def _restored(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return the sum or the counts of a job."""
        if self._task is None or not self._task.counting:
            return OrderedSum.from_bytes(arrays["sum"].tobytes())
        counts = RankCounts(self._task.window)
        counts.load(arrays)
        return counts

    def _spec(self, kind: str, index: int, about: Mapping[str, Any]) -> JobSpec:
        return JobSpec(
            kind=kind,
            configuration={**self._about, **about},
            data_fingerprint=self._stage.data_fingerprint,
            code_version=self._stage.code_version,
            index=index,
        )


@lru_cache
def code_of(statistic: type[Statistic]) -> str:
    """Return a digest of the code of a statistic: this package, its own, and the version of numpy.

    A script has another name in workers, and is not included.
    """
    package = statistic.__module__.partition(".")[0]
    own = () if package in ("inosgm", *SCRIPTS) else (package,)
    return f"{inosgm.__version__}+{digest_of(('inosgm', *own), (np.__version__,))}"


def _result(total: OrderedSum | RankCounts) -> Result:
    if isinstance(total, RankCounts):
        return Result(arrays=total.arrays())
    return Result(arrays={"sum": np.frombuffer(total.to_bytes(), dtype=np.uint8)})
