"""What metadata reports beside its loop."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from schemas.answers import DiffJob, DiffStatus

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3_600.0)
_ENDS = [status for status in DiffStatus if status.is_end]


class SnapshotDiffMetrics:
    """The diffs of a process."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self.ended_jobs = Counter(
            "deepclean_metadata_diffs_total", "Diffs that have ended, by how.", ["status"], registry=registry
        )
        self.seconds = Histogram(
            "deepclean_metadata_diff_seconds",
            "From asking for a diff until it was done.",
            buckets=_SECONDS,
            registry=registry,
        )
        for status in _ENDS:  # so that one never reached reads 0 instead of being absent
            self.ended_jobs.labels(status.value)

    def ended(self, job: DiffJob) -> None:
        """A diff has come to its end."""
        self.ended_jobs.labels(job.status.value).inc()
        if job.status is DiffStatus.DONE:
            self.seconds.observe(max(0, job.ended_ms - job.created_ms) / 1000)
