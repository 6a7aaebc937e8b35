"""Copies that cannot belong together are no audit, and neither is a bucket that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, PutKey, Settle
from services.domain.errors import InvariantError
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from streaming.audit.shard import AuditedBucket, AuditedCopies, survey
from tests.audited_plane import MemoryAudit


class Copied:
    """A shard with a key and a snapshot, copied before and after another key was put."""

    def __init__(self) -> None:
        self.client = InMemoryClient(InMemoryPlane())
        self.do(CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE))
        self.do(PutKey("vol", "bucket", "one", 10))
        assert not self.client.request(0, CreateSnapshot("vol", "bucket", "snapshot")).error
        self.early = self.copy()
        self.do(PutKey("vol", "bucket", "two", 10))
        self.late = self.copy()

    def do(self, *commands: CreateVolume | CreateBucket | PutKey) -> None:
        for command in commands:
            assert not self.client.answer(0, self.client.submit(0, command)).error
        self.client.request(0, Settle(f"after-{commands[-1]}"))

    def copy(self) -> MemoryAudit:
        audit = MemoryAudit(self.client.plane)
        audit.copy_inventory_before()
        audit.copy_namespace()
        audit.copy_inventory_after()
        return audit

    def mixed(self, before: str = "late", namespace: str = "late", after: str = "late") -> MemoryAudit:
        """An audit whose copies were made at different times."""
        made = {"early": self.early, "late": self.late}
        audit = MemoryAudit(self.client.plane, snapshots=dict(self.late.snapshots))
        audit._copies.update(self.late._copies)
        for copy, age in (("before", before), ("namespace", namespace), ("after", after)):
            audit._copies[copy] = made[age]._copies[copy]
        return audit


def surveyed(audit: MemoryAudit, copies: AuditedCopies | None = None) -> dict[int, AuditedBucket]:
    return survey(copies or audit.copies, audit.opened).buckets


def test_a_survey_knows_the_bucket_and_its_snapshots() -> None:
    (bucket,) = surveyed(Copied().mixed()).values()
    referenced = [one.referenced_bytes for one in bucket.snapshots]
    assert (bucket.name, bucket.is_tree, bucket.used.bytes, referenced) == ("vol/bucket", False, 20, [10])
    assert bucket.snapshot_txns == tuple(one.txn for one in bucket.snapshots)
    assert len(bucket.snapshots) == 1


def test_copies_in_the_wrong_order_are_refused() -> None:
    copied = Copied()
    assert copied.mixed(before="early").report().is_clean
    with pytest.raises(InvariantError, match="metadata is behind"):
        surveyed(copied.mixed(namespace="early"))
    with pytest.raises(InvariantError, match="went back between its two copies"):
        surveyed(copied.mixed(after="early"))


def test_a_live_snapshot_without_its_checkpoint_is_refused() -> None:
    audit = Copied().mixed()
    audit.snapshots.clear()
    with pytest.raises(InvariantError, match="its checkpoint was not copied"):
        surveyed(audit)


def test_a_bucket_that_is_not_there_is_refused() -> None:
    audit = Copied().mixed()
    assert surveyed(audit, replace(audit.copies, bucket="vol/bucket"))
    with pytest.raises(InvariantError, match="has no bucket vol/other"):
        surveyed(audit, replace(audit.copies, bucket="vol/other"))
