"""Moves rows from the active namespace to the garbage tables, and sends each as a deleted entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from schemas.codec import codec
from schemas.records import (
    BucketRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DeletedKind,
    DirectoryRow,
    KeyHead,
    KeyNames,
    KeyPartRow,
    KeyRow,
    KeyStart,
    OpenRun,
    RenameRow,
)
from services.domain.replication import redundancy_of, redundancy_of_all
from services.domain.space_matrix import NOBODY, Counts, Holders, holders
from services.domain.table_keys import garbage_key, object_txn
from services.metadata.namespace.key_parts import Ids, pop_parts, row_of_first_run, row_of_part
from services.metadata.namespace.key_versions import (
    UNVERSIONED,
    is_kept,
    keep_version,
    keeps_versions,
    take_all_versions,
)
from services.metadata.state.deleted_names import note_death
from services.metadata.state.tables import DELETED_DIRECTORY_TABLE, DELETED_TABLE, SNAPSHOT_RENAMED_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.tables import Table

DIRECTORY_CELL = (0, 0, 0, 1, 0, 0)
RENAME_CELL = (0, 0, 0, 0, 1, 0)
"""Counts of a directory and a rename in the space matrix, as ``Counts``."""
_KEY_ROW = codec(KeyRow)
_KEY_START = codec(KeyStart)
_KEY_HEAD = codec(KeyHead)
_KEY_NAMES = codec(KeyNames)
_DELETED_KEY_ROW = codec(DeletedKeyRow)
_HOW_IT_DIED = _DELETED_KEY_ROW.encoder_of("death", "snapshots_before_death", "is_overwritten", "deletion_time_ms")
_LAST_FIELDS = _DELETED_KEY_ROW.encoder_of("shadow_hour", "part_of", "part_ids", "unread_bytes", "version_of")


def key_cell(size_bytes: int, versions: int = 1, redundancy_bytes: int = 0) -> Counts:
    """Return the counts of versions of one holder in the space matrix."""
    return size_bytes, versions, versions, 0, 0, redundancy_bytes


class Death(NamedTuple):
    """The txn of a deletion, and the number of snapshots that the bucket had ever had before it."""

    txn: int
    snapshots_before: int


def death_now(transaction: Transaction, bucket_id: int) -> Death:
    """Return the death of all rows that this command removes from the namespace."""
    return Death(transaction.txn, transaction.snapshots.of(transaction.work, bucket_id).ever)


def move_key_to_garbage(
    transaction: Transaction,
    volume_id: int,
    bucket_id: int,
    row: bytes,
    death: Death,
    *,
    keeps_object: bool = False,
    is_alone: bool = False,
) -> KeyStart:
    """Move an encoded version to deletedTable, unless it has no blocks. Return its first fields.

    The key's access list is removed, and its noncurrent versions die, too. A rollback handles noncurrent versions by
    itself (``is_alone``), and may keep the access list (``keeps_object``).
    """
    key = _KEY_START.decode_head(row)
    if transaction.acls.is_used and not keeps_object:
        transaction.acls.remove(transaction.work, bucket_id, key.object_id)
    if _is_large(row):
        _move_large(transaction, (volume_id, bucket_id), row, death, is_alone=is_alone)
    else:
        _move_small(transaction, volume_id, bucket_id, row, key, death)
    return key


def _is_large(row: bytes) -> bool:
    """Return whether an encoded version has noncurrent versions or is composed: its last two fields."""
    return row[-2:] != b"\0\0"


def _move_small(
    transaction: Transaction,
    volume_id: int,
    bucket_id: int,
    row: bytes,
    key: KeyStart | KeyRow,
    death: Death,
    *,
    is_overwritten: bool = False,
) -> None:
    """Move a version that is not ``_is_large``, given encoded; ``key`` has at least its first fields."""
    has_blocks = key.size_bytes > 0
    transaction.figures.move_to_garbage(bucket_id, key.size_bytes, names=1, rows=int(has_blocks))
    if has_blocks:
        redundancy = _redundancy(row) if transaction.counters.has_redundancy else 0
        if redundancy:
            transaction.figures.add_redundancy(bucket_id, -redundancy, redundancy)
        end = _end_of_row(transaction, death, is_overwritten=is_overwritten) + ONE_RUN
        live = transaction.snapshots.of(transaction.work, bucket_id).live_txns
        held_by = _move(transaction.work, volume_id, bucket_id, row, key, end, death.txn, live)
        if held_by != NOBODY:
            # The name is decoded only here: most deleted versions were born after the newest snapshot.
            note_death(transaction.work, bucket_id, _KEY_NAMES.decode_head(row), death.txn)
        transaction.space.add(bucket_id, held_by, key_cell(key.size_bytes, 1, redundancy))
        transaction.entries.add(DeletedKind.KEY, ((bucket_id, key.object_id, key.birth, *death),))


def _redundancy(row: bytes) -> int:
    """Return the redundancy of the first run of an encoded version. Shards without any do not ask: it reads blocks."""
    return redundancy_of(_KEY_HEAD.decode_head(row).blocks)


def move_keys_to_garbage(
    transaction: Transaction, volume_id: int, bucket_id: int, rows: Sequence[bytes], death: Death
) -> None:
    """Move versions of one bucket that die at one txn, as ``move_key_to_garbage`` does, with one look-up for all."""
    if transaction.acls.is_used:
        for row in rows:
            transaction.acls.remove(transaction.work, bucket_id, _KEY_START.decode_head(row).object_id)
    rows = _move_large_ones(transaction, (volume_id, bucket_id), rows, death)
    if not rows:
        return
    work, end = transaction.work, _end_of_row(transaction, death, is_overwritten=False) + ONE_RUN
    live = transaction.snapshots.of(work, bucket_id).live_txns
    has_redundancy = transaction.counters.has_redundancy
    entries, sizes_by_holders = [], dict[Holders, list[tuple[int, int]]]()
    for row in rows:
        key = _KEY_START.decode_head(row)
        if key.size_bytes > 0:
            held_by = _move(work, volume_id, bucket_id, row, key, end, death.txn, live)
            if held_by != NOBODY:
                note_death(work, bucket_id, _KEY_NAMES.decode_head(row), death.txn)
            sizes_by_holders.setdefault(held_by, []).append((key.size_bytes, _redundancy(row) if has_redundancy else 0))
            entries.append((bucket_id, key.object_id, key.birth, *death))
    transaction.figures.move_to_garbage(bucket_id, 0, names=len(rows), rows=len(entries))
    for held_by, sizes in sizes_by_holders.items():
        size_bytes, redundancy = map(sum, zip(*sizes, strict=True))
        transaction.space.add(bucket_id, held_by, key_cell(size_bytes, len(sizes), redundancy))
        transaction.figures.move_to_garbage(bucket_id, size_bytes, names=0, rows=0)
        if redundancy:
            transaction.figures.add_redundancy(bucket_id, -redundancy, redundancy)
    transaction.entries.add(DeletedKind.KEY, entries)


def _move_large_ones(transaction: Transaction, ids: Ids, rows: Sequence[bytes], death: Death) -> Sequence[bytes]:
    """Move those that ``_move_large`` moves; return the others."""
    large = [row for row in rows if _is_large(row)]
    if not large:
        return rows
    for row in large:
        _move_large(transaction, ids, row, death)
    return [row for row in rows if not _is_large(row)]


def _move_large(transaction: Transaction, ids: Ids, row: bytes, death: Death, *, is_alone: bool = False) -> None:
    """Move a version with several runs of blocks, or with noncurrent versions, which die too unless it ``is_alone``."""
    key = _KEY_ROW.decode(row)
    if not is_alone:
        for version in take_all_versions(transaction.work, ids, key):
            move_version_to_garbage(transaction, ids, version, key, death)
    _move_whole(transaction, ids, replace(key, version_rows=0), death)


def move_version_to_garbage(transaction: Transaction, ids: Ids, version: KeyRow, key: KeyRow, death: Death) -> None:
    """Move a noncurrent version of a key, whose row was removed, to deletedTable."""
    named = replace(version, rename_txn=key.rename_txn)
    _move_whole(transaction, ids, named, death, version_of=key.object_id)


def _move_whole(
    transaction: Transaction,
    ids: Ids,
    key: KeyRow,
    death: Death,
    *,
    is_overwritten: bool = False,
    version_of: int = 0,
) -> None:
    """Move a version with all of its runs of blocks: each run becomes a row of its own.

    The others are found by the row of the first one, which is held wherever they are, so it alone has an entry in
    deletedNameTable. A noncurrent version, one ``version_of`` a key, has no name in the figures.
    """
    names = 0 if version_of else 1
    if key.blocks is None:
        transaction.figures.move_to_garbage(ids[1], 0, names=names, rows=0)
        return
    parts = pop_parts(transaction.work, ids, key)
    first, others = row_of_first_run(key), [row_of_part(key, part) for part in parts]
    stored = first.size_bytes + sum(one.size_bytes for one in others)
    rows = 1 + len(others)
    transaction.figures.move_to_garbage(ids[1], stored, names=names, rows=rows, block_rows=rows - names)
    if redundancy := redundancy_of_all(one.blocks for one in (first, *others)):
        transaction.figures.add_redundancy(ids[1], -redundancy, redundancy)
    end = _end_of_row(transaction, death, is_overwritten=is_overwritten)
    part_ids = tuple([one.object_id for one in others])
    last = _runs(0, part_ids, stored - key.size_bytes, version_of)
    held_by = _move_run(transaction, ids, first, death, end + last)
    if held_by != NOBODY:
        note_death(transaction.work, ids[1], first, death.txn)
    end += _runs(key.object_id)
    for one in others:
        _move_run(transaction, ids, one, death, end)


def _runs(part_of: int, part_ids: tuple[int, ...] = (), unread_bytes: int = 0, version_of: int = 0) -> bytes:
    """Return the encoded last fields of a row of deletedTable."""
    fields = {
        "shadow_hour": 0,
        "part_of": part_of,
        "part_ids": part_ids,
        "unread_bytes": unread_bytes,
        "version_of": version_of,
    }
    return _LAST_FIELDS(fields)


ONE_RUN = _runs(0)
"""The last fields of a row of deletedTable, and of a row that ends with one, if it is that of a current version with
one run of blocks, as most are."""


def _move_run(transaction: Transaction, ids: Ids, row: KeyRow, death: Death, end: bytes) -> Holders:
    """Write the garbage row of one run of blocks, count it, and send it to the judges. Return its holders."""
    live = transaction.snapshots.of(transaction.work, ids[1]).live_txns
    start = KeyStart(row.object_id, row.birth, row.size_bytes)
    held_by = _move(transaction.work, *ids, _KEY_ROW.encode(row), start, end, death.txn, live)
    transaction.space.add(ids[1], held_by, key_cell(row.size_bytes, 1, redundancy_of(row.blocks)))
    transaction.entries.add(DeletedKind.KEY, ((ids[1], row.object_id, row.birth, *death),))
    return held_by


def replace_live(
    transaction: Transaction, bucket: BucketRow, table: Table[KeyRow], row_key: bytes, key: KeyRow
) -> None:
    """Write a version at its place. The live version there, if any, dies or becomes noncurrent."""
    replaced, version_rows = table.get_encoded(row_key), 0
    if replaced is not None:
        version_rows = end_or_keep(transaction, bucket, table.decode(replaced), replaced)
    table.put(row_key, replace(key, is_versioned=keeps_versions(bucket), version_rows=version_rows))


def end_or_keep(transaction: Transaction, bucket: BucketRow, replaced: KeyRow, encoded: bytes) -> int:
    """Move a version that is overwritten to deletedTable, or make it noncurrent. Return the new ``version_rows``."""
    ids = (bucket.volume_id, bucket.object_id)
    if bucket.versioning is not UNVERSIONED and is_kept(bucket, replaced):
        return keep_version(transaction, ids, replaced)
    death = death_now(transaction, ids[1])
    if _is_large(encoded):
        _move_whole(transaction, ids, replace(replaced, version_rows=0), death, is_overwritten=True)
    else:
        _move_small(transaction, *ids, encoded, replaced, death, is_overwritten=True)
    return replaced.version_rows


class BlocksOf(NamedTuple):
    """The name and label under which blocks that never belonged to a version are listed."""

    parent_id: int
    name: str
    tag: str


def free_runs(
    transaction: Transaction, ids: Ids, runs: Sequence[OpenRun], owner: BlocksOf, *, upload_bytes: int = 0
) -> None:
    """Move blocks that never belonged to a version to deletedTable. No snapshot holds them: they die at their birth.

    ``upload_bytes`` is how many of their bytes the bucket has counted as those of parts of an upload.
    """
    death, now = death_now(transaction, ids[1]), transaction.log_time_ms
    stored = sum(run.blocks.size_bytes for run in runs)
    transaction.figures.free_runs(ids[1], stored, len(runs), upload_bytes=upload_bytes)
    if redundancy := redundancy_of_all(run.blocks for run in runs):
        of_parts = redundancy if upload_bytes else 0
        transaction.figures.add_redundancy(ids[1], -of_parts, redundancy, upload=-of_parts, spare=redundancy)
    end = _end_of_row(transaction, death, is_overwritten=False)
    for run in runs:
        row = KeyRow(
            object_id=run.object_id,
            birth=death.txn,
            size_bytes=run.blocks.size_bytes,
            blocks=run.blocks,
            parent_id=owner.parent_id,
            name=owner.name,
            update_id=transaction.txn,
            rename_txn=0,
            tag=owner.tag,
            creation_time_ms=now,
            modification_time_ms=now,
        )
        _move_run(transaction, ids, row, death, end + _runs(run.object_id))


def drop_parts(transaction: Transaction, ids: Ids, key: KeyRow, parts: Sequence[KeyPartRow]) -> None:
    """Move runs that a live version loses to deletedTable."""
    death = death_now(transaction, ids[1])
    stored = sum(part.blocks.size_bytes for part in parts)
    transaction.figures.lose_runs(ids[1], stored, len(parts))
    if redundancy := redundancy_of_all(part.blocks for part in parts):
        transaction.figures.add_redundancy(ids[1], -redundancy, redundancy)
    end = _end_of_row(transaction, death, is_overwritten=False)
    for part in parts:
        _move_run(transaction, ids, row_of_part(key, part), death, end + _runs(part.object_id))


def _end_of_row(transaction: Transaction, death: Death, *, is_overwritten: bool) -> bytes:
    """Return the fields that a row of deletedTable has behind those of the namespace row, encoded, but for the last."""
    return _HOW_IT_DIED(
        {
            "death": death.txn,
            "snapshots_before_death": death.snapshots_before,
            "is_overwritten": is_overwritten,
            "deletion_time_ms": transaction.log_time_ms,
        }
    )


def _move(
    work: Work,
    volume_id: int,
    bucket_id: int,
    row: bytes,
    key: KeyStart | KeyRow,
    end: bytes,
    death: int,
    live: Sequence[int],
) -> Holders:
    """Write a row to deletedTable: that of the namespace, with an end. Return its holders."""
    work.table(DELETED_TABLE).put_encoded(garbage_key(volume_id, bucket_id, death, key.object_id), row + end)
    return holders(key.birth, death, live) if live else NOBODY


def move_directory_to_garbage(
    transaction: Transaction,
    volume_id: int,
    bucket_id: int,
    directory: DirectoryRow,
    death: Death,
    *,
    child_rows: int = 0,
    is_expanded: bool = False,
) -> DeletedDirectoryRow:
    """Move a directory to deletedDirectoryTable, and return its row there. Its children follow at its expansion, unless
    it ``is_expanded``: then the caller handles them.

    ``child_rows`` is the number of children that the same command has moved there before.
    """
    row = DeletedDirectoryRow(
        directory,
        death.txn,
        death.snapshots_before,
        is_expanded=is_expanded,
        child_rows=child_rows,
        is_expansion_begun=is_expanded,
        deletion_time_ms=transaction.log_time_ms,
    )
    work, object_id, birth = transaction.work, directory.object_id, object_txn(directory.object_id)
    transaction.acls.remove(work, bucket_id, object_id)
    transaction.figures.move_to_garbage(bucket_id, 0, names=1, rows=1)
    work.table(DELETED_DIRECTORY_TABLE).put(garbage_key(volume_id, bucket_id, death.txn, object_id), row)
    note_death(work, bucket_id, directory, death.txn)
    live = transaction.snapshots.of(work, bucket_id).live_txns
    transaction.space.add(bucket_id, holders(birth, death.txn, live), DIRECTORY_CELL)
    transaction.entries.add(DeletedKind.DIRECTORY, [(bucket_id, object_id, birth, *death)])
    if not is_expanded:
        transaction.space.unexpanded_changed(work, bucket_id, death.txn, 1)
    return row


def note_rename(transaction: Transaction, bucket: BucketRow, object_id: int, rename_txn: int, db_key: bytes) -> None:
    """Store the key that an object had at the newest snapshot, at its first rename since then."""
    work = transaction.work
    snapshots = transaction.snapshots.of(work, bucket.object_id)
    newest = snapshots.newest_live_txn
    birth = object_txn(object_id)
    if birth > newest or rename_txn > newest:
        return
    death = death_now(transaction, bucket.object_id)
    key = garbage_key(bucket.volume_id, bucket.object_id, death.txn, object_id)
    work.table(SNAPSHOT_RENAMED_TABLE).put(key, RenameRow(object_id, birth, *death, db_key.decode()))
    transaction.space.add(bucket.object_id, holders(birth, death.txn, snapshots.live_txns), RENAME_CELL)
    transaction.entries.add(DeletedKind.RENAME_ENTRY, [(bucket.object_id, object_id, birth, *death)])
