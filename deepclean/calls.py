"""The calls of one client: each goes to the shard of its volume, and what a busy bucket refuses is asked again.

Retries are safe, because they never guess. A refused command has changed nothing, so sending a new one is no second
command; a rollback is the exception, and is sent once. If it is not known whether a command was applied, the low layer
repeats the same message under the same number, which the plane answers once (``services.client.wire.kafka_commands``);
where it cannot, the error says so, and nothing here sends the command again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from schemas.records import MetadataReply, RollBackBucket, SnapshotReply
from services.client.errors import BusyError
from services.client.plane import (
    BlockStore,
    BucketRequest,
    MetadataReads,
    NamespaceCommand,
    Plane,
    SnapshotReads,
    SpaceReads,
    accepted,
)
from services.client.tasks.links import bucket_of_link
from services.client.tasks.space_view import BucketView
from services.client.tasks.volume_shards import VolumeShards

BUSY_SECONDS = 30.0
"""How long a refusal of a busy bucket is retried by default, in seconds."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0

R = TypeVar("R")


class Calls:
    """The connection that all objects of one client share. Safe to use from several threads."""

    def __init__(self, plane: Plane, busy_seconds: float = BUSY_SECONDS) -> None:
        self.plane = plane
        self.volumes = VolumeShards(plane)
        self._busy_seconds = busy_seconds

    def execute(self, volume: str, command: NamespaceCommand) -> MetadataReply:
        """Send a command to the shard of a volume, and return the answer of metadata; raise its refusal."""
        return self.execute_in(self.volumes.shard_of(volume), command)

    def execute_in(self, shard: int, command: NamespaceCommand) -> MetadataReply:
        """Send a command to a shard, and return the answer of metadata; raise its refusal."""
        return self._patiently(lambda: accepted(self.plane.answer(shard, self.plane.submit(shard, command))))

    def request(self, volume: str, request: BucketRequest) -> SnapshotReply:
        """Send a request about a bucket to the snapshots service, and return its answer; raise its refusal.

        A request about a link becomes one about its bucket: a snapshot is of the bucket, never of the link. A rollback
        is asked for once: it may be refused when it has already deleted the newer snapshots, and a second one would
        delete what was snapshotted since.
        """
        shard = self.volumes.shard_of(volume)
        real_volume, real_bucket = bucket_of_link(self.plane, shard, request.volume, request.bucket)
        of_bucket = replace(request, volume=real_volume, bucket=real_bucket)
        if isinstance(request, RollBackBucket):
            return accepted(self.plane.request(shard, of_bucket))
        return self._patiently(lambda: accepted(self.plane.request(shard, of_bucket)))

    def _patiently(self, ask: Callable[[], R]) -> R:
        deadline, pause, seconds = time.monotonic() + self._busy_seconds, threading.Event(), FIRST_PAUSE_SECONDS
        while True:
            try:
                return ask()
            except BusyError:
                if time.monotonic() + seconds > deadline:
                    raise
            pause.wait(seconds)
            seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)

    def metadata(self, volume: str) -> MetadataReads:
        """Return the reads of metadata in the shard of a volume."""
        return self.plane.metadata(self.volumes.shard_of(volume))

    def space(self, volume: str) -> SpaceReads:
        """Return the reads about space in the shard of a volume."""
        return self.plane.space(self.volumes.shard_of(volume))

    def snapshots(self, volume: str) -> SnapshotReads:
        """Return the reads of the snapshots service in the shard of a volume."""
        return self.plane.snapshots(self.volumes.shard_of(volume))

    def block_store(self, volume: str) -> BlockStore:
        """Return the block store of the shard of a volume."""
        return self.plane.block_store(self.volumes.shard_of(volume))

    def bucket_of(self, volume: str, bucket: str) -> tuple[str, str]:
        """Return the names of volume and bucket, or of the bucket to which a link of these names leads.

        The snapshots service knows no links.
        """
        return bucket_of_link(self.plane, self.volumes.shard_of(volume), volume, bucket)

    def view(self, volume: str, bucket: str) -> BucketView:
        """Return the questions about the space of a bucket."""
        return BucketView(self.plane, self.volumes.shard_of(volume), *self.bucket_of(volume, bucket))
