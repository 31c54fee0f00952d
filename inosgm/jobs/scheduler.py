"""The loop that gets jobs done: which attempt of which job is next, from the store and from what workers report."""

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

WAIT, LOOK, BUSY = 0.5, 1.0, 5.0
"""Seconds: to wait for reports; between two looks at the store while there is nothing else to do; while there is."""

WRITERS = 8
"""How many records are written at once before work begins: object stores take their time."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What has become of the jobs of a run.

    Attributes:
        done: The ids of those that have a result.
        failed: Those that were given up, with the reason in a line; tracebacks are in the store.
        left: Those that are still to be done.
    """

    done: tuple[str, ...]
    failed: Mapping[str, str]
    left: tuple[str, ...]


class Interrupted(KeyboardInterrupt):
    """A run that was asked to finish early: what was running has saved how far it had got.

    Attributes:
        outcome: What has become of its jobs.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"interrupted: {len(outcome.left)} of {_all(outcome)} jobs are left")
        self.outcome = outcome


class Crew(Protocol):
    """Workers that make one attempt at a time each."""

    about: str
    """Where they work, for people."""

    def idle(self) -> int:
        """Return how many workers have answered and wait for work."""

    def start(self, job: str, attempt: int) -> None:
        """Give an attempt to one of them."""

    def reports(self, timeout: float) -> list[Report]:
        """Return what has ended, waiting for it at most so many seconds; also look after the workers."""

    def interrupt(self) -> None:
        """Ask all running attempts to save and stop."""

    def settled(self, kind: str, seconds: float | None) -> None:
        """Hear that a job is done, after an attempt of so many seconds, or was given up: None."""

    def close(self, *, kill: bool) -> None:
        """Let the workers go; kill: without waiting for anything."""


class Drive:
    """One run of jobs by a crew.

    Args:
        crew: Who works.
        task: What jobs do.
        specs: The jobs, in the order in which they are begun.
        store: Where they are.
        attempts: How many attempts of a job may fail, or die with their worker, before it is given up; those of earlier
            runs do not count.
        ledger: A ledger that is charged too, before the job is begun.
        progress: Shows how far it has got.
    """

    def __init__(
        self,
        crew: Crew,
        task: Task,
        specs: Sequence[JobSpec],
        store: Store,
        *,
        attempts: int,
        ledger: "Ledger | None",
        progress: JobProgress,
    ) -> None:
        self._crew, self._task, self._store, self._ledger, self._progress = crew, task, store, ledger, progress
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(store.add, specs))
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
        """Work until every job is done or given up, or until somebody asks to finish."""
        asked = False
        while self._todo or self._running:
            if interrupts.asked() and not asked:
                asked = True
                self._progress.say("finishing: running jobs save how far they have got; Ctrl-C again stops at once")
                self._crew.interrupt()
            if asked and not self._running:
                break
            begun = not asked and self._begin()
            pause = self._look_again() if not begun else 0.0
            for report in self._crew.reports(0.0 if begun else min(WAIT, pause)):
                self._take(report)
            self._show()
        self._show()
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return what has become of the jobs."""
        done = tuple(job for job in self._specs if job in self._done)
        left = tuple(job for job in self._specs if job not in self._done and job not in self._failed)
        return Outcome(done=done, failed=dict(self._failed), left=left)

    def _begin(self) -> bool:
        """Give a job to every worker that waits; say whether anything was begun."""
        begun = False
        for job in list(self._todo):
            if not self._crew.idle():
                break
            if not self._free(job) or not self._ready(job):
                continue
            del self._todo[job]
            self._running[job] = self._states[job].last + 1
            self._crew.start(job, self._running[job])
            begun = True
        return begun

    def _free(self, job: str) -> bool:
        """Say whether a job may be begun by us, now; a job whose attempts are used up is given up."""
        state = self._states[job]
        if state.status == "running":
            return False
        if state.spent < self._limit[job]:
            return True
        self._give_up(job, self._reason(job))
        return False

    def _watch(self, job: str, attempt: int) -> None:
        """Write down that an attempt of somebody else is over, if its worker is gone or has long been silent."""
        silence = self._pulse.silence((job, attempt), self._store.beats(job, attempt))
        if silence >= self._lease or gone(self._store.begun(job, attempt)):
            self._end(job, attempt, "died")

    def _ready(self, job: str) -> bool:
        """Charge a job, unless that has been done; one that cannot be paid for is given up."""
        if self._states[job].charged:
            return True
        try:
            costs = self._task.cost(self._specs[job])
            if costs:
                self._store.charge(job, costs, self._ledger)
        except OSError:
            raise
        except Exception as error:  # of the task, whose words may show data, or of a ledger
            ours = isinstance(error, BudgetExceeded | JobMismatch | StoreDamaged)
            self._give_up(job, f"{type(error).__name__}: {error}" if ours else f"{type(error).__name__} in its cost")
            return False
        self._states[job].charged = True
        return True

    def _take(self, report: Report) -> None:
        """Enter how an attempt ended."""
        job, number = report.job, report.attempt
        del self._running[job]
        self._todo[job] = None
        if report.status == "unwritable":
            raise StoreUnwritable(f"{self._store.uri} cannot be written to, nothing more was begun: {report.about}")
        if report.status == "taken":
            self._enter(job, self._store.state(job))
            return
        if report.status in ("done", "fenced"):
            self._finish(job)
            if report.status == "done":
                self._crew.settled(self._specs[job].kind, report.seconds)
        elif report.status == "died":
            self._end(job, number, "died")
        else:
            self._states[job].attempts[number] = report.status
        self._progress.ended(report)

    def _end(self, job: str, attempt: int, ending: str) -> None:
        """Write down that an attempt is over, unless its worker has just managed to commit."""
        if self._store.done(job):
            self._store.tidy(job)
            self._finish(job)
            return
        self._store.end(job, attempt, ending)
        self._states[job].attempts[attempt] = ending

    def _finish(self, job: str) -> None:
        self._done.add(job)
        del self._todo[job]

    def _reason(self, job: str) -> str:
        """Say in a line why a job is given up."""
        attempts = self._states[job].attempts
        last = max(number for number, ending in attempts.items() if ending in ("failed", "died"))
        if attempts[last] == "died":
            return f"its worker died in attempt {last}"
        try:
            return f"{self._store.failure(job, last).kind} in attempt {last}"
        except FileNotFoundError:
            return f"attempt {last} failed, and did not say why in {self._store.uri}: do all workers see that store?"

    def _give_up(self, job: str, line: str) -> None:
        self._store.give_up(job, self._states[job].last, line)
        self._failed[job] = line
        del self._todo[job]
        self._crew.settled(self._specs[job].kind, None)

    def _look_again(self) -> float:
        """Look at the store if it is time to, and return for how long to wait at most."""
        pause = BUSY if self._running else LOOK
        if monotonic() - self._looked >= max(pause, 20 * self._looking):
            self._look()
        return pause

    def _look(self) -> None:
        """Read from the store what others have done."""
        began = monotonic()
        found = self._store.states()
        for job in list(self._todo):
            self._enter(job, found[job])
        self._elsewhere = sum(self._states[job].status == "running" for job in self._todo)
        self._looked = monotonic()
        self._looking = self._looked - began

    def _enter(self, job: str, state: JobState) -> None:
        """Enter what the store says about a job."""
        self._states[job] = state
        if state.done:
            if state.leftovers:
                self._store.tidy(job)  # its worker was killed between the result and this
            self._finish(job)
        elif state.status == "running":
            try:
                self._watch(job, state.last)
            except StoreDamaged as error:
                self._give_up(job, str(error))

    def _show(self) -> None:
        self._progress.show(len(self._done), len(self._failed), len(self._running) + self._elsewhere)


def _all(outcome: Outcome) -> int:
    return len(outcome.done) + len(outcome.failed) + len(outcome.left)
