"""The loop that runs jobs: choose the next attempt from the store and from the reports of workers."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from inosgm.jobs import interrupts
from inosgm.jobs._liveness import Pulse, gone
from inosgm.jobs._seals import StoreDamaged
from inosgm.jobs._states import JobState
from inosgm.jobs.progress import JobProgress
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store
from inosgm.jobs.task import Task
from inosgm.jobs.work import Report, StoreUnwritable
from inosgm.ledger.refusals import BudgetExceeded, JobMismatch

if TYPE_CHECKING:
    from inosgm.ledger.ledger import Ledger

WAIT = 0.5
"""Seconds to wait for a report: Ctrl-C is noticed after at most that long."""

LOOK_IDLE, LOOK_BUSY = 1.0, 5.0
"""Seconds between two listings of the store, without and with running jobs: only the work of other runs is news."""

LISTING_SHARE = 20
"""Listings take at most one of this many parts of the time: a store of many jobs is listed slowly."""

WRITERS = 8
"""How many specs are written at once: an object store takes about 0.1 s for each."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The state of the jobs at the end of a run.

    Attributes:
        done: The ids of jobs that have a result.
        failed: The jobs that failed permanently, with the reason in a line; tracebacks are in the store.
        left: The jobs that remain.
    """

    done: tuple[str, ...]
    failed: Mapping[str, str]
    left: tuple[str, ...]


class Interrupted(KeyboardInterrupt):
    """A run was interrupted: running jobs have written a checkpoint.

    Attributes:
        outcome: The state of its jobs.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"interrupted: {len(outcome.left)} of {_all(outcome)} jobs remain")
        self.outcome = outcome


class WorkerPool(Protocol):
    """Workers, each of which makes one attempt at a time."""

    about: str
    """Where they work, for messages."""

    def idle(self) -> int:
        """Return how many workers are ready and have no work."""

    def start(self, job: str, attempt: int) -> None:
        """Give an attempt to an idle worker."""

    def reports(self, timeout: float) -> list[Report]:
        """Return the attempts that ended within a timeout in seconds, and replace lost workers."""

    def interrupt(self) -> None:
        """Ask all running attempts to write a checkpoint and stop."""

    def settled(self, kind: str, seconds: float | None) -> None:
        """Record that a job is done, after an attempt of some seconds, or failed permanently (None)."""

    def close(self, *, kill: bool) -> None:
        """Stop the workers; with `kill`, without waiting for them."""


Crew = WorkerPool
"""The name under which `inosgm.jobs` exported it before."""


