"""One shard of metadata on which keys are written in steps, and a recount of all that it says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from schemas.records import (
    AbandonKey,
    AbortUpload,
    AllocateBlocks,
    BlockRun,
    BucketLayout,
    BucketRow,
    CaptureSnapshot,
    CommitKey,
    Committed,
    CompleteUpload,
    DeletedKeyRow,
    DeletedKind,
    ExpandDirectory,
    ExpireWrites,
    InitiateUpload,
    KeyRow,
    OpenKey,
    RollbackOutcome,
    RollbackPage,
    RowName,
    SyncKey,
    Undelete,
)
from schemas.topics import METADATA_COMMANDS
from services.domain.space_matrix import holders
from services.domain.table_keys import key_of_version, version_object_id
from services.log.first_commands import first_commands
from services.metadata.namespace.key_parts import parts_of, runs_of, stored_bytes
from services.metadata.reads import queries
from services.metadata.recovery.digest import digest_shard
from services.metadata.state.tables import (
    BUCKET_TABLE,
    DELETED_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    OPEN_FILE_TABLE,
    OPEN_KEY_TABLE,
    PART_TABLE,
    RECLAIM_TABLE,
    UPLOAD_TABLE,
)
from services.storage.tables import TablesReader
from services.verifier.taken_bytes import blocks_of, taken_bytes
from tests.shard_copies import rebuilt_digest
from tests.unit.test_metadata import SENDERS, Shard

SENDERS |= {ExpireWrites: "key_deletion", RollbackPage: "snapshots"}
BLOCK = 100
"""Size of a full block."""
DAY_MS = 86_400_000
OPEN_KEYS = {"flat": 0, "tree": 1}
"""Number of the table of open keys in an ExpireWrites, by bucket."""
UPLOADS = 2


def checked_versions(tables: TablesReader, ids: tuple[int, int], keys: list[KeyRow]) -> list[KeyRow]:
    """Return the noncurrent versions of a bucket, of which each belongs to a key, is older than its current one, and is
    counted there with its runs."""
    prefix, counted, found = b"/%d/%d/" % ids, Counter[int](), list[KeyRow]()
    of_key = {key.object_id: key for key in keys}
    for row_key, version in tables.table(KEY_VERSION_TABLE).scan(prefix, prefix + b"\xff"):
        object_id, birth = key_of_version(row_key)
        assert version.birth == birth < of_key[object_id].birth
        assert version.object_id == version_object_id(birth)
        key = of_key[object_id]
        assert (version.parent_id, version.name) == (key.parent_id, key.name)
        counted[object_id] += 1 + len(parts_of(tables, ids, version))
        found.append(version)
    assert {key.object_id: key.version_rows for key in keys if key.version_rows} == counted
    return found


def _redundancy(runs: Iterable[BlockRun | None]) -> int:
    """What blocks take beyond one copy of them, as the verification counts it."""
    return sum(taken_bytes(blocks_of(run)) - run.size_bytes for run in runs if run is not None)


class WritingShard(Shard):
    """A shard of the newest feature level, with the buckets ``vol/tree`` and ``vol/flat``."""

    def __init__(self) -> None:
        super().__init__()
        for message in first_commands(0, None, self.clock.now_ms()):
            self.log.append(METADATA_COMMANDS.name, 0, message)
        self.runner.step()

    @property
    def tables(self) -> TablesReader:
        return TablesReader(self.store)

    def done(self, body: Any) -> Committed:
        """Carry out a command that is not refused, and say its facts."""
        reply = self.do(body)
        assert reply.committed, reply
        return reply.committed

    @property
    def txn(self) -> int:
        """The txn of the last command."""
        return queries.applied_txn(self.tables)

    # ---- writing

    def open(self, bucket: str, key: str, size_bytes: int = 0, tag: str = "t", **more: Any) -> int:
        return self.done(OpenKey("vol", bucket, key, size_bytes, tag, BLOCK, **more)).session

    def allocate(self, bucket: str, key: str, session: int, size_bytes: int) -> tuple[BlockRun, ...]:
        return self.done(AllocateBlocks("vol", bucket, key, session, size_bytes)).runs

    def sync(self, bucket: str, key: str, session: int, size_bytes: int) -> Committed:
        return self.done(SyncKey("vol", bucket, key, session, size_bytes))

    def commit(self, bucket: str, key: str, session: int, size_bytes: int) -> Committed:
        return self.done(CommitKey("vol", bucket, key, session, size_bytes))

    def abandon(self, bucket: str, key: str, session: int) -> Committed:
        return self.done(AbandonKey("vol", bucket, key, session))

    def write(self, bucket: str, key: str, *syncs: int, tag: str = "t") -> int:
        """Open a key with blocks for the last of some sizes, sync it at each, and say its id."""
        session = self.open(bucket, key, syncs[-1], tag)
        for size_bytes in syncs:
            self.sync(bucket, key, session, size_bytes)
        return session

    def initiate(self, bucket: str, key: str) -> str:
        return self.done(InitiateUpload("vol", bucket, key)).upload_id

    def part(self, bucket: str, key: str, upload: str, number: int, size_bytes: int, tag: str = "t") -> None:
        session = self.open(bucket, key, size_bytes, tag, upload_id=upload, part_number=number)
        self.commit(bucket, key, session, size_bytes)

    def complete(self, bucket: str, key: str, upload: str, *numbers: int, tag: str = "t") -> Committed:
        return self.done(CompleteUpload("vol", bucket, key, upload, numbers, tag))

    def abort(self, bucket: str, key: str, upload: str) -> None:
        self.done(AbortUpload("vol", bucket, key, upload))

    def expire(self, bucket: str, max_rows: int = 1_000, start_key: bytes = b"") -> Any:
        """Close the open keys of a layout, however young."""
        return self.internal(ExpireWrites(OPEN_KEYS[bucket], start_key, max_rows, 0, DAY_MS))

    # ---- snapshots and what is deleted

    def capture(self, bucket: str, snapshot_id: str) -> Any:
        captured = self.internal(CaptureSnapshot("vol", bucket, snapshot_id))
        assert not captured.error
        return captured

    def roll_back(self, bucket: str, snapshot_id: str) -> None:
        rollback_id = f"to {snapshot_id} at {self.txn}"
        done = self.internal(RollbackPage(rollback_id, self.bucket(bucket).object_id, snapshot_id, 1, 10**6))
        assert done.outcome is RollbackOutcome.DONE, done.message

    def expand(self, object_id: int, bucket: str = "tree") -> None:
        """Expand a deleted directory whose row came last to the judges."""
        entry = next(one for one in reversed(self.entries()) if one.object_id == object_id)
        self.internal(ExpandDirectory(self.bucket(bucket).object_id, object_id, entry.death, 1_000, 1 << 62))

    def undelete(self, bucket: str, path: str, row: RowName, target: str = "") -> str:
        body = Undelete("vol", bucket, target or path, DeletedKind.KEY, row.object_id, row.birth, row.death)
        return self.refusal(body)

    def is_held(self, row: RowName) -> bool:
        """Whether a claim of a row is refused because a snapshot holds it. Otherwise the row is claimed now."""
        claimed = self.claim(row, chain_version=self.chain_version)
        assert not claimed.missing, "there is no such row"
        assert bool(claimed.refused) != bool(claimed.groups.object_ids)
        return bool(claimed.refused)

    @property
    def chain_version(self) -> int:
        return queries.shard_state(self.tables).chain_version

    def garbage(self) -> list[DeletedKeyRow]:
        """Rows of deletedTable, oldest death first."""
        return [row for _, row in self.tables.table(DELETED_TABLE).scan(b"/", b"0")]

    def rows(self, start: int = 0) -> list[RowName]:
        """The rows that were sent to the judges, from a place on."""
        return [self.row(place) for place in range(start, len(self.entries()))]

    def size(self, bucket: str, path: str, snapshot_id: str = "") -> int:
        """The size of a key, now or in a snapshot."""
        tables = TablesReader(self.store.open_checkpoint(snapshot_id)) if snapshot_id else self.tables
        row = queries.stat(tables, queries.get_bucket(tables, "vol", bucket), path)
        assert isinstance(row, KeyRow)
        return row.size_bytes

    def open_keys(self, bucket: str) -> list[int]:
        """The ids of the open keys of a bucket."""
        table = self.tables.table(OPEN_KEY_TABLE if bucket == "flat" else OPEN_FILE_TABLE)
        return sorted(row.session for _, row in table.scan())

    # ---- recounts

    def check(self) -> None:
        """Compare figures, space matrix and counters with the rows, and all of it with a rebuild from the log."""
        stored = 0
        for _, bucket in self.tables.table(BUCKET_TABLE).scan():
            stored += self._check_bucket(bucket)
        for table in (OPEN_KEY_TABLE, OPEN_FILE_TABLE):
            for _, row in self.tables.table(table).scan():
                stored += sum(taken_bytes(blocks_of(run.blocks)) for run in row.runs)
        assert queries.shard_state(self.tables).stored_bytes == stored
        digest = digest_shard(self.store)
        for batch in (1, 2_000):
            assert rebuilt_digest(self.log, batch).differences(digest) == []

    def _check_bucket(self, bucket: BucketRow) -> int:
        """Check one bucket, and return the bytes of all its blocks that are not in an open key."""
        tables, ids = self.tables, (bucket.volume_id, bucket.object_id)
        is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        prefix = b"/%d/%d/" % ids if is_tree else f"/{bucket.volume}/{bucket.bucket}/".encode()
        keys = [row for _, row in tables.table(FILE_TABLE if is_tree else KEY_TABLE).scan(prefix, prefix + b"\xff")]
        keys += checked_versions(tables, ids, keys)
        uploads = {row.upload_id for _, row in tables.table(UPLOAD_TABLE).scan() if row.bucket_id == ids[1]}
        parts = [row for key, row in tables.table(PART_TABLE).scan() if key[:-5].decode() in uploads]
        part_bytes = sum(part.size_bytes for part in parts)
        assert bucket.used_bytes == sum(stored_bytes(key, parts_of(tables, ids, key)) for key in keys) + part_bytes
        assert bucket.upload_bytes == part_bytes
        garbage_prefix = b"/%d/%d/" % ids
        dead = [row for _, row in tables.table(DELETED_TABLE).scan(garbage_prefix, garbage_prefix + b"\xff")]
        claimed = [row.version for _, row in tables.table(RECLAIM_TABLE).scan(garbage_prefix, garbage_prefix + b"\xff")]
        assert bucket.snapshot_used_bytes == sum(row.key.size_bytes for row in [*dead, *claimed])
        spare = [row.key.size_bytes for row in [*dead, *claimed] if row.key.birth == row.death]
        assert bucket.spare_bytes == sum(spare)
        assert bucket.block_rows == sum(row.part_of != 0 or row.version_of != 0 for row in [*dead, *claimed])
        live = [row.txn for row in queries.live_snapshots(tables, ids[1])]
        cells: Counter[tuple[int, int]] = Counter()
        for row in dead:
            held_by = holders(row.key.birth, row.death, live) if live else (0, 0)
            cells[held_by] += row.key.size_bytes
        shown = queries.bucket_space(tables, bucket).cells
        assert {(one.first_holder, one.last_holder): one.bytes for one in shown if one.bytes} == dict(cells)
        runs = [run for key in keys for run in runs_of(key, parts_of(tables, ids, key))]
        redundancy = (
            _redundancy([*runs, *(run.blocks for part in parts for run in part.runs)]),
            _redundancy(row.key.blocks for row in [*dead, *claimed]),
            _redundancy(run.blocks for part in parts for run in part.runs),
            _redundancy(row.key.blocks for row in [*dead, *claimed] if row.key.birth == row.death),
        )
        counted = bucket.used_redundancy_bytes, bucket.snapshot_used_redundancy_bytes
        assert (*counted, bucket.upload_redundancy_bytes, bucket.spare_redundancy_bytes) == redundancy
        stored = sum(stored_bytes(key, parts_of(tables, ids, key)) for key in keys)
        return stored + part_bytes + bucket.snapshot_used_bytes + sum(redundancy[:2])
