"""Keys that are written in steps, on one shard: open keys, uploads, conditions; and what becomes of their blocks.

After each test all figures equal a recount of the rows, a rebuild from the log has the same digest, and a replay of the
log by the verifier finds nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from schemas.error_codes import ErrorCode
from schemas.records import (
    AbandonKey,
    AbortUpload,
    AllocateBlocks,
    CommitKey,
    CompleteUpload,
    CreateBucketLink,
    DeleteDirectory,
    DeletedKind,
    DeleteKey,
    DropSnapshot,
    ExpandDirectory,
    ExpireWrites,
    FinishRows,
    InitiateUpload,
    MakeDirectory,
    MetadataCommand,
    OpenKey,
    PutKey,
    PutKeyIf,
    RecoverLease,
    RenameDirectory,
    RenameKey,
    Replication,
    RollbackOutcome,
    RollbackPage,
    SetBucketReplication,
    SetQuota,
    SyncKey,
    WritesExpired,
)
from schemas.space_answers import VersionStage
from schemas.topics import DEAD_LETTERS, SCM_COMMANDS
from services.domain.refusals import CommandError
from services.domain.row_columns import block_groups, by_columns
from services.metadata.namespace import expired_writes, uploads, writing
from services.metadata.reads import queries
from services.metadata.reads.block_search import explain_block
from services.metadata.reads.deleted_queries import list_deleted
from services.metadata.reads.explanations import explain_path
from services.metadata.state import transaction
from services.metadata.state.bucket_links import MAX_LINKS
from services.metadata.state.figures import MAX_BYTES
from services.metadata.state.tables import DIRECTORY_TABLE, KEY_PART_TABLE, OPEN_KEY_TABLE, PART_TABLE
from services.storage.tables import TablesReader
from services.verifier import present
from services.verifier import uploads as verifier_uploads
from tests.replicated_sizes import replicated_size
from tests.unit.test_verify_replay import verified
from tests.unit.writing_shard import BLOCK, DAY_MS, OPEN_KEYS, UPLOADS, WritingShard

BOTH = pytest.mark.parametrize("bucket", ["flat", "tree"])


@pytest.fixture
def shard() -> Iterator[WritingShard]:
    made = WritingShard()
    yield made
    assert not made.sent(DEAD_LETTERS)
    made.check()
    report = verified(made)
    assert report.is_clean, report.examples
    assert report.txn == made.txn


def _reported(shard: WritingShard) -> list[tuple[int, int, int]]:
    """First id, number of blocks and bytes of each report to the block store."""
    return [
        one
        for message in shard.sent(SCM_COMMANDS)
        for one in zip(message.body.first_local_ids, message.body.block_counts, message.body.sizes_bytes, strict=True)
    ]


@BOTH
class TestOpenKeys:
    def test_nobody_sees_an_open_key_until_its_commit(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "d/k", 250)
        assert shard.names(bucket) == {}
        assert (shard.bucket(bucket).used_bytes, _reported(shard)) == (0, [])
        assert shard.bucket(bucket).used_namespace == (1 if bucket == "tree" else 0), "its directory is there"
        shard.commit(bucket, "d/k", session, 250)
        assert shard.names(bucket) == {"d/k": "t"}
        assert (shard.bucket(bucket).used_bytes, shard.open_keys(bucket)) == (250, [])
        assert [size for _, _, size in _reported(shard)] == [250]
        assert shard.entries() == []

    def test_blocks_come_in_several_steps_and_the_unused_ones_are_freed(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 150)
        (first,) = shard.allocate(bucket, "k", session, 1)
        (second,) = shard.allocate(bucket, "k", session, 350)
        shard.commit(bucket, "k", session, 420)
        assert shard.size(bucket, "k") == 420
        (rest,) = shard.garbage()
        assert (rest.key.size_bytes, rest.key.birth, rest.death) == (2 * BLOCK, shard.txn, shard.txn)
        assert rest.key.blocks
        assert rest.key.blocks.first_local_id == second.first_local_id + 2
        assert sorted(size for _, _, size in _reported(shard)) == [100, 120, 200, 200]
        assert first.first_local_id in {one for one, _, _ in _reported(shard)}
        (row,) = shard.rows()
        assert not shard.is_held(row)

    def test_a_key_replaces_the_live_version(self, shard: WritingShard, bucket: str) -> None:
        old = shard.done(PutKey("vol", bucket, "k", 7, "old"))
        new = shard.commit(bucket, "k", shard.open(bucket, "k", 10, "new"), 10)
        assert old.object_id == new.object_id
        assert shard.names(bucket) == {"k": "new"}
        assert [row.key.tag for row in shard.garbage()] == ["old"]
        assert shard.garbage()[0].is_overwritten

    def test_a_sync_is_seen_and_the_key_stays_open(self, shard: WritingShard, bucket: str) -> None:
        session = shard.write(bucket, "k", 30, 250)
        assert (shard.size(bucket, "k"), shard.open_keys(bucket)) == (250, [session])
        shard.commit(bucket, "k", session, 250)
        assert (shard.size(bucket, "k"), shard.open_keys(bucket), shard.entries()) == (250, [], [])

    def test_each_run_of_blocks_is_born_when_it_becomes_visible(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        first = shard.txn
        shard.capture(bucket, "s1")
        shard.sync(bucket, "k", session, 90)  # within the first block
        shard.sync(bucket, "k", session, 250)
        second = shard.txn
        shard.capture(bucket, "s2")
        shard.allocate(bucket, "k", session, 100)
        shard.commit(bucket, "k", session, 350)
        third = shard.txn
        assert [shard.size(bucket, "k", one) for one in ("s1", "s2", "")] == [30, 250, 350]
        shard.do(DeleteKey("vol", bucket, "k"))
        births = [(entry.birth, entry.death) for entry in shard.entries()]
        assert births == [(first, shard.txn), (second, shard.txn), (third, shard.txn)]
        assert sorted(row.key.size_bytes for row in shard.garbage()) == [50, 100, 200]
        assert [shard.is_held(row) for row in shard.rows()] == [True, True, False]
        shard.internal(DropSnapshot("s2"))
        assert [shard.is_held(row) for row in shard.rows()[:2]] == [True, False]
        shard.internal(DropSnapshot("s1"))
        assert not shard.is_held(shard.row(0))

    def test_a_version_without_bytes_is_born_with_its_first_ones(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k")
        shard.sync(bucket, "k", session, 0)
        shard.capture(bucket, "s1")
        shard.allocate(bucket, "k", session, 10)
        shard.commit(bucket, "k", session, 10)
        shard.do(DeleteKey("vol", bucket, "k"))
        (row,) = shard.rows()
        assert not shard.is_held(row), "the snapshot has seen no block"
        assert shard.size(bucket, "k", "s1") == 0

    def test_a_client_appends_behind_the_end(self, shard: WritingShard, bucket: str) -> None:
        shard.do(PutKey("vol", bucket, "k", 30, "put", BLOCK))
        born = shard.txn
        shard.capture(bucket, "s1")
        session = shard.open(bucket, "k", 50, is_append=True)
        shard.commit(bucket, "k", session, 80)
        assert (shard.size(bucket, "k"), shard.names(bucket)) == (80, {"k": "put"})
        appended = shard.txn
        shard.commit(bucket, "k", shard.open(bucket, "k", 1, is_append=True), 81)
        shard.do(DeleteKey("vol", bucket, "k"))
        assert [entry.birth for entry in shard.entries()] == [born, appended, shard.txn - 1]
        assert [shard.is_held(row) for row in shard.rows()] == [True, False, False]

    def test_an_append_of_nothing_changes_nothing(self, shard: WritingShard, bucket: str) -> None:
        shard.do(PutKey("vol", bucket, "k", 30))
        shard.commit(bucket, "k", shard.open(bucket, "k", 50, is_append=True), 30)
        assert shard.size(bucket, "k") == 30
        assert [row.key.size_bytes for row in shard.garbage()] == [BLOCK]

    def test_a_lease_is_recovered_and_its_writer_refused(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        found = shard.done(RecoverLease("vol", bucket, "k"))
        assert (found.session, [run.block_count for run in found.runs]) == (session, [2])
        for body in (SyncKey("vol", bucket, "k", session, 90), CommitKey("vol", bucket, "k", session, 90)):
            assert shard.refusal(body) == "KEY_UNDER_LEASE_RECOVERY"
        shard.done(CommitKey("vol", bucket, "k", session, 120, is_recovery=True))
        assert shard.size(bucket, "k") == 120
        assert shard.refusal(RecoverLease("vol", bucket, "k")) == "KEY_ALREADY_CLOSED"
        shard.commit(bucket, "k", shard.open(bucket, "k", 5, is_append=True), 125)

    def test_a_writer_whose_lease_was_recovered_gets_no_more_blocks(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", BLOCK)
        shard.sync(bucket, "k", session, 10)
        shard.done(RecoverLease("vol", bucket, "k"))
        assert shard.refusal(AllocateBlocks("vol", bucket, "k", session, BLOCK)) == "KEY_UNDER_LEASE_RECOVERY"
        assert shard.refusal(CommitKey("vol", bucket, "k", session, 20)) == "KEY_UNDER_LEASE_RECOVERY"
        assert not shard.refusal(CommitKey("vol", bucket, "k", session, 20, is_recovery=True))

    def test_blocks_are_stored_once_when_they_become_part_of_a_version(self, shard: WritingShard, bucket: str) -> None:
        half = MAX_BYTES // 2 + 1
        session = shard.done(OpenKey("vol", bucket, "k", half, "", half)).session
        assert shard.refusal(OpenKey("vol", bucket, "l", half, "", half)) == "INVALID_REQUEST"
        assert not shard.refusal(CommitKey("vol", bucket, "k", session, half))
        assert shard.refusal(OpenKey("vol", bucket, "l", half, "", half)) == "INVALID_REQUEST"

    def test_what_was_synced_stays_when_a_key_is_abandoned(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        shard.abandon(bucket, "k", session)
        assert (shard.size(bucket, "k"), shard.open_keys(bucket)) == (30, [])
        assert [row.key.size_bytes for row in shard.garbage()] == [2 * BLOCK]
        shard.abandon(bucket, "other", shard.open(bucket, "other", 10))
        assert set(shard.names(bucket)) == {"k"}

    def test_of_two_writers_the_later_one_takes_the_key_away(self, shard: WritingShard, bucket: str) -> None:
        first, second = shard.open(bucket, "k", 10, "first"), shard.open(bucket, "k", 20, "second")
        shard.sync(bucket, "k", first, 10)
        shard.sync(bucket, "k", second, 20)
        assert shard.refusal(CommitKey("vol", bucket, "k", first, 10)) == "KEY_NOT_FOUND"
        shard.commit(bucket, "k", second, 20)
        assert shard.names(bucket) == {"k": "second"}
        shard.abandon(bucket, "k", first)
        assert [row.key.size_bytes for row in shard.garbage()] == [10], "its blocks died once, with the version"

    def test_the_owner_of_each_block_is_found(self, shard: WritingShard, bucket: str) -> None:
        session = shard.write(bucket, "k", BLOCK)
        (blocks,) = shard.allocate(bucket, "k", session, 3 * BLOCK)
        shard.commit(bucket, "k", session, 2 * BLOCK + 1)
        ids = range(blocks.first_local_id, blocks.first_local_id + blocks.block_count)
        found = [explain_block(shard.tables, 0, one).version for one in ids]
        assert [(one.birth, one.size_bytes, one.stage) for one in found if one] == [
            *[(shard.txn, BLOCK + 1, VersionStage.LIVE)] * 2,
            (shard.txn, BLOCK, VersionStage.PENDING),
        ]

    def test_a_late_report_has_a_mark_of_its_own_command(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "early", 10)
        shard.do(PutKey("vol", bucket, "put", 5))
        shard.commit(bucket, "early", session, 10)
        *_, put, late = [message.body for message in shard.sent(SCM_COMMANDS)]
        assert put.marks == ()
        assert late.first_local_ids < put.first_local_ids < late.marks
        assert queries.shard_state(shard.tables).reported_local_id == late.marks[-1]

    def test_a_sync_reads_the_last_run_only(
        self, shard: WritingShard, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = shard.open(bucket, "k", 10_000)
        sizes = list(range(50, 2_000, 70))
        for size_bytes in sizes:
            shard.sync(bucket, "k", session, size_bytes)
        with monkeypatch.context() as patched:
            patched.delattr(writing, "parts_of")
            shard.sync(bucket, "k", session, 2_000)
        shard.commit(bucket, "k", session, 2_001)
        assert shard.size(bucket, "k") == 2_001
        assert len(list(shard.tables.table(KEY_PART_TABLE).scan())) == 19 + 1
        shard.do(DeleteKey("vol", bucket, "k"))
        assert list(shard.tables.table(KEY_PART_TABLE).scan()) == []
        assert len(shard.entries()) == 21 + 1, "and the blocks that were never used"

    def test_a_writer_does_not_continue_a_version_that_another_one_made_as_long_again(
        self, shard: WritingShard, bucket: str
    ) -> None:
        first = shard.open(bucket, "k", 2 * BLOCK)
        shard.sync(bucket, "k", first, BLOCK)
        shard.capture(bucket, "snap")
        shard.sync(bucket, "k", first, BLOCK + 40)
        shard.roll_back(bucket, "snap")
        second = shard.open(bucket, "k", BLOCK, is_append=True)
        shard.sync(bucket, "k", second, BLOCK + 40)
        assert shard.refusal(SyncKey("vol", bucket, "k", first, BLOCK + 70)) == "KEY_NOT_FOUND"


def test_a_refused_command_has_reported_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise CommandError(ErrorCode.INVALID_REQUEST, "after the report")

    shard = WritingShard()
    session = shard.open("flat", "k", 2 * BLOCK)
    with monkeypatch.context() as patched:
        patched.setattr(writing, "free_runs", refuse)
        assert shard.refusal(CommitKey("vol", "flat", "k", session, 1)) == "INVALID_REQUEST"
    shard.done(PutKey("vol", "flat", "other", 1))
    assert queries.shard_state(shard.tables).reported_local_id == 0


@BOTH
class TestExpiry:
    def test_only_what_is_old_enough_is_closed(self, shard: WritingShard, bucket: str) -> None:
        old, synced = shard.open(bucket, "old", 10), shard.write(bucket, "synced", 10)
        shard.clock.advance(1_000)
        young = shard.open(bucket, "young", 10)
        shard.allocate(bucket, "synced", synced, 10)
        page = ExpireWrites(OPEN_KEYS[bucket], b"", 100, 500, DAY_MS)
        assert shard.internal(page) == WritesExpired(OPEN_KEYS[bucket], b"", b"", 1)
        assert shard.open_keys(bucket) == sorted([synced, young])
        assert old not in shard.open_keys(bucket)

    def test_pages_come_to_the_same_end(self, shard: WritingShard, bucket: str) -> None:
        for number in range(5):
            shard.open(bucket, f"k{number}", 10 * number)
        expired, start = 0, b""
        for _ in range(9):
            page = shard.expire(bucket, max_rows=2, start_key=start)
            expired, start = expired + page.expired, page.next_key
            if not start:
                break
        assert (expired, shard.open_keys(bucket)) == (5, [])
        assert len(shard.garbage()) == 4

    def test_a_page_has_a_limit_that_no_setting_raises(
        self, shard: WritingShard, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expired_writes, "MAX_PAGE_ROWS", 2)
        for name in "abcd":
            shard.open(bucket, name)
        page = shard.expire(bucket, 1_000_000)
        assert page.expired == 2
        assert shard.expire(bucket, 1_000_000, page.next_key).next_key == b""

    def test_what_was_synced_stays_and_nothing_of_it_is_freed(self, shard: WritingShard, bucket: str) -> None:
        shard.write(bucket, "k", 30, 130)
        assert shard.expire(bucket).expired == 1
        assert (shard.size(bucket, "k"), shard.garbage()) == (130, [])

    def test_uploads_expire_with_their_parts(self, shard: WritingShard, bucket: str) -> None:
        upload = shard.initiate(bucket, "k")
        shard.part(bucket, "k", upload, 1, 250)
        shard.part(bucket, "k", upload, 3, 0)
        assert shard.internal(ExpireWrites(UPLOADS, b"", 100, 0, DAY_MS)).expired == 0
        assert shard.internal(ExpireWrites(UPLOADS, b"", 100, 0, 0)).expired == 1
        assert [row.key.size_bytes for row in shard.garbage()] == [250]
        assert shard.refusal(AbortUpload("vol", bucket, "k", upload)) == "NO_SUCH_MULTIPART_UPLOAD_ERROR"


@BOTH
class TestUploads:
    def test_parts_are_used_and_no_snapshot_refers_to_them(self, shard: WritingShard, bucket: str) -> None:
        upload = shard.initiate(bucket, "k")
        shard.part(bucket, "k", upload, 1, 250)
        captured = shard.capture(bucket, "s1")
        assert (captured.referenced_bytes, shard.bucket(bucket).used_bytes, shard.names(bucket)) == (0, 250, {})
        shard.complete(bucket, "k", upload, 1)
        assert shard.capture(bucket, "s2").referenced_bytes == 250

    def test_a_part_that_is_written_again_frees_the_one_before(self, shard: WritingShard, bucket: str) -> None:
        upload = shard.initiate(bucket, "k")
        shard.part(bucket, "k", upload, 1, 250)
        shard.capture(bucket, "s1")
        shard.part(bucket, "k", upload, 1, 120)
        assert shard.bucket(bucket).used_bytes == 120
        (replaced,) = shard.rows()
        assert not shard.is_held(replaced)
        shard.complete(bucket, "k", upload, 1)
        assert shard.capture(bucket, "s2").referenced_bytes == 120

    def test_parts_are_joined_in_their_order_and_the_others_freed(self, shard: WritingShard, bucket: str) -> None:
        shard.do(PutKey("vol", bucket, "d/k", 7, "old"))
        shard.capture(bucket, "s1")
        upload = shard.initiate(bucket, "d/k")
        for number, size_bytes in ((2, 130), (1, 250), (7, 40), (9, 0)):
            shard.part(bucket, "d/k", upload, number, size_bytes, tag=f"part {number}")
        joined = shard.complete(bucket, "d/k", upload, 1, 2, 9, tag="joined")
        born = shard.txn
        assert [run.size_bytes for run in joined.runs] == [250, 130]
        assert (shard.size(bucket, "d/k"), shard.names(bucket)) == (380, {"d/k": "joined"})
        assert sorted((row.key.tag, row.key.size_bytes) for row in shard.garbage()) == [("old", 7), ("part 7", 40)]
        assert list(shard.tables.table(PART_TABLE).scan()) == []
        shard.do(DeleteKey("vol", bucket, "d/k"))
        assert [entry.birth for entry in shard.entries()[-2:]] == [born, born]
        assert shard.is_held(shard.row(0)), "the version before it"

    def test_an_aborted_upload_frees_its_parts(self, shard: WritingShard, bucket: str) -> None:
        upload, other = shard.initiate(bucket, "k"), shard.initiate(bucket, "k")
        shard.part(bucket, "k", upload, 1, 250)
        shard.part(bucket, "k", other, 1, 30)
        opened = shard.open(bucket, "k", 10, upload_id=upload, part_number=2)
        shard.abort(bucket, "k", upload)
        assert [row.key.size_bytes for row in shard.garbage()] == [250]
        gone = "NO_SUCH_MULTIPART_UPLOAD_ERROR"
        assert shard.refusal(CommitKey("vol", bucket, "k", opened, 10)) == gone
        assert shard.refusal(AbortUpload("vol", bucket, "k", upload)) == gone
        shard.abandon(bucket, "k", opened)
        shard.complete(bucket, "k", other, 1)
        assert shard.size(bucket, "k") == 30

    def test_a_refused_completion_leaves_the_upload_as_it_was(self, shard: WritingShard, bucket: str) -> None:
        upload = shard.initiate(bucket, "d/k")
        shard.part(bucket, "d/k", upload, 1, 10)
        shard.part(bucket, "d/k", upload, 2, 20)
        before = shard.bucket(bucket)
        for numbers, code in (
            ((), "INVALID_PART_ORDER"),
            ((2, 1), "INVALID_PART_ORDER"),
            ((1, 1), "INVALID_PART_ORDER"),
            ((1, 3), "INVALID_PART"),
        ):
            assert shard.refusal(CompleteUpload("vol", bucket, "d/k", upload, numbers)) == code
        assert shard.bucket(bucket) == before
        shard.complete(bucket, "d/k", upload, 1, 2)
        assert shard.size(bucket, "d/k") == 30

    def test_an_upload_through_a_link_is_one_of_the_bucket(self, shard: WritingShard, bucket: str) -> None:
        shard.done(CreateBucketLink("vol", "link", "vol", bucket))
        upload = shard.initiate("link", "k")
        shard.part(bucket, "k", upload, 1, 10)
        shard.part("link", "k", upload, 2, 20)
        shard.complete("link", "k", upload, 1, 2)
        assert shard.size(bucket, "k") == 30
        other = shard.initiate(bucket, "k")
        shard.part(bucket, "k", other, 1, 10)
        shard.abort("link", "k", other)
        for ended in (upload, other):
            assert shard.refusal(AbortUpload("vol", bucket, "k", ended)) == "NO_SUCH_MULTIPART_UPLOAD_ERROR"
        assert set(shard.names(bucket)) == {"k"}

    def test_a_name_leads_over_as_many_links_as_are_allowed(self, shard: WritingShard, bucket: str) -> None:
        for number in range(MAX_LINKS + 1):
            shard.done(CreateBucketLink("vol", f"link{number}", "vol", f"link{number - 1}" if number else bucket))
        last, beyond = f"link{MAX_LINKS - 1}", f"link{MAX_LINKS}"
        assert not shard.refusal(InitiateUpload("vol", last, "k"))
        assert shard.refusal(InitiateUpload("vol", beyond, "k")) == "DETECTED_LOOP_IN_BUCKET_LINKS"

    def test_an_upload_is_not_found_by_a_shorter_key(self, shard: WritingShard, bucket: str) -> None:
        upload = shard.initiate(bucket, "k/up")
        shard.part(bucket, "k/up", upload, 1, 10)
        for body in (
            OpenKey("vol", bucket, "k", 10, upload_id=f"up/{upload}", part_number=2),
            CompleteUpload("vol", bucket, "k", f"up/{upload}", (1,)),
            AbortUpload("vol", bucket, "k", f"up/{upload}"),
        ):
            assert shard.refusal(body) == "NO_SUCH_MULTIPART_UPLOAD_ERROR"
        shard.complete(bucket, "k/up", upload, 1)

    def test_all_parts_of_an_upload_have_a_limited_number_of_runs(
        self, monkeypatch: pytest.MonkeyPatch, shard: WritingShard, bucket: str
    ) -> None:
        """The command that ends the upload changes all of them."""
        monkeypatch.setattr(uploads, "MAX_RUNS_PER_VERSION", 3)
        monkeypatch.setattr(verifier_uploads, "MAX_RUNS", 3)
        upload = shard.initiate(bucket, "k")

        def part(number: int, runs: int) -> str:
            session = shard.open(bucket, "k", BLOCK, upload_id=upload, part_number=number)
            for _ in range(runs - 1):
                shard.allocate(bucket, "k", session, BLOCK)
            return shard.refusal(CommitKey("vol", bucket, "k", session, runs * BLOCK))

        assert [part(1, 2), part(2, 1), part(3, 1)] == ["", "", "INVALID_REQUEST"]
        assert [part(1, 3), part(1, 1), part(3, 1)] == ["INVALID_REQUEST", "", ""], "a replaced part does not count"
        shard.complete(bucket, "k", upload, 1, 3)


@BOTH
def test_a_link_is_a_name_of_its_volume_and_needs_no_quota_of_bytes(shard: WritingShard, bucket: str) -> None:
    for name in ("flat", "tree"):
        shard.done(SetQuota("vol", name, BLOCK, -1))
    shard.done(SetQuota("vol", "", 2 * BLOCK, 3))
    shard.done(CreateBucketLink("vol", "link", "vol", bucket))
    assert shard.refusal(CreateBucketLink("vol", "second", "vol", bucket)) == "QUOTA_EXCEEDED"
    assert shard.refusal(SetQuota("vol", "", 2 * BLOCK, 2)) == "QUOTA_EXCEEDED"
    shard.done(PutKey("vol", "link", "k", BLOCK, "t", BLOCK))
    assert shard.refusal(PutKey("vol", bucket, "l", 1, "t", BLOCK)) == "QUOTA_EXCEEDED"


@BOTH
@pytest.mark.parametrize("wants_reply", [True, False])
def test_what_a_quota_refuses_is_known_from_the_log_and_the_answers(
    shard: WritingShard, bucket: str, wants_reply: bool
) -> None:
    shard.send(MetadataCommand(0, "me", 1_000, SetQuota("vol", bucket, 2 * BLOCK, -1), wants_reply=wants_reply))
    for number, size in enumerate((BLOCK, 2 * BLOCK, 1, 1)):
        put = PutKey("vol", bucket, f"k{number}", size, "", BLOCK)
        shard.send(MetadataCommand(0, "me", 1_001 + number, put, wants_reply=wants_reply))
    while shard.runner.step():
        pass
    assert set(shard.names(bucket)) == {"k0", "k2"}


Place = tuple[str, str]
REFUSED: list[tuple[Callable[[Place, dict[str, Any]], object], str]] = [
    (lambda at, _: OpenKey("vol", "none", "k", 1), "BUCKET_NOT_FOUND"),
    (lambda at, _: OpenKey(*at, "", 1), "INVALID_KEY_NAME"),
    (lambda at, _: OpenKey(*at, "k", -1), "INVALID_REQUEST"),
    (lambda at, _: OpenKey(*at, "k", 1, "", 0), "INVALID_REQUEST"),
    (lambda at, _: OpenKey(*at, "k", 65_536, "", 1), "INVALID_REQUEST"),
    (lambda at, _: OpenKey(*at, "k", 1, "t" * 1_025), "INVALID_REQUEST"),
    (lambda at, _: OpenKey(*at, "none", 1, is_append=True), "KEY_NOT_FOUND"),
    (lambda at, _: OpenKey(*at, "synced", 1, is_append=True), "KEY_UNDER_LEASE_RECOVERY"),
    (lambda at, _: OpenKey(*at, "synced", 1, expected_generation=-1), "KEY_ALREADY_EXISTS"),
    (lambda at, _: OpenKey(*at, "synced", 1, expected_generation=3), "KEY_NOT_FOUND"),
    (lambda at, _: OpenKey(*at, "none", 1, expected_generation=3), "KEY_NOT_FOUND"),
    (lambda at, one: OpenKey(*at, "up", 1, upload_id=one["upload"]), "INVALID_REQUEST"),
    (lambda at, one: OpenKey(*at, "up", 1, upload_id=one["upload"], part_number=10_001), "INVALID_REQUEST"),
    (
        lambda at, one: OpenKey(*at, "up", 1, upload_id=one["upload"], part_number=1, is_append=True),
        "INVALID_REQUEST",
    ),
    (
        lambda at, one: OpenKey(*at, "up", 1, upload_id=one["upload"], part_number=1, expected_generation=-1),
        "INVALID_REQUEST",
    ),
    (
        lambda at, one: OpenKey(*at, "other", 1, upload_id=one["upload"], part_number=1),
        "NO_SUCH_MULTIPART_UPLOAD_ERROR",
    ),
    (lambda at, _: OpenKey(*at, "up", 1, upload_id="0-1", part_number=1), "NO_SUCH_MULTIPART_UPLOAD_ERROR"),
    (lambda at, one: AllocateBlocks(*at, "synced", one["part"], 1), "KEY_NOT_FOUND"),
    (lambda at, one: AllocateBlocks(*at, "synced", one["synced"], -1), "INVALID_REQUEST"),
    (lambda at, one: SyncKey(*at, "k", one["synced"], 30), "KEY_NOT_FOUND"),
    (lambda at, one: SyncKey(*at, "synced", one["synced"], 29), "INVALID_REQUEST"),
    (lambda at, one: SyncKey(*at, "synced", one["synced"], 301), "INVALID_REQUEST"),
    (lambda at, one: SyncKey(*at, "up", one["part"], 5), "NOT_SUPPORTED_OPERATION"),
    (lambda at, one: SyncKey("vol", "none", "synced", one["synced"], 30), "BUCKET_NOT_FOUND"),
    (lambda at, one: CommitKey(*at, "synced", 7, 30), "KEY_NOT_FOUND"),
    (lambda at, one: CommitKey(*at, "synced", one["synced"], 1), "INVALID_REQUEST"),
    (lambda at, one: CommitKey(*at, "synced", one["synced"], 30, is_recovery=True), "INVALID_REQUEST"),
    (lambda at, one: CommitKey(*at, "up", one["part"], -1), "INVALID_REQUEST"),
    (lambda at, one: CommitKey(*at, "up", one["part"], 501), "INVALID_REQUEST"),
    (lambda at, one: AbandonKey(*at, "up", one["synced"]), "KEY_NOT_FOUND"),
    (lambda at, _: RecoverLease(*at, "none"), "KEY_NOT_FOUND"),
    (lambda at, _: RecoverLease(*at, "put"), "KEY_ALREADY_CLOSED"),
    (lambda at, _: InitiateUpload(*at, ""), "INVALID_KEY_NAME"),
    (lambda at, one: CompleteUpload(*at, "other", one["upload"], (1,)), "NO_SUCH_MULTIPART_UPLOAD_ERROR"),
    (lambda at, one: CompleteUpload(*at, "up", one["upload"], (1,)), "INVALID_PART"),
    (lambda at, one: CompleteUpload(*at, "up", one["upload"], (1,), "t" * 1_025), "INVALID_REQUEST"),
    (lambda at, one: AbortUpload(*at, "other", one["upload"]), "NO_SUCH_MULTIPART_UPLOAD_ERROR"),
    (lambda at, _: PutKeyIf(*at, "put", 1, -1), "KEY_ALREADY_EXISTS"),
    (lambda at, _: PutKeyIf(*at, "put", 1, 3), "KEY_NOT_FOUND"),
    (lambda at, _: PutKeyIf(*at, "none", 1, 3), "KEY_NOT_FOUND"),
    (lambda at, _: PutKeyIf(*at, "none", -1, -1), "INVALID_REQUEST"),
]
"""Commands, from the place and the ids of what is there, and the codes of their refusals."""


@BOTH
@pytest.mark.parametrize(("body", "code"), REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(shard: WritingShard, bucket: str, body: Any, code: str) -> None:
    shard.do(PutKey("vol", bucket, "put", 1))
    ids: dict[str, Any] = {"synced": shard.open(bucket, "synced", 300), "upload": shard.initiate(bucket, "up")}
    shard.sync(bucket, "synced", ids["synced"], 30)
    ids["part"] = shard.open(bucket, "up", 500, upload_id=ids["upload"], part_number=1)
    before = (shard.names(bucket), shard.bucket(bucket), shard.open_keys(bucket), shard.entries(), _reported(shard))
    assert shard.refusal(body(("vol", bucket), ids)) == code
    after = (shard.names(bucket), shard.bucket(bucket), shard.open_keys(bucket), shard.entries(), _reported(shard))
    assert after == before


@BOTH
def test_a_condition_holds_until_the_commit(shard: WritingShard, bucket: str) -> None:
    absent = shard.open(bucket, "k", 10, expected_generation=-1)
    shard.done(PutKeyIf("vol", bucket, "k", 1, -1, "first"))
    generation = shard.txn
    assert shard.refusal(CommitKey("vol", bucket, "k", absent, 10)) == "KEY_ALREADY_EXISTS"
    same = shard.open(bucket, "k", 10, "second", expected_generation=generation)
    shard.commit(bucket, "k", same, 10)
    stale = shard.refusal(OpenKey("vol", bucket, "k", 10, expected_generation=generation))
    assert (stale, shard.names(bucket)) == ("KEY_NOT_FOUND", {"k": "second"})
    shard.done(PutKeyIf("vol", bucket, "k", 1, shard.txn, "third"))
    assert shard.names(bucket) == {"k": "third"}


class TestTrees:
    def test_a_key_whose_directory_was_deleted_can_only_be_abandoned(self, shard: WritingShard) -> None:
        opened, synced = shard.open("tree", "d/k", 10), shard.write("tree", "d/s", 10, 20)
        parent = shard.tables.table(DIRECTORY_TABLE)
        (directory,) = [row for _, row in parent.scan()]
        shard.do(DeleteDirectory("vol", "tree", "d"))
        for body in (
            AllocateBlocks("vol", "tree", "d/k", opened, 1),
            CommitKey("vol", "tree", "d/k", opened, 10),
            SyncKey("vol", "tree", "d/s", synced, 20),
            AbandonKey("vol", "tree", "d/k", opened),
        ):
            assert shard.refusal(body) == "DIRECTORY_NOT_FOUND"
        shard.done(PutKey("vol", "tree", "d/other", 1))
        assert shard.refusal(CommitKey("vol", "tree", "d/k", opened, 10)) == "KEY_NOT_FOUND", "another directory"
        shard.expand(directory.object_id)
        other = AbandonKey("vol", "tree", "mine/k", opened, directory.object_id)
        assert shard.refusal(other) == "KEY_NOT_FOUND", "the rights to the path that a command names were checked"
        for key, session in (("d/k", opened), ("d/s", synced)):
            shard.done(AbandonKey("vol", "tree", key, session, directory.object_id))
        assert shard.open_keys("tree") == []
        assert sorted(row.key.size_bytes for row in shard.garbage()) == [20, BLOCK]

    def test_a_key_goes_on_when_its_directory_is_moved_back(self, shard: WritingShard) -> None:
        session = shard.write("tree", "d/k", 10)
        shard.do(RenameDirectory("vol", "tree", "d", "e"))
        assert shard.refusal(SyncKey("vol", "tree", "e/k", session, 20)) == "", "its place is the directory"
        assert shard.refusal(SyncKey("vol", "tree", "d/k", session, 20)) == "DIRECTORY_NOT_FOUND"
        shard.do(RenameDirectory("vol", "tree", "e", "d"))
        shard.commit("tree", "d/k", session, 30)
        assert shard.size("tree", "d/k") == 30

    def test_a_part_needs_the_directory_of_its_upload_and_a_completion_makes_it(self, shard: WritingShard) -> None:
        upload = shard.initiate("tree", "d/k")
        shard.part("tree", "d/k", upload, 1, 10)
        shard.do(DeleteDirectory("vol", "tree", "d"))
        part = OpenKey("vol", "tree", "d/k", 5, upload_id=upload, part_number=2)
        assert shard.refusal(part) == "NO_SUCH_MULTIPART_UPLOAD_ERROR"
        shard.do(MakeDirectory("vol", "tree", "d"))
        assert shard.refusal(part) == "NO_SUCH_MULTIPART_UPLOAD_ERROR", "another one of its name"
        shard.do(DeleteDirectory("vol", "tree", "d"))
        shard.done(PutKey("vol", "tree", "d", 1))
        assert shard.refusal(part) == "NOT_A_FILE"
        shard.done(DeleteKey("vol", "tree", "d"))
        shard.complete("tree", "d/k", upload, 1)
        assert shard.names("tree") == {"d/k": "t"}

    def test_a_key_is_not_committed_where_a_directory_has_come_up(self, shard: WritingShard) -> None:
        session = shard.open("tree", "a/b", BLOCK)
        shard.do(MakeDirectory("vol", "tree", "a/b"))
        for command in (SyncKey("vol", "tree", "a/b", session, 1), CommitKey("vol", "tree", "a/b", session, 1)):
            assert shard.refusal(command) == "NOT_A_FILE"
        assert shard.names("tree") == {}

    def test_no_file_takes_the_place_of_a_directory(self, shard: WritingShard) -> None:
        opened, upload = shard.open("tree", "x", 10), shard.initiate("tree", "x")
        shard.part("tree", "x", upload, 1, 10)
        shard.do(MakeDirectory("vol", "tree", "x"))
        assert shard.refusal(SyncKey("vol", "tree", "x", opened, 10)) == "NOT_A_FILE"
        assert shard.refusal(CommitKey("vol", "tree", "x", opened, 10)) == "NOT_A_FILE"
        assert shard.refusal(CompleteUpload("vol", "tree", "x", upload, (1,))) == "NOT_A_FILE"
        assert shard.refusal(OpenKey("vol", "tree", "x", 10)) == "NOT_A_FILE"
        assert shard.refusal(OpenKey("vol", "tree", "x", 10, upload_id=upload, part_number=2)) == "NOT_A_FILE"
        assert shard.refusal(OpenKey("vol", "tree", "a//b", 10)) == "INVALID_PATH"
        assert shard.names("tree") == {}

    def test_a_deleted_tree_frees_each_run_of_its_keys(self, shard: WritingShard) -> None:
        session = shard.open("tree", "d/k", 250)
        shard.sync("tree", "d/k", session, 30)
        first = shard.txn
        shard.capture("tree", "s1")
        shard.commit("tree", "d/k", session, 250)
        second = shard.txn
        (directory,) = [row for _, row in shard.tables.table(DIRECTORY_TABLE).scan()]
        shard.do(DeleteDirectory("vol", "tree", "d"))
        shard.expand(directory.object_id)
        keys = [row for row in shard.rows() if row.kind is DeletedKind.KEY]
        assert [row.birth for row in keys] == [first, second]
        assert [shard.is_held(row) for row in keys] == [True, False]

    def test_a_page_of_an_expansion_and_of_a_rollback_counts_each_run(self, shard: WritingShard) -> None:
        shard.capture("tree", "empty")
        for key in ("d/a", "d/b", "d/c"):
            _two_runs(shard, "tree", key)
        back = RollbackPage("back", shard.bucket("tree").object_id, "empty", 1, 3)
        assert shard.internal(back).died == 2, "with two runs each"
        for page in count(2):
            if shard.internal(replace(back, page=page)).outcome is RollbackOutcome.DONE:
                break
        for key in ("d/a", "d/b", "d/c"):
            _two_runs(shard, "tree", key)
        shard.do(DeleteDirectory("vol", "tree", "d"))
        row = shard.row()
        expansion = ExpandDirectory(row.bucket_id, row.object_id, row.death, 3, 1 << 62)
        assert [shard.internal(expansion).moved_files for _ in range(2)] == [2, 1]

    def test_a_page_of_a_rollback_counts_each_run_that_it_expands(self, shard: WritingShard) -> None:
        shard.capture("tree", "empty")
        for key in ("d/a", "d/b", "d/c"):
            _two_runs(shard, "tree", key)
        shard.do(DeleteDirectory("vol", "tree", "d"))
        before = len(shard.garbage())
        back = RollbackPage("back", shard.bucket("tree").object_id, "empty", 1, 3)
        assert shard.internal(back).outcome is RollbackOutcome.PARTLY
        assert len(shard.garbage()) - before == 2, "one file; the third row was that of the directory"
        while shard.internal(back).outcome is not RollbackOutcome.DONE:
            back = replace(back, page=back.page + 1)


def _two_runs(shard: WritingShard, bucket: str, key: str = "k", sizes: tuple[int, int] = (30, 250)) -> None:
    """Write a key whose first run has one block, and whose second run has the others."""
    session = shard.open(bucket, key, sizes[1])
    for size_bytes in sizes:
        shard.sync(bucket, key, session, size_bytes)
    shard.abandon(bucket, key, session)


@BOTH
class TestComingBack:
    def test_an_undelete_brings_all_runs_back(self, shard: WritingShard, bucket: str) -> None:
        _two_runs(shard, bucket)
        before = shard.bucket(bucket)
        shard.do(DeleteKey("vol", bucket, "k"))
        first, second = shard.rows()
        (listed,) = list_deleted(shard.tables, shard.bucket(bucket))
        assert (listed.path, listed.size_bytes, listed.object_id) == ("k", 250, first.object_id)
        found = explain_path(shard.tables, shard.bucket(bucket), "k", _no_checkpoint)
        assert [(one.object_id, one.size_bytes) for one in found.versions] == [(first.object_id, 250)]
        assert shard.undelete(bucket, "k", second) == "INVALID_REQUEST"
        assert shard.undelete(bucket, "k", first) == ""
        assert (shard.size(bucket, "k"), shard.garbage()) == (250, [])
        assert shard.bucket(bucket).used_bytes == before.used_bytes
        shard.do(DeleteKey("vol", bucket, "k"))
        assert [row.birth for row in shard.rows()[2:]] == [first.birth, second.birth]

    def test_a_writer_goes_on_after_an_undelete(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 350)
        for size_bytes in (30, 130):
            shard.sync(bucket, "k", session, size_bytes)
        shard.do(DeleteKey("vol", bucket, "k"))
        assert shard.undelete(bucket, "k", shard.row(0)) == ""
        shard.sync(bucket, "k", session, 180)
        shard.commit(bucket, "k", session, 330)
        assert shard.size(bucket, "k") == 330

    def test_it_is_too_late_when_one_run_is_claimed(self, shard: WritingShard, bucket: str) -> None:
        _two_runs(shard, bucket)
        shard.do(DeleteKey("vol", bucket, "k"))
        first, second = shard.rows()
        assert not shard.is_held(second)
        assert shard.undelete(bucket, "k", first) == "TOO_LATE"
        assert list_deleted(shard.tables, shard.bucket(bucket)) == []
        shard.internal(FinishRows(1, by_columns([second])))
        assert shard.undelete(bucket, "k", first) == "TOO_LATE"

    def test_a_snapshot_in_between_makes_another_object_of_it(self, shard: WritingShard, bucket: str) -> None:
        _two_runs(shard, bucket)
        shard.do(DeleteKey("vol", bucket, "k"))
        shard.capture(bucket, "s1")
        old = shard.rows()
        assert shard.undelete(bucket, "k", old[0]) == ""
        returned = shard.txn
        shard.do(DeleteKey("vol", bucket, "k"))
        again = shard.rows()[len(old) :]
        assert [row.birth for row in again] == [returned, returned]
        assert [shard.is_held(row) for row in again] == [False, False]

    def test_a_held_version_comes_back_only_as_itself(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        shard.capture(bucket, "s1")
        shard.commit(bucket, "k", session, 250)
        shard.do(DeleteKey("vol", bucket, "k"))
        shard.capture(bucket, "s2")
        assert shard.undelete(bucket, "k", shard.row(0)) == "SNAPSHOT_IN_BETWEEN"

    def test_a_rollback_drops_the_runs_that_were_born_since(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 350)
        shard.sync(bucket, "k", session, 130)
        shard.capture(bucket, "s1")
        shard.sync(bucket, "k", session, 330)
        shard.roll_back(bucket, "s1")
        assert shard.size(bucket, "k") == 130
        assert shard.refusal(CommitKey("vol", bucket, "k", session, 330)) == "KEY_NOT_FOUND"
        assert [row.key.size_bytes for row in shard.garbage()] == [130], "the last block keeps what was added to it"
        assert not shard.is_held(shard.row())
        shard.do(DeleteKey("vol", bucket, "k"))
        assert shard.garbage()[-1].unread_bytes == 70

    def test_after_a_rollback_into_a_block_a_key_is_deleted_and_comes_back_as_long_as_it_was(
        self, shard: WritingShard, bucket: str
    ) -> None:
        session = shard.open(bucket, "k", 100)
        shard.sync(bucket, "k", session, 30)
        shard.capture(bucket, "s1")
        shard.commit(bucket, "k", session, 90)
        shard.roll_back(bucket, "s1")
        assert (shard.size(bucket, "k"), shard.bucket(bucket).used_bytes) == (30, 90)
        shard.do(DeleteKey("vol", bucket, "k"))
        assert shard.bucket(bucket).snapshot_used_bytes == 90
        (listed,) = list_deleted(shard.tables, shard.bucket(bucket))
        assert listed.size_bytes == 30
        assert shard.undelete(bucket, "k", shard.row()) == ""
        assert (shard.size(bucket, "k"), shard.bucket(bucket).used_bytes) == (30, 90)
        shard.do(DeleteKey("vol", bucket, "k"))
        row = shard.row()
        assert shard.is_held(row)
        shard.internal(DropSnapshot("s1"))
        (group,) = block_groups(shard.claim(row, chain_version=shard.chain_version).groups)
        assert group.blocks.size_bytes == 90

    def test_a_rollback_brings_back_a_dead_version_as_the_snapshot_saw_it(
        self, shard: WritingShard, bucket: str
    ) -> None:
        session = shard.open(bucket, "k", 450)
        for size_bytes in (30, 230):
            shard.sync(bucket, "k", session, size_bytes)
        shard.capture(bucket, "s1")
        for size_bytes in (250, 430):
            shard.sync(bucket, "k", session, size_bytes)
        shard.do(DeleteKey("vol", bucket, "k"))
        shard.roll_back(bucket, "s1")
        assert (shard.size(bucket, "k"), shard.bucket(bucket).used_bytes) == (230, 300)
        assert [row.key.size_bytes for row in shard.garbage()] == [130]
        shard.do(DeleteKey("vol", bucket, "k"))
        rows = shard.rows()[-2:]
        assert [shard.is_held(row) for row in rows] == [True, True]
        assert shard.undelete(bucket, "k", rows[0]) == ""
        assert shard.size(bucket, "k") == 230

    def test_a_version_without_bytes_comes_back_by_a_rollback(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 100)
        shard.sync(bucket, "k", session, 0)
        shard.capture(bucket, "s1")
        shard.commit(bucket, "k", session, 90)
        shard.roll_back(bucket, "s1")
        assert (shard.size(bucket, "k"), shard.bucket(bucket).used_bytes) == (0, 0)
        assert not shard.is_held(shard.row())

    def test_a_renamed_key_keeps_its_runs(self, shard: WritingShard, bucket: str) -> None:
        _two_runs(shard, bucket)
        shard.do(RenameKey("vol", bucket, "k", "other"))
        shard.commit(bucket, "other", shard.open(bucket, "other", 10, is_append=True), 260)
        shard.do(DeleteKey("vol", bucket, "other"))
        assert sorted(row.key.size_bytes for row in shard.garbage()) == [10, 100, 150]


def _no_checkpoint(_: str) -> TablesReader:
    raise KeyError


@BOTH
class TestWhatOzoneLoses:
    """Histories after which Ozone 2.2.0 has lost data, fails for ever or counts what is not there."""

    def test_hsync_snapshot_close_delete_leaves_the_snapshot_its_blocks(self, shard: WritingShard, bucket: str) -> None:
        session = shard.write(bucket, "k", 250)
        shard.capture(bucket, "s1")
        shard.commit(bucket, "k", session, 250)  # not a byte more
        shard.do(DeleteKey("vol", bucket, "k"))
        (row,) = shard.rows()
        assert shard.is_held(row)
        shard.internal(DropSnapshot("s1"))
        assert not shard.is_held(row)

    def test_a_commit_after_the_deletion_of_an_hsynced_key_is_refused(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        shard.do(DeleteKey("vol", bucket, "k"))
        for _ in range(2):
            assert shard.refusal(CommitKey("vol", bucket, "k", session, 250)) == "KEY_NOT_FOUND"
        assert shard.names(bucket) == {}
        shard.expire(bucket)
        _each_block_is_freed_once(shard)

    def test_an_expired_stream_leaves_the_upload_that_has_replaced_its_key(
        self, shard: WritingShard, bucket: str
    ) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        upload = shard.initiate(bucket, "k")
        shard.part(bucket, "k", upload, 1, 170)
        shard.complete(bucket, "k", upload, 1, tag="joined")
        assert shard.refusal(SyncKey("vol", bucket, "k", session, 250)) == "KEY_NOT_FOUND"
        assert shard.expire(bucket).expired == 1
        assert (shard.names(bucket), shard.size(bucket, "k")) == ({"k": "joined"}, 170)
        _each_block_is_freed_once(shard)
        assert sorted(row.key.size_bytes for row in shard.garbage()) == []

    def test_a_renamed_hsynced_key_stays_and_does_not_stop_the_expiry(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "k", 250)
        shard.sync(bucket, "k", session, 30)
        other = shard.open(bucket, "other", 10)
        shard.do(RenameKey("vol", bucket, "k", "new"))
        assert shard.refusal(SyncKey("vol", bucket, "k", session, 250)) == "KEY_NOT_FOUND"
        assert shard.open_keys(bucket) == [session, other]
        assert shard.expire(bucket).expired == 2
        assert (shard.size(bucket, "new"), shard.open_keys(bucket)) == (30, [])
        _each_block_is_freed_once(shard)

    def test_a_synced_key_in_a_renamed_directory_expires(self, shard: WritingShard, bucket: str) -> None:
        session = shard.open(bucket, "d/k", 250)
        shard.sync(bucket, "d/k", session, 30)
        other = shard.open(bucket, "other", 10)
        if bucket == "tree":
            shard.do(RenameDirectory("vol", bucket, "d", "e"))
        else:
            shard.do(RenameKey("vol", bucket, "d/k", "e/k"))
        assert shard.open_keys(bucket) == [session, other]
        assert shard.expire(bucket).expired == 2
        assert (shard.size(bucket, "e/k"), shard.open_keys(bucket)) == (30, [])
        _each_block_is_freed_once(shard)

    def test_a_deleted_hsynced_key_that_expires_is_freed_once(self, shard: WritingShard, bucket: str) -> None:
        for key, body in (("deleted", DeleteKey("vol", bucket, "deleted")), ("over", PutKey("vol", bucket, "over", 1))):
            session = shard.open(bucket, key, 250)
            for size_bytes in (30, 130):
                shard.sync(bucket, key, session, size_bytes)
            shard.do(body)
        assert shard.expire(bucket).expired == 2
        _each_block_is_freed_once(shard)

    def test_a_key_that_dies_twice_has_two_rows(self, shard: WritingShard, bucket: str) -> None:
        shard.done(PutKey("vol", bucket, "k", 70, "first"))
        session = shard.open(bucket, "k", 30, "second")
        shard.done(DeleteKey("vol", bucket, "k"))
        shard.commit(bucket, "k", session, 30)
        shard.done(DeleteKey("vol", bucket, "k"))
        assert sorted((row.key.tag, row.key.size_bytes) for row in shard.garbage()) == [("first", 70), ("second", 30)]
        _each_block_is_freed_once(shard)
        assert shard.bucket(bucket).snapshot_used_bytes == 0

    def test_a_refused_completion_counts_no_directory(self, shard: WritingShard, bucket: str) -> None:
        upload = shard.initiate(bucket, "d/e/k")
        shard.part(bucket, "d/e/k", upload, 1, 10)
        if bucket == "tree":
            shard.do(DeleteDirectory("vol", bucket, "d"))
        before = shard.bucket(bucket)
        assert shard.refusal(CompleteUpload("vol", bucket, "d/e/k", upload, (2,))) == "INVALID_PART"
        assert shard.bucket(bucket) == before
        assert shard.done(PutKey("vol", bucket, "d/x", 1))
        assert shard.bucket(bucket).used_namespace == before.used_namespace + (2 if bucket == "tree" else 1)

    @pytest.mark.parametrize("replication", Replication)
    def test_an_expired_upload_gives_back_what_its_parts_took(
        self, shard: WritingShard, bucket: str, replication: Replication
    ) -> None:
        shard.done(SetBucketReplication("vol", bucket, replication))
        shard.done(PutKey("vol", bucket, "other", 10))
        before = shard.bucket(bucket)
        shard.part(bucket, "k", shard.initiate(bucket, "k"), 1, 170)
        during, redundancy = shard.bucket(bucket), replicated_size(replication, 170) - 170
        assert during.used_bytes == before.used_bytes + 170
        assert during.used_redundancy_bytes == before.used_redundancy_bytes + redundancy
        assert shard.internal(ExpireWrites(UPLOADS, b"", 1_000, 0, 0)).expired == 1
        after = shard.bucket(bucket)
        assert (after.used_bytes, after.used_redundancy_bytes) == (before.used_bytes, before.used_redundancy_bytes)


def _each_block_is_freed_once(shard: WritingShard) -> None:
    """Claim and finish all rows: each block is in one of them, and none is of a live key or of an open one."""
    rows = shard.rows()
    assert len({(row.object_id, row.birth) for row in rows}) == len(rows)
    groups = block_groups(shard.claim(*rows, chain_version=shard.chain_version).groups)
    freed = [
        first + place
        for group in groups
        for first, count in [(group.blocks.first_local_id, group.blocks.block_count)]
        for place in range(count)
    ]
    assert len(set(freed)) == len(freed)
    shard.internal(FinishRows(1, by_columns(rows)))
    assert not any(True for _ in shard.tables.table(OPEN_KEY_TABLE).scan())


@BOTH
def test_a_shard_without_ids_of_blocks_still_closes_what_is_open(
    monkeypatch: pytest.MonkeyPatch, shard: WritingShard, bucket: str
) -> None:
    """Commits and the end of writes report blocks that were allocated before, which takes ids."""
    written, left, _ = (shard.open(bucket, key, 10) for key in ("written", "left", "forgotten"))
    for module in (transaction, present):
        monkeypatch.setattr(module, "LAST_TXN_WITH_BLOCKS", shard.txn)
    assert shard.refusal(OpenKey("vol", bucket, "later", 1, "", BLOCK)) == ErrorCode.SHARD_FULL
    assert shard.refusal(PutKey("vol", bucket, "later", 1, "", BLOCK)) == ErrorCode.SHARD_FULL
    shard.commit(bucket, "written", written, 10)
    shard.abandon(bucket, "left", left)
    assert shard.expire(bucket).expired == 1
    assert shard.sent(DEAD_LETTERS) == []
