"""The metadata service over its real loop, with a log and a database in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from schemas import records
from schemas.codec import codec
from schemas.records import (
    BlocksWritten,
    BucketLayout,
    CaptureSnapshot,
    ClaimRows,
    CollectionState,
    CreateBucket,
    CreateVolume,
    DeleteBucket,
    DeletedEntries,
    DeleteDirectory,
    DeletedKind,
    DeleteKey,
    DeleteKeys,
    DeleteVolume,
    DropSnapshot,
    ExpandDirectory,
    ExpansionOutcome,
    FinishRows,
    MakeDirectory,
    MetadataCommand,
    MetadataReply,
    PutKey,
    RemovalOutcome,
    RemoveDirectories,
    RenameDirectory,
    RenameKey,
    RowName,
    ScmCommand,
    SetCollection,
    SweepPage,
)
from schemas.topics import (
    BY_NAME,
    DEAD_LETTERS,
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    METADATA_REPLIES,
    SCM_COMMANDS,
    SNAPSHOT_CHAIN,
)
from services.domain.row_columns import DeletedEntry, block_groups, by_columns, deleted_entries, row_names
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.metadata.checkpoints import capture_drop
from services.metadata.collecting import sweeps
from services.metadata.reads import queries
from services.metadata.service import MetadataService
from services.metadata.state import transaction
from services.metadata.state.tables import CHECKPOINTED, DELETED_TABLE, RECLAIM_TABLE, SNAPSHOT_RENAMED_TABLE
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader

TREE = BucketLayout.FILE_SYSTEM_OPTIMIZED
FLAT = BucketLayout.OBJECT_STORE
END_OF_SWEEP = 4
SENDERS: dict[type[Any], str] = {
    CaptureSnapshot: "snapshots",
    DropSnapshot: "snapshots",
    ClaimRows: "key_deletion",
    FinishRows: "key_deletion",
    SweepPage: "key_deletion",
    ExpandDirectory: "directory_deletion",
    RemoveDirectories: "directory_deletion",
}


class Shard:
    """One shard of metadata with two buckets, ``vol/tree`` and ``vol/flat``."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = MemoryLog(self.clock)
        self.store = MemoryStore(CHECKPOINTED)
        self.number = 0
        self.start()
        self.do(CreateVolume("vol"))
        self.do(CreateBucket("vol", "tree", TREE))
        self.do(CreateBucket("vol", "flat", FLAT))

    def start(self) -> None:
        """Start the service on the database that is there."""
        self.runner = Runner(MetadataService(), 0, self.store, self.log, self.clock)

    def send(self, command: MetadataCommand) -> None:
        encoder = codec(MetadataCommand)
        self.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))

    def sent(self, topic: Any) -> list[Any]:
        return [codec(BY_NAME[topic.name].record).decode_message(r.value) for r in self.log.records(topic.name, 0)]

    def do(self, body: Any, **envelope: Any) -> MetadataReply:
        """Carry out a client's command and say its answer."""
        self.number += 1
        self.send(MetadataCommand(**{"shard": 0, "client_id": "me", "number": self.number, "body": body} | envelope))
        self.runner.step()
        reply: MetadataReply = self.sent(METADATA_REPLIES)[-1]
        return reply

    def refusal(self, body: Any, **envelope: Any) -> str:
        return self.do(body, **envelope).error

    def internal(self, body: Any) -> Any:
        """Carry out a service's command and say its answer."""
        self.send(MetadataCommand(0, "", 0, body, SENDERS[type(body)]))
        self.runner.step()
        progress = (one.body for one in reversed(self.sent(METADATA_PROGRESS)))
        return next(one for one in progress if not isinstance(one, records.CollectionChanged))

    def names(self, bucket: str, snapshot_id: str = "") -> dict[str, str]:
        """Path → tag of every key."""
        reader = self.store.open_checkpoint(snapshot_id) if snapshot_id else self.store
        tables = TablesReader(reader)
        entries = queries.walk(tables, queries.get_bucket(tables, "vol", bucket))
        return {entry.path: entry.tag for entry in entries if not entry.is_directory}

    def bucket(self, name: str) -> records.BucketRow:
        return queries.get_bucket(TablesReader(self.store), "vol", name)

    def space(self, name: str) -> Any:
        return queries.bucket_space(TablesReader(self.store), self.bucket(name))

    def entries(self) -> list[DeletedEntry]:
        """All that was sent to be judged."""
        return [entry for message in self.sent(DELETED_ENTRIES) for entry in deleted_entries(message)]

    def entry(self, index: int = -1) -> DeletedEntry:
        return self.entries()[index]

    def claim(self, *names: RowName, task: int = 1, chain_version: int = 0) -> Any:
        """Claim rows and say the answer."""
        return self.internal(ClaimRows(task, chain_version, by_columns(names)))

    def row(self, index: int = -1) -> RowName:
        entry = self.entry(index)
        return RowName(entry.kind, entry.bucket_id, entry.object_id, entry.birth, entry.death)


@pytest.fixture
def shard() -> Iterator[Shard]:
    made = Shard()
    yield made
    assert not made.sent(DEAD_LETTERS)


