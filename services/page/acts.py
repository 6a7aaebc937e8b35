"""What the page may do where it is allowed to: delete snapshots, run retention, suspend and resume collection.

A person confirms bytes. Before anything is deleted, they are computed once more; if they are others by now, the act is
refused, and the page shows the present ones.
"""

from __future__ import annotations

from typing import Any

from schemas.records import CollectionState, DeleteSnapshot, ExpireSnapshots, SetCollection
from services.client.errors import PlaneError
from services.client.plane import accepted
from services.client.tasks.space_view import BucketView
from services.domain.errors import DeepcleanError
from services.domain.words import counted
from services.wording.figures import bytes_text

CHANGED = "CHANGED"
"""Code of an act whose bytes are not those that were confirmed."""
_STATES = {CollectionState.PAUSED: "paused", CollectionState.RUNNING: "resumed"}


def delete_snapshots(view: BucketView, names: list[str], confirmed_bytes: int) -> dict[str, Any]:
    """Delete snapshots. One that a tag protects is named in the answer, and the others are deleted.

    When the plane does not answer for one, no further one is tried: the answer says what is done, not known, and left.

    Raises:
        PlaneError: FILE_NOT_FOUND for a snapshot that is gone; CHANGED.
    """
    if not names:
        raise PlaneError("INVALID_REQUEST", "name the snapshots to delete")
    _check(view.what_if(view.snapshots(), names).freed_bytes, confirmed_bytes)
    done, sentences = 0, []
    for place, name in enumerate(names):
        try:
            reply = view.plane.request(view.shard, DeleteSnapshot(view.volume, view.bucket, name))
        except DeepcleanError as error:
            sentences.append(f"{name}: whether it is deleted is not known ({error}). Look again.")
            if left := names[place + 1 :]:
                sentences.append(f"Not tried: {', '.join(left)}.")
            break
        if reply.error:
            sentences.append(f"{name}: {reply.message}")
        else:
            done += 1
    return {"message": f"{counted(done, 'snapshot')} deleted.", "refused": sentences}


def run_retention(view: BucketView, names: list[str], confirmed_bytes: int) -> dict[str, Any]:
    """Run the bucket's policy now, if it would still expire what was confirmed.

    Raises:
        PlaneError: RETENTION_NOT_FOUND; CHANGED.
    """
    plan = view.plane.snapshots(view.shard).retention_preview(view.volume, view.bucket)
    if sorted(names) != sorted(one.snapshot for one in plan.expired):
        raise PlaneError(CHANGED, "a run would expire other snapshots by now: look at the preview again")
    _check(plan.freed_bytes, confirmed_bytes)
    reply = accepted(view.plane.request(view.shard, ExpireSnapshots(view.volume, view.bucket)))
    expired = reply.expired.snapshots if reply.expired else ()
    return {"message": f"{counted(len(expired), 'snapshot')} expired.", "refused": []}


def set_collection(view: BucketView, state: CollectionState, reason: str) -> dict[str, Any]:
    """Suspend or resume claims of a bucket.

    Raises:
        PlaneError: INVALID_REQUEST for another state than PAUSED and RUNNING.
    """
    if state not in _STATES:
        raise PlaneError("INVALID_REQUEST", "the page pauses and resumes; for other states use deepclean gc")
    command = SetCollection(view.volume, view.bucket, state, reason)
    accepted(view.plane.answer(view.shard, view.plane.submit(view.shard, command)))
    return {"message": f"Collection of {view.volume}/{view.bucket} is {_STATES[state]}.", "refused": []}


def _check(present_bytes: int, confirmed_bytes: int) -> None:
    if present_bytes != confirmed_bytes:
        raise PlaneError(
            CHANGED,
            f"this would free {bytes_text(present_bytes)} ({present_bytes:,} bytes) by now, not the "
            f"{confirmed_bytes:,} bytes that were confirmed: look again",
        )
