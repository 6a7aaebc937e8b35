"""Moves rows from the active namespace to the garbage tables, and sends each as a deleted entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemas.codec import codec
from schemas.records import (
    BucketRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DeletedKind,
    DirectoryRow,
    KeyNames,
    KeyStart,
    RenameRow,
)
from services.domain.space_matrix import NOBODY, Holders, holders
from services.domain.table_keys import garbage_key, object_txn
from services.metadata.state.deleted_names import note_death
from services.metadata.state.tables import DELETED_DIRECTORY_TABLE, DELETED_TABLE, SNAPSHOT_RENAMED_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work

DIRECTORY_CELL = (0, 0, 0, 1, 0)
RENAME_CELL = (0, 0, 0, 0, 1)
"""Counts of a directory and a rename in the space matrix: bytes, versions, rows of the three tables."""
_KEY_START = codec(KeyStart)
_KEY_NAMES = codec(KeyNames)
_DELETED_KEY_ROW = codec(DeletedKeyRow)


def key_cell(size_bytes: int, versions: int = 1) -> tuple[int, int, int, int, int]:
    """Return the counts of versions of one holder in the space matrix."""
    return size_bytes, versions, versions, 0, 0


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
    is_overwritten: bool = False,
) -> KeyStart:
    """Move an encoded version to deletedTable, unless it has no blocks. Return its first fields."""
    key = _KEY_START.decode_head(row)
    has_blocks = key.size_bytes > 0
    transaction.figures.move_to_garbage(bucket_id, key.size_bytes, names=1, rows=int(has_blocks))
    if has_blocks:
        died = _died(transaction, death, is_overwritten=is_overwritten)
        live = transaction.snapshots.of(transaction.work, bucket_id).live_txns
        held_by = _move(transaction.work, volume_id, bucket_id, row, key, died, live)
        transaction.space.add(bucket_id, held_by, key_cell(key.size_bytes))
        transaction.entries.add(DeletedKind.KEY, ((bucket_id, key.object_id, key.birth, *death),))
    return key


def move_keys_to_garbage(
    transaction: Transaction, volume_id: int, bucket_id: int, rows: Sequence[bytes], death: Death
) -> None:
    """Move versions of one bucket that die at one txn, as ``move_key_to_garbage`` does, with one look-up for all."""
    if not rows:
        return
    work, died = transaction.work, _died(transaction, death, is_overwritten=False)
    live = transaction.snapshots.of(work, bucket_id).live_txns
    entries, sizes_by_holders = [], dict[Holders, list[int]]()
    for row in rows:
        key = _KEY_START.decode_head(row)
        if key.size_bytes > 0:
            held_by = _move(work, volume_id, bucket_id, row, key, died, live)
            sizes_by_holders.setdefault(held_by, []).append(key.size_bytes)
            entries.append((bucket_id, key.object_id, key.birth, *death))
    for held_by, sizes in sizes_by_holders.items():
        transaction.space.add(bucket_id, held_by, key_cell(sum(sizes), len(sizes)))
    size_bytes = sum(map(sum, sizes_by_holders.values()))
    transaction.figures.move_to_garbage(bucket_id, size_bytes, names=len(rows), rows=len(entries))
    transaction.entries.add(DeletedKind.KEY, entries)


def _died(transaction: Transaction, death: Death, *, is_overwritten: bool) -> dict[str, int]:
    """Return the fields that a row of deletedTable has beside those of the namespace row."""
    return {
        "death": death.txn,
        "snapshots_before_death": death.snapshots_before,
        "is_overwritten": is_overwritten,
        "deletion_time_ms": transaction.log_time_ms,
        "shadow_hour": 0,
    }


def _move(
    work: Work,
    volume_id: int,
    bucket_id: int,
    row: bytes,
    key: KeyStart,
    died: dict[str, int],
    live: Sequence[int],
) -> Holders:
    """Write a version's row to deletedTable, and its name if a snapshot holds it. Return its holders."""
    death = died["death"]
    deleted = _DELETED_KEY_ROW.encode_around(row, died)
    work.table(DELETED_TABLE).put_encoded(garbage_key(volume_id, bucket_id, death, key.object_id), deleted)
    held_by = holders(key.birth, death, live) if live else NOBODY
    if held_by != NOBODY:
        # The name is decoded only here: most deleted versions were born after the newest snapshot.
        note_death(work, bucket_id, _KEY_NAMES.decode_head(row), death)
    return held_by


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
