"""Every run of blocks that a shard has, live or deleted, with the snapshots that hold it: the rows of ``inventory``.

Tasks read ranges of the copy's tables. The rule that says who holds a version is that of ``services.domain``.

A file below a deleted directory that is not expanded yet is LIVE: it has no row of its own among the deleted ones. A
key of zero bytes has no blocks and no row here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

from schemas.records import BlockRun, ClaimedRow, DeletedKeyRow, KeyPartRow, KeyRow, PartRow, UploadRow
from schemas.stored_rows import row_codec
from services.domain.replication import replicated_bytes_of
from services.domain.space_matrix import NOBODY, holders
from services.domain.table_keys import HIGHEST_TXN, bucket_key, identity_of_garbage_key
from streaming.audit.shard import (
    CLAIMED,
    DELETED,
    FILES,
    FLAT_KEYS,
    KEY_PARTS,
    KEY_VERSIONS,
    UPLOADED,
    UPLOADS,
    Opener,
)
from streaming.rocksdb.checkpoint_rows import WHOLE, CheckpointRows, Range, Row, ranges
from streaming.spark.python_source import frame_read_by
from streaming.tables.columns import INVENTORY
from streaming.tables.copied_shard import CopiedShard

LIVE, UPLOAD, HELD, PENDING, IN_CLAIM = "LIVE", "UPLOAD", "HELD", "PENDING", "CLAIMED"
PARTS_PER_CORE = 2
ROWS_PER_TASK = 50_000
"""Rows of a table in one task, about: a task with fewer rows spends most of its time on opening the copy."""
Task = tuple[str, Range]
"""A table, and the range of its keys."""
_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind, _ in INVENTORY.columns if not name.startswith("as_of_")])


class _Run(NamedTuple):
    """One run of blocks, as its row has it."""

    bucket_id: int
    stage: str
    object_id: int
    birth: int
    blocks: BlockRun
    death: int | None = None
    parent_id: int | None = None
    name: str | None = None
    modification_time_ms: int | None = None
    deletion_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CopiedBuckets:
    """What tasks need of a shard to read its inventory."""

    shard: int
    directory: str
    names: Mapping[int, tuple[str, str]]
    live_snapshots: Mapping[int, Sequence[int]]
    """txns of the live snapshots of each bucket, ascending."""
    flat: Mapping[bytes, int]
    """The buckets by the beginning of the keys in keyTable."""
    open: Opener

    def batches(self, table: str, part: Range) -> Iterator[pa.RecordBatch]:
        """Yield the runs of a range of a table."""
        with self.open(self.directory, (table, *_BESIDE.get(table, ()))) as rows:
            more = _uploads(rows) if table == UPLOADED else {}
            for chunk in rows.chunks(table, *part):
                found = [run for row in chunk for run in READERS[table](self, row, more)]
                if found:
                    columns = zip(SCHEMA, zip(*map(self._columns, found), strict=True), strict=True)
                    yield pa.record_batch([pa.array(column, field.type) for field, column in columns], SCHEMA)

    def _columns(self, run: _Run) -> tuple[Any, ...]:
        first, last = NOBODY
        if run.birth:  # no snapshot has uploads
            death = HIGHEST_TXN + 1 if run.death is None else run.death
            first, last = holders(run.birth, death, self.live_snapshots.get(run.bucket_id, ()))
        stage = run.stage if first or run.stage != HELD else PENDING
        blocks = run.blocks
        return (
            *(self.shard, run.bucket_id, *self.names.get(run.bucket_id, (None, None))),
            *(stage, run.object_id, run.parent_id, run.name, run.birth, run.death, first or None, last or None),
            *(_microseconds(run.modification_time_ms), _microseconds(run.deletion_time_ms)),
            *(blocks.container_id, blocks.first_local_id, blocks.block_count, blocks.block_size_bytes),
            *(blocks.size_bytes, replicated_bytes_of(blocks)),
        )


def _microseconds(time_ms: int | None) -> int | None:
    return time_ms * 1_000 if time_ms else None


_Runs = Iterator[_Run]
_Uploads = Mapping[str, UploadRow]


def _bucket_id(key: bytes) -> int:
    return int(key.split(b"/", 3)[2])


def _key(bucket_id: int, key: KeyRow) -> _Runs:
    if key.blocks is not None:
        yield _Run(
            *(bucket_id, LIVE, key.object_id, key.birth, key.blocks),
            parent_id=key.parent_id,
            name=key.name,
            modification_time_ms=key.modification_time_ms,
        )


def _flat_key(buckets: CopiedBuckets, row: Row, _: _Uploads) -> _Runs:
    prefix = row[0][: row[0].index(b"/", row[0].index(b"/", 1) + 1)]
    return _key(buckets.flat[prefix], row_codec(KeyRow).decode(row[1]))


def _tree_key(_: CopiedBuckets, row: Row, __: _Uploads) -> _Runs:
    return _key(_bucket_id(row[0]), row_codec(KeyRow).decode(row[1]))


def _further_run(_: CopiedBuckets, row: Row, __: _Uploads) -> _Runs:
    part = row_codec(KeyPartRow).decode(row[1])
    yield _Run(_bucket_id(row[0]), LIVE, part.object_id, part.birth, part.blocks)


def _deleted(bucket_id: int, stage: str, row: DeletedKeyRow) -> _Runs:
    key = row.key
    if key.blocks is None:
        return
    is_version = not row.part_of
    yield _Run(
        *(bucket_id, stage, key.object_id, key.birth, key.blocks, row.death),
        parent_id=key.parent_id if is_version else None,
        name=key.name if is_version else None,
        modification_time_ms=key.modification_time_ms if is_version else None,
        deletion_time_ms=row.deletion_time_ms,
    )


def _garbage(_: CopiedBuckets, row: Row, __: _Uploads) -> _Runs:
    return _deleted(identity_of_garbage_key(row[0])[0], HELD, row_codec(DeletedKeyRow).decode(row[1]))


def _claimed(_: CopiedBuckets, row: Row, __: _Uploads) -> _Runs:
    claimed = row_codec(ClaimedRow).decode(row[1]).version
    return _deleted(identity_of_garbage_key(row[0])[0], IN_CLAIM, claimed)


def _part(_: CopiedBuckets, row: Row, uploads: _Uploads) -> _Runs:
    upload = uploads[row[0][:-5].decode()]  # a slash and four bytes follow the id
    for run in row_codec(PartRow).decode(row[1]).runs:
        yield _Run(upload.bucket_id, UPLOAD, run.object_id, 0, run.blocks, name=upload.name, parent_id=upload.parent_id)


def _uploads(rows: Any) -> _Uploads:
    decoded = (row_codec(UploadRow).decode(value) for _, value in rows.scan(UPLOADS, *WHOLE))
    return {upload.upload_id: upload for upload in decoded}


READERS = {
    FLAT_KEYS: _flat_key,
    FILES: _tree_key,
    KEY_VERSIONS: _tree_key,
    KEY_PARTS: _further_run,
    DELETED: _garbage,
    CLAIMED: _claimed,
    UPLOADED: _part,
}
"""What reads the runs of a row, by the table of the row."""
_BESIDE = {UPLOADED: (UPLOADS,)}


def buckets_to_read(copied: CopiedShard, opener: Opener) -> CopiedBuckets:
    """Return what tasks need of a shard."""
    buckets = copied.buckets.values()
    return CopiedBuckets(
        *(copied.shard, copied.directory),
        names={one.bucket_id: (one.volume, one.bucket) for one in buckets},
        live_snapshots={one.bucket_id: one.snapshot_txns for one in buckets},
        flat={bucket_key(one.volume, one.bucket): one.bucket_id for one in buckets if not one.is_deleted},
        open=opener,
    )


def inventory(session: SparkSession, buckets: CopiedBuckets) -> DataFrame:
    """Return all runs of a shard."""
    most, tasks = PARTS_PER_CORE * session.sparkContext.defaultParallelism, list[Task]()
    with CheckpointRows(buckets.directory, tuple(READERS)) as rows:
        for table in READERS:
            parts = min(most, 1 + rows.estimated_rows(table) // ROWS_PER_TASK)
            cuts = rows.boundaries(table, *WHOLE, parts) if parts > 1 else set[bytes]()
            tasks += [(table, part) for part in ranges(cuts, *WHOLE)]

    parts_of_tasks = [tasks[part::most] for part in range(min(most, len(tasks)))]
    return frame_read_by(session, "deepclean-inventory", SCHEMA, lambda: InventoryReader(buckets, parts_of_tasks))


class InventoryReader(DataSourceReader):
    """Reads some ranges of tables in each partition."""

    def __init__(self, buckets: CopiedBuckets, parts: Sequence[Sequence[Task]]) -> None:
        self._buckets = buckets
        self._parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each list of ranges."""
        parts, self._parts = self._parts, ()
        return [InputPartition(tasks) for tasks in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        for table, part in partition.value:
            yield from self._buckets.batches(table, part)
