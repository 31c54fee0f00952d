"""What Ray's metrics say about jobs: how many, of which kind, for how long."""

from ray.util.metrics import Counter, Histogram

SECONDS = [0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0]


class JobMetrics:
    """Counts the jobs of a run; the kind of a job is the only tag. Where nobody collects metrics, nothing happens."""

    def __init__(self) -> None:
        self._done = Counter("inosgm_jobs_done", "Jobs that were done.", tag_keys=("kind",))
        self._failed = Counter("inosgm_jobs_failed", "Jobs that were given up.", tag_keys=("kind",))
        self._seconds = Histogram("inosgm_job_seconds", "Seconds per job.", boundaries=SECONDS, tag_keys=("kind",))

    def enter(self, kind: str, seconds: float | None) -> None:
        """Count a job that was done in some seconds, or was given up."""
        tags = {"kind": kind}
        if seconds is None:
            self._failed.inc(1, tags)
        else:
            self._done.inc(1, tags)
            self._seconds.observe(seconds, tags)
