"""Wait for a diff and fetch all its entries."""

from __future__ import annotations

from collections.abc import Callable

from schemas.answers import DiffJob, DiffStatus
from services.client.errors import PlaneError
from services.client.plane import MetadataReads
from services.domain.snapshot_diff import DiffEntry

WAIT_SECONDS = 10
PAGE_ROWS = 10_000


def diff(
    reads: MetadataReads,
    volume: str,
    bucket: str,
    *,
    from_snapshot_id: str = "",
    to_snapshot_id: str = "",
    on_progress: Callable[[DiffJob], None] = lambda _job: None,
) -> list[DiffEntry]:
    """Return the diff of two states of a bucket: the kinds ``-``, ``R``, ``+``, ``M`` in this order, each by path.

    An empty id is the active namespace.

    Raises:
        PlaneError: FILE_NOT_FOUND if a snapshot is missing; SNAPSHOT_DIFF_REJECTED, _FAILED or _CANCELLED.
    """
    job = reads.ask_for_diff(volume, bucket, from_snapshot_id=from_snapshot_id, to_snapshot_id=to_snapshot_id)
    while not job.status.is_end:
        on_progress(job)
        job = reads.diff_job(job.job_id, wait_seconds=WAIT_SECONDS)
    if job.status is not DiffStatus.DONE:
        raise PlaneError(f"SNAPSHOT_DIFF_{job.status}", job.message or f"diff {job.job_id} was {job.status.lower()}")
    entries: list[DiffEntry] = []
    while len(entries) < job.entry_count:
        page = reads.diff_entries(job.job_id, start_after=len(entries), limit=PAGE_ROWS)
        if not page:
            raise PlaneError(
                "SNAPSHOT_DIFF_FAILED",
                f"diff {job.job_id} has {len(entries)} entries of the {job.entry_count} that it names: ask again",
            )
        entries += page
    return entries
