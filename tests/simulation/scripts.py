"""Runs that go by a script: what chance brings together in one of a thousand runs, in one run.

A script sends what clients send and lets services take their steps; afterwards the run comes to rest as any other one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schemas import records
from schemas.records import BucketLayout
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.key_deletion.settings import KeyDeletionSettings
from services.metadata.state.tables import RECLAIM_TABLE
from services.storage.memory import MemoryStore
from tests.simulation.checks import rows
from tests.simulation.plane import Limits
from tests.simulation.simulator import Simulation

BUCKET = "bucket-s"
MOST_ROUNDS = 60
PLAIN = Limits(KeyDeletionSettings(), DirectoryDeletionSettings(), 1 << 30, 1_000)
WITH_WINDOW = replace(
    PLAIN,
    key_deletion=KeyDeletionSettings(undo_window_ms=900_000),
    directory_deletion=DirectoryDeletionSettings(undo_window_ms=900_000),
)
ONE_A_PAGE = replace(PLAIN, max_rollback_page_entries=1)
ONE_EXPANDED = replace(PLAIN, directory_deletion=DirectoryDeletionSettings(max_page_entries=1))
Script = Callable[[Simulation], None]


class Stage:
    """What a script does to the first shard of its run."""

    def __init__(self, simulation: Simulation, layout: BucketLayout = BucketLayout.OBJECT_STORE) -> None:
        self.simulation = simulation
        self.shard = simulation.shards[0]
        self.volume = self.shard.actor.volume
        self.submit(records.CreateBucket(self.volume, BUCKET, layout))
        self.run()

    def submit(self, body: Any) -> None:
        """Send a command to metadata."""
        self.shard.actor.submit(body)

    def put(self, *keys: str, size_bytes: int = 100) -> None:
        """Write keys."""
        for key in keys:
            self.submit(records.PutKey(self.volume, BUCKET, key, size_bytes, f"tag-{key}", 1_024))

    def delete(self, *keys: str) -> None:
        """Delete keys."""
        for key in keys:
            self.submit(records.DeleteKey(self.volume, BUCKET, key))

    def request(self, kind: Any, *names: str) -> None:
        """Ask snapshots for something about the bucket."""
        self.shard.actor.request(kind(self.volume, BUCKET, *names))

    def put_in_snapshot(self, snapshot: str, *keys: str, size_bytes: int = 100) -> None:
        """Write keys, and take a snapshot that shows them."""
        self.put(*keys, size_bytes=size_bytes)
        self.request(records.CreateSnapshot, snapshot)
        self.run()

    def run(self, *services: str, rounds: int = MOST_ROUNDS) -> None:
        """Let services, or all, take steps until none of them finds anything to do."""
        plane = self.simulation.plane
        for _ in range(rounds):
            addresses = [one for one in plane.addresses if not services or one[0] in services]
            if not sum(self.simulation.scheduler.step(one) for one in addresses if not self._is_down(one)):
                return
            plane.clock.advance(1_000)

    def run_until_claimed(self) -> None:
        """Go on until a row is claimed, and its blocks are not deleted."""
        for _ in range(MOST_ROUNDS):
            self.run("metadata", "streaming", "key_deletion", rounds=1)
            if rows(self.simulation.plane.tables("metadata", 0), RECLAIM_TABLE):
                return
        raise AssertionError("nothing was claimed")

    def _is_down(self, address: tuple[str, int]) -> bool:
        return address in self.simulation.state.down

    def hold(self, service: str, topic: str) -> None:
        """From now on a service sees nothing new of a topic."""
        place = (service, 0, topic)
        self.simulation.state.faults.held[place] = self.simulation.plane.position(*place)

    def release(self, service: str, topic: str) -> None:
        """It sees all of it again."""
        del self.simulation.state.faults.held[service, 0, topic]

    def restart(self, service: str, store: MemoryStore | None = None) -> None:
        """Start a service anew, on its database or another one."""
        self.simulation.state.down.pop((service, 0), None)
        self.simulation.state.start((service, 0), store)

    def deleted(self, path: str) -> records.Undelete:
        """The command that brings back the newest deleted row of a path."""
        listed = [one for one in self.shard.actor.list_deleted() if one.bucket == BUCKET and one.path == path]
        return max(listed, key=lambda one: one.death)
