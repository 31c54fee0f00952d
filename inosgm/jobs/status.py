"""The states of the jobs of a store, from the store alone."""

from collections import Counter
from dataclasses import dataclass
from time import time
from typing import Any

from inosgm.jobs._liveness import gone
from inosgm.jobs.spec import JobSpec
from inosgm.jobs.store import Store


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The state of one job.

    Attributes:
        job: Its id.
        spec: What it is.
        status: done, running, failed or left.
        attempts: How many attempts were begun.
        note: Why it failed, or why it may not be running any more.
        traceback: Of the last attempt that failed. It may show data.
    """

    job: str
    spec: JobSpec
    status: str
    attempts: int
    note: str = ""
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class StoreStatus:
    """The states of all jobs of a store.

    Attributes:
        uri: Where the store is.
        jobs: One entry per job, in the order of their indices.
        charged: How many have a row in the ledger.
        fenced: The number of attempts that ended after another one of the same job.
    """

    uri: str
    jobs: tuple[JobStatus, ...]
    charged: int
    fenced: int

    def counts(self) -> dict[str, int]:
        """Return how many jobs are done, running, failed and left."""
        found = Counter(job.status for job in self.jobs)
        return {status: found[status] for status in ("done", "running", "failed", "left")}

    def report(self, *, tracebacks: bool = False) -> str:
        """Return it for people.

        Args:
            tracebacks: Show those of failed jobs in full.
        """
        counts = ", ".join(f"{number} {status}" for status, number in self.counts().items())
        lines = [f"{self.uri}: {len(self.jobs)} jobs: {counts}; {self.charged} charged"]
        lines += [f"{self.fenced} attempts came too late and were fenced"] * (self.fenced > 0)
        for job in self.jobs:
            if job.note:
                about = f"{job.spec.kind} {job.spec.index} ({job.job[:8]})"
                times = f"{job.attempts} attempt{'s' * (job.attempts != 1)}"
                lines.append(f"{job.status}: {about} after {times}: {job.note}")
                lines += [job.traceback] * (tracebacks and bool(job.traceback))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON, without tracebacks."""
        jobs = [
            {
                "job": job.job,
                "kind": job.spec.kind,
                "index": job.spec.index,
                "status": job.status,
                "attempts": job.attempts,
                "note": job.note,
            }
            for job in self.jobs
        ]
        return {"uri": self.uri, **self.counts(), "charged": self.charged, "fenced": self.fenced, "jobs": jobs}


def status(store: Store) -> StoreStatus:
    """Return the states of the jobs of a store; write nothing."""
    states = store.states()
    if not states and not store.exists():
        raise FileNotFoundError(f"there is no store at {store.uri}")
    jobs = []
    for job, spec in store.specs().items():
        state = states.get(job) or store.state(job)
        found, note, traceback = state.status, "", ""
        if found == "running":
            silence = time() - store.last_heartbeat(job, state.last)
            if gone(store.begun(job, state.last)):
                found, note = "left", "its worker is gone; the same command resumes"
            elif silence > 2 * store.lease:
                note = f"no sign of life for {silence:.0f} s; start the same command again if its worker is gone"
        elif found == "failed":
            note = store.reason(job, state.abandoned_after)
            failed = [number for number, ending in state.attempts.items() if ending == "failed"]
            traceback = store.failure(job, max(failed)).traceback if failed else ""
        jobs.append(
            JobStatus(job=job, spec=spec, status=found, attempts=len(state.attempts), note=note, traceback=traceback)
        )
    endings = Counter(ending for state in states.values() for ending in state.attempts.values())
    charged = sum(state.charged for state in states.values())
    return StoreStatus(uri=store.uri, jobs=tuple(jobs), charged=charged, fenced=endings["fenced"])
