"""Metrics of jobs for Ray: counts and durations by kind."""

from ray.util.metrics import Counter, Histogram

SECONDS = [0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0]
"""The bounds of the histogram: from a fragment of a table to a night of training."""


class JobMetrics:
    """Counts the jobs of a run; the kind of a job is the only tag. Without a collector, nothing happens."""

    def __init__(self) -> None:
        self._done = Counter("inosgm_jobs_done", "Jobs that were done.", tag_keys=("kind",))
        self._failed = Counter("inosgm_jobs_failed", "Jobs that failed permanently.", tag_keys=("kind",))
        self._seconds = Histogram("inosgm_job_seconds", "Seconds per job.", boundaries=SECONDS, tag_keys=("kind",))

    def enter(self, kind: str, seconds: float | None) -> None:
        """Count a job that was done in some seconds, or failed permanently."""
        tags = {"kind": kind}
        if seconds is None:
            self._failed.inc(1, tags)
        else:
            self._done.inc(1, tags)
            self._seconds.observe(seconds, tags)
