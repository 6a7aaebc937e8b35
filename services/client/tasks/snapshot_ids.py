"""Resolve the name of a bucket's state: a snapshot, or ``active``."""

from __future__ import annotations

from schemas.records import SnapshotStatus
from services.client.errors import PlaneError
from services.client.plane import Plane
from services.client.tasks.links import bucket_of_link

ACTIVE = "active"
"""Name of the active namespace. A snapshot with this name cannot be compared by its name."""

EXPIRED = "SNAPSHOT_EXPIRED"
"""Error code for a deleted snapshot."""


def live_snapshot_id(plane: Plane, shard: int, volume: str, bucket: str, name: str) -> str:
    """Return the id of a live snapshot, or "" for ``active``.

    Raises:
        PlaneError: FILE_NOT_FOUND if there was never a snapshot of that name; SNAPSHOT_EXPIRED if it is deleted.
    """
    if name == ACTIVE:
        return ""
    snapshot = plane.snapshots(shard).snapshot(*bucket_of_link(plane, shard, volume, bucket), name)
    if snapshot.status is not SnapshotStatus.SNAPSHOT_ACTIVE:
        raise PlaneError(EXPIRED, f"snapshot {name} of {volume}/{bucket} is deleted")
    return snapshot.snapshot_id
