"""The facts that the tasks of an audit read: the rows that refer to blocks, and the blocks in the block store.

A task reads all states of a bucket together, so that a row that is the same in a hundred snapshots is decoded once.
Facts are columns: most of them are only counted, and are never made objects of Python.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import compress, repeat
from typing import Any

from schemas.records import (
    BlockRun,
    ClaimedRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DirectoryRow,
    InventoryRow,
    KeyPartRow,
    KeyRow,
    PartRow,
    UploadRow,
)
from schemas.stored_rows import RowCodec, row_codec
from services.domain.table_keys import (
    flat_key,
    identity_of_garbage_key,
    key_of_version,
    key_parts_prefix,
    part_key,
    tree_key,
)
from streaming.audit.reach import ACTIVE, PRESENT, UNEXPANDED, DirectoryFact
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
    AuditedBucket,
    AuditedShard,
)
from streaming.audit.states import NO_STATES, StateGroup, States
from streaming.rocksdb.checkpoint_rows import WHOLE, Range, Row, ranges
from streaming.rocksdb.side_by_side import SideBySide, distinct_rows

BEFORE, AFTER = 1, 2
"""The bits of the two copies of the inventory."""


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
upload); seen; row's key."""
Column = Sequence[int]
RUN = ("container_id", "first_local_id", "block_count", "block_size_bytes", "size_bytes")


