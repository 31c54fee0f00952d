"""What Ray's metrics say about jobs: how many, of which kind, for how long."""

from ray.util.metrics import Counter, Histogram

from inosgm.jobs import Report

SECONDS = [0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0]


class JobMetrics:
    """Counts the jobs of a run; the kind of a job is the only tag. Where nobody collects metrics, nothing happens."""

    def __init__(self) -> None:
        self._done = Counter("inosgm_jobs_done", "Jobs that were done.", tag_keys=("kind",))
        self._failed = Counter("inosgm_jobs_failed", "Attempts that failed.", tag_keys=("kind",))
        self._seconds = Histogram("inosgm_job_seconds", "Seconds per job.", boundaries=SECONDS, tag_keys=("kind",))

    def enter(self, report: Report, kind: str) -> None:
        """Count how an attempt ended."""
        tags = {"kind": kind}
        if report.status == "done":
            self._done.inc(1, tags)
            self._seconds.observe(report.seconds, tags)
        elif report.status == "failed":
            self._failed.inc(1, tags)
