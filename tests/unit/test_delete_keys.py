"""DeleteKeys: many keys at one txn, each for itself; what comes of it in metadata and in the ledger's replay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.records import (
    BucketLayout,
    CreateBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    KeyLeft,
    MakeDirectory,
    PutKey,
    TakeSnapshot,
)
from tests.unit.test_metadata import Shard
from tests.unit.test_verify_replay import back, free, txn_of, verified


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
        assert (reply.error, reply.committed.left if reply.committed else None) == ("", ())
        assert shard.names(bucket) == {"b": "b"}
        assert {entry.death for entry in shard.entries()} == {reply.txn}
        assert len({entry.object_id for entry in shard.entries()}) == 2
        assert shard.bucket(bucket).used_namespace == 1

    def test_what_is_not_there_is_left_and_named_once_for_each_time(self, shard: Shard, bucket: str) -> None:
        reply = shard.do(DeleteKeys("vol", bucket, ("none", "a", "a", "")))
        assert reply.committed
        assert reply.committed.left == tuple(KeyLeft(key, "KEY_NOT_FOUND") for key in ("none", "a", ""))
        assert shard.names(bucket) == {"b": "b", "c": "c"}

    def test_where_none_can_be_deleted_all_are_left(self, shard: Shard, bucket: str) -> None:
        before = txn_of(shard.store)
        reply = shard.do(DeleteKeys("vol", bucket, ("none", "nor/this")))
        assert (reply.error, reply.txn) == ("", before + 1)
        assert reply.committed
        assert [left.key for left in reply.committed.left] == ["none", "nor/this"]
        assert shard.entries() == []

    @pytest.mark.parametrize(
        ("keys", "code"),
        [
            ((), "INVALID_REQUEST"),
            (("a",) * 1_001, "INVALID_REQUEST"),
            (("a", "x" * 4_097), "INVALID_KEY_NAME"),
            (("a", "é" * 2_049), "INVALID_KEY_NAME"),
        ],
        ids=["none", "too many", "too long", "too long in bytes"],
    )
    def test_bounds(self, shard: Shard, bucket: str, keys: tuple[str, ...], code: str) -> None:
        assert shard.refusal(DeleteKeys("vol", bucket, keys)) == code
        assert set(shard.names(bucket)) == {"a", "b", "c"}
        assert shard.refusal(DeleteKeys("vol", bucket, ("a",) + ("x",) * 999)) == ""

    def test_a_repeat_gets_the_first_answer_and_deletes_nothing_more(self, shard: Shard, bucket: str) -> None:
        first = shard.do(DeleteKeys("vol", bucket, ("a", "none")))
        shard.do(PutKey("vol", bucket, "a", 10, "again"), client_id="other", number=1)
        assert shard.do(DeleteKeys("vol", bucket, ("a", "none")), number=first.number) == first
        assert shard.names(bucket)["a"] == "again"

    def test_what_a_snapshot_holds_stays_and_the_rest_is_freed(self, shard: Shard, bucket: str) -> None:
        shard.internal(TakeSnapshot("vol", bucket, "s1"))
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
        assert reply.committed
        assert reply.committed.left == (KeyLeft("d", "DIRECTORY_NOT_EMPTY"),)
        assert set(shard.names("tree")) == {"a", "b", "c"}

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
