"""Quotas of buckets and volumes, and buckets that are links, on one shard of metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.records import (
    AbortUpload,
    AllocateBlocks,
    CommitKey,
    CompleteUpload,
    CreateBucket,
    CreateBucketLink,
    CreateVolume,
    DeleteBucket,
    DeleteKey,
    InitiateUpload,
    MakeDirectory,
    MetadataCommand,
    OpenKey,
    PutKey,
    SetQuota,
    SyncKey,
)
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS
from services.log.first_commands import first_commands
from tests.unit.test_metadata import FLAT, TREE, Shard
from tests.unit.test_verify_replay import txn_of, verified

BLOCK = 4_096
NONE = -1


@pytest.fixture
def shard() -> Iterator[Shard]:
    made = Shard()
    for message in first_commands(0, None, 0):
        made.log.append(METADATA_COMMANDS.name, 0, message)
    made.runner.step()
    yield made
    assert not made.sent(DEAD_LETTERS)


def put(key: str, size_bytes: int, bucket: str = "flat") -> PutKey:
    return PutKey("vol", bucket, key, size_bytes, "", BLOCK)


def opened(shard: Shard, key: str, size_bytes: int, **more: Any) -> int:
    reply = shard.do(OpenKey("vol", "flat", key, size_bytes, "", BLOCK, **more))
    assert reply.committed, reply.message
    return reply.committed.session


class TestBytes:
    def test_a_put_needs_room_for_whole_blocks(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 2 * BLOCK, NONE))
        assert shard.refusal(put("k", 2 * BLOCK + 1)) == "QUOTA_EXCEEDED"
        assert shard.refusal(put("k", BLOCK + 1)) == ""
        assert shard.refusal(put("l", 1)) == "QUOTA_EXCEEDED"
        assert shard.refusal(put("empty", 0)) == ""

    def test_what_is_deleted_counts_until_it_is_freed_and_so_does_an_overwrite(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 3 * BLOCK, NONE))
        shard.do(put("k", 2 * BLOCK))
        assert shard.refusal(put("k", 2 * BLOCK)) == "QUOTA_EXCEEDED"
        shard.do(DeleteKey("vol", "flat", "k"))
        assert shard.refusal(put("l", 2 * BLOCK)) == "QUOTA_EXCEEDED"

    def test_puts_of_one_batch_count_before_one_another(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 5 * BLOCK, NONE))
        for number in range(8):
            shard.send(MetadataCommand(0, "", 0, put(f"k{number}", BLOCK)))
        shard.runner.step()
        assert shard.bucket("flat").used_bytes == 5 * BLOCK
        assert len(shard.names("flat")) == 5

    def test_an_open_key_needs_room_when_it_gets_blocks_and_when_they_become_visible(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 2 * BLOCK, NONE))
        assert shard.refusal(OpenKey("vol", "flat", "k", 2 * BLOCK + 1, "", BLOCK)) == "QUOTA_EXCEEDED"
        first, second = opened(shard, "k", 2 * BLOCK), opened(shard, "l", BLOCK)
        assert shard.refusal(SyncKey("vol", "flat", "k", first, 2 * BLOCK)) == ""
        assert shard.refusal(AllocateBlocks("vol", "flat", "k", first, 1)) == "QUOTA_EXCEEDED"
        assert shard.refusal(CommitKey("vol", "flat", "l", second, 1)) == "QUOTA_EXCEEDED"
        assert shard.bucket("flat").used_bytes == 2 * BLOCK

    def test_parts_of_an_upload_need_room(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 2 * BLOCK, NONE))
        begun = shard.do(InitiateUpload("vol", "flat", "big")).committed
        assert begun
        upload: dict[str, Any] = {"upload_id": begun.upload_id}
        part = opened(shard, "big", BLOCK, part_number=1, **upload)
        assert shard.refusal(CommitKey("vol", "flat", "big", part, BLOCK)) == ""
        too_large = OpenKey("vol", "flat", "big", 2 * BLOCK, "", BLOCK, part_number=2, **upload)
        assert shard.refusal(too_large) == "QUOTA_EXCEEDED"
        assert shard.refusal(CompleteUpload("vol", "flat", "big", begun.upload_id, (1,))) == ""

    def test_blocks_that_no_version_has_count_no_more_when_they_are_given_up(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 3 * BLOCK, NONE))
        begun = shard.do(InitiateUpload("vol", "flat", "big")).committed
        assert begun
        for _ in range(4):  # each replaces the part before
            part = opened(shard, "big", 2 * BLOCK, upload_id=begun.upload_id, part_number=1)
            assert shard.refusal(CommitKey("vol", "flat", "big", part, BLOCK)) == ""
        assert shard.bucket("flat").snapshot_used_bytes == (4 + 3) * BLOCK
        assert shard.refusal(put("k", 2 * BLOCK)) == ""
        assert shard.refusal(put("l", 1)) == "QUOTA_EXCEEDED"
        shard.do(AbortUpload("vol", "flat", "big", begun.upload_id))
        assert shard.refusal(put("l", 1)) == ""

    def test_further_blocks_need_room_together_with_those_that_nobody_sees_yet(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 3 * BLOCK, NONE))
        session = opened(shard, "k", 2 * BLOCK)
        assert shard.refusal(AllocateBlocks("vol", "flat", "k", session, 2 * BLOCK)) == "QUOTA_EXCEEDED"
        assert shard.refusal(SyncKey("vol", "flat", "k", session, BLOCK)) == ""
        assert shard.refusal(AllocateBlocks("vol", "flat", "k", session, 2 * BLOCK)) == "QUOTA_EXCEEDED"
        assert shard.refusal(AllocateBlocks("vol", "flat", "k", session, BLOCK)) == ""


class TestNames:
    def test_a_deleted_key_is_one_name_however_many_runs_of_blocks_it_has(self, shard: Shard) -> None:
        begun = shard.do(InitiateUpload("vol", "flat", "big")).committed
        assert begun
        for number in (1, 2, 3):
            part = opened(shard, "big", BLOCK, upload_id=begun.upload_id, part_number=number)
            shard.do(CommitKey("vol", "flat", "big", part, BLOCK))
        shard.do(CompleteUpload("vol", "flat", "big", begun.upload_id, (1, 2, 3)))
        shard.do(DeleteKey("vol", "flat", "big"))
        assert shard.bucket("flat").snapshot_used_namespace == 3
        assert shard.refusal(SetQuota("vol", "flat", NONE, 2)) == ""
        assert shard.refusal(put("k", 1)) == ""
        assert shard.refusal(put("l", 1)) == "QUOTA_EXCEEDED"

    def test_an_overwrite_in_a_full_bucket_is_refused(self, shard: Shard) -> None:
        shard.do(put("k", 1))
        shard.do(SetQuota("vol", "flat", NONE, 1))
        assert shard.refusal(put("k", 1)) == "QUOTA_EXCEEDED"
        assert shard.refusal(OpenKey("vol", "flat", "l", 0)) == "QUOTA_EXCEEDED"

    def test_directories_count(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "tree", NONE, 3))
        assert shard.refusal(put("a/b/c/k", 1, "tree")) == "QUOTA_EXCEEDED"
        assert shard.refusal(MakeDirectory("vol", "tree", "a/b/c/d")) == "QUOTA_EXCEEDED"
        assert shard.refusal(put("a/b/k", 1, "tree")) == ""
        assert shard.bucket("tree").used_namespace == 3


class TestSetting:
    def test_a_quota_is_not_below_what_is_used(self, shard: Shard) -> None:
        shard.do(put("k", 100))
        shard.do(DeleteKey("vol", "flat", "k"))
        for quota in ((99, NONE), (0, NONE), (-2, NONE), (NONE, 0)):
            assert shard.refusal(SetQuota("vol", "flat", *quota)) == "QUOTA_ERROR"
        assert shard.refusal(SetQuota("vol", "flat", 100, 1)) == ""
        assert (shard.bucket("flat").quota_bytes, shard.bucket("flat").quota_namespace) == (100, 1)

    def test_the_quotas_of_buckets_stay_within_that_of_their_volume(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 60, NONE))
        assert shard.refusal(SetQuota("vol", "", 100, NONE)) == "QUOTA_ERROR"
        shard.do(SetQuota("vol", "tree", 40, NONE))
        assert shard.refusal(SetQuota("vol", "", 99, NONE)) == "QUOTA_EXCEEDED"
        assert shard.refusal(SetQuota("vol", "", 100, NONE)) == ""
        assert shard.refusal(SetQuota("vol", "flat", 61, NONE)) == "QUOTA_EXCEEDED"
        assert shard.refusal(SetQuota("vol", "flat", NONE, NONE)) == "QUOTA_ERROR"
        assert shard.refusal(CreateBucket("vol", "third", FLAT)) == "QUOTA_ERROR"

    def test_a_volume_has_at_most_so_many_buckets(self, shard: Shard) -> None:
        assert shard.refusal(SetQuota("vol", "", NONE, 1)) == "QUOTA_EXCEEDED"
        assert shard.refusal(SetQuota("vol", "", NONE, 2)) == ""
        assert shard.refusal(CreateBucket("vol", "third", TREE)) == "QUOTA_EXCEEDED"

    def test_a_link_counts_as_a_bucket_without_bytes(self, shard: Shard) -> None:
        shard.do(SetQuota("vol", "flat", 60, NONE))
        shard.do(SetQuota("vol", "tree", 40, NONE))
        shard.do(SetQuota("vol", "", 100, 3))
        assert shard.refusal(CreateBucketLink("vol", "link", "vol", "flat")) == ""
        assert shard.refusal(CreateBucketLink("vol", "second", "vol", "flat")) == "QUOTA_EXCEEDED"
        assert shard.refusal(SetQuota("vol", "", 100, 2)) == "QUOTA_EXCEEDED"
        assert shard.refusal(SetQuota("vol", "", 100, 3)) == ""
        report = verified(shard)
        assert (report.is_clean, report.txn) == (True, txn_of(shard.store)), report.examples


class TestLinks:
    def test_commands_and_reads_of_a_link_are_those_of_its_bucket(self, shard: Shard) -> None:
        shard.do(CreateVolume("other"))
        shard.do(CreateBucketLink("other", "link", "vol", "flat"))
        shard.do(CreateBucketLink("other", "second", "other", "link"))
        shard.do(PutKey("other", "second", "k", 7, "through"))
        assert shard.names("flat") == {"k": "through"}
        assert shard.refusal(SetQuota("other", "link", BLOCK, NONE)) == "NOT_SUPPORTED_OPERATION"
        assert shard.bucket("flat").quota_bytes == NONE
        shard.do(DeleteKey("other", "link", "k"))
        assert not shard.names("flat")

    def test_a_link_may_lead_nowhere_and_its_deletion_leaves_the_bucket(self, shard: Shard) -> None:
        shard.do(CreateBucketLink("vol", "link", "vol", "later"))
        assert shard.refusal(PutKey("vol", "link", "k", 1)) == "BUCKET_NOT_FOUND"
        shard.do(CreateBucket("vol", "later", FLAT))
        assert shard.refusal(PutKey("vol", "link", "k", 1)) == ""
        assert shard.refusal(DeleteBucket("vol", "link")) == ""
        assert shard.names("later") == {"k": ""}

    def test_a_circle_is_refused(self, shard: Shard) -> None:
        shard.do(CreateBucketLink("vol", "one", "vol", "two"))
        shard.do(CreateBucketLink("vol", "two", "vol", "one"))
        assert shard.refusal(PutKey("vol", "one", "k", 1)) == "DETECTED_LOOP_IN_BUCKET_LINKS"
        assert shard.refusal(CreateBucketLink("vol", "two", "vol", "flat")) == "BUCKET_ALREADY_EXISTS"
        assert shard.refusal(CreateBucketLink("vol", "x", "vol", "flat")) == "INVALID_BUCKET_NAME"
