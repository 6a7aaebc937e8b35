"""Sending a page of garbage rows through the judges again: of one store, or of everything that there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.records import (
    ClaimedRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DeletedKind,
    RenameRow,
    SweepPage,
    SweepPageSent,
)
from services.domain.table_keys import bucket_id_key, garbage_end, garbage_from, identity_of_garbage_key, object_txn
from services.metadata.sent_entries import Entry
from services.metadata.space import unexpanded_count
from services.metadata.tables import (
    BUCKET_ID_TABLE,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    RECLAIM_TABLE,
    SNAPSHOT_RENAMED_TABLE,
)
from services.metadata.transaction import Transaction
from services.storage.tables import TableDefinition

_TABLES: tuple[TableDefinition[Any], ...] = (
    DELETED_TABLE,
    DELETED_DIRECTORY_TABLE,
    SNAPSHOT_RENAMED_TABLE,
    RECLAIM_TABLE,
)
_STORE_TABLES = 3
_NO_MORE_TABLES = len(_TABLES)
EVERY_BUCKET = 0
_EVERYTHING = (b"/", b"0")
_ENTRY_BYTES = 48
"""Serialized size of an entry at most, as numbers of 64 bits are written."""
_READ_PER_SENT = 20
"""Rows that a page may read for each that it may send: bounds a page whose filter passes little."""
MAX_UNEXPANDED_COUNT = 1_000


def sweep_page(transaction: Transaction, command: SweepPage) -> SweepPageSent:
    """Send the next rows that match the command, and say where the page after begins."""
    bounds = _bounds(transaction, command)
    if bounds is None:
        return SweepPageSent(command.sweep_id, command.page, 0, 0, _NO_MORE_TABLES, b"")
    unexpanded = unexpanded_count(
        transaction.work, command.bucket_id, command.after_death, command.until_death, MAX_UNEXPANDED_COUNT
    )
    max_rows = max(1, min(command.max_rows, command.max_bytes // _ENTRY_BYTES))
    sent = 0
    for read, (table, key, kind, entry) in enumerate(_entries(transaction, command, bounds)):
        if sent >= max_rows or read >= max_rows * _READ_PER_SENT:
            return SweepPageSent(command.sweep_id, command.page, sent, unexpanded, table, key)
        birth = entry[2]
        if birth > command.after_birth and (not command.until_birth or birth <= command.until_birth):
            transaction.entries.add(kind, [entry], command.sweep_id, command.page)
            sent += 1
    return SweepPageSent(command.sweep_id, command.page, sent, unexpanded, _NO_MORE_TABLES, b"")


def _bounds(transaction: Transaction, command: SweepPage) -> tuple[bytes, bytes] | None:
    """First key and first key behind the swept rows, the same in each table; None for an unknown bucket."""
    if command.bucket_id == EVERY_BUCKET:
        return _EVERYTHING
    identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(command.bucket_id))
    if identity is None:
        return None
    ids = (identity.volume_id, command.bucket_id)
    end = garbage_from(*ids, command.until_death + 1) if command.until_death else garbage_end(*ids)
    return garbage_from(*ids, command.after_death + 1), end


def _entries(
    transaction: Transaction, command: SweepPage, bounds: tuple[bytes, bytes]
) -> Iterator[tuple[int, bytes, DeletedKind, Entry]]:
    """Entries of the swept rows from the page's start on, with the number of their table and their key."""
    first, end = bounds
    beyond = _NO_MORE_TABLES if command.with_claimed else _STORE_TABLES
    for number in range(command.start_table, beyond):
        start = max(first, command.start_key) if number == command.start_table else first
        for key, row in transaction.work.table(_TABLES[number]).scan(start, end):
            yield number, key, *_entry(key, row)


def _entry(key: bytes, row: DeletedKeyRow | DeletedDirectoryRow | RenameRow | ClaimedRow) -> tuple[DeletedKind, Entry]:
    bucket_id, death, object_id = identity_of_garbage_key(key)
    kind, snapshots_before_death = DeletedKind.KEY, 0
    if isinstance(row, DeletedKeyRow):
        birth, snapshots_before_death = row.key.birth, row.snapshots_before_death
    elif isinstance(row, DeletedDirectoryRow):
        kind, birth, snapshots_before_death = DeletedKind.DIRECTORY, object_txn(object_id), row.snapshots_before_death
    elif isinstance(row, RenameRow):
        kind, birth, snapshots_before_death = DeletedKind.RENAME_ENTRY, row.birth, row.snapshots_before_death
    else:
        # Claimed: nobody holds it, for ever. Another claim is answered with its blocks again.
        birth, snapshots_before_death = row.version.key.birth, row.version.snapshots_before_death
    return kind, (bucket_id, object_id, birth, death, snapshots_before_death)
