"""Retention goes by the clock, but never by a state that is behind the log."""

from __future__ import annotations

import pytest

from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateTag,
    CreateVolume,
    PutKey,
    RetentionPolicy,
    SetRetention,
    Settle,
    UnsetRetention,
)
from services.metadata.tables import SNAPSHOT_LIST_TABLE
from services.plane.in_memory import InMemoryPlane
from services.plane.in_memory_client import InMemoryClient
from services.storage.tables import TablesReader

DAY_MS = 86_400_000
POLICY = RetentionPolicy(num_retained_min=1, time_retained_ms=7 * DAY_MS)


def live_snapshots(plane: InMemoryPlane) -> int:
    rows = TablesReader(plane.processes["metadata", 0].store).table(SNAPSHOT_LIST_TABLE).scan(b"", b"\xff")
    return sum(row.is_live for _, row in rows)


@pytest.mark.parametrize("batch", [1, 2, 2_000])
def test_what_was_protected_since_the_backup_does_not_expire_by_the_backups_policy(batch: int) -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    for command in (CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)):
        assert not client.answer(0, client.submit(0, command)).error
    for name in ("one", "two"):
        assert not client.answer(0, client.submit(0, PutKey("vol", "bucket", name, 5))).error
        assert not client.request(0, CreateSnapshot("vol", "bucket", name)).error
    assert not client.request(0, SetRetention("vol", "bucket", POLICY)).error
    backup = plane.processes["snapshots", 0].store.clone()
    assert not client.request(0, CreateTag("vol", "bucket", "one", "audit", "ann", "year end", 0)).error
    assert not client.request(0, UnsetRetention("vol", "bucket")).error
    plane.clock.advance(8 * DAY_MS)
    plane.max_batch_messages = batch
    plane.start("snapshots", 0, backup)
    while plane.step():
        pass
    assert not InMemoryClient(plane, "later").request(0, Settle("later")).error
    assert live_snapshots(plane) == 2


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
