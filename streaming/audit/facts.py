"""The facts that the tasks of an audit read: the rows that refer to blocks, and the blocks in the block store.

A task reads the states of a bucket side by side, so that a row that is the same in a hundred snapshots is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from heapq import merge
from itertools import groupby
from operator import itemgetter

from schemas.records import (
    BlockRun,
    ClaimedRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DirectoryRow,
    InventoryRow,
    KeyHead,
    KeyPartRow,
    KeyRow,
    PartRow,
    UploadRow,
)
from schemas.stored_rows import row_codec
from services.domain.table_keys import (
    flat_key,
    identity_of_garbage_key,
    key_of_version,
    key_parts_prefix,
    part_key,
    tree_key,
)
from streaming.audit.reach import ACTIVE, PRESENT, UNEXPANDED, DirectoryFact, state_bit
from streaming.audit.shard import (
    CLAIMED,
    DELETED,
    DELETED_DIRECTORIES,
    DIRECTORIES,
    FILES,
    FLAT_KEYS,
    INVENTORY,
    KEY_PARTS,
    KEY_VERSIONS,
    UPLOADED,
    UPLOADS,
    WHOLE,
    AuditedBucket,
    AuditedShard,
    Range,
    Row,
    Rows,
)
from streaming.rocksdb.checkpoint_rows import ranges

STATES_AT_ONCE = 24
"""Most copies that a task has open at once: each needs memory for reading ahead."""
BEFORE, AFTER = 1, 2
"""The bits of the two copies of the inventory."""
MarkedRow = tuple[bytes, bytes, int]
"""Key, value, and the bits of the copies that have it."""
States = Sequence[tuple[int, Rows]]
"""Open copies of states of a bucket, each with its bit."""


class FactKind(IntEnum):
    """The table that a fact comes from."""

    NAMESPACE = 0
    """A run of blocks of a live key in some states, or of a part of an upload; ``seen`` is the mask of the states that
    reach it."""
    DELETED = 1
    """A row of deletedTable; ``seen`` is its death."""
    CLAIMED = 2
    """A row of reclaimTable; ``seen`` is its death."""
    INVENTORY = 3
    """A run of blocks in the block store; ``seen`` is the mask of the inventory copies that have it."""
    NAMES = 4
    """No run, but a number of live keys of a bucket, with blocks or without; ``seen`` is the number."""
    BLOCK_ROWS = 5
    """No run, but a number of garbage rows of a bucket that are no keys; ``seen`` is the number."""


Fact = tuple[int, int, int, int, int, int, int, int, int, int, bytes]
"""kind; the run: container id, first local id, count, block size, size; bucket id; object id; birth (0 for a part of an
upload); seen; row's key.

