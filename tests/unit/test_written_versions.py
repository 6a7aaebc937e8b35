"""Versions that are written in steps, on one shard of metadata: what comes between the steps of a client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from schemas import records
from schemas.records import (
    AbandonKey,
    AbortUpload,
    AllocateBlocks,
    BlockRun,
    CaptureSnapshot,
    ClaimRows,
    CommitKey,
    CompleteUpload,
    DeletedKind,
    DeleteKey,
    FinishRows,
    InitiateUpload,
    MakeDirectory,
    MetadataCommand,
    OpenKey,
    PutKey,
    RequeueOrphans,
    RollbackOutcome,
    RollbackPage,
    RowName,
    SyncKey,
)
from schemas.topics import DEAD_LETTERS, METADATA_COMMANDS, METADATA_PROGRESS
from services.domain.row_columns import by_columns
from services.log.first_commands import first_commands
from services.metadata.reads import queries, space_queries
from services.metadata.state.tables import DELETED_TABLE, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.storage.tables import TablesReader
from tests.unit.test_metadata import Shard

BLOCK = 100


class WrittenShard(Shard):
    """A shard with a client that writes in steps."""

    def opened(self, bucket: str, key: str, size_bytes: int, **more: Any) -> int:
        reply = self.do(OpenKey("vol", bucket, key, size_bytes, "", BLOCK, **more))
        assert reply.committed, reply.message
        return reply.committed.session

    def synced(self, bucket: str, key: str, session: int, size_bytes: int) -> str:
        return self.refusal(SyncKey("vol", bucket, key, session, size_bytes))

    def blocks_of(self, bucket: str, key: str) -> list[BlockRun]:
        """The runs of blocks that a reader of a key is given."""
        return queries.key_blocks(TablesReader(self.store), self.bucket(bucket), key)

    def captured(self, bucket: str, snapshot: str) -> records.SnapshotCaptured:
        captured = self.internal(CaptureSnapshot("vol", bucket, snapshot))
        assert isinstance(captured, records.SnapshotCaptured)
        assert not captured.error
        return captured

    def rolled_back(self, bucket: str, snapshot: str) -> None:
        page = RollbackPage("back", self.bucket(bucket).object_id, snapshot, 1, 1_000)
        self.send(MetadataCommand(0, "", 0, page, "snapshots"))
        self.runner.step()
        answer = self.sent(METADATA_PROGRESS)[-1].body
        assert answer.outcome is RollbackOutcome.DONE


@pytest.fixture
def shard() -> Iterator[WrittenShard]:
    made = WrittenShard()
    for message in first_commands(0, None, 0):
        made.log.append(METADATA_COMMANDS.name, 0, message)
    made.runner.step()
    yield made
    assert not made.sent(DEAD_LETTERS)


class TestAPlace:
    """Where an open key belongs may be taken by something else meanwhile."""

    def test_a_directory_that_was_created_there_is_not_written_over(self, shard: WrittenShard) -> None:
        session = shard.opened("tree", "a/x", 10)
        shard.do(MakeDirectory("vol", "tree", "a/x"))
        assert shard.refusal(CommitKey("vol", "tree", "a/x", session, 10)) == "NOT_A_FILE"
        assert shard.synced("tree", "a/x", session, 10) == "NOT_A_FILE"
        assert shard.refusal(AbandonKey("vol", "tree", "a/x", session)) == ""


class TestReferencedBytes:
    """What a snapshot references are the bytes of the blocks that it shows."""

    def referenced(self, shard: WrittenShard, bucket: str = "flat") -> list[tuple[int, int, int]]:
        tables = TablesReader(shard.store)
        found = space_queries.snapshot_spaces(tables, shard.bucket(bucket), 0, 100).snapshots
        return [(one.referenced_bytes, one.held_bytes, one.shared_with_next_bytes) for one in found]

    def test_parts_of_uploads_are_not_shown(self, shard: WrittenShard) -> None:
        begun = shard.do(InitiateUpload("vol", "flat", "k"))
        assert begun.committed
        upload_id = begun.committed.upload_id
        for number, size_bytes in ((1, 10), (2, 20), (2, 30), (3, 40)):
            session = shard.opened("flat", "k", BLOCK, upload_id=upload_id, part_number=number)
            assert shard.refusal(CommitKey("vol", "flat", "k", session, size_bytes)) == ""
        assert shard.captured("flat", "during").referenced_bytes == 0
        assert shard.bucket("flat").used_bytes == 80
        shard.do(CompleteUpload("vol", "flat", "k", upload_id, (1, 3)))
        assert shard.captured("flat", "after").referenced_bytes == 50
        assert self.referenced(shard) == [(0, 0, 0), (50, 0, 50)]

    def test_parts_of_an_upload_that_has_ended_are_not_subtracted_twice(self, shard: WrittenShard) -> None:
        begun = shard.do(InitiateUpload("vol", "flat", "k"))
        assert begun.committed
        upload_id = begun.committed.upload_id
        session = shard.opened("flat", "k", BLOCK, upload_id=upload_id, part_number=1)
        shard.do(CommitKey("vol", "flat", "k", session, 10))
        shard.do(AbortUpload("vol", "flat", "k", upload_id))
        shard.do(PutKey("vol", "flat", "other", 7))
        assert shard.captured("flat", "snap").referenced_bytes == 7

    def test_a_block_grows_in_all_snapshots_that_show_it(self, shard: WrittenShard) -> None:
        shard.captured("flat", "before")
        session = shard.opened("flat", "k", 2 * BLOCK)
        shard.synced("flat", "k", session, 10)
        shard.captured("flat", "snap")
        shard.synced("flat", "k", session, 50)
        assert self.referenced(shard) == [(0, 0, 0), (50, 0, 50)]
        shard.synced("flat", "k", session, 2 * BLOCK)
        assert self.referenced(shard) == [(0, 0, 0), (100, 0, 100)]
        shard.do(DeleteKey("vol", "flat", "k"))
        assert self.referenced(shard) == [(0, 0, 0), (100, 100, 0)]

    def test_what_a_rollback_leaves_behind_the_end_of_a_key_is_used(self, shard: WrittenShard) -> None:
        session = shard.opened("flat", "k", 2 * BLOCK)
        shard.synced("flat", "k", session, 10)
        shard.captured("flat", "snap")
        shard.synced("flat", "k", session, 2 * BLOCK)
        shard.rolled_back("flat", "snap")
        assert (shard.bucket("flat").used_bytes, shard.bucket("flat").snapshot_used_bytes) == (100, 100)
        assert shard.captured("flat", "again").referenced_bytes == 100
        shard.do(DeleteKey("vol", "flat", "k"))
        assert (shard.bucket("flat").used_bytes, shard.bucket("flat").snapshot_used_bytes) == (0, 200)


class TestBlocksThatAnAuditCallsOrphaned:
    def requeued(self, shard: WrittenShard, *runs: BlockRun) -> str:
        position = TablesReader(shard.store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
        assert position is not None
        body = RequeueOrphans(shard.bucket("flat").object_id, position.txn, runs, 1_000)
        return shard.refusal(body, sender="audit")

    def test_those_of_an_open_key_are_kept_whatever_has_become_of_them(self, shard: WrittenShard) -> None:
        opened = shard.do(OpenKey("vol", "flat", "k", 100, "", BLOCK)).committed
        assert opened
        added = shard.do(AllocateBlocks("vol", "flat", "k", opened.session, 500)).committed
        assert added
        run, *_ = added.runs
        assert self.requeued(shard, run) == "INVALID_REQUEST", "nobody has seen them"
        shard.synced("flat", "k", opened.session, 250)
        used, rest = replace(run, block_count=2), replace(run, first_local_id=run.first_local_id + 2, block_count=3)
        for some in (run, used, rest):
            assert self.requeued(shard, some) == "INVALID_REQUEST", "the version shows the first two of them"
        shard.do(CommitKey("vol", "flat", "k", opened.session, 250))
        assert self.requeued(shard, used) == "INVALID_REQUEST", "behind the first run of a key"

    def test_those_of_a_part_are_kept(self, shard: WrittenShard) -> None:
        begun = shard.do(InitiateUpload("vol", "flat", "k")).committed
        assert begun
        opened = shard.do(
            OpenKey("vol", "flat", "k", 300, "", BLOCK, upload_id=begun.upload_id, part_number=1)
        ).committed
        assert opened
        shard.do(CommitKey("vol", "flat", "k", opened.session, 250))
        assert self.requeued(shard, replace(opened.runs[0], size_bytes=250)) == "INVALID_REQUEST"

    def test_those_that_nothing_refers_to_any_more_are_requeued_beside_others_of_their_command(
        self, shard: WrittenShard
    ) -> None:
        opened = shard.do(OpenKey("vol", "flat", "k", 300, "", BLOCK)).committed
        assert opened
        shard.do(CommitKey("vol", "flat", "k", opened.session, 100))
        unused, *_ = [row.key for _, row in TablesReader(shard.store).table(DELETED_TABLE).scan()]
        assert unused.blocks
        name = RowName(DeletedKind.KEY, shard.bucket("flat").object_id, unused.object_id, unused.birth, unused.birth)
        shard.internal(ClaimRows(1, 1, by_columns([name])))
        assert self.requeued(shard, unused.blocks) == "INVALID_REQUEST"
        shard.internal(FinishRows(1, by_columns([name])))
        assert self.requeued(shard, unused.blocks) == ""


class TestAVersionThatWasRolledBack:
    def test_who_wrote_it_does_not_add_to_blocks_of_another_client(self, shard: WrittenShard) -> None:
        """Rolled back and appended to, a version may be as long as before, with other blocks."""
        first = shard.opened("flat", "k", 2 * BLOCK)
        assert shard.synced("flat", "k", first, BLOCK) == ""
        shard.captured("flat", "snap")
        assert shard.synced("flat", "k", first, BLOCK + 40) == ""
        shard.rolled_back("flat", "snap")
        second = shard.opened("flat", "k", 40, is_append=True)
        assert shard.synced("flat", "k", second, BLOCK + 40) == ""
        assert shard.synced("flat", "k", first, BLOCK + 70) == "KEY_NOT_FOUND"
        assert shard.synced("flat", "k", second, BLOCK + 70) == ""

    def test_what_was_undone_is_not_read_and_nothing_is_appended_behind_it(self, shard: WrittenShard) -> None:
        first = shard.opened("flat", "k", BLOCK)
        assert shard.synced("flat", "k", first, 10) == ""
        shard.captured("flat", "snap")
        assert shard.synced("flat", "k", first, 40) == ""
        assert [run.size_bytes for run in shard.blocks_of("flat", "k")] == [40]
        shard.rolled_back("flat", "snap")
        assert [run.size_bytes for run in shard.blocks_of("flat", "k")] == [10]
        append = OpenKey("vol", "flat", "k", 30, "", BLOCK, is_append=True)
        assert shard.refusal(append) == "NOT_SUPPORTED_OPERATION"
        shard.do(PutKey("vol", "flat", "k", 20))
        assert shard.refusal(append) == ""