@dataclass(slots=True)
class Facts:
    """Facts of one kind and bucket, as columns of one length. The inventory has runs of all buckets."""

    kind: FactKind
    bucket: AuditedBucket | None
    """None for the inventory."""
    run: Sequence[Column]
    """Five columns, as in ``RUN``."""
    bucket_ids: Column
    object_ids: Column
    births: Column
    seen: list[int]
    keys: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.seen)

    def rows(self) -> Iterator[Fact]:
        """Yield the facts one by one."""
        return zip(
            repeat(int(self.kind)), *self.run, self.bucket_ids, self.object_ids, self.births, self.seen, self.keys
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FactTask:
    """A range of a column family to read, in some states of a bucket."""

    family: str
    part: Range
    bucket_id: int = 0
    states: StateGroup = NO_STATES
    reach: Mapping[int, int] = field(default_factory=dict)
    """The states that reach each directory with keys in the range (``reach_of``)."""


def fact_tasks(
    shard: AuditedShard,
    groups: Mapping[int, Sequence[StateGroup]],
    reach: Mapping[int, Mapping[int, int]],
    parts: int,
) -> list[FactTask]:
    """Return the tasks that read all keys, garbage rows and inventory rows of the shard.

    ``groups`` are the states of each bucket; ``reach`` holds the result of ``reach_of`` for each bucket that is a tree.
    """
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
            reached = _ReachedParts(bucket, reach.get(bucket.bucket_id, {}))
            tasks += [
                FactTask(bucket.keys_family, part, bucket.bucket_id, states, of_part)
                for part in ranges(cuts, *bucket.keys)
                for of_part in (reached.within(part),)
                for states in groups[bucket.bucket_id]
            ]
            if bucket.is_rolling_back:
                tasks.append(FactTask(KEY_VERSIONS, bucket.rows_of_tree, bucket.bucket_id))
    return tasks


class _ReachedParts:
    """The directories of a tree in the order of their children's keys."""

    def __init__(self, bucket: AuditedBucket, reach: Mapping[int, int]) -> None:
        prefix = bucket.rows_of_tree[0]
        self._sorted = sorted((b"%b%d/" % (prefix, directory), directory, mask) for directory, mask in reach.items())

    def within(self, part: Range) -> Mapping[int, int]:
        """Return the directories that may have children in a range of keys."""
        start, end = (bisect_left(self._sorted, (key,)) for key in part)
        return {directory: mask for _, directory, mask in self._sorted[max(0, start - 1) : end]}


def facts_of(shard: AuditedShard, task: FactTask) -> Iterator[Facts]:
    """Yield the facts of a task, some thousand at a time."""
    if task.family == INVENTORY:
        return _inventory_facts(shard, task)
    if task.family in (DELETED, CLAIMED):
        return _garbage_facts(shard, task)
    if task.family == UPLOADS:
        return _upload_facts(shard, task)
    if task.family == KEY_VERSIONS:
        return _moving_version_facts(shard, task)
    return _namespace_facts(shard, task)


def _facts(kind: FactKind, bucket: AuditedBucket, found: Iterable[tuple[BlockRun, int, int, int, bytes]]) -> Facts:
    """Return facts of a bucket: the run, object id, birth, seen and the row's key of each."""
    rows = list(found)
    runs = [row[0] for row in rows]
    return Facts(
        kind,
        bucket,
        [[getattr(run, name) for run in runs] for name in RUN],
        [bucket.bucket_id] * len(rows),
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        [row[4] for row in rows],
    )


def _count(kind: FactKind, bucket: AuditedBucket, number: int) -> Facts:
    zero = [0]
    return Facts(kind, bucket, [zero] * 5, [bucket.bucket_id], zero, zero, [number], [b""])


class _Numbers:
    """The numbers of some rows as columns."""

    def __init__(self, codec: RowCodec[Any], values: list[bytes]) -> None:
        self._columns = codec.numbers(values)

    def __getitem__(self, path: str) -> array[int]:
        column = array("q")
        column.frombytes(self._columns[path])
        return column

    def run(self, path: str) -> list[array[int]]:
        """Return the five columns of a run of blocks."""
        return [self[f"{path}.{name}"] for name in RUN]


def _facts_with_blocks(facts: Facts, has_blocks: Column) -> Facts:
    """Return the facts that have blocks, and that something has seen."""
    if all(has_blocks) and all(facts.seen):
        return facts
    kept = [bool(there and seen) for there, seen in zip(has_blocks, facts.seen, strict=True)]
    return Facts(
        facts.kind,
        facts.bucket,
        [list(compress(column, kept)) for column in facts.run],
        list(compress(facts.bucket_ids, kept)),
        list(compress(facts.object_ids, kept)),
        list(compress(facts.births, kept)),
        list(compress(facts.seen, kept)),
        list(compress(facts.keys, kept)),
    )


def _namespace_facts(shard: AuditedShard, task: FactTask) -> Iterator[Facts]:
    bucket, codec = shard.buckets[task.bucket_id], row_codec(KeyRow)
    live_keys, reached_by = 0, _Reached(bucket, task.reach)
    with task.states.opened(shard, bucket, (task.family, KEY_PARTS, KEY_VERSIONS)) as states:
        for rows, masks in states.distinct_rows(task.family, *task.part):
            numbers = _Numbers(codec, [value for _, value in rows])
            live_keys += sum(count for mask, count in Counter(masks).items() if mask & ACTIVE)
            facts = Facts(
                FactKind.NAMESPACE,
                bucket,
                numbers.run("blocks"),
                [bucket.bucket_id] * len(rows),
                numbers["object_id"],
                numbers["birth"],
                reached_by.masks(rows, masks),
                [key for key, _ in rows],
            )
            yield _facts_with_blocks(facts, numbers["blocks"])
            composed, versions = numbers["is_composed"], numbers["version_rows"]
            if any(composed) or any(versions):
                has_more = [one or other for one, other in zip(composed, versions, strict=True)]
                owners = compress(zip(rows, masks, strict=True), has_more)
                yield _facts(FactKind.NAMESPACE, bucket, _further(states, reached_by, owners))
    yield _count(FactKind.NAMES, bucket, live_keys)


def _further(
    states: States, reached_by: _Reached, rows: Iterable[tuple[Row, int]]
) -> Iterator[tuple[BlockRun, int, int, int, bytes]]:
    """Yield the runs of keys behind their first ones."""
    decode = row_codec(KeyRow).decode
    for (key, value), mask in rows:
        for run, object_id, birth, there in _behind_the_first(reached_by.bucket, decode(value), states.only(mask)):
            if reached := reached_by.mask(key, there):
                yield run, object_id, birth, reached, key


def _behind_the_first(bucket: AuditedBucket, key: KeyRow, states: States) -> Iterator[tuple[BlockRun, int, int, int]]:
    """Yield the runs of a key behind its first one, those of its noncurrent versions included: the run, its objectID,
    its birth, and the mask of the states that have it like this.

    The first run of a noncurrent version has the objectID of the key, which it had while the version was current.
    """
    if key.is_composed:
        yield from _parts(bucket, key.object_id, states)
    if key.version_rows:
        decode = row_codec(KeyRow).decode
        for value, mask in _rows_of_key(bucket, KEY_VERSIONS, key.object_id, states):
            version = decode(value)
            if version.blocks is not None:
                yield version.blocks, key.object_id, version.birth, mask
            if version.is_composed:
                yield from _parts(bucket, version.object_id, states.only(mask))


def _rows_of_key(bucket: AuditedBucket, family: str, object_id: int, states: States) -> Iterator[tuple[bytes, int]]:
    """Yield each distinct row of a key in a table with several rows for one key, and the mask of its states."""
    prefix = key_parts_prefix(bucket.volume_id, bucket.bucket_id, object_id)
    for rows, masks in states.distinct_rows(family, prefix, prefix[:-1] + b"0"):
        yield from zip((value for _, value in rows), masks, strict=True)


def _parts(bucket: AuditedBucket, object_id: int, states: States) -> Iterator[tuple[BlockRun, int, int, int]]:
    """Yield the further runs of a version in some states, as ``_behind_the_first`` does."""
    decode = row_codec(KeyPartRow).decode
    for value, mask in _rows_of_key(bucket, KEY_PARTS, object_id, states):
        part = decode(value)
        yield part.blocks, part.object_id, part.birth, mask


def _upload_facts(shard: AuditedShard, task: FactTask) -> Iterator[Facts]:
    """Yield the runs of all parts of uploads. Only the active namespace has uploads."""
    decode, decode_part = row_codec(UploadRow).decode, row_codec(PartRow).decode
    with shard.open(shard.copies.namespace, (UPLOADS, UPLOADED)) as rows:
        for _, value in rows.scan(UPLOADS, *task.part):
            upload = decode(value)
            bucket = shard.buckets.get(upload.bucket_id)
            if bucket is None:  # another bucket is audited
                continue
            first, key = part_key(upload.upload_id, 0), _key_of_upload(bucket, upload)
            parts = (decode_part(found) for _, found in rows.scan(UPLOADED, first, first[:-5] + b"0"))
            runs = ((run.blocks, run.object_id, 0, ACTIVE | PRESENT, key) for part in parts for run in part.runs)
            yield _facts(FactKind.NAMESPACE, bucket, runs)


def _moving_version_facts(shard: AuditedShard, task: FactTask) -> Iterator[Facts]:
    """Yield the runs of all noncurrent versions of a bucket that is rolled back.

    Between the pages of the rollback their key may have died, so that its row does not lead to them.
    """
    bucket, decode = shard.buckets[task.bucket_id], row_codec(KeyRow).decode
    with shard.open(shard.copies.namespace, (KEY_VERSIONS, KEY_PARTS)) as rows:
        states = SideBySide([(ACTIVE | PRESENT, rows)])
        for key, value in rows.scan(KEY_VERSIONS, *task.part):
            version, (object_id, birth) = decode(value), key_of_version(key)
            runs = [(version.blocks, object_id, birth)] if version.blocks is not None else []
            if version.is_composed:
                runs += [one[:3] for one in _parts(bucket, version.object_id, states)]
            yield _facts(FactKind.NAMESPACE, bucket, ((*run, ACTIVE | PRESENT, b"") for run in runs))


def _key_of_upload(bucket: AuditedBucket, upload: UploadRow) -> bytes:
    if bucket.is_tree:
        return tree_key(bucket.volume_id, bucket.bucket_id, upload.parent_id, upload.name)
    return flat_key(bucket.volume, bucket.bucket, upload.name)


class _Reached:
    """Tells in which states the root of a bucket reaches rows."""

    def __init__(self, bucket: AuditedBucket, reach: Mapping[int, int]) -> None:
        self.bucket = bucket
        self._reach = reach
        self._begin = len(bucket.rows_of_tree[0])

    def masks(self, rows: Iterable[Row], masks: Iterable[int]) -> list[int]:
        """Return ``mask`` for each of some rows; most rows are beside others of the same directory."""
        if not self.bucket.is_tree:
            return [mask | (PRESENT if mask & ACTIVE else 0) for mask in masks]
        found = []
        directory, known = b"\0", dict[int, int]()
        for (key, _), mask in zip(rows, masks, strict=True):
            if not key.startswith(directory):
                directory, known = key[: key.index(b"/", self._begin) + 1], {}
            reached = known.get(mask)
            if reached is None:
                reached = known[mask] = self.mask(key, mask)
            found.append(reached)
        return found

    def mask(self, key: bytes, mask: int) -> int:
        """Return the states of a mask in which the root reaches a row. During a rollback, every active row is reached.

        A row below a directory that died before a snapshot was created is not reached: it is not in the snapshot.
        """
        present = PRESENT if mask & ACTIVE else 0
        if not self.bucket.is_tree:
            return mask | present
        above = self._reach.get(int(key[self._begin : key.index(b"/", self._begin)]), 0)
        reached = above & (mask | UNEXPANDED if mask & ACTIVE else mask) | present
        return reached | mask & ACTIVE if self.bucket.is_rolling_back else reached


def _garbage_facts(shard: AuditedShard, task: FactTask) -> Iterator[Facts]:
    bucket, block_rows = shard.buckets[task.bucket_id], 0
    is_claimed = task.family == CLAIMED
    kind, path = (FactKind.CLAIMED, "version.") if is_claimed else (FactKind.DELETED, "")
    codec: RowCodec[Any] = row_codec(ClaimedRow) if is_claimed else row_codec(DeletedKeyRow)
    with shard.open(shard.copies.namespace, (task.family,)) as rows:
        for chunk in rows.chunks(task.family, *task.part):
            numbers = _Numbers(codec, [value for _, value in chunk])
            versions = numbers[f"{path}version_of"]
            parts = numbers[f"{path}part_of"]
            block_rows += sum(1 for part, version in zip(parts, versions, strict=True) if part or version)
            object_ids = numbers[f"{path}key.object_id"]
            facts = Facts(
                kind,
                bucket,
                numbers.run(f"{path}key.blocks"),
                [bucket.bucket_id] * len(chunk),
                # A noncurrent version is one of its key, whose objectID its first run has in the namespace.
                [version or own for version, own in zip(versions, object_ids, strict=True)],
                numbers[f"{path}key.birth"],
                [identity_of_garbage_key(key)[1] for key, _ in chunk],
                [key for key, _ in chunk],
            )
            yield _facts_with_blocks(facts, numbers[f"{path}key.blocks"])
    yield _count(FactKind.BLOCK_ROWS, bucket, block_rows)


def _inventory_facts(shard: AuditedShard, task: FactTask) -> Iterator[Facts]:
    """Yield the runs of both copies; if one bucket is audited, only runs of that bucket in the block store."""
    codec = row_codec(InventoryRow)
    only = shard.buckets if shard.copies.bucket else None
    with (
        shard.open(shard.copies.inventory_before, (INVENTORY,)) as before,
        shard.open(shard.copies.inventory_after, (INVENTORY,)) as after,
    ):
        for rows, seen in distinct_rows(((BEFORE, before), (AFTER, after)), INVENTORY, *task.part):
            numbers = _Numbers(codec, [value for _, value in rows])
            bucket_ids, nobody = numbers["bucket_id"], [0] * len(rows)
            facts = Facts(
                FactKind.INVENTORY, None, numbers.run("blocks"), bucket_ids, nobody, nobody, seen, [b""] * len(rows)
            )
            wanted = [1] * len(rows) if only is None else [bucket_id in only for bucket_id in bucket_ids]
            yield _facts_with_blocks(facts, wanted)


def directories_of(shard: AuditedShard, bucket: AuditedBucket, groups: Sequence[StateGroup]) -> Iterator[DirectoryFact]:
    """Yield the directories of a bucket, one fact for each parent and name that a directory has had."""
    decode = row_codec(DirectoryRow).decode
    for group in groups if bucket.is_tree else ():
        with group.opened(shard, bucket, (DIRECTORIES,)) as states:
            for rows, masks in states.distinct_rows(DIRECTORIES, *bucket.rows_of_tree):
                for (_, value), mask in zip(rows, masks, strict=True):
                    row = decode(value)
                    yield DirectoryFact(bucket.bucket_id, row.object_id, row.parent_id, row.name, mask)


def deleted_directories(shard: AuditedShard, bucket: AuditedBucket) -> list[DeletedDirectoryRow]:
    """Return the rows of deletedDirectoryTable of a bucket."""
    decode = row_codec(DeletedDirectoryRow).decode
    with shard.open(shard.copies.namespace, (DELETED_DIRECTORIES,)) as rows:
        return [decode(value) for _, value in rows.scan(DELETED_DIRECTORIES, *bucket.rows_of_tree)]