A plain tuple, because the shard has at least one for each version and each run."""


@dataclass(frozen=True, slots=True)
class FactTask:
    """A range of a column family to read, in some states of a bucket."""

    family: str
    part: Range
    bucket_id: int = 0
    states: tuple[int, ...] = ()


def fact_tasks(shard: AuditedShard, parts: int) -> list[FactTask]:
    """Return the tasks that read all keys, garbage rows and inventory rows of the shard."""
    with shard.open(shard.copies.inventory_after, (INVENTORY,)) as rows:
        tasks = [FactTask(INVENTORY, part) for part in ranges(rows.boundaries(INVENTORY, *WHOLE, parts), *WHOLE)]
    tasks.append(FactTask(UPLOADS, WHOLE))
    with shard.open(shard.copies.namespace, (FILES, FLAT_KEYS, DELETED, CLAIMED)) as rows:
        for bucket in shard.buckets.values():
            for family in (DELETED, CLAIMED):
                whole = bucket.rows_of_tree
                cuts = rows.boundaries(family, *whole, parts)
                tasks += [FactTask(family, part, bucket.bucket_id) for part in ranges(cuts, *whole)]
            cuts = rows.boundaries(bucket.keys_family, *bucket.keys, parts)
            tasks += [
                FactTask(bucket.keys_family, part, bucket.bucket_id, states)
                for part in ranges(cuts, *bucket.keys)
                for states in _groups(1 + len(bucket.snapshot_ids))
            ]
            if bucket.is_rolling_back:
                tasks.append(FactTask(KEY_VERSIONS, bucket.rows_of_tree, bucket.bucket_id))
    return tasks


def _groups(count: int) -> list[tuple[int, ...]]:
    return [tuple(range(count))[start : start + STATES_AT_ONCE] for start in range(0, count, STATES_AT_ONCE)]


def directory_tasks(shard: AuditedShard) -> list[FactTask]:
    """Return the tasks that read the directories of every bucket that is a tree."""
    return [
        FactTask(DIRECTORIES, bucket.rows_of_tree, bucket.bucket_id, states)
        for bucket in shard.buckets.values()
        if bucket.is_tree
        for states in _groups(1 + len(bucket.snapshot_ids))
    ]


def facts_of(shard: AuditedShard, task: FactTask, reach: Mapping[int, Mapping[int, int]]) -> Iterator[Fact]:
    """Return the facts of a task; ``reach`` holds the result of ``reach_of`` for each bucket that is a tree."""
    if task.family == INVENTORY:
        return _inventory_facts(shard, task)
    if task.family in (DELETED, CLAIMED):
        return _garbage_facts(shard, task)
    if task.family == UPLOADS:
        return _upload_facts(shard, task)
    if task.family == KEY_VERSIONS:
        return _moving_version_facts(shard, task)
    return _namespace_facts(shard, task, reach.get(task.bucket_id, {}))


def _fact(kind: FactKind, run: BlockRun, bucket_id: int, object_id: int, birth: int, seen: int, key: bytes) -> Fact:
    return (
        int(kind), run.container_id, run.first_local_id, run.block_count, run.block_size_bytes, run.size_bytes,
        bucket_id, object_id, birth, seen, key,
    )  # fmt: skip


def _count(kind: FactKind, task: FactTask, number: int) -> Fact:
    return (int(kind), 0, 0, 0, 0, 0, task.bucket_id, 0, 0, number, b"")


def _namespace_facts(shard: AuditedShard, task: FactTask, reach: Mapping[int, int]) -> Iterator[Fact]:
    bucket, rows = shard.buckets[task.bucket_id], row_codec(KeyRow)
    decode, live_keys = rows.head(KeyHead), 0
    with _opened(shard, task, KEY_PARTS, KEY_VERSIONS) as states:
        for key, value, mask in _distinct_rows(states, task.family, task.part):
            head = decode(value)
            live_keys += mask & ACTIVE
            # A row below a directory that died before a snapshot was created is not reached: it is not in the snapshot.
            if head.blocks is not None and (reached := _reached(bucket, key, mask, reach)):
                yield _fact(FactKind.NAMESPACE, head.blocks, task.bucket_id, head.object_id, head.birth, reached, key)
            body = rows.body(value)
            if body[-1] or body[-2]:  # is_composed, version_rows
                owner = [one for one in states if one[0] & mask]
                for run, object_id, birth, there in _further(bucket, rows.decode(value), owner):
                    if reached := _reached(bucket, key, there, reach):
                        yield _fact(FactKind.NAMESPACE, run, task.bucket_id, object_id, birth, reached, key)
    yield _count(FactKind.NAMES, task, live_keys)


def _further(bucket: AuditedBucket, key: KeyRow, states: States) -> Iterator[tuple[BlockRun, int, int, int]]:
    """Yield the runs of a key behind its first one, those of its noncurrent versions included: the run, its objectID,
    its birth, and the mask of the states that have it like this.

    The first run of a noncurrent version has the objectID of the key, which it had while the version was current.
    """
    if key.is_composed:
        yield from _parts(bucket, key.object_id, states)
    if key.version_rows:
        decode, part = row_codec(KeyRow).decode, _rows_of_key(bucket, key.object_id)
        for _, value, mask in _distinct_rows(states, KEY_VERSIONS, part):
            version = decode(value)
            if version.blocks is not None:
                yield version.blocks, key.object_id, version.birth, mask
            if version.is_composed:
                yield from _parts(bucket, version.object_id, [one for one in states if one[0] & mask])


def _rows_of_key(bucket: AuditedBucket, object_id: int) -> Range:
    prefix = key_parts_prefix(bucket.volume_id, bucket.bucket_id, object_id)
    return prefix, prefix[:-1] + b"0"


def _parts(bucket: AuditedBucket, object_id: int, states: States) -> Iterator[tuple[BlockRun, int, int, int]]:
    """Yield the further runs of a version in some states, as ``_further`` does."""
    decode = row_codec(KeyPartRow).decode
    for _, value, mask in _distinct_rows(states, KEY_PARTS, _rows_of_key(bucket, object_id)):
        part = decode(value)
        yield part.blocks, part.object_id, part.birth, mask


def _upload_facts(shard: AuditedShard, task: FactTask) -> Iterator[Fact]:
    """Yield the runs of all parts of uploads. Only the active namespace has uploads."""
    decode, decode_part = row_codec(UploadRow).decode, row_codec(PartRow).decode
    with shard.open(shard.copies.namespace, (UPLOADS, UPLOADED)) as rows:
        for _, value in rows.scan(UPLOADS, *task.part):
            upload = decode(value)
            bucket = shard.buckets.get(upload.bucket_id)
            if bucket is None:  # another bucket is audited
                continue
            first = part_key(upload.upload_id, 0)
            for _, found in rows.scan(UPLOADED, first, first[:-5] + b"0"):
                for run in decode_part(found).runs:
                    yield _fact(
                        FactKind.NAMESPACE, run.blocks, bucket.bucket_id, run.object_id, 0, ACTIVE | PRESENT,
                        _key_of_upload(bucket, upload),
                    )  # fmt: skip


def _moving_version_facts(shard: AuditedShard, task: FactTask) -> Iterator[Fact]:
    """Yield the runs of all noncurrent versions of a bucket that is rolled back.

    Between the pages of the rollback their key may have died, so that its row does not lead to them.
    """
    bucket, decode = shard.buckets[task.bucket_id], row_codec(KeyRow).decode
    with shard.open(shard.copies.namespace, (KEY_VERSIONS, KEY_PARTS)) as rows:
        states = [(ACTIVE | PRESENT, rows)]
        for key, value in rows.scan(KEY_VERSIONS, *task.part):
            version, (object_id, birth) = decode(value), key_of_version(key)
            runs = [(version.blocks, object_id, birth)] if version.blocks is not None else []
            if version.is_composed:
                runs += [one[:3] for one in _parts(bucket, version.object_id, states)]
            for run, of_object, born in runs:
                yield _fact(FactKind.NAMESPACE, run, bucket.bucket_id, of_object, born, ACTIVE | PRESENT, b"")


def _key_of_upload(bucket: AuditedBucket, upload: UploadRow) -> bytes:
    if bucket.is_tree:
        return tree_key(bucket.volume_id, bucket.bucket_id, upload.parent_id, upload.name)
    return flat_key(bucket.volume, bucket.bucket, upload.name)


def _reached(bucket: AuditedBucket, key: bytes, mask: int, reach: Mapping[int, int]) -> int:
    """Return the states of a mask in which the root reaches a row. During a rollback, every active row is reached."""
    present = PRESENT if mask & ACTIVE else 0
    if not bucket.is_tree:
        return mask | present
    above = reach.get(int(key.split(b"/", 4)[3]), 0)
    reached = above & (mask | UNEXPANDED if mask & ACTIVE else mask) | present
    return reached | mask & ACTIVE if bucket.is_rolling_back else reached


@contextmanager
def _opened(shard: AuditedShard, task: FactTask, *further: str) -> Iterator[States]:
    """Open the copies of the states of a task, with its column family and further ones."""
    places = shard.places(shard.buckets[task.bucket_id])
    with ExitStack() as opened:
        yield [
            (state_bit(state), opened.enter_context(shard.open(places[state], (task.family, *further))))
            for state in task.states
        ]


def _distinct_rows(states: States, family: str, part: Range) -> Iterator[MarkedRow]:
    """Yield each distinct row of a range (key and value) once, with the mask of the states that have it."""
    rows = [_marked(copy.scan(family, *part), bit) for bit, copy in states]
    return _side_by_side(rows) if len(rows) > 1 else rows[0]


def _marked(rows: Iterable[Row], bit: int) -> Iterator[MarkedRow]:
    return ((key, value, bit) for key, value in rows)


def _side_by_side(copies: Sequence[Iterable[MarkedRow]]) -> Iterator[MarkedRow]:
    """Yield each distinct row (key and value) once, with the bits of the copies that have it."""
    for key, rows in groupby(merge(*copies, key=itemgetter(0)), itemgetter(0)):
        values: dict[bytes, int] = {}
        for _, value, bit in rows:
            values[value] = values.get(value, 0) | bit
        for value, bits in values.items():
            yield key, value, bits


def _garbage_facts(shard: AuditedShard, task: FactTask) -> Iterator[Fact]:
    kind = FactKind.DELETED
    decode: Callable[[bytes], DeletedKeyRow] = row_codec(DeletedKeyRow).decode
    if task.family == CLAIMED:
        kind, decode = FactKind.CLAIMED, _claimed_version
    block_rows = 0
    with shard.open(shard.copies.namespace, (task.family,)) as rows:
        for key, value in rows.scan(task.family, *task.part):
            row = decode(value)
            block_rows += row.part_of != 0 or row.version_of != 0
            if row.key.blocks is not None:
                # A noncurrent version is one of its key, whose objectID its first run has in the namespace.
                object_id = row.version_of or row.key.object_id
                death = identity_of_garbage_key(key)[1]
                yield _fact(kind, row.key.blocks, task.bucket_id, object_id, row.key.birth, death, key)
    yield _count(FactKind.BLOCK_ROWS, task, block_rows)


def _claimed_version(row: bytes) -> DeletedKeyRow:
    return row_codec(ClaimedRow).decode(row).version


def _inventory_facts(shard: AuditedShard, task: FactTask) -> Iterator[Fact]:
    """Yield the runs of both copies; if one bucket is audited, only runs of that bucket in the block store."""
    decode = row_codec(InventoryRow).decode
    only = shard.buckets if shard.copies.bucket else None
    with (
        shard.open(shard.copies.inventory_before, (INVENTORY,)) as before,
        shard.open(shard.copies.inventory_after, (INVENTORY,)) as after,
    ):
        copies = [_marked(rows.scan(INVENTORY, *task.part), bit) for rows, bit in ((before, BEFORE), (after, AFTER))]
        for _, value, seen in _side_by_side(copies):
            row = decode(value)
            if only is None or row.bucket_id in only:
                yield _fact(FactKind.INVENTORY, row.blocks, row.bucket_id, 0, 0, seen, b"")


def directories_of(shard: AuditedShard, task: FactTask) -> Iterator[DirectoryFact]:
    """Yield the directories of a range, one fact for each parent and name that a directory has had."""
    decode = row_codec(DirectoryRow).decode
    with _opened(shard, task) as states:
        for _, value, mask in _distinct_rows(states, task.family, task.part):
            row = decode(value)
            yield DirectoryFact(task.bucket_id, row.object_id, row.parent_id, row.name, mask)


def deleted_directories(shard: AuditedShard, bucket: AuditedBucket) -> list[DeletedDirectoryRow]:
    """Return the rows of deletedDirectoryTable of a bucket."""
    decode = row_codec(DeletedDirectoryRow).decode
    with shard.open(shard.copies.namespace, (DELETED_DIRECTORIES,)) as rows:
        return [decode(value) for _, value in rows.scan(DELETED_DIRECTORIES, *bucket.rows_of_tree)]
