"""After a rollback the active namespace lists what the snapshot lists, and every figure equals a recount of rows."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    BucketRow,
    CaptureSnapshot,
    ClaimRows,
    CreateBucket,
    CreateVolume,
    DeleteDirectory,
    DeletedKind,
    DeleteKey,
    DropSnapshot,
    ExpandDirectory,
    MakeDirectory,
    MetadataCommand,
    MetadataReply,
    PutKey,
    RemoveDirectories,
    RenameDirectory,
    RenameKey,
    RenameRow,
    RollbackOutcome,
    RollbackPage,
    RollbackPageDone,
    RowName,
    SnapshotCaptured,
)
from schemas.topics import (
    BY_NAME,
    DEAD_LETTERS,
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    METADATA_REPLIES,
)
from services.domain.row_columns import by_columns, deleted_entries
from services.domain.space_matrix import holders
from services.domain.table_keys import identity_of_garbage_key, object_txn
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.metadata.reads import queries
from services.metadata.service import MetadataService
from services.metadata.state.tables import (
    CHECKPOINTED,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    ROLLBACK_NAME_TABLE,
    SNAPSHOT_LIST_TABLE,
    SNAPSHOT_RENAMED_TABLE,
    SPACE_TABLE,
)
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader

pytestmark = pytest.mark.long

_SENDERS = {
    CaptureSnapshot: "snapshots",
    DropSnapshot: "snapshots",
    RollbackPage: "snapshots",
    ClaimRows: "key_deletion",
    ExpandDirectory: "directory_deletion",
    RemoveDirectories: "directory_deletion",
}
_NAMES = ("a", "b", "c")


class _Bucket:
    """A shard of metadata with one bucket, changed at random."""

    def __init__(self, layout: BucketLayout, random: Random) -> None:
        self.random = random
        self.is_tree = layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        self.clock = VirtualClock()
        self.log = MemoryLog(self.clock)
        self.store = MemoryStore(CHECKPOINTED)
        self.runner = Runner(MetadataService(), 0, self.store, self.log, self.clock)
        self.number = 0
        self.do(CreateVolume("vol"))
        self.do(CreateBucket("vol", "bucket", layout))
        self.id = self.row().object_id

    @property
    def tables(self) -> TablesReader:
        return TablesReader(self.store)

    def row(self) -> BucketRow:
        return queries.get_bucket(self.tables, "vol", "bucket")

    def send(self, body: Any) -> None:
        sender = _SENDERS.get(type(body), "")
        if not sender:
            self.number += 1
        encoder = codec(MetadataCommand)
        command = MetadataCommand(0, "" if sender else "me", 0 if sender else self.number, body, sender)
        self.log.append(METADATA_COMMANDS.name, 0, encoder.encode_message(command))

    def last(self, topic: Any) -> Any:
        return codec(BY_NAME[topic.name].record).decode_message(self.log.records(topic.name, 0)[-1].value)

    def do(self, body: Any) -> MetadataReply:
        self.send(body)
        self.runner.step()
        reply: MetadataReply = self.last(METADATA_REPLIES)
        return reply

    def internal(self, body: Any) -> Any:
        self.send(body)
        self.runner.step()
        return self.last(METADATA_PROGRESS).body

    def path(self) -> str:
        return "/".join(self.random.choice(_NAMES) for _ in range(self.random.randint(1, 3)))

    def change(self) -> None:
        """Some command of a client, or of a service about something that is dead."""
        path, other = self.path(), self.path()
        commands: list[Any] = [
            *[PutKey("vol", "bucket", path, self.random.choice((0, 5, 7)), str(self.number))] * 4,
            DeleteKey("vol", "bucket", path),
            RenameKey("vol", "bucket", path, other),
        ]
        if self.is_tree:
            commands += [
                MakeDirectory("vol", "bucket", path),
                DeleteDirectory("vol", "bucket", path),
                RenameDirectory("vol", "bucket", path, other),
                RenameDirectory("vol", "bucket", path, other),
            ]
        self.do(self.random.choice(commands))
        if self.random.random() < 0.3:
            self.service()

    def service(self) -> None:
        """A deleted entry, early or late, is expanded, claimed or purged."""
        records = self.log.records(DELETED_ENTRIES.name, 0)
        if not records:
            return
        message = codec(BY_NAME[DELETED_ENTRIES.name].record).decode_message(self.random.choice(records).value)
        entry = self.random.choice(deleted_entries(message))
        name = RowName(entry.kind, entry.bucket_id, entry.object_id, entry.birth, entry.death)
        if entry.kind is DeletedKind.DIRECTORY:
            limits = self.random.randint(1, 3), 999
            self.internal(ExpandDirectory(entry.bucket_id, entry.object_id, entry.death, *limits))
            self.internal(RemoveDirectories(1, (name,)))
        else:
            self.internal(ClaimRows(1, 1, by_columns([name])))

    def listing(self, snapshot_id: str = "") -> dict[str, tuple[bool, str, int]]:
        tables = TablesReader(self.store.open_checkpoint(snapshot_id)) if snapshot_id else self.tables
        entries = queries.walk(tables, queries.get_bucket(tables, "vol", "bucket"))
        return {entry.path: (entry.is_directory, entry.tag, entry.size_bytes) for entry in entries}

    def roll_back(self, snapshot_id: str) -> None:
        page = 0
        while True:
            page += 1
            command = RollbackPage("rollback", self.id, snapshot_id, page, self.random.randint(1, 6))
            answer = self.internal(command)
            assert isinstance(answer, RollbackPageDone)
            assert (answer.page, answer.message) == (page, "")
            if self.random.random() < 0.2:
                assert self.internal(command) == answer
            if answer.outcome is RollbackOutcome.DONE:
                return
            assert self.do(PutKey("vol", "bucket", "late", 1)).error == "BUCKET_BUSY"
            self.service()
            if self.random.random() < 0.1:
                self.runner = Runner(MetadataService(), 0, self.store, self.log, self.clock)

    def renames(self) -> list[RenameRow]:
        return [row for _, row in self.tables.table(SNAPSHOT_RENAMED_TABLE).scan()]

    def txn(self, snapshot_id: str) -> int:
        rows = self.tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0")
        return next(row.txn for _, row in rows if row.snapshot_id == snapshot_id)

    def check_figures(self) -> None:
        """Used figures, the matrix and the rows agree."""
        tables, row = self.tables, self.row()
        live = [key for definition in (KEY_TABLE, FILE_TABLE) for _, key in tables.table(definition).scan()]
        directories = list(tables.table(DIRECTORY_TABLE).scan())
        assert row.used_bytes == sum(key.size_bytes for key in live)
        assert row.used_namespace == len(live) + len(directories)
        snapshots = [one for _, one in tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0") if one.is_live]
        txns = [one.txn for one in snapshots]
        cells: Counter[tuple[int, int, str]] = Counter()
        for key, deleted in tables.table(DELETED_TABLE).scan():
            place = holders(deleted.key.birth, identity_of_garbage_key(key)[1], txns)
            cells[(*place, "bytes")] += deleted.key.size_bytes
            cells[(*place, "keys")] += 1
        for _, directory in tables.table(DELETED_DIRECTORY_TABLE).scan():
            cells[(*holders(object_txn(directory.directory.object_id), directory.death, txns), "directories")] += 1
        for _, rename in tables.table(SNAPSHOT_RENAMED_TABLE).scan():
            cells[(*holders(rename.birth, rename.death, txns), "renames")] += 1
        found: Counter[tuple[int, int, str]] = Counter()
        for _, cell in tables.table(SPACE_TABLE).scan():
            place = (cell.first_holder, cell.last_holder)
            found[(*place, "bytes")] += cell.bytes
            found[(*place, "keys")] += cell.key_rows
            found[(*place, "directories")] += cell.directory_rows
            found[(*place, "renames")] += cell.rename_rows
        assert +found == +cells


@pytest.mark.parametrize("layout", [BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE])
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_namespace_is_the_snapshots_again(layout: BucketLayout, seed: int) -> None:
    random = Random(seed)
    bucket = _Bucket(layout, random)
    taken = []
    for number in range(random.randint(1, 3)):
        for _ in range(random.randint(0, 15)):
            bucket.change()
        answer = bucket.internal(CaptureSnapshot("vol", "bucket", f"s{number}"))
        assert isinstance(answer, SnapshotCaptured)
        taken.append(f"s{number}")
    for _ in range(random.randint(0, 25)):
        bucket.change()
    target = random.choice(taken)
    for newer in reversed(taken[taken.index(target) + 1 :]):
        refused = bucket.internal(RollbackPage("early", bucket.id, target, 1, 10))
        assert refused.outcome is RollbackOutcome.REFUSED
        bucket.internal(DropSnapshot(newer))
    bucket.roll_back(target)
    assert bucket.listing() == bucket.listing(target)
    bucket.check_figures()
    assert not list(bucket.tables.table(ROLLBACK_NAME_TABLE).scan())
    assert not bucket.row().rollback_snapshot_id
    assert not [row for row in bucket.renames() if row.birth <= bucket.txn(target) < row.death]
    for _ in range(random.randint(0, 10)):  # life goes on, and may be rolled back again
        bucket.change()
    bucket.check_figures()
    bucket.internal(RollbackPage("again", bucket.id, target, 1, 10_000))
    assert bucket.listing() == bucket.listing(target)
    bucket.check_figures()
    assert not bucket.log.records(DEAD_LETTERS.name, 0)
