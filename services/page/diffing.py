"""Diffs as the page asks for them: start one, look how far it is, and fetch it as a tree when it is done."""

from __future__ import annotations

from typing import Any

from schemas.answers import DiffJob, DiffStatus
from services.client.tasks.snapshot_ids import live_snapshot_id
from services.client.tasks.space_view import BucketView
from services.domain.words import counted
from services.page.diff_tree import MOST_ENTRIES, counts_text, diff_tree, tree_rows

WAIT_SECONDS = 5


def start_diff(view: BucketView, from_state: str, to_state: str) -> dict[str, Any]:
    """Ask for the diff of two states, each a snapshot or ``active``, and return how far it is.

    Raises:
        PlaneError: FILE_NOT_FOUND or SNAPSHOT_EXPIRED for a snapshot that is not live.
    """
    old, new = (
        live_snapshot_id(view.plane, view.shard, view.volume, view.bucket, one) for one in (from_state, to_state)
    )
    reads = view.plane.metadata(view.shard)
    return job_answer(view, reads.ask_for_diff(view.volume, view.bucket, from_snapshot_id=old, to_snapshot_id=new))


def await_diff(view: BucketView, job_id: str) -> dict[str, Any]:
    """Return how far a diff is, when it has ended or after ``WAIT_SECONDS``.

    Raises:
        PlaneError: there is no such diff.
    """
    return job_answer(view, view.plane.metadata(view.shard).diff_job(job_id, wait_seconds=WAIT_SECONDS))


def job_answer(view: BucketView, job: DiffJob) -> dict[str, Any]:
    """Return the state of a diff, with its tree once it is done."""
    answer: dict[str, Any] = {
        "job_id": job.job_id,
        "has_ended": job.status.is_end,
        "state": job.status.lower().replace("_", " "),
        "percent": job.progress_percent,
        "message": job.message,
    }
    if job.status is not DiffStatus.DONE:
        return answer
    entries = view.plane.metadata(view.shard).diff_entries(job.job_id, limit=MOST_ENTRIES) if job.entry_count else []
    root = diff_tree(entries)
    more = job.entry_count - len(entries)
    answer["summary"] = counts_text(root.below) or "no difference"
    answer["note"] = f"{counted(more, 'difference')} more: deepclean snapshot diff prints all." if more > 0 else ""
    answer["rows"] = tree_rows(root)
    return answer
