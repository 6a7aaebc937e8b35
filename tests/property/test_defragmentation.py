"""A shard with rewritten checkpoints answers every read, and applies every command, as one with plain checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from random import Random

import pytest

from schemas.codec import codec
from schemas.feature_level import confirmation
from schemas.records import (
    BucketLayout,
    CreateBucket,
    MetadataCommand,
    PutKey,
    RollbackPage,
    SetFeatureLevel,
)
from schemas.space_answers import PathExplanation
from schemas.topics import METADATA_COMMANDS
from services.metadata.checkpoints.kept_rows import kept_rows, rows_of_bucket
from services.metadata.diffs.differences import compare_changes, opened_states
from services.metadata.reads.explanations import explain_path
from services.metadata.reads.queries import get_bucket
from services.metadata.recovery.audit_copy import make_copy
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import CHECKPOINTED, TABLES
from services.storage import rocks
from services.storage.rocks_options import RocksOptions
from services.storage.store import BEYOND
from services.storage.tables import TablesReader
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from tests.diffed_shard import DiffedShard
from tests.property.test_diff_rows import compared_by_parts
from tests.shard_copies import rebuilt_digest

LEVELS = (1, 2)
SNAPSHOTS = ("s0", "s1", "s2", "s3")
NAMES = "abcd"


def send(shard: DiffedShard, body: object, sender: str = "") -> None:
    command = MetadataCommand(0, "", 0, body, sender, wants_reply=False)  # type: ignore[arg-type]
    shard.log.append(METADATA_COMMANDS.name, 0, codec(MetadataCommand).encode_message(command))
    shard.step()


def shard_with_snapshots(directory: Path, layout: BucketLayout, level: int, seed: int) -> Iterator[DiffedShard]:
    """A shard with two buckets, handed out after each snapshot and at the end."""
    random, shard = Random(seed), DiffedShard(directory, layout, RocksOptions(least_gain_bytes=0))
    if level > 1:
        send(shard, SetFeatureLevel(level, confirmation(level)))
    shard.do(CreateBucket("vol", "other", layout))
    for snapshot in SNAPSHOTS:
        shard.random_steps(random, 30, NAMES)
        shard.do(*(PutKey("vol", "other", f"of-others-{number}", number + 1) for number in range(20)))
        shard.snapshot(snapshot)
        yield shard
    shard.random_steps(random, 20, NAMES)
    yield shard


def rewrite_all(shard: DiffedShard) -> list[str]:
    """Rewrite every checkpoint, whether it is worth it or not."""
    shard.store.compact_at_rest(0)
    rewritten = []
    while found := shard.store.defragment(partial(kept_rows, shard.store), lambda _: True):
        rewritten.append(found[0])
    shard.store.trim_checkpoints(100)
    return rewritten


@pytest.fixture
def shards(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[DiffedShard, DiffedShard]]:
    """Two shards with the same history, of which the checkpoints of the second are rewritten as they come."""
    name, level, seed = request.param
    layout = BucketLayout[name]
    monkeypatch.setattr(rocks, "is_worth_it", lambda *_: True)
    monkeypatch.setattr(rocks, "LOOKED_AT_AGAIN", 0)
    plain, rewritten = (shard_with_snapshots(tmp_path / name, layout, level, seed) for name in ("plain", "rewritten"))
    both, names = None, list[str]()
    for both in zip(plain, rewritten, strict=True):
        names += rewrite_all(both[1])
    assert both is not None
    assert set(names) == set(SNAPSHOTS)
    yield both
    for one in both:
        one.store.close()


HISTORIES = pytest.mark.parametrize(
    "shards",
    [
        (layout, level, seed)
        for layout in ("OBJECT_STORE", "FILE_SYSTEM_OPTIMIZED")
        for level in LEVELS
        for seed in (1, 2)
    ],
    indirect=True,
    ids=str,
)


@HISTORIES
@pytest.mark.long
def test_every_read_is_the_same(shards: tuple[DiffedShard, DiffedShard], tmp_path: Path) -> None:
    plain, rewritten = shards
    assert digest_shard(rewritten.store) == digest_shard(plain.store)
    assert rebuilt_digest(rewritten.log, 100) == digest_shard(rewritten.store)
    copies = [make_copy(shard.store, tmp_path / f"copy-{number}").snapshots for number, shard in enumerate(shards)]
    kept = rows_of_bucket(TablesReader(plain.store), bucket_id(plain))
    families = sorted(CHECKPOINTED)
    for name in SNAPSHOTS:
        with CheckpointRows(copies[0][name], families) as one, CheckpointRows(copies[1][name], families) as other:
            for family in families:
                part = kept.get(family, (b"", BEYOND))
                assert list(one.scan(family, *part)) == list(other.scan(family, *part))
                assert not kept or list(other.scan(family, b"", BEYOND)) == list(other.scan(family, *part))
    for before, after in permutations(SNAPSHOTS, 2):
        expected = plain.expected(before, after)
        assert rewritten.expected(before, after) == expected
        with opened_states(rewritten.store, "vol", "bucket", before, after) as states:
            assert compare_changes(states.before, states.after, states.changes()) == expected
        with ExitStack() as opened:
            views = [opened.enter_context(closing(rewritten.store.open_checkpoint(one))) for one in (before, after)]
            places = (str(views[0].path), str(views[1].path))
            assert compared_by_parts(replace(rewritten.compared(before, after), checkpoints=places)) == expected
    for path in (f"{one}/{other}" for one in NAMES for other in NAMES):
        assert explained(plain, path) == explained(rewritten, path)


@HISTORIES
@pytest.mark.long
def test_a_rollback_comes_to_the_same(shards: tuple[DiffedShard, DiffedShard]) -> None:
    for shard in shards:
        before = digest_shard(shard.store)
        for page in range(1, 40):
            send(shard, RollbackPage("back", bucket_id(shard), SNAPSHOTS[-1], page, 5), "snapshots")
            rewrite_all(shards[1])
        assert digest_shard(shard.store).tables["keyTable"] != before.tables["keyTable"] or any(
            digest_shard(shard.store).tables[name] != before.tables[name] for name in ("fileTable", "directoryTable")
        )
        assert not get_bucket(TablesReader(shard.store), "vol", "bucket").rollback_snapshot_id
    assert digest_shard(shards[0].store) == digest_shard(shards[1].store)


def explained(shard: DiffedShard, path: str) -> PathExplanation:
    tables = TablesReader(shard.store)
    row = get_bucket(tables, "vol", "bucket")
    return explain_path(tables, row, path, lambda name: TablesReader(shard.store.open_checkpoint(name)))


def bucket_id(shard: DiffedShard) -> int:
    return get_bucket(TablesReader(shard.store), "vol", "bucket").object_id


def test_a_shard_of_the_first_level_keeps_the_rows_of_all_buckets(tmp_path: Path) -> None:
    """Release 0.2.0, to which it may go back, has them in its digests."""
    assert {table.name for table in TABLES} >= CHECKPOINTED
    *_, older = shard_with_snapshots(tmp_path / "1", BucketLayout.OBJECT_STORE, 1, 1)
    assert kept_rows(older.store, "s0") == {}
    assert kept_rows(older.store, "diff-1") is None
    older.store.close()
