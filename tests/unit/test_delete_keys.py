"""DeleteKeys: many keys at one txn, each for itself; what comes of it in metadata and in the ledger's replay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.records import (
    BucketLayout,
    CaptureSnapshot,
    CollectionState,
    CreateBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    ExpandDirectory,
    KeysDeleted,
    MakeDirectory,
    MetadataCommand,
    MetadataReply,
    PutKey,
    RemovalOutcome,
    RemoveDirectories,
    RowName,
    SetCollection,
)
from tests.unit.test_metadata import Shard
from tests.unit.test_verify_replay import back, free, txn_of, verified


def done(reply: MetadataReply) -> KeysDeleted | None:
    return reply.committed.keys if reply.committed else None


@pytest.fixture
def shard() -> Iterator[Shard]:
    shard = Shard()
    for path in ("a", "b", "c"):
        for bucket in ("flat", "tree"):
            shard.do(PutKey("vol", bucket, path, 10, path))
    yield shard
    report = verified(shard)
    assert report.is_clean, report.examples
    assert report.txn == txn_of(shard.store), "the ledger's replay numbers what follows as metadata does"


@pytest.mark.parametrize("bucket", ["flat", "tree"])
class TestInBothLayouts:
    def test_all_die_at_one_txn_and_are_judged_each(self, shard: Shard, bucket: str) -> None:
        reply = shard.do(DeleteKeys("vol", bucket, ("a", "c")))
        assert (reply.error, done(reply)) == ("", KeysDeleted(2, (), ()))
        assert shard.names(bucket) == {"b": "b"}
        assert {entry.death for entry in shard.entries()} == {reply.txn}
        assert len({entry.object_id for entry in shard.entries()}) == 2
        assert shard.bucket(bucket).used_namespace == 1

    def test_missing_keys_are_left_and_their_places_returned_each_time(self, shard: Shard, bucket: str) -> None:
        reply = shard.do(DeleteKeys("vol", bucket, ("none", "a", "a", "", "x" * 5_000)))
        assert done(reply) == KeysDeleted(1, (0, 2, 3, 4), ())
        assert shard.names(bucket) == {"b": "b", "c": "c"}

    def test_where_none_can_be_deleted_all_are_left(self, shard: Shard, bucket: str) -> None:
        before, row = txn_of(shard.store), shard.bucket(bucket)
        reply = shard.do(DeleteKeys("vol", bucket, ("none", "nor/this")))
        assert (reply.error, reply.txn) == ("", before + 1)
        assert done(reply) == KeysDeleted(0, (0, 1), ())
        assert shard.entries() == []
        assert shard.bucket(bucket) == row, "nothing was changed"

    @pytest.mark.parametrize("count", [0, 1_001])
    def test_bounds(self, shard: Shard, bucket: str, count: int) -> None:
        assert shard.refusal(DeleteKeys("vol", bucket, ("a",) * count)) == "INVALID_REQUEST"
        assert set(shard.names(bucket)) == {"a", "b", "c"}
        assert shard.refusal(DeleteKeys("vol", bucket, ("a",) + ("x",) * 999)) == ""

    def test_what_the_same_unit_of_work_put_is_deleted(self, shard: Shard, bucket: str) -> None:
        shard.send(MetadataCommand(0, "batch", 1, PutKey("vol", bucket, "new", 10)))
        shard.send(MetadataCommand(0, "batch", 2, DeleteKeys("vol", bucket, ("new", "a"))))
        shard.send(MetadataCommand(0, "batch", 3, PutKey("vol", bucket, "a", 10)))
        shard.runner.step()
        assert set(shard.names(bucket)) == {"a", "b", "c"}
        assert len(shard.entries()) == 2

    def test_a_repeat_gets_the_first_answer_and_deletes_nothing_more(self, shard: Shard, bucket: str) -> None:
        first = shard.do(DeleteKeys("vol", bucket, ("a", "none")))
        shard.do(PutKey("vol", bucket, "a", 10, "again"), client_id="other", number=1)
        assert shard.do(DeleteKeys("vol", bucket, ("a", "none")), number=first.number) == first
        assert shard.names(bucket)["a"] == "again"

    def test_what_a_snapshot_holds_stays_and_the_rest_is_freed(self, shard: Shard, bucket: str) -> None:
        shard.internal(CaptureSnapshot("vol", bucket, "s1"))
        shard.do(PutKey("vol", bucket, "young", 10))
        reply = shard.do(DeleteKeys("vol", bucket, ("a", "b", "young")))
        young = next(shard.row(place) for place, entry in enumerate(shard.entries()) if entry.birth == reply.txn - 1)
        refused = shard.claim(*[shard.row(place) for place in range(len(shard.entries()))]).refused
        refused_ids = {object_id for columns in refused for object_id in columns.object_ids}
        assert len(refused_ids) == 2
        assert young.object_id not in refused_ids
        free(shard, young)
        assert set(shard.names(bucket, "s1")) == {"a", "b", "c"}


def test_a_bucket_that_is_not_there_is_missed(shard: Shard) -> None:
    assert shard.refusal(DeleteKeys("vol", "none", ("a",))) == "BUCKET_NOT_FOUND"


class TestDirectories:
    def test_a_directory_goes_when_all_in_it_went_before_it(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "d/one", 1))
        shard.do(MakeDirectory("vol", "tree", "empty"))
        reply = shard.do(DeleteKeys("vol", "tree", ("d", "d/one", "d", "empty")))
        assert done(reply) == KeysDeleted(3, (), (0,))
        assert set(shard.names("tree")) == {"a", "b", "c"}

    def test_a_chain_of_directories_is_removed_from_the_last_one_up(self, shard: Shard) -> None:
        shard.do(MakeDirectory("vol", "tree", "d/sub/deep"))
        shard.do(MakeDirectory("vol", "tree", "d/other"))
        names = shard.bucket("tree").used_namespace
        reply = shard.do(DeleteKeys("vol", "tree", ("d/sub/deep", "d/sub", "d/other", "d")))
        assert done(reply) == KeysDeleted(4, (), ())
        deep, sub, other, top = (shard.row(place) for place in range(-4, 0))
        for row in (top, sub, deep, other):
            shard.internal(ExpandDirectory(row.bucket_id, row.object_id, row.death, 100, 10_000))

        def purged(*rows: RowName) -> list[RemovalOutcome]:
            return [one.outcome for one in shard.internal(RemoveDirectories(0, rows)).rows]

        waits = RemovalOutcome.HAS_CHILDREN
        assert purged(top, sub, deep, top, sub) == [waits, waits, RemovalOutcome.REMOVED, waits, RemovalOutcome.REMOVED]
        assert purged(top, other, top) == [waits, RemovalOutcome.REMOVED, RemovalOutcome.REMOVED]
        bucket = shard.bucket("tree")
        assert (bucket.used_namespace, bucket.snapshot_used_namespace) == (names - 4, 0)

    def test_a_directory_comes_back_without_what_died_before_it_in_the_same_command(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "d/one", 1))
        shard.do(DeleteKeys("vol", "tree", ("d/one", "d")))
        directory = next(shard.row(place) for place, entry in enumerate(shard.entries()) if entry.kind == "DIRECTORY")
        assert shard.refusal(back(directory, "d", "tree")) == ""
        shard.do(PutKey("vol", "tree", "d/two", 1))
        assert set(shard.names("tree")) == {"a", "b", "c", "d/two"}
        assert shard.refusal(DeleteDirectory("vol", "tree", "d", is_recursive=False)) == "DIRECTORY_NOT_EMPTY"
        shard.do(DeleteKey("vol", "tree", "d/two"))
        assert shard.refusal(DeleteDirectory("vol", "tree", "d", is_recursive=False)) == ""


def test_two_buckets_know_nothing_of_each_other(shard: Shard) -> None:
    shard.do(CreateBucket("vol", "other", BucketLayout.OBJECT_STORE))
    shard.do(PutKey("vol", "other", "a", 10, "there"))
    shard.do(DeleteKeys("vol", "flat", ("a", "b", "c")))
    assert shard.names("other") == {"a": "there"}


def test_its_answer_is_not_taken_for_that_of_a_refused_command_without_a_number(shard: Shard) -> None:
    refused = SetCollection("", "", CollectionState.PAUSED, "x" * 2_000)
    shard.send(MetadataCommand(0, "", 0, refused))
    shard.send(MetadataCommand(0, "", 0, DeleteKeys("vol", "flat", ("a",))))
    shard.runner.step()
    assert set(shard.names("flat")) == {"b", "c"}