class Scheduler:
    """One run of jobs by a pool of workers.

    Args:
        pool: The workers.
        task: The function of the jobs.
        specs: The jobs, in the order in which they begin.
        store: The store of the jobs.
        attempts: How many attempts of a job may fail, or die with their worker, before it fails permanently; attempts
            of earlier runs do not count.
        ledger: A ledger that is also charged, before the job begins.
        progress: Shows the progress.
    """

    def __init__(
        self,
        pool: WorkerPool,
        task: Task,
        specs: Sequence[JobSpec],
        store: Store,
        *,
        attempts: int,
        ledger: "Ledger | None",
        progress: JobProgress,
    ) -> None:
        self._pool, self._task, self._store, self._ledger, self._progress = pool, task, store, ledger, progress
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(store.add, specs))
        self._specs = {spec.id: spec for spec in specs}
        self._lease = store.lease
        self._states: dict[str, JobState] = {}
        self._todo = dict.fromkeys(self._specs)  # in the order in which they are tried
        self._running: dict[str, int] = {}
        self._done: set[str] = set()
        self._failed: dict[str, str] = {}
        self._pulse = Pulse()
        self._look()
        states = self._states
        self._limit = {job: attempts + state.spent for job, state in states.items()}
        self._todo = dict.fromkeys(sorted(self._todo, key=lambda job: states[job].spent))
        if self._todo:
            store.probe()

    def run(self) -> Outcome:
        """Work until every job is done or has failed permanently, or until the run is interrupted."""
        asked = False
        while self._todo or self._running:
            if interrupts.asked() and not asked:
                asked = True
                self._progress.say("finishing: running jobs write a checkpoint; Ctrl-C again stops at once")
                self._pool.interrupt()
            if asked and not self._running:
                break
            begun = not asked and self._begin()
            pause = self._look_again() if not begun else 0.0
            for report in self._pool.reports(0.0 if begun else min(WAIT, pause)):
                self._take(report)
            self._show()
        self._show()
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return the state of the jobs."""
        done = tuple(job for job in self._specs if job in self._done)
        left = tuple(job for job in self._specs if job not in self._done and job not in self._failed)
        return Outcome(done=done, failed=dict(self._failed), left=left)

    def _begin(self) -> bool:
        """Give a job to every idle worker; return whether one began."""
        begun = False
        for job in list(self._todo):
            if not self._pool.idle():
                break
            if not self._free(job) or not self._ready(job):
                continue
            del self._todo[job]
            self._running[job] = self._states[job].last + 1
            self._pool.start(job, self._running[job])
            begun = True
        return begun

    def _free(self, job: str) -> bool:
        """Return whether this run may begin a job now; a job without remaining attempts is abandoned."""
        state = self._states[job]
        if state.status == "running":
            return False
        if state.spent < self._limit[job]:
            return True
        self._abandon(job, self._reason(job))
        return False

    def _watch(self, job: str, attempt: int) -> None:
        """Record that an attempt of another run died, if its process is gone or silent for a whole lease."""
        silence = self._pulse.silence((job, attempt), self._store.last_heartbeat(job, attempt))
        if silence >= self._lease or gone(self._store.begun(job, attempt)):
            self._end(job, attempt, "died")

    def _ready(self, job: str) -> bool:
        """Charge a job, unless it was charged; abandon it if it cannot be paid for."""
        if self._states[job].charged:
            return True
        try:
            costs = self._task.cost(self._specs[job])
            if costs:
                self._store.charge(job, costs, self._ledger)
        except OSError:
            raise
        except Exception as error:  # of the task, whose message may show data, or of a ledger
            ours = isinstance(error, BudgetExceeded | JobMismatch | StoreDamaged)
            self._abandon(job, f"{type(error).__name__}: {error}" if ours else f"{type(error).__name__} in its cost")
            return False
        self._states[job].charged = True
        return True

    def _take(self, report: Report) -> None:
        """Take the report of an attempt."""
        job, number = report.job, report.attempt
        del self._running[job]
        self._todo[job] = None
        if report.status == "unwritable":
            raise StoreUnwritable(f"{self._store.uri} cannot be written to, no more jobs were begun: {report.about}")
        if report.status == "taken":
            self._enter(job, self._store.state(job))
            return
        if report.status in ("done", "fenced"):
            self._finish(job)
            if report.status == "done":
                self._pool.settled(self._specs[job].kind, report.seconds)
        elif report.status == "died":
            self._end(job, number, "died")
        else:
            self._states[job].attempts[number] = report.status
        self._progress.ended(report)

    def _end(self, job: str, attempt: int, ending: str) -> None:
        """Record that an attempt is over, unless its worker has just committed a result."""
        if self._store.done(job):
            self._store.cleanup(job)
            self._finish(job)
            return
        self._store.end(job, attempt, ending)
        self._states[job].attempts[attempt] = ending

    def _finish(self, job: str) -> None:
        self._done.add(job)
        del self._todo[job]

    def _reason(self, job: str) -> str:
        """Return in a line why a job failed permanently."""
        attempts = self._states[job].attempts
        last = max(number for number, ending in attempts.items() if ending in ("failed", "died"))
        if attempts[last] == "died":
            return f"its worker died in attempt {last}"
        try:
            return f"{self._store.failure(job, last).kind} in attempt {last}"
        except FileNotFoundError:
            return f"attempt {last} failed, and did not say why in {self._store.uri}: do all workers see that store?"

    def _abandon(self, job: str, line: str) -> None:
        self._store.abandon(job, self._states[job].last, line)
        self._failed[job] = line
        del self._todo[job]
        self._pool.settled(self._specs[job].kind, None)

    def _look_again(self) -> float:
        """List the store if it is time to, and return the longest time to wait."""
        pause = LOOK_BUSY if self._running else LOOK_IDLE
        if monotonic() - self._looked >= max(pause, LISTING_SHARE * self._looking):
            self._look()
        return pause

    def _look(self) -> None:
        """Read from the store what other runs have done."""
        began = monotonic()
        found = self._store.states()
        for job in list(self._todo):
            self._enter(job, found[job])
        self._elsewhere = sum(self._states[job].status == "running" for job in self._todo)
        self._looked = monotonic()
        self._looking = self._looked - began

    def _enter(self, job: str, state: JobState) -> None:
        """Take the state of a job from the store."""
        self._states[job] = state
        if state.done:
            if state.leftovers:
                self._store.cleanup(job)  # its worker was killed between the result and this
            self._finish(job)
        elif state.status == "running":
            try:
                self._watch(job, state.last)
            except StoreDamaged as error:
                self._abandon(job, str(error))

    def _show(self) -> None:
        self._progress.show(len(self._done), len(self._failed), len(self._running) + self._elsewhere)


def _all(outcome: Outcome) -> int:
    return len(outcome.done) + len(outcome.failed) + len(outcome.left)
