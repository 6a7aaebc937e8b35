"""What the diff job's tasks read, put together without Spark, equals a comparison of everything."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from random import Random

import pytest

from schemas.records import BucketLayout
from services.domain.snapshot_diff import DiffEntry, NamespaceObject, PlacedObject, difference, reachable
from streaming.diff.__main__ import _side
from streaming.diff.rows import AFTER, BEFORE, DIRECTORIES, ComparedBucket, directories_in, keys_that_may_differ
from streaming.rocksdb.checkpoint_rows import CheckpointRows, ranges
from tests.diffed_shard import DiffedShard

pytestmark = pytest.mark.long

FSO, OBS = BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE
PARTS = 3


def parts_of(bucket: ComparedBucket, family: str) -> list[tuple[bytes, bytes]]:
    cuts: set[bytes] = set()
    for side in (BEFORE, AFTER):
        with bucket.open(side) as rows:
            cuts |= rows.boundaries(family, *bucket.whole, PARTS)
    return ranges(cuts, *bucket.whole)


def compared_by_parts(bucket: ComparedBucket) -> list[DiffEntry]:
    directories: tuple[list[NamespaceObject], list[NamespaceObject]] = ([], [])
    if bucket.is_tree:
        for part in parts_of(bucket, DIRECTORIES):
            for side in (BEFORE, AFTER):
                directories[side].extend(directories_in(bucket, side, part))
    before, after = (list(reachable(one_side, bucket.bucket_id)) for one_side in directories)
    sides = (_side(bucket, before, after), _side(bucket, after, before))
    found: tuple[list[PlacedObject], list[PlacedObject]] = (before, after)
    for part in parts_of(bucket, bucket.keys_family):
        for side, one in keys_that_may_differ(bucket, sides, part):
            found[side].append(one)
    return difference(*found)


@pytest.mark.parametrize("layout", [FSO, OBS])
@pytest.mark.parametrize("seed", range(4))
def test_what_tasks_read_is_all_that_differs(seed: int, layout: BucketLayout, tmp_path: Path) -> None:
    random = Random(seed)
    shard = DiffedShard(tmp_path, layout)
    names = []
    for number in range(3):
        shard.random_steps(random, random.randrange(40))
        names.append(f"s{number}")
        shard.snapshot(names[-1])
    for one, other in permutations(names, 2):
        assert compared_by_parts(shard.compared(one, other)) == shard.expected(one, other)
    shard.store.close()


def test_parts_hold_every_row_once(tmp_path: Path) -> None:
    shard = DiffedShard(tmp_path, FSO)
    shard.random_steps(Random(1), 400, "abcdefgh")
    shard.snapshot("one")
    bucket = shard.compared("one", "one")
    parts = parts_of(bucket, bucket.keys_family)
    assert len(parts) >= PARTS
    with CheckpointRows(bucket.checkpoints[0], [bucket.keys_family]) as rows:
        whole = list(rows.scan(bucket.keys_family, *bucket.whole))
        assert [row for part in parts for row in rows.scan(bucket.keys_family, *part)] == whole
        assert len(whole) > 10
    shard.store.close()


def test_a_checkpoint_is_not_written_to(tmp_path: Path) -> None:
    shard = DiffedShard(tmp_path, OBS)
    shard.random_steps(Random(1), 50)
    shard.snapshot("one")
    directory = Path(shard.compared("one", "one").checkpoints[0])
    before = sorted((file.name, file.stat().st_mtime_ns) for file in directory.iterdir())
    assert compared_by_parts(shard.compared("one", "one")) == []
    assert sorted((file.name, file.stat().st_mtime_ns) for file in directory.iterdir()) == before
    shard.store.close()
