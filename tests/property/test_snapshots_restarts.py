"""Snapshots under crashes: whatever is lost from memory, the same messages go out, and nothing is left over."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import (
    CreateSnapshot,
    CreateTag,
    DeleteConsumer,
    DeleteTag,
    ExecutionMode,
    ExpireSnapshots,
    RetentionPolicy,
    SetConsumer,
    SetRetention,
    SnapshotSize,
    SpaceCellValue,
    SpaceUpdate,
    UnsetRetention,
)
from schemas.topics import SPACE
from services.snapshots.reads import queries
from services.snapshots.settings import SnapshotsSettings
from tests.unit.snapshots_harness import Crash, Harness, verify

pytestmark = pytest.mark.long

NAMES = ["snap-1", "snap-2", "snap-3", "snap-4", "BAD"]
BUCKETS = ["bucket", "bucket1", "absent"]
REQUESTS = ["create", "create", "delete", "rename", "retention", "retention"]
ACTIONS = [*REQUESTS, "flag", "space", "settle", "back", "repeat", "run"]


def play(seed: int, crashes_of: Random | None, *, drops_repeats: bool = True) -> Harness:
    """A random run, the same for one seed; crashes are drawn apart from it."""
    random = Random(seed)
    harness = Harness(SnapshotsSettings(max_snapshots=8, is_rename_allowed=True, max_dropped_snapshots=2))
    harness.drops_repeats = drops_repeats
    harness.metadata.buckets["vol", "bucket1"] = 8
    if crashes_of is not None:
        crashing = crashes_of
        harness.crashes = lambda: crashing.choices(list(Crash), k=crashing.randrange(3))
    for step in range(60):
        harness.now_ms += random.randrange(200_000)
        take_step(harness, random, step)
    finish(harness)
    return harness


def finish(harness: Harness) -> None:
    """All answers come, every store is clean, and nothing is left to do: whoever asked to settle is answered."""
    for bucket in BUCKETS:
        harness.command(UnsetRetention("vol", bucket))
    harness.run()
    for snapshot_id in harness.metadata.captured:
        harness.flag(snapshot_id, harness.metadata.chain_version)
    harness.settle("last")
    for _ in range(100):
        if harness.metadata.barriers:
            harness.inbox += harness.metadata.bring_back()
        harness.run()
    assert not harness.metadata.barriers


def take_step(harness: Harness, random: Random, step: int) -> None:
    action = random.choice(ACTIONS)
    if action in REQUESTS:
        make_request(harness, random, action)
    elif action == "flag" and harness.metadata.captured:
        snapshot_id = random.choice(list(harness.metadata.captured))
        harness.flag(snapshot_id, random.randint(1, harness.metadata.chain_version), is_clean=random.random() < 0.8)
    elif action == "space":
        harness.feed((SPACE, some_figures(harness, random)))
    elif action == "settle":
        harness.settle(f"barrier-{step % 4}")
    elif action == "back" and harness.metadata.barriers:
        harness.inbox += harness.metadata.bring_back((random.randrange(2), 0))
    elif action == "repeat" and harness.inbox:
        harness.inbox.append(random.choice(harness.inbox))
    elif action == "run":
        batch, harness.inbox = harness.inbox[:4], harness.inbox[4:]
        harness.feed(*batch)


def make_request(harness: Harness, random: Random, action: str) -> None:
    name, bucket = random.choice(NAMES), random.choice(BUCKETS)
    if action == "create":
        harness.command(CreateSnapshot("vol", bucket, name), client_id=random.choice(["", "one", "two"]))
    elif action == "delete":
        harness.delete(name, bucket=bucket, is_run=False)
    elif action == "rename":
        harness.rename(name, random.choice(NAMES))
    else:
        harness.command(some_retention(random, bucket, name))


def some_retention(random: Random, bucket: str, name: str) -> Any:
    """Something about a policy, a tag or a consumer."""
    label = random.choice(["one", "two"])
    policy = RetentionPolicy(
        num_retained_min=random.choice([1, 2]),
        time_retained_ms=random.choice([0, 300_000]),
        execution_mode=random.choice(list(ExecutionMode)),
        consumer_expiration_ms=random.choice([0, 600_000]),
        snapshot_every_ms=random.choice([0, 600_000]),
        tag_every_ms=random.choice([0, 600_000]),
        tag_num_retained_max=random.choice([0, 1]),
        tag_time_retained_ms=random.choice([0, 900_000]),
    )
    return random.choice(
        [
            SetRetention("vol", bucket, policy),
            SetRetention("vol", bucket, policy),
            UnsetRetention("vol", bucket),
            CreateTag("vol", bucket, name, label, time_to_live_ms=random.choice([0, 500_000])),
            DeleteTag("vol", bucket, "", label),
            SetConsumer("vol", bucket, label, name, is_behind=random.random() < 0.3),
            DeleteConsumer("vol", bucket, label),
            ExpireSnapshots("vol", bucket, random.choice([None, policy])),
        ]
    )


def some_figures(harness: Harness, random: Random) -> SpaceUpdate:
    txns = [captured.snapshot_txn for captured in harness.metadata.captured.values()] or [1]
    first = random.choice(txns)
    sizes = tuple(
        SnapshotSize(snapshot_id, random.randrange(9), 1) for snapshot_id in list(harness.metadata.captured)[:2]
    )
    cells = (SpaceCellValue(first, first, random.randrange(5), 0, 0, 0, 0),)
    oldest, newest = sorted(random.choices(txns, k=2))
    bucket_id = random.choice([7, 8])
    name, deleted_ms = {7: "bucket", 8: "other"}[bucket_id], random.choice([0, 0, harness.now_ms + 120_000])
    return SpaceUpdate(
        harness.metadata.txn, bucket_id, cells, sizes, oldest, newest, f"vol/{name}" if deleted_ms else "", deleted_ms
    )


def table_rows(harness: Harness) -> dict[str, dict[bytes, bytes]]:
    """All that is stored."""
    families: dict[str, Any] = harness.store._families
    return {name: dict(family.rows) for name, family in families.items() if family.rows}


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_crashes_change_nothing_that_is_sent_or_kept(seed: int, crashes: Random) -> None:
    calm, shaken = play(seed, None), play(seed, crashes)
    assert shaken.sent == calm.sent
    assert table_rows(shaken) == table_rows(calm)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9))
def test_rows_are_what_metadata_holds(seed: int) -> None:
    """Nobody holds what nobody was given, and the chain is that of the takes."""
    harness = play(seed, Random(seed), drops_repeats=False)
    rows = queries.snapshot_chain(harness.tables)
    held = harness.metadata.captured.keys() - harness.metadata.dropped.keys()
    assert {row.snapshot_id for row in rows} == held
    verification = verify(harness.tables)
    assert verification.corruption == ""
    assert not any(verification.differences.values())
    made = {reply.snapshot_id for reply in harness.replies if not reply.error}
    assert {reply.snapshot_id for reply in harness.replies if reply.error} <= {""}
    assert made - {""} <= set(harness.metadata.captured)
    assert len({(reply.client_id, reply.number) for reply in harness.replies}) == len(harness.replies)
    assert harness.replies[-1].rounds
    assert harness.metric("deepclean_snapshots_unclean", shard="0") == 0
    last_published = {row.snapshot_id: row for row in harness.published}
    assert {snapshot_id for snapshot_id, row in last_published.items() if not row.is_removed} == held
    assert all(last_published[row.snapshot_id] == row for row in rows)