class TestNamespace:
    def test_an_overwrite_keeps_the_object_and_buries_the_version(self, shard: Shard) -> None:
        first = shard.do(PutKey("vol", "flat", "a/b", 10, "one"))
        second = shard.do(PutKey("vol", "flat", "a/b", 20, "two"))
        assert first.committed
        assert second.committed
        assert second.committed.object_id == first.committed.object_id
        entry = shard.entry()
        assert (entry.birth, entry.death, entry.kind) == (first.txn, second.txn, DeletedKind.KEY)
        assert shard.names("flat") == {"a/b": "two"}

    def test_a_version_without_bytes_leaves_nothing(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "empty", 0, "nothing"))
        shard.do(DeleteKey("vol", "flat", "empty"))
        assert shard.entries() == []
        assert shard.bucket("flat").used_namespace == 0

    def test_missing_directories_are_made(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "a/b/c", 1, "x"))
        assert shard.bucket("tree").used_namespace == 3
        assert shard.names("tree") == {"a/b/c": "x"}

    def test_paths_that_moved_or_went_are_not_remembered(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "a/b/one", 1))
        shard.do(RenameDirectory("vol", "tree", "a", "z"))
        shard.do(PutKey("vol", "tree", "a/b/two", 1))
        shard.do(DeleteDirectory("vol", "tree", "a/b"))
        shard.do(PutKey("vol", "tree", "a/b/three", 1))
        assert set(shard.names("tree")) == {"z/b/one", "a/b/three"}

    def test_directories_of_a_refused_command_are_not_remembered(self, shard: Shard) -> None:
        limit = 2**63 - 1
        shard.do(PutKey("vol", "tree", "large", limit, "", 1 << 60))
        assert shard.refusal(PutKey("vol", "tree", "a/b/more", limit, "", 1 << 60)) == "INVALID_REQUEST"
        shard.do(PutKey("vol", "tree", "a/b/k", 0))
        assert set(shard.names("tree")) == {"large", "a/b/k"}
        assert shard.bucket("tree").used_namespace == 4

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (PutKey("none", "tree", "k", 1), "VOLUME_NOT_FOUND"),
            (PutKey("vol", "none", "k", 1), "BUCKET_NOT_FOUND"),
            (PutKey("vol", "tree", "dir", 1), "NOT_A_FILE"),
            (PutKey("vol", "tree", "dir/file/below", 1), "NOT_A_FILE"),
            (PutKey("vol", "tree", "a//b", 1), "INVALID_PATH"),
            (PutKey("vol", "flat", "", 1), "INVALID_KEY_NAME"),
            (PutKey("vol", "flat", ".snapshot/x", 1), "INVALID_KEY_NAME"),
            (PutKey("vol", "flat", "k", -1), "INVALID_REQUEST"),
            (PutKey("vol", "flat", "k", 65_536, "", 1), "INVALID_REQUEST"),
            (PutKey("vol", "tree", "/".join("d" * 1 for _ in range(300)), 1), "INVALID_PATH"),
            (DeleteKey("vol", "flat", "none"), "KEY_NOT_FOUND"),
            (DeleteKey("vol", "tree", "none"), "KEY_NOT_FOUND"),
            (DeleteKey("vol", "tree", "/one"), "KEY_NOT_FOUND"),
            (DeleteKey("vol", "tree", "dir//file"), "KEY_NOT_FOUND"),
            (DeleteKey("vol", "tree", "one/"), "KEY_NOT_FOUND"),
            (DeleteKey("vol", "tree", ""), "KEY_NOT_FOUND"),
            (DeleteKey("vol", "tree", "dir"), "DIRECTORY_NOT_EMPTY"),
            (DeleteDirectory("vol", "tree", "none"), "KEY_NOT_FOUND"),
            (DeleteDirectory("vol", "tree", "dir", is_recursive=False), "DIRECTORY_NOT_EMPTY"),
            (DeleteDirectory("vol", "flat", "dir"), "NOT_SUPPORTED_OPERATION"),
            (MakeDirectory("vol", "tree", "dir/file"), "FILE_ALREADY_EXISTS"),
            (RenameKey("vol", "flat", "none", "x"), "KEY_NOT_FOUND"),
            (RenameKey("vol", "tree", "none", "x"), "KEY_NOT_FOUND"),
            (RenameKey("vol", "flat", "one", "two"), "KEY_ALREADY_EXISTS"),
            (RenameKey("vol", "tree", "one", "dir/file"), "KEY_ALREADY_EXISTS"),
            (RenameDirectory("vol", "tree", "dir", "none/dir"), "KEY_RENAME_ERROR"),
            (RenameDirectory("vol", "tree", "dir", "dir/below"), "KEY_RENAME_ERROR"),
            (RenameDirectory("vol", "tree", "dir", "dir"), "KEY_ALREADY_EXISTS"),
            (RenameDirectory("vol", "tree", "dir/sub", "dir"), "KEY_ALREADY_EXISTS"),
            (RenameKey("vol", "tree", "one", "one"), ""),
            (RenameKey("vol", "flat", "one", "one"), "KEY_ALREADY_EXISTS"),
            (CreateVolume("vol"), "VOLUME_ALREADY_EXISTS"),
            (CreateVolume("V"), "INVALID_VOLUME_NAME"),
            (CreateBucket("vol", "tree", TREE), "BUCKET_ALREADY_EXISTS"),
            (CreateBucket("vol", "a_b", TREE), "INVALID_BUCKET_NAME"),
            (DeleteVolume("vol"), "VOLUME_NOT_EMPTY"),
            (DeleteBucket("vol", "flat"), "BUCKET_NOT_EMPTY"),
        ],
    )
    def test_what_cannot_be_is_refused_with_ozones_code(self, shard: Shard, body: Any, code: str) -> None:
        for setup in (
            PutKey("vol", "tree", "dir/file", 1),
            MakeDirectory("vol", "tree", "dir/sub"),
            PutKey("vol", "tree", "one", 1),
            PutKey("vol", "flat", "one", 1),
            PutKey("vol", "flat", "two", 1),
        ):
            assert shard.do(setup).error == ""
        before = (shard.names("tree"), shard.names("flat"), shard.bucket("tree"), shard.bucket("flat"))
        assert shard.refusal(body) == code
        assert (shard.names("tree"), shard.names("flat"), shard.bucket("tree"), shard.bucket("flat")) == before

    def test_a_rename_onto_a_directory_goes_into_it(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "dir/x", 1, "x"))
        shard.do(PutKey("vol", "tree", "y", 1, "y"))
        shard.do(RenameKey("vol", "tree", "y", "dir"))
        assert shard.names("tree") == {"dir/x": "x", "dir/y": "y"}

    def test_renaming_a_directory_moves_what_is_below(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "a/b/c", 1, "c"))
        shard.do(RenameDirectory("vol", "tree", "a/b", "d"))
        assert shard.names("tree") == {"d/c": "c"}

    def test_the_tail_of_a_name_is_not_a_prefix(self, shard: Shard) -> None:
        """Bucket flat must not take in keys of bucket flat0, nor the other way round."""
        shard.do(CreateBucket("vol", "flat0", FLAT))
        shard.do(PutKey("vol", "flat0", "k", 1, "zero"))
        assert shard.names("flat") == {}
        assert shard.refusal(DeleteBucket("vol", "flat")) == ""
        assert shard.names("flat0") == {"k": "zero"}

    def test_a_listing_goes_on_behind_a_path(self, shard: Shard) -> None:
        paths = ["a", "a-b", "d/e/f", "d/e0", "d/g", "d0", "z"]
        for path in paths:
            shard.do(PutKey("vol", "tree", path, 1))
        tables = TablesReader(shard.store)
        whole = [entry.path for entry in queries.walk(tables, shard.bucket("tree"))]
        assert sorted(whole) == sorted([*paths, "d", "d/e"])
        for start, path in enumerate(whole):
            rest = [entry.path for entry in queries.list_entries(tables, shard.bucket("tree"), "", path)]
            assert rest == whole[start + 1 :]
        below = [entry.path for entry in queries.list_entries(tables, shard.bucket("tree"), "d/e")]
        assert below == [path for path in whole if path.startswith("d/e")]


