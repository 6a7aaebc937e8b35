"""Histories after which Ozone 2.2.0 has lost, leaked or miscounted something, as scripts of the simulator.

Their numbers are those of ``docs/ozone-defects.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas import records
from schemas.records import BucketLayout
from services.mock_scm.queries import totals
from tests.simulation.scripts import BUCKET, Script, Stage
from tests.simulation.simulator import Simulation

_BLOCK = 100
_KEY = "d/k"


class Client(Stage):
    """A client that writes in steps. With ``is_slow`` everything is collected that can be, after each of its steps."""

    def __init__(self, simulation: Simulation, layout: BucketLayout, *, is_slow: bool) -> None:
        super().__init__(simulation, layout)
        self._is_slow = is_slow

    def do(self, kind: Any, *fields: Any) -> None:
        """Send a command about the bucket, and let metadata carry it out."""
        self.submit(kind(self.volume, BUCKET, *fields))
        self._go_on()

    def _go_on(self) -> None:
        self.run(*(() if self._is_slow else ("metadata", "snapshots")))

    def snapshot(self, name: str) -> None:
        """Create a snapshot."""
        self.request(records.CreateSnapshot, name)
        self._go_on()

    def drop(self, name: str) -> None:
        """Delete a snapshot."""
        self.request(records.DeleteSnapshot, name)
        self._go_on()

    def open(self, key: str, size_bytes: int, *more: Any) -> int:
        """Open a key, or a part of an upload. Return its id."""
        before = set(self.shard.model.writes.sessions)
        self.do(records.OpenKey, key, size_bytes, f"tag-{key}", _BLOCK, *more)
        (session,) = set(self.shard.model.writes.sessions) - before
        return session

    def synced(self, key: str = _KEY, *, size_bytes: int = 250) -> int:
        """Open a key and sync it. Return its id."""
        session = self.open(key, size_bytes)
        self.do(records.SyncKey, key, session, size_bytes)
        return session

    def upload(self, key: str = _KEY) -> str:
        """Begin an upload with one part. Return its id."""
        self.do(records.InitiateUpload, key)
        (upload,) = self.shard.model.writes.uploads
        part = self.open(key, _BLOCK, 0, False, upload, 1)
        self.do(records.CommitKey, key, part, _BLOCK)
        return upload

    def expire(self) -> None:
        """Close all open keys that nobody has continued."""
        self.shard.writer.close_everything()
        self._go_on()


def _refused_puts(client: Client) -> None:
    client.put(_KEY)
    client.do(records.PutKeyIf, _KEY, 200, -1)
    client.submit(records.OpenKey(client.volume, BUCKET, _KEY, 200, "tag", _BLOCK, -1))


def _complete_over_a_held_key(client: Client) -> None:
    client.put_in_snapshot("snap-1", _KEY)
    client.do(records.CompleteUpload, _KEY, client.upload(), (1,), "joined")


def _synced_again(client: Client) -> None:
    session = client.open(_KEY, 300)
    for size_bytes in (50, 150, 300):
        client.do(records.SyncKey, _KEY, session, size_bytes)
    client.do(records.CommitKey, _KEY, session, 300)


def _a_grown_key_in_two_snapshots(client: Client) -> None:
    session = client.open(_KEY, 300)
    client.do(records.SyncKey, _KEY, session, 50)
    client.snapshot("snap-1")
    client.do(records.CommitKey, _KEY, session, 300)
    client.snapshot("snap-2")
    client.delete(_KEY)


def _synced_snapshot_closed_deleted(client: Client) -> None:
    session = client.synced()
    client.snapshot("snap-1")
    client.do(records.CommitKey, _KEY, session, 250)
    client.delete(_KEY)


def _commit_after_deletion(client: Client) -> None:
    session = client.synced()
    client.do(records.DeleteKey, _KEY)
    client.do(records.CommitKey, _KEY, session, 250)


def _expiry_over_an_upload(client: Client) -> None:
    client.synced()
    client.do(records.CompleteUpload, _KEY, client.upload(), (1,), "joined")
    client.expire()


def _deleted_with_versions(client: Client) -> None:
    client.do(records.SetBucketVersioning, records.BucketVersioning.ENABLED)
    for snapshot in ("snap-1", "snap-2"):
        client.put(_KEY)
        client.snapshot(snapshot)
    client.put(_KEY)
    client.delete(_KEY)
    client.drop("snap-2")


def _renamed_and_expired(client: Client) -> None:
    client.synced()
    client.open("other", 100)
    client.do(records.RenameKey, _KEY, "new")
    client.expire()


def _deleted_and_expired(client: Client) -> None:
    client.synced()
    client.synced("other")
    client.snapshot("snap-1")
    client.do(records.DeleteKey, _KEY)
    client.put("other")
    client.expire()
    client.drop("snap-1")


def _refused_completion(client: Client) -> None:
    upload = client.upload()
    client.do(records.DeleteDirectory, "d")
    client.do(records.CompleteUpload, _KEY, upload, (1, 2), "joined")


def _names_of_deleted_directories(client: Client) -> None:
    client.do(records.SetQuota, -1, 4)
    client.put("d/k", "other")
    client.do(records.DeleteKey, "d/k")
    client.do(records.DeleteDirectory, "d")
    client.put("one", "two")
    client.run()
    client.put("two")


def _synced_blocks_counted_once(client: Client) -> None:
    client.do(records.SetQuota, 500, -1)
    session = client.open(_KEY, 200)
    client.do(records.SyncKey, _KEY, session, 200)
    for size_bytes in (300, 100):
        client.do(records.AllocateBlocks, _KEY, session, size_bytes)
    client.do(records.CommitKey, _KEY, session, 500)


def _deleted_twice(client: Client) -> None:
    client.put(_KEY)
    session = client.open(_KEY, 100)
    client.do(records.DeleteKey, _KEY)
    client.do(records.CommitKey, _KEY, session, 100)
    client.delete(_KEY)


def _moved_and_expired(client: Client) -> None:
    client.synced()
    client.open("other", 100)
    client.do(records.RenameDirectory, "d", "e")
    client.expire()


def _expired_upload_of_an_erasure_code(client: Client) -> None:
    client.do(records.SetBucketReplication, records.Replication.EC_RS_3_2_1024K)
    client.put("other")
    client.upload()
    client.expire()


OZONE_HISTORIES: Mapping[int, tuple[Callable[[Client], None], int]] = {
    1: (_refused_puts, 100),
    2: (_complete_over_a_held_key, 200),
    3: (_synced_again, 300),
    4: (_a_grown_key_in_two_snapshots, 300),
    5: (_synced_snapshot_closed_deleted, 250),
    6: (_commit_after_deletion, 0),
    7: (_expiry_over_an_upload, 100),
    8: (_deleted_with_versions, 100),
    9: (_renamed_and_expired, 250),
    10: (_deleted_and_expired, 100),
    11: (_refused_completion, 100),
    12: (_names_of_deleted_directories, 300),
    13: (_synced_blocks_counted_once, 500),
    14: (_deleted_twice, 0),
    15: (_moved_and_expired, 250),
    16: (_expired_upload_of_an_erasure_code, 100),
}
"""Each with the bytes that the block store must have afterwards: of what a client, a snapshot or an upload has."""


def script_of(number: int, layout: BucketLayout, *, is_slow: bool) -> Script:
    """Return the script of a history, which ends with a check of what is stored."""
    history, stored_bytes = OZONE_HISTORIES[number]

    def script(simulation: Simulation) -> None:
        history(Client(simulation, layout, is_slow=is_slow))
        simulation.settle_and_check()
        assert totals(simulation.plane.tables("mock_scm", 0)).inventory_bytes == stored_bytes

    return script
