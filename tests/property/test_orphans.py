"""Orphans that a repair hands over are deleted, and nothing that anybody refers to is, whatever the repair claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.audit_report import Amount, AuditReport, Finding, FindingKind
from schemas.codec import codec
from schemas.records import (
    BlockRun,
    BucketLayout,
    CaptureSnapshot,
    CreateBucket,
    CreateVolume,
    DeleteKey,
    MetadataCommand,
    MetadataReply,
    PutKey,
    RequeueOrphans,
    Settle,
)
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS
from services.client.tasks.orphans import requeue
from services.domain.table_keys import local_id
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from tests.audited_plane import audit_at_once, inventory_of, leak
from tests.rollback_workload import random_workload


def settle(client: InMemoryClient, name: str) -> None:
    assert not client.request(0, Settle(name)).error


def unwritten_txns(plane: InMemoryPlane) -> list[int]:
    """txns that have no block in the store."""
    rows = inventory_of(plane.processes["mock_scm", 0].store)
    written = {row.blocks.first_local_id >> 16 for row in rows}
    return [txn for txn in range(1, audit_at_once(plane).txn + 1) if txn not in written]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_orphans_go_the_normal_way_and_nothing_else_does(seed: int) -> None:
    random = Random(seed)
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    list(Replay(client).run(random_workload(seed, "vol")))
    store = plane.processes["mock_scm", 0].store
    kept = {row.blocks for row in inventory_of(store)}
    bucket_id = client.metadata(0).bucket("vol", "bucket-b").object_id
    freed_before = client.metadata(0).space("vol", "bucket-b").freed_bytes
    txns = unwritten_txns(plane)
    runs = [BlockRun(3, local_id(0, txn, 0), 1, 1_024, 100 + txn) for txn in random.sample(txns, min(3, len(txns)))]
    for run in runs:
        leak(store, bucket_id, run)
    plane.start("mock_scm", 0)  # it keeps its counters in memory
    report = audit_at_once(plane)
    total = Amount(len(runs), sum(run.size_bytes for run in runs))
    assert report.findings == ({FindingKind.ORPHANED: total} if runs else {})
    assert audit_at_once(plane, bucket="vol/bucket-b").findings == report.findings
    repair = requeue(client, report)
    assert (repair.requeued, repair.kept.versions, repair.reasons) == (total, 0, [])
    assert audit_at_once(plane).is_clean  # on their way they are owed, and counted
    settle(client, "repaired")
    assert {row.blocks for row in inventory_of(store)} == kept
    assert audit_at_once(plane).is_clean
    assert client.metadata(0).space("vol", "bucket-b").freed_bytes == freed_before + total.bytes


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_blocks_that_somebody_owns_are_kept_however_wrong_the_audit(seed: int) -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    list(Replay(client).run(random_workload(seed, "vol")))
    store = plane.processes["mock_scm", 0].store
    owned = inventory_of(store)
    report = audit_at_once(plane)
    wrong = replace(report, examples=tuple(_orphan(row.bucket_id, row.blocks) for row in owned))
    repair = requeue(client, wrong)
    assert repair.requeued.versions == 0
    settle(client, "nothing")
    assert inventory_of(store) == owned


def _orphan(bucket_id: int, run: BlockRun) -> Finding:
    return Finding(
        FindingKind.ORPHANED, "", bucket_id, "vol/bucket-b", "", 0, 0, run.container_id, run.first_local_id,
        run.block_count, run.block_size_bytes, run.size_bytes,
    )  # fmt: skip


class Shard:
    """Two buckets with a key each, and a txn that has written nothing."""

    def __init__(self) -> None:
        self.plane = InMemoryPlane()
        self.client = InMemoryClient(self.plane)
        commands = (
            CreateVolume("vol"),
            CreateBucket("vol", "bucket-b", BucketLayout.OBJECT_STORE),
            CreateBucket("vol", "bucket-a", BucketLayout.FILE_SYSTEM_OPTIMIZED),
            PutKey("vol", "bucket-a", "elsewhere", 10),
            PutKey("vol", "bucket-b", "kept", 10),
            PutKey("vol", "bucket-b", "empty", 0),
            DeleteKey("vol", "bucket-b", "empty"),
        )
        for command in commands:
            reply = self.client.answer(0, self.client.submit(0, command))
            assert not reply.error
            self.txn = reply.txn
        self.bucket_id = self.client.metadata(0).bucket("vol", "bucket-b").object_id

    def run(self, txn: int, shard: int = 0) -> BlockRun:
        return BlockRun(1, local_id(shard, txn, 0), 1, 1_024, 5)

    def send(self, *runs: BlockRun, audited_txn: int = 0, max_rows: int = 100, bucket_id: int = 0) -> MetadataReply:
        command = RequeueOrphans(bucket_id or self.bucket_id, audited_txn or self.txn, runs, max_rows)
        return self.client.answer(0, self.client.submit(0, command))


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("good", ""),
        ("an owner", "INVALID_REQUEST"),
        ("an owner in another bucket", "INVALID_REQUEST"),
        ("blocks of the next version, too", "INVALID_REQUEST"),
        ("another shard", "INVALID_REQUEST"),
        ("written after the audit", "INVALID_REQUEST"),
        ("an audit of the future", "INVALID_REQUEST"),
        ("none", "INVALID_REQUEST"),
        ("twice the same", "INVALID_REQUEST"),
        ("no such bucket", "BUCKET_NOT_FOUND"),
        ("one row too many", "INVALID_REQUEST"),
        ("as many rows as are allowed", ""),
        ("a snapshot at this moment", "BUCKET_BUSY"),
    ],
)
def test_in_doubt_blocks_are_kept(case: str, code: str) -> None:
    shard = Shard()
    good, owned = shard.run(shard.txn), shard.run(shard.txn - 2)

    def amid_a_snapshot() -> MetadataReply:
        encoder = codec(MetadataCommand)
        capture = MetadataCommand(0, "", 0, CaptureSnapshot("vol", "bucket-b", "taken"), "snapshots")
        shard.plane.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(capture))
        return shard.send(good)

    cases: dict[str, Callable[[], MetadataReply]] = {
        "good": lambda: shard.send(good),
        "an owner": lambda: shard.send(good, owned),
        "an owner in another bucket": lambda: shard.send(good, shard.run(shard.txn - 3)),
        "blocks of the next version, too": lambda: shard.send(replace(shard.run(1), block_count=65_537)),
        "another shard": lambda: shard.send(shard.run(1, shard=1)),
        "written after the audit": lambda: shard.send(good, audited_txn=shard.txn - 1),
        "an audit of the future": lambda: shard.send(good, audited_txn=shard.txn + 1),
        "none": shard.send,
        "twice the same": lambda: shard.send(good, good),
        "no such bucket": lambda: shard.send(good, bucket_id=12_345),
        "one row too many": lambda: shard.send(good, max_rows=1),
        "as many rows as are allowed": lambda: shard.send(good, max_rows=2),
        "a snapshot at this moment": amid_a_snapshot,
    }
    reply = cases[case]()
    assert reply.error == code, reply.message
    rows = list(shard.plane.processes["metadata", 0].store.scan("deletedTable", b"/", b"0"))
    assert len(rows) + len(list(shard.plane.processes["metadata", 0].store.scan("reclaimTable", b"/", b"0"))) == (
        0 if code else 1
    )


def test_nobody_but_an_audit_may_send_orphans() -> None:
    shard = Shard()
    command = RequeueOrphans(shard.bucket_id, shard.txn, (shard.run(shard.txn),), 100)
    encoder = codec(MetadataCommand)
    value = encoder.encode_message(MetadataCommand(0, "somebody", 1, command))
    shard.plane.log.append(METADATA_COMMANDS.name, 0, value)
    assert shard.plane.run_until(lambda: bool(shard.plane.log.records(DEAD_LETTERS.name, 0)))


def test_a_report_with_losses_repairs_nothing() -> None:
    shard = Shard()
    store = shard.plane.processes["mock_scm", 0].store
    leak(store, shard.bucket_id, shard.run(shard.txn))
    report: AuditReport = audit_at_once(shard.plane)
    broken = replace(report, findings={**report.findings, FindingKind.DANGLING: Amount(1, 1)})
    repair = requeue(shard.client, broken)
    assert (repair.requeued.versions, repair.kept.versions) == (0, 1)
    assert "find out why" in repair.reasons[0]