class TestRequests:
    def test_a_repeat_gets_the_first_answer_and_changes_nothing(self, shard: Shard) -> None:
        first = shard.do(PutKey("vol", "flat", "k", 1, "one"))
        again = shard.do(PutKey("vol", "flat", "k", 1, "one"), number=shard.number)
        assert again == first
        assert shard.entries() == []

    def test_an_older_number_is_not_applied(self, shard: Shard) -> None:
        assert shard.refusal(PutKey("vol", "flat", "k", 1), number=1) == "OLD_REQUEST"
        assert shard.names("flat") == {}

    def test_a_refusal_is_remembered_too(self, shard: Shard) -> None:
        first = shard.do(DeleteKey("vol", "flat", "k"))
        shard.do(PutKey("vol", "flat", "k", 1), client_id="other", number=1)
        assert shard.do(DeleteKey("vol", "flat", "k"), number=first.number) == first

    def test_a_client_is_forgotten_after_an_hour(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 1), client_id="old", number=1)
        shard.clock.advance(3 * 3_600_000)
        shard.do(PutKey("vol", "flat", "other", 1), client_id="new", number=1)
        assert shard.refusal(PutKey("vol", "flat", "k", 1), client_id="old", number=1) == ""

    def test_a_command_in_another_shards_partition_is_refused(self, shard: Shard) -> None:
        assert shard.refusal(PutKey("vol", "flat", "k", 1), shard=1) == "WRONG_SHARD"

    def test_a_shard_without_ids_of_blocks_still_deletes(self, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        shard.do(PutKey("vol", "flat", "k", 1))
        last = queries.shard_state(TablesReader(shard.store)).txn + 1
        monkeypatch.setattr(transaction, "LAST_TXN_WITH_BLOCKS", last)
        assert shard.refusal(PutKey("vol", "flat", "last", 1)) == ""
        assert shard.refusal(PutKey("vol", "flat", "later", 1)) == "SHARD_FULL"
        assert shard.refusal(PutKey("vol", "flat", "empty", 0)) == ""
        assert shard.refusal(DeleteKey("vol", "flat", "k")) == ""
        assert shard.names("flat").keys() == {"last", "empty"}

    def test_an_internal_command_comes_from_its_service(self) -> None:
        shard = Shard()
        shard.send(MetadataCommand(0, "", 0, ClaimRows(1, 0, ()), "snapshots"))
        shard.send(MetadataCommand(0, "", 0, ClaimRows(2, 0, ()), ""))
        shard.runner.step()
        assert [letter.error for letter in shard.sent(DEAD_LETTERS)] == ["InvalidMessageError"] * 2
        assert shard.sent(METADATA_PROGRESS) == []

    def test_a_barrier_says_which_txn_it_has_passed(self, shard: Shard) -> None:
        """Undo windows of what died until then end with it, and no others."""
        shard.do(PutKey("vol", "flat", "k", 1))
        shard.do(PutKey("vol", "flat", "l", 1))
        deletes = [MetadataCommand(0, "other", 1 + n, DeleteKey("vol", "flat", key)) for n, key in enumerate("kl")]
        for command in (deletes[0], MetadataCommand(0, "", 0, records.Barrier("b", 1, 0, ""), "snapshots"), deletes[1]):
            shard.send(command)
        shard.runner.step()
        died, passed, died_later = shard.sent(DELETED_ENTRIES)[-3:]
        assert passed.barrier.passed_txn == max(died.rows.deaths)
        assert min(died_later.rows.deaths) == passed.barrier.passed_txn + 1

    @pytest.mark.parametrize(
        ("body", "sender"),
        [
            (records.Barrier("b", 1, 0, ""), ""),
            (records.GrantContainer(7), ""),
            (records.GrantContainer(7), "snapshots"),
            (records.StopClaims("no"), "mock_scm"),
            (records.PublishFullChain(), "streaming"),
        ],
    )
    def test_only_some_may_steer_the_shard(self, body: Any, sender: str) -> None:
        shard = Shard()
        shard.send(MetadataCommand(0, "", 0, body, sender))
        shard.runner.step()
        assert [letter.error for letter in shard.sent(DEAD_LETTERS)] == ["InvalidMessageError"]


class TestSnapshots:
    def test_a_snapshot_keeps_what_it_saw(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "tree", "a/b", 10, "one"))
        captured = shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        shard.do(PutKey("vol", "tree", "a/b", 20, "two"))
        assert (captured.ordinal, captured.chain_version, captured.referenced_bytes) == (1, 1, 10)
        assert shard.names("tree", "s1") == {"a/b": "one"}
        assert shard.entry().snapshots_before_death == 1

    def test_a_capture_that_is_repeated_gets_its_first_answer(self, shard: Shard) -> None:
        first = shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        shard.do(PutKey("vol", "tree", "k", 10))
        assert shard.internal(CaptureSnapshot("vol", "tree", "s1")) == first
        shard.internal(DropSnapshot("s1"))
        assert shard.internal(CaptureSnapshot("vol", "tree", "s1")) == first
        assert len(shard.sent(SNAPSHOT_CHAIN)) == 2

    def test_a_capture_that_comes_behind_its_drop_captures_nothing(self, shard: Shard) -> None:
        shard.internal(DropSnapshot("s1"))
        shard.start()
        late = shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        assert (late.error, late.snapshot_txn) == ("INVALID_REQUEST", 0)
        assert not shard.sent(SNAPSHOT_CHAIN)
        assert not shard.internal(CaptureSnapshot("vol", "tree", "s2")).error

    def test_a_capture_that_was_dead_lettered_and_comes_again_sees_the_state_of_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shard = Shard()
        shard.do(PutKey("vol", "flat", "one", 10))
        with monkeypatch.context() as patch:
            patch.setattr(capture_drop, "SnapshotListRow", None)  # its checkpoint is made by then
            shard.send(MetadataCommand(0, "", 0, CaptureSnapshot("vol", "flat", "s1"), "snapshots"))
            shard.runner.step()
        assert len(shard.sent(DEAD_LETTERS)) == 1
        shard.do(PutKey("vol", "flat", "two", 10))
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        assert set(shard.names("flat", "s1")) == {"one", "two"}

    def test_a_drop_says_what_the_snapshot_alone_held(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        shard.do(DeleteKey("vol", "flat", "k"))
        shard.internal(DropSnapshot("s1"))
        assert shard.sent(SNAPSHOT_CHAIN)[-1].body.rows_held_alone == 1
        assert shard.internal(DropSnapshot("s1")).chain_version == 2
        assert shard.internal(DropSnapshot("never")).chain_version == 2
        assert len(shard.sent(SNAPSHOT_CHAIN)) == 2

    def test_ordinals_are_never_used_again(self, shard: Shard) -> None:
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        shard.internal(DropSnapshot("s1"))
        assert shard.internal(CaptureSnapshot("vol", "flat", "s2")).ordinal == 2

    def test_a_snapshot_of_a_missing_bucket_is_refused(self, shard: Shard) -> None:
        assert shard.internal(CaptureSnapshot("vol", "none", "s1")).error == "BUCKET_NOT_FOUND"
        assert shard.internal(CaptureSnapshot("none", "none", "s1")).error == "VOLUME_NOT_FOUND"

    def test_a_bucket_with_snapshots_stays(self, shard: Shard) -> None:
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        assert shard.refusal(DeleteBucket("vol", "flat")) == "CONTAINS_SNAPSHOT"
        shard.internal(DropSnapshot("s1"))
        assert shard.refusal(DeleteBucket("vol", "flat")) == ""

    def test_only_the_first_rename_since_the_newest_snapshot_is_kept(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "before", 1))
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        shard.do(PutKey("vol", "flat", "young", 1))
        for old, new in (("before", "b"), ("b", "before"), ("before", "c"), ("young", "y")):
            shard.do(RenameKey("vol", "flat", old, new))
        rows = [row for _, row in TablesReader(shard.store).table(SNAPSHOT_RENAMED_TABLE).scan(b"/", b"0")]
        assert [row.db_key for row in rows] == ["/vol/flat/before"]


