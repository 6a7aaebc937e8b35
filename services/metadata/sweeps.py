"""Sending a page of garbage rows through the judges again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.records import (
    DeletedDirectoryRow,
    DeletedEntry,
    DeletedKeyRow,
    DeletedKind,
    RenameRow,
    SweepPage,
    SweepPageSent,
)
from schemas.topics import DELETED_ENTRIES
from services.domain.table_keys import bucket_id_key, garbage_end, garbage_from, object_txn
from services.metadata.space import unexpanded_count
from services.metadata.tables import BUCKET_ID_TABLE, DELETED_DIRECTORY_TABLE, DELETED_TABLE, SNAPSHOT_RENAMED_TABLE
from services.metadata.transaction import Transaction
from services.storage.tables import TableDefinition

_TABLES: tuple[TableDefinition[Any], ...] = (DELETED_TABLE, DELETED_DIRECTORY_TABLE, SNAPSHOT_RENAMED_TABLE)
_END = len(_TABLES)
_ENTRY_BYTES = 48
"""Serialized size of an entry at most, as numbers of 64 bits are written."""
_READ_PER_SENT = 20
"""Rows that a page may read for each that it may send: bounds a page whose filter passes little."""
MAX_UNEXPANDED_COUNT = 1_000


def sweep_page(transaction: Transaction, command: SweepPage) -> SweepPageSent:
    """Send the next rows of a store that match the command, and say where the page after begins."""
    work = transaction.work
    identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(command.bucket_id))
    if identity is None:
        return SweepPageSent(command.sweep_id, command.page, 0, 0, _END, b"")
    unexpanded = unexpanded_count(
        work, command.bucket_id, command.after_death, command.until_death, MAX_UNEXPANDED_COUNT
    )
    max_rows = max(1, min(command.max_rows, command.max_bytes // _ENTRY_BYTES))
    sent = 0
    for read, (table, key, entry) in enumerate(_rows(transaction, command, identity.volume_id)):
        if sent >= max_rows or read >= max_rows * _READ_PER_SENT:
            return SweepPageSent(command.sweep_id, command.page, sent, unexpanded, table, key)
        if entry.birth > command.after_birth and (not command.until_birth or entry.birth <= command.until_birth):
            work.send(DELETED_ENTRIES, entry)
            sent += 1
    return SweepPageSent(command.sweep_id, command.page, sent, unexpanded, _END, b"")


def _rows(transaction: Transaction, command: SweepPage, volume_id: int) -> Iterator[tuple[int, bytes, DeletedEntry]]:
    """Rows of the page's store from its start on, with the number of their table and their key."""
    first = garbage_from(volume_id, command.bucket_id, command.after_death + 1)
    end = garbage_end(volume_id, command.bucket_id)
    if command.until_death:
        end = garbage_from(volume_id, command.bucket_id, command.until_death + 1)
    for number in range(command.start_table, _END):
        start = max(first, command.start_key) if number == command.start_table else first
        for key, row in transaction.work.table(_TABLES[number]).scan(start, end):
            yield number, key, _entry(transaction, command, row)


def _entry(
    transaction: Transaction, command: SweepPage, row: DeletedKeyRow | DeletedDirectoryRow | RenameRow
) -> DeletedEntry:
    if isinstance(row, DeletedKeyRow):
        kind, object_id, birth = DeletedKind.KEY, row.key.object_id, row.key.birth
    elif isinstance(row, DeletedDirectoryRow):
        object_id = row.directory.object_id
        kind, birth = DeletedKind.DIRECTORY, object_txn(object_id)
    else:
        kind, object_id, birth = DeletedKind.RENAME_ENTRY, row.object_id, row.birth
    return DeletedEntry(
        bucket_id=command.bucket_id,
        object_id=object_id,
        kind=kind,
        birth=birth,
        death=row.death,
        snapshots_before_death=row.snapshots_before_death,
        chain_version=transaction.counters.chain_version,
        sweep_id=command.sweep_id,
        sweep_page=command.page,
    )
