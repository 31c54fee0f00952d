"""The state of every job, from the names of records alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

ENDINGS = ("failed", "died", "stopped", "fenced")
"""How an attempt ends that is not the one that counts: an error, a dead worker, a request, a faster attempt."""

_NAME = re.compile(r"jobs/(?P<job>[0-9a-f]+)/(?:attempts/(?P<attempt>\d+)/)?(?P<record>[^/]+)")
_ROW = re.compile(r"ledger/(?P<job>[0-9a-f]+)\.json")


@dataclass(kw_only=True)
class JobState:
    """The state of a job.

    Attributes:
        attempts: How each attempt ended, by number; nothing if it has not, or is the one that counts.
        done: Whether there is a result.
        abandoned_after: The number of attempts after which the job failed permanently; -1 if it did not.
        charged: Whether it has its row in the ledger.
        passing: Whether there is a key or a checkpoint.
        arrays: The number of attempts that have written arrays.
        forgotten: Whether the arrays of its result were used and deleted.
    """

    attempts: dict[int, str] = field(default_factory=dict)
    done: bool = False
    abandoned_after: int = -1
    charged: bool = False
    passing: bool = False
    arrays: int = 0
    forgotten: bool = False

    @property
    def leftovers(self) -> bool:
        """Whether there is anything that goes when a job is done."""
        return self.passing or self.arrays > (0 if self.forgotten else 1)

    @property
    def last(self) -> int:
        """The number of the latest attempt; 0 if there was none."""
        return max(self.attempts, default=0)

    @property
    def spent(self) -> int:
        """How many attempts have failed, or were lost with their worker."""
        return sum(ending in ("failed", "died") for ending in self.attempts.values())

    @property
    def status(self) -> str:
        """One of done, running, failed and left."""
        if self.done:
            return "done"
        if self.last and not self.attempts[self.last]:
            return "running"
        return "failed" if self.abandoned_after >= self.last else "left"


def states_of(names: Iterable[str]) -> dict[str, JobState]:
    """Return the state of every job that has a spec."""
    found: dict[str, JobState] = {}
    known, charged = set(), set()
    for name in names:
        if (row := _ROW.fullmatch(name)) is not None:
            charged.add(row["job"])
        if (match := _NAME.fullmatch(name)) is None:
            continue
        job, number, record = match.groups()
        state = found.setdefault(job, JobState())
        if number is not None:
            _enter(state, int(number), record)
        elif record == "spec.json":
            known.add(job)
        elif record == "result.json":
            state.done = True
        elif record == "key":
            state.passing = True
        elif record == "forgotten.json":
            state.forgotten = True
        elif record.startswith("failed-"):
            state.abandoned_after = max(state.abandoned_after, int(record[7:-5]))
    for job in charged & found.keys():
        found[job].charged = True
    return {job: state for job, state in found.items() if job in known}


def _enter(state: JobState, number: int, record: str) -> None:
    """Enter a record of an attempt."""
    if record == "begun.json":
        state.attempts.setdefault(number, "")
    elif record.startswith("checkpoint-"):
        state.passing = True
    elif record == "arrays.npz":
        state.arrays += 1
    elif record.removesuffix(".json") in ENDINGS:
        state.attempts[number] = record.removesuffix(".json")