class TestClaims:
    def test_a_claimed_row_is_answered_with_its_blocks_until_it_is_finished(self, shard: Shard) -> None:
        put = shard.do(PutKey("vol", "flat", "k", 10))
        shard.do(DeleteKey("vol", "flat", "k"))
        row = shard.row()
        for _ in range(2):
            claimed = shard.claim(row, task=7, chain_version=0)
            assert put.committed
            assert [group.blocks for group in block_groups(claimed.groups)] == [put.committed.blocks]
        assert shard.space("flat").claimed_bytes == 10
        for _ in range(2):
            assert shard.internal(FinishRows(8, by_columns([row]))) == records.RowsFinished(8)
        assert shard.claim(row, task=9, chain_version=0).missing == by_columns([row])
        space = shard.space("flat")
        assert (space.claimed_bytes, space.freed_bytes, space.deleted_bytes, space.pending_bytes) == (0, 10, 0, 0)

    def test_a_held_row_is_refused_and_kept(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        shard.do(DeleteKey("vol", "flat", "k"))
        row = shard.row()
        assert shard.claim(row, task=1, chain_version=1).refused == by_columns([row])
        shard.internal(DropSnapshot("s1"))
        assert len(shard.claim(row, task=2, chain_version=2).groups.object_ids) == 1

    def test_the_death_that_counts_is_the_rows(self, shard: Shard) -> None:
        """A message that names another death, or another birth, is about no row."""
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        shard.do(DeleteKey("vol", "flat", "k"))
        right = shard.row()
        wrong_birth = RowName(right.kind, right.bucket_id, right.object_id, right.birth + 100, right.death)
        wrong_death = RowName(right.kind, right.bucket_id, right.object_id, right.birth, right.death - 1)
        wrong_bucket = RowName(right.kind, 12345, right.object_id, right.birth, right.death)
        claimed = shard.claim(wrong_birth, wrong_death, wrong_bucket)
        assert row_names(claimed.missing) == [wrong_birth, wrong_death, wrong_bucket]
        assert TablesReader(shard.store).table(RECLAIM_TABLE).get(b"") is None
        assert len(list(TablesReader(shard.store).table(DELETED_TABLE).scan(b"/", b"0"))) == 1

    def test_claims_are_suspended_while_they_are_stopped(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.do(DeleteKey("vol", "flat", "k"))
        row = shard.row()
        shard.send(MetadataCommand(0, "", 0, records.StopClaims("chain corrupted"), "snapshots"))
        assert shard.claim(row, task=1, chain_version=0).suspended == by_columns([row])
        shard.start()
        assert shard.claim(row, task=1, chain_version=0).suspended == by_columns([row])
        shard.do(SetCollection("", "", CollectionState.RUNNING, "nothing was paused"))
        assert shard.claim(row, task=1, chain_version=0).suspended == by_columns([row]), "a stop is no pause"
        shard.do(SetCollection("", "", CollectionState.RUNNING, "mended", ends_stop=True))
        assert len(shard.claim(row, task=1, chain_version=0).groups.object_ids) == 1


class TestUnits:
    """Commands of one unit of work, whose versions are read together, see what the ones before them did."""

    def test_each_command_sees_what_the_ones_before_it_did(self, shard: Shard) -> None:
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.do(PutKey("vol", "flat", "kept", 7))
        bodies: list[Any] = [
            *(DeleteKey("vol", "flat", "k"), DeleteKey("vol", "flat", "k")),
            *(PutKey("vol", "flat", "k", 5), DeleteKey("vol", "flat", "k")),
            *(RenameKey("vol", "flat", "kept", "other"), DeleteKey("vol", "flat", "kept")),
            *(DeleteKey("vol", "none", "k"), DeleteKey("vol", "tree", "k"), DeleteKeys("vol", "flat", ("other", "k"))),
        ]
        for number, body in enumerate(bodies, start=100):
            shard.send(MetadataCommand(0, "many", number, body))
        assert shard.runner.step() == len(bodies)
        codes = [reply.error for reply in shard.sent(METADATA_REPLIES)[-len(bodies) :]]
        missing = "KEY_NOT_FOUND"
        assert codes == ["", missing, "", "", "", missing, "BUCKET_NOT_FOUND", missing, ""]
        assert shard.names("flat") == {}
        assert sorted(row.key.size_bytes for _, row in _deleted(shard)) == [5, 7, 10]


def _deleted(shard: Shard) -> Iterator[tuple[bytes, records.DeletedKeyRow]]:
    return TablesReader(shard.store).table(DELETED_TABLE).scan(b"/", b"0")


class TestNotes:
    """A refused command leaves nothing in the figures of its batch, which the commands beside it are in."""

    def test_of_an_answer_that_does_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shard = Shard()
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.do(DeleteKey("vol", "flat", "k"))
        row = shard.row()
        others = {name: 1 << 20 for name in BY_NAME if name != METADATA_PROGRESS.name}
        with monkeypatch.context() as patch:
            patch.setattr("services.runtime.loop.service._LARGEST_BYTES", 1)
            patch.setattr("services.runtime.loop.service._LARGEST_OF", others)
            shard.send(MetadataCommand(0, "", 0, ClaimRows(1, 0, by_columns([row])), "key_deletion"))
            shard.do(PutKey("vol", "flat", "next", 5))
        assert [letter.topic for letter in shard.sent(DEAD_LETTERS)] == [METADATA_COMMANDS.name]
        space = shard.space("flat")
        assert (space.live_bytes, space.pending_bytes, space.claimed_bytes) == (5, 10, 0)
        assert len(shard.claim(row).groups.object_ids) == 1
        assert (shard.space("flat").pending_bytes, shard.space("flat").claimed_bytes) == (0, 10)

    def test_of_a_put_that_the_shard_has_no_numbers_for(self, shard: Shard) -> None:
        most = 2**63 - 1
        shard.do(PutKey("vol", "flat", "small", 10))
        for number, size_bytes in enumerate((most - 9, 5, most - 15, 1), start=100):
            body = PutKey("vol", "flat", f"k{number}", size_bytes, "", most)
            shard.send(MetadataCommand(0, "many", number, body))
        shard.runner.step()
        codes = [reply.error for reply in shard.sent(METADATA_REPLIES)[-4:]]
        assert codes == ["INVALID_REQUEST", "", "", "INVALID_REQUEST"]
        assert shard.space("flat").live_bytes == most
        assert shard.bucket("flat").used_namespace == 3


class TestDirectories:
    def _deleted_tree(self, shard: Shard) -> RowName:
        for path in ("d/a", "d/b", "d/e/c", "d/e/f/g"):
            shard.do(PutKey("vol", "tree", path, 10, path))
        shard.do(DeleteDirectory("vol", "tree", "d"))
        return shard.row()

    def _expand(self, shard: Shard, row: RowName, max_entries: int = 100) -> Any:
        return shard.internal(ExpandDirectory(row.bucket_id, row.object_id, row.death, max_entries, 1_000_000))

    def test_deleting_a_tree_moves_one_row(self, shard: Shard) -> None:
        row = self._deleted_tree(shard)
        assert [entry.kind for entry in shard.entries()] == [DeletedKind.DIRECTORY]
        assert shard.names("tree") == {}
        assert shard.bucket("tree").used_bytes == 40
        expanded = self._expand(shard, row)
        assert (expanded.outcome, expanded.moved_directories, expanded.moved_files) == (
            ExpansionOutcome.EXPANDED, 2, 4,
        )  # fmt: skip
        assert {entry.death for entry in shard.entries()} == {row.death}
        assert (shard.bucket("tree").used_bytes, shard.bucket("tree").used_namespace) == (0, 0)

    def test_pages_come_to_the_same_end(self, shard: Shard) -> None:
        row = self._deleted_tree(shard)
        pages = 0
        while self._expand(shard, row, max_entries=1).outcome is ExpansionOutcome.PARTLY:
            pages += 1
        assert pages == 2
        for index in range(3):
            entry = [e for e in shard.entries() if e.kind is DeletedKind.DIRECTORY][index]
            name = RowName(entry.kind, entry.bucket_id, entry.object_id, entry.birth, entry.death)
            while self._expand(shard, name, 1).outcome is ExpansionOutcome.PARTLY:
                pass
        kinds = [entry.kind for entry in shard.entries()]
        assert (kinds.count(DeletedKind.KEY), shard.space("tree").unexpanded_directories) == (4, 0)

    def test_a_row_goes_when_it_is_expanded_and_childless(self, shard: Shard) -> None:
        row = self._deleted_tree(shard)
        assert shard.internal(RemoveDirectories(0, (row,))).rows[0].outcome is RemovalOutcome.UNEXPANDED
        self._expand(shard, row)
        assert shard.internal(RemoveDirectories(0, (row,))).rows[0].outcome is RemovalOutcome.HAS_CHILDREN
        others = [
            RowName(e.kind, e.bucket_id, e.object_id, e.birth, e.death)
            for e in shard.entries()
            if e.kind is DeletedKind.DIRECTORY and e.object_id != row.object_id
        ]
        while others:
            outcomes = shard.internal(RemoveDirectories(0, tuple(others))).rows
            others = [o for o, done in zip(others, outcomes, strict=True) if done.outcome is not RemovalOutcome.REMOVED]
        assert shard.internal(RemoveDirectories(0, (row,))).rows[0].outcome is RemovalOutcome.REMOVED
        assert shard.internal(RemoveDirectories(0, (row,))).rows[0].outcome is RemovalOutcome.MISSING

    def test_a_row_stays_as_long_as_a_snapshot_holds_it(self, shard: Shard) -> None:
        for name in ("d", "d/e"):
            shard.do(MakeDirectory("vol", "tree", name))
        shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        shard.do(DeleteDirectory("vol", "tree", "d/e"))
        row = shard.row()
        self._expand(shard, row)
        assert shard.internal(RemoveDirectories(1, (row,))).rows[0].outcome is RemovalOutcome.HELD
        assert shard.internal(RemoveDirectories(1, (row,))).rows[0].outcome is RemovalOutcome.HELD
        shard.internal(DropSnapshot("s1"))
        assert shard.internal(RemoveDirectories(2, (row,))).rows[0].outcome is RemovalOutcome.REMOVED

    def test_a_late_expansion_gives_the_death_of_the_directory(self, shard: Shard) -> None:
        row = self._deleted_tree(shard)
        captured = shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        assert captured.referenced_bytes == 40
        self._expand(shard, row)
        keys = [e for e in shard.entries() if e.kind is DeletedKind.KEY]
        assert {(e.death, e.snapshots_before_death) for e in keys} == {(row.death, 0)}
        (listed,) = queries.live_snapshots(TablesReader(shard.store), shard.bucket("tree").object_id)
        assert listed.referenced_bytes == 0
        assert shard.space("tree").pending_bytes == 40

    def test_a_deleted_bucket_is_still_expanded_and_freed(self, shard: Shard) -> None:
        row = self._deleted_tree(shard)
        assert shard.refusal(DeleteBucket("vol", "tree")) == ""
        shard.do(CreateBucket("vol", "tree", TREE))
        self._expand(shard, row)
        assert shard.bucket("tree").used_bytes == 0
        keys = [e for e in shard.entries() if e.kind is DeletedKind.KEY]
        rows = tuple(RowName(e.kind, e.bucket_id, e.object_id, e.birth, e.death) for e in keys)
        assert len(shard.claim(*rows).groups.object_ids) == 4
        shard.internal(FinishRows(1, by_columns(rows)))
        assert shard.bucket("tree").snapshot_used_bytes == 0


class TestSweeps:
    @pytest.mark.parametrize("is_of_one_bucket", [False, True])
    def test_goes_through_claimed_rows_when_it_is_asked_to(self, shard: Shard, *, is_of_one_bucket: bool) -> None:
        shard.do(PutKey("vol", "flat", "k", 10))
        shard.do(DeleteKey("vol", "flat", "k"))
        entry = shard.entry()
        row = RowName(entry.kind, entry.bucket_id, entry.object_id, entry.birth, entry.death)
        shard.internal(ClaimRows(1, 0, by_columns([row])))
        bucket_id = entry.bucket_id if is_of_one_bucket else 0
        page = SweepPage(1, 1, bucket_id, 0, 0, 0, 0, 0, b"", 10, 1_000_000)
        assert shard.internal(page).rows == 1
        assert shard.internal(replace(page, sweep_id=3, bucket_id=shard.bucket("tree").object_id)).rows == 0
        assert shard.internal(replace(page, sweep_id=2, with_claimed=False)).rows == 0

    def _sweep(self, shard: Shard, **changes: Any) -> list[DeletedEntry]:
        before = len(shard.entries())
        page = SweepPage(1, 1, shard.bucket("tree").object_id, 0, 0, 0, 0, 0, b"", 2, 1_000_000)
        command = {one.name: getattr(page, one.name) for one in fields(page)} | changes
        while True:
            sent = shard.internal(SweepPage(**command))
            if sent.next_table == END_OF_SWEEP:
                return shard.entries()[before:]
            command |= {"start_table": sent.next_table, "start_key": sent.next_key, "page": command["page"] + 1}

    def test_all_rows_of_a_garbage_range_come_again_page_by_page(self, shard: Shard) -> None:
        for path in ("a", "b", "c", "d/e"):
            shard.do(PutKey("vol", "tree", path, 10))
        shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        shard.do(RenameKey("vol", "tree", "a", "x"))
        for path in ("x", "b", "c"):
            shard.do(DeleteKey("vol", "tree", path))
        shard.do(DeleteDirectory("vol", "tree", "d"))
        first = shard.entries()
        again = self._sweep(shard)
        identity = [(e.kind, e.object_id, e.birth, e.death, e.snapshots_before_death) for e in again]
        assert sorted(identity) == sorted(
            (e.kind, e.object_id, e.birth, e.death, e.snapshots_before_death) for e in first
        )
        assert [e.sweep_page for e in again] == [1, 1, 2, 2, 3]

    def test_the_messages_of_a_page_follow_from_its_rows_alone(self, shard: Shard) -> None:
        """Whoever counts what was judged knows them by txn and number, whatever else is in their batch."""
        for path in ("a", "b", "c", "d/e"):
            shard.do(PutKey("vol", "tree", path, 10))
        shard.internal(CaptureSnapshot("vol", "tree", "s1"))
        shard.do(RenameKey("vol", "tree", "a", "x"))
        shard.do(DeleteKeys("vol", "tree", ("x", "b", "c")))
        shard.do(DeleteDirectory("vol", "tree", "d"))
        page = SweepPage(1, 1, shard.bucket("tree").object_id, 0, 0, 0, 0, 0, b"", 100, 1_000_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sweeps, "MAX_ROWS_PER_MESSAGE", 2)
            before = len(shard.entries())
            sent = shard.internal(page)
        found = shard.entries()[before:]
        assert [(e.kind.value, e.sweep_part) for e in found] == [
            *(("KEY", 0), ("KEY", 0), ("KEY", 1)),
            *(("DIRECTORY", 2), ("RENAME_ENTRY", 3)),
        ]
        assert sent.rows == len(found)
        assert len({e.sweep_txn for e in found}) == 1
        assert found[0].sweep_txn > found[0].death

    def test_a_sweep_of_everything_stops_at_a_death(self, shard: Shard) -> None:
        for path in "ab":
            shard.do(PutKey("vol", "tree", path, 10))
        deaths = [shard.do(DeleteKey("vol", "tree", path)).txn for path in "ab"]
        assert [e.death for e in self._sweep(shard, bucket_id=0, until_death=deaths[0])] == [deaths[0]]

    def test_a_range_of_deaths_and_births_bounds_a_sweep(self, shard: Shard) -> None:
        births = [shard.do(PutKey("vol", "tree", path, 10)).txn for path in "abc"]
        deaths = [shard.do(DeleteKey("vol", "tree", path)).txn for path in "abc"]
        assert [e.death for e in self._sweep(shard, after_death=deaths[0], until_death=deaths[1])] == [deaths[1]]
        assert [e.birth for e in self._sweep(shard, after_birth=births[0], until_birth=births[1])] == [births[1]]

    def test_a_claimed_row_is_swept_with_the_snapshots_before_its_death(self, shard: Shard) -> None:
        """Judges refuse a death that does not follow so many snapshots, and the row would stay for ever."""
        shard.internal(CaptureSnapshot("vol", "flat", "s1"))
        shard.do(PutKey("vol", "flat", "a", 10))
        shard.do(DeleteKey("vol", "flat", "a"))
        shard.claim(shard.row())
        shard.internal(CaptureSnapshot("vol", "flat", "s2"))
        assert [e.snapshots_before_death for e in self._sweep(shard, bucket_id=0)] == [1]

    def test_a_sweep_of_everything_knows_every_bucket_and_what_is_claimed(self, shard: Shard) -> None:
        """Also in buckets that never had a snapshot: nothing else brings back what a dead letter has lost."""
        for bucket in ("tree", "flat"):
            for path in ("a", "b"):
                shard.do(PutKey("vol", bucket, path, 10))
                shard.do(DeleteKey("vol", bucket, path))
        claimed = shard.row()
        shard.claim(claimed, task=1, chain_version=0)
        first = shard.entries()
        again = self._sweep(shard, bucket_id=0)
        identity = [(e.bucket_id, e.kind, e.object_id, e.birth, e.death, e.snapshots_before_death) for e in again]
        assert sorted(identity) == sorted(
            (e.bucket_id, e.kind, e.object_id, e.birth, e.death, e.snapshots_before_death) for e in first
        )
        assert again[-1].object_id == claimed.object_id
        assert len(shard.claim(claimed, task=2, chain_version=0).groups.object_ids) == 1


class TestBlocks:
    def test_ids_follow_from_shard_and_txn(self, shard: Shard) -> None:
        put = shard.do(PutKey("vol", "flat", "k", 25, "", 10))
        assert put.committed
        assert put.committed.blocks == records.BlockRun(0, put.txn << 16, 3, 10, 25)
        written = shard.sent(SCM_COMMANDS)[-1].body
        bucket_id = shard.bucket("flat").object_id
        assert written == records.BlocksWritten(bucket_id, 0, (put.txn << 16,), (3,), (10,), (25,))

    def test_a_granted_container_takes_later_blocks(self, shard: Shard) -> None:
        for container in (5, 4):
            shard.send(MetadataCommand(0, "", 0, records.GrantContainer(container), "mock_scm"))
        put = shard.do(PutKey("vol", "flat", "k", 25))
        assert put.committed
        assert put.committed.blocks
        assert put.committed.blocks.container_id == 5


def test_a_rebuild_from_the_log_gives_the_same_database() -> None:
    """Whatever the batches are: the state follows from the log alone."""
    shard = Shard()
    for step in range(40):
        shard.clock.advance(1_000 * step)
        shard.do(PutKey("vol", "tree", f"d{step % 5}/k{step % 3}", step))
        if step % 7 == 0:
            shard.internal(CaptureSnapshot("vol", "tree", f"s{step}"))
        if step % 6 == 5:
            shard.do(DeleteDirectory("vol", "tree", f"d{step % 5}"))
            row = shard.row()
            shard.internal(ExpandDirectory(row.bucket_id, row.object_id, row.death, 1, 1_000_000))
    shard.internal(DropSnapshot("s7"))
    rebuilt = MemoryStore(CHECKPOINTED)
    other_log = MemoryLog(shard.clock)
    other_log.partitions[METADATA_COMMANDS.name, 0] = shard.log.records(METADATA_COMMANDS.name, 0)
    runner = Runner(MetadataService(), 0, rebuilt, other_log, shard.clock, max_batch_messages=17)
    while runner.step():
        pass
    for family in MetadataService.tables:
        assert list(rebuilt.scan(family.name, b"", b"\xff")) == list(shard.store.scan(family.name, b"", b"\xff"))
    for name in shard.store.checkpoints():
        assert list(rebuilt.open_checkpoint(name).scan("fileTable", b"", b"\xff")) == list(
            shard.store.open_checkpoint(name).scan("fileTable", b"", b"\xff")
        )
    for topic in (METADATA_REPLIES, METADATA_PROGRESS, SNAPSHOT_CHAIN):
        assert [r.value for r in other_log.records(topic.name, 0)] == [
            r.value for r in shard.log.records(topic.name, 0)
        ]
    # How many rows a message is about follows from the batches; what it says of each does not.
    assert judged_entries(other_log) == judged_entries(shard.log)
    assert written_versions(other_log) == written_versions(shard.log)


def judged_entries(log: MemoryLog) -> Counter[DeletedEntry]:
    messages = [codec(DeletedEntries).decode_message(record.value) for record in log.records(DELETED_ENTRIES.name, 0)]
    return Counter(entry for message in messages for entry in deleted_entries(message))


def written_versions(log: MemoryLog) -> list[tuple[int, ...]]:
    """What SCM was told of each version."""
    commands = [codec(ScmCommand).decode_message(record.value).body for record in log.records(SCM_COMMANDS.name, 0)]
    return [
        (command.bucket_id, command.container_id, *version)
        for command in commands
        if isinstance(command, BlocksWritten)
        for version in zip(
            command.first_local_ids,
            command.block_counts,
            command.block_sizes_bytes,
            command.sizes_bytes,
            strict=True,
        )
    ]
