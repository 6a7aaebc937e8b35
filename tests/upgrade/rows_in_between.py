"""Rows that one version of the program has written and another one has to read: they stay while processes restart.

Keys, versions that a snapshot holds, versions that are claimed and not yet deleted, and the inventory of their blocks
are put together from encoded parts. In rounds that come to their end the restarted process seldom finds such rows.
"""

from __future__ import annotations

from schemas.records import (
    BlockRun,
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    RenameKey,
    Settle,
)
from services.client.kafka_plane import KafkaPlane
from services.client.wire.http_reads import http_client
from services.plane.stack.stack import Stack
from tests.integration.test_stack import execute, request
from tests.waiting import eventually

HELD, CLAIMED, SNAPSHOT = "held", "claimed", "before"
KEYS, KEY_BYTES = 6, 1_000
LAYOUTS = {HELD: BucketLayout.FILE_SYSTEM_OPTIMIZED, CLAIMED: BucketLayout.OBJECT_STORE}


class RowsInBetween:
    """The rows of one volume, which the present versions of the processes write."""

    def __init__(self, stack: Stack, volume: str) -> None:
        self._stack = stack
        self._volume = volume
        with stack.client() as plane:
            self._blocks = self._write(plane)

    def _write(self, plane: KafkaPlane) -> list[BlockRun]:
        """Leave keys, of which a snapshot holds half as deleted ones, and claims of blocks that do not go."""
        execute(plane, 0, CreateVolume(self._volume))
        blocks = []
        for bucket, layout in LAYOUTS.items():
            execute(plane, 0, CreateBucket(self._volume, bucket, layout))
            blocks += execute(plane, 0, *(PutKey(self._volume, bucket, f"a/{n}", KEY_BYTES) for n in range(KEYS)))
        request(plane, 0, CreateSnapshot(self._volume, HELD, SNAPSHOT))
        execute(plane, 0, *(DeleteKey(self._volume, HELD, f"a/{n}") for n in range(KEYS // 2)))
        self._switch({"failing_buckets": [plane.metadata(0).bucket(self._volume, CLAIMED).object_id]})
        execute(plane, 0, *(DeleteKey(self._volume, CLAIMED, f"a/{n}") for n in range(KEYS)))
        eventually(lambda: plane.metadata(0).space(self._volume, CLAIMED).claimed_bytes == KEYS * KEY_BYTES)
        return blocks

    def _switch(self, switches: dict[str, list[int]]) -> None:
        """Make the block store fail to delete the blocks of some buckets, or of none."""
        with http_client(self._stack.address.http_token) as http:
            http.put(f"{self._stack.url('mock_scm')}/v1/switches", json=switches).raise_for_status()

    def finish_claims(self) -> None:
        """Have the block store delete what is claimed, and see the claimed rows finished."""
        self._switch({})
        with self._stack.client() as plane:
            request(plane, 0, Settle(f"claims of {self._volume}"))
            space = plane.metadata(0).space(self._volume, CLAIMED)
            assert (space.claimed_bytes, space.freed_bytes) == (0, KEYS * KEY_BYTES)

    def check(self) -> None:
        """See what lives, and what the snapshot shows."""
        with self._stack.client() as plane:
            reads = plane.metadata(0)
            (held,) = plane.snapshots(0).snapshots(self._volume, HELD)
            assert held.name == SNAPSHOT
            for snapshot_id, first in (("", KEYS // 2), (held.snapshot_id, 0)):
                entries = reads.entries(self._volume, HELD, snapshot_id=snapshot_id)
                files = {entry.path: entry.size_bytes for entry in entries if not entry.is_directory}
                assert files == {f"a/{n}": KEY_BYTES for n in range(first, KEYS)}

    def free(self) -> None:
        """Change and delete everything, and see that each block is kept until then and goes then."""
        self.check()
        with self._stack.client() as plane:
            held = self._blocks[:KEYS]
            assert plane.scm(0).exist(held) == [True] * KEYS
            last = KEYS - 1
            execute(plane, 0, RenameKey(self._volume, HELD, f"a/{last}", "a/renamed"))
            again = execute(plane, 0, PutKey(self._volume, HELD, "a/renamed", KEY_BYTES))
            names = [*(f"a/{n}" for n in range(KEYS // 2, last)), "a/renamed"]
            execute(plane, 0, *(DeleteKey(self._volume, HELD, name) for name in names))
            request(plane, 0, Settle(f"held in {self._volume}"))
            assert plane.scm(0).exist(held) == [True] * KEYS
            request(plane, 0, DeleteSnapshot(self._volume, HELD, SNAPSHOT))
            request(plane, 0, Settle(f"freed in {self._volume}"))
            assert not any(plane.scm(0).exist([*self._blocks, *again]))
            space = plane.metadata(0).space(self._volume, HELD)
            assert (space.live_bytes, space.deleted_bytes, space.freed_bytes) == (0, 0, (KEYS + 1) * KEY_BYTES)
