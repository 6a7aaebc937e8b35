"""Resolves a state of a bucket that a user names: a snapshot, or ``active``."""

from __future__ import annotations

from schemas.records import SnapshotStatus
from services.client.errors import PlaneError
from services.client.plane import Plane

ACTIVE = "active"
"""The present state; a snapshot of this name cannot be compared by its name."""

EXPIRED = "SNAPSHOT_EXPIRED"
"""The code for a snapshot that there was."""


def live_snapshot_id(plane: Plane, shard: int, volume: str, bucket: str, name: str) -> str:
    """The id of a snapshot that can be read; empty, which means now, for ``active``.

    Raises:
        PlaneError: FILE_NOT_FOUND, when there never was one of that name; SNAPSHOT_EXPIRED, when there was.
    """
    if name == ACTIVE:
        return ""
    snapshot = plane.snapshots(shard).snapshot(volume, bucket, name)
    if snapshot.status is not SnapshotStatus.SNAPSHOT_ACTIVE:
        raise PlaneError(EXPIRED, f"snapshot {name} of {volume}/{bucket} is deleted")
    return snapshot.snapshot_id
