"""After a start snapshots goes by nothing that is behind the log, and asks again for what was never answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateTag,
    CreateVolume,
    DeleteSnapshot,
    ExecutionMode,
    PutKey,
    RetentionPolicy,
    SetRetention,
    Settle,
    SnapshotCommand,
    UnsetRetention,
)
from schemas.topics import METADATA_COMMANDS, SNAPSHOTS_COMMANDS
from services.metadata.state.tables import SNAPSHOT_LIST_TABLE
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE
from services.storage.tables import TablesReader

DAY_MS = 86_400_000
POLICY = RetentionPolicy(num_retained_min=1, time_retained_ms=7 * DAY_MS)


def live_snapshots(plane: InMemoryPlane) -> int:
    rows = TablesReader(plane.processes["metadata", 0].store).table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0")
    return sum(row.is_live for _, row in rows)


@pytest.mark.parametrize("mode", list(ExecutionMode))
@pytest.mark.parametrize("batch", [1, 2, 2_000])
def test_what_was_protected_since_the_backup_does_not_expire_by_the_backups_policy(
    batch: int, mode: ExecutionMode
) -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    for command in (CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)):
        assert not client.answer(0, client.submit(0, command)).error
    for name in ("one", "two"):
        assert not client.answer(0, client.submit(0, PutKey("vol", "bucket", name, 5))).error
        assert not client.request(0, CreateSnapshot("vol", "bucket", name)).error
    assert not client.request(0, SetRetention("vol", "bucket", replace(POLICY, execution_mode=mode))).error
    backup = plane.processes["snapshots", 0].store.clone()
    assert not client.request(0, CreateTag("vol", "bucket", "one", "audit", "ann", "year end", 0)).error
    assert not client.request(0, UnsetRetention("vol", "bucket")).error
    assert not client.request(0, CreateSnapshot("vol", "bucket", "three")).error
    plane.clock.advance(8 * DAY_MS)
    plane.max_batch_messages = batch
    plane.start("snapshots", 0, backup)
    while plane.step():
        pass
    assert not InMemoryClient(plane, "later").request(0, Settle("later")).error
    assert live_snapshots(plane) == 3


def test_retention_goes_on_once_the_log_has_been_read() -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    for command in (CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)):
        assert not client.answer(0, client.submit(0, command)).error
    for name in ("one", "two"):
        assert not client.request(0, CreateSnapshot("vol", "bucket", name)).error
    assert not client.request(0, SetRetention("vol", "bucket", POLICY)).error
    plane.clock.advance(8 * DAY_MS)
    plane.start("snapshots", 0, plane.processes["snapshots", 0].store.clone())
    while plane.step():
        pass
    assert not InMemoryClient(plane, "later").request(0, Settle("later")).error
    assert live_snapshots(plane) == 1


def test_what_metadata_never_heard_of_is_asked_for_again_after_a_start() -> None:
    """The broker may have lost the end of its log, or metadata have refused a signature."""
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    for command in (CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)):
        assert not client.answer(0, client.submit(0, command)).error
    assert not client.request(0, CreateSnapshot("vol", "bucket", "one")).error
    encoder = codec(SnapshotCommand)
    commands = plane.log.records(METADATA_COMMANDS.name, 0)
    bodies: tuple[CreateSnapshot | DeleteSnapshot, ...] = (
        CreateSnapshot("vol", "bucket", "two"),
        DeleteSnapshot("vol", "bucket", "one"),
    )
    for number, body in enumerate(bodies, 1):
        asked = len(commands)
        plane.log.append(SNAPSHOTS_COMMANDS.name, 0, encoder.encode_message(SnapshotCommand(0, "other", number, body)))
        while plane.processes["snapshots", 0].runner.step():
            pass
        assert len(commands) > asked
        del commands[asked:]
    plane.start("snapshots", 0)
    while plane.step():
        pass
    assert not client.request(0, Settle("again")).error
    rows = TablesReader(plane.processes["snapshots", 0].store).table(SNAPSHOT_INFO_TABLE).scan(b"", b"\xff")
    assert [row.name for _, row in rows] == ["two"]
    assert live_snapshots(plane) == 1
