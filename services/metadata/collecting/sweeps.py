"""Sweeps: send garbage rows of one garbage range, or of the whole shard, to the judges again, page by page."""

from __future__ import annotations

from typing import Any

from schemas.codec import codec
from schemas.records import (
    ClaimedRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DeletedKind,
    KeyStart,
    RenameRow,
    SweepPage,
    SweepPageSent,
)
from services.domain.table_keys import bucket_id_key, garbage_end, garbage_from, identity_of_garbage_key, object_txn
from services.metadata.collecting.claims import facts_and_numbers
from services.metadata.state.sent_entries import MAX_ROWS_PER_MESSAGE, Entry
from services.metadata.state.space import MAX_UNEXPANDED_COUNT, unexpanded_count
from services.metadata.state.tables import (
    BUCKET_ID_TABLE,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    RECLAIM_TABLE,
    SNAPSHOT_RENAMED_TABLE,
)
from services.metadata.state.transaction import Transaction
from services.storage.tables import TableDefinition

_TABLES: tuple[TableDefinition[Any], ...] = (
    DELETED_TABLE,
    DELETED_DIRECTORY_TABLE,
    SNAPSHOT_RENAMED_TABLE,
    RECLAIM_TABLE,
)
_KINDS = {DELETED_DIRECTORY_TABLE: DeletedKind.DIRECTORY, SNAPSHOT_RENAMED_TABLE: DeletedKind.RENAME_ENTRY}
_GARBAGE_TABLES = 3
_NO_MORE_TABLES = len(_TABLES)
EVERY_BUCKET = 0
_EVERYTHING = (b"/", b"0")
_ENTRY_BYTES = 48
"""Maximum serialized size of an entry, whose numbers have 64 bits."""
MAX_ROWS_READ = 10_000
"""Maximum rows that one page reads, sent or not. So a page that skips many rows ends early."""
_KEY_START = codec(KeyStart)


def sweep_page(transaction: Transaction, command: SweepPage) -> SweepPageSent:
    """Send the next rows that match the command. Return where the next page begins."""
    bounds = _bounds(transaction, command)
    if bounds is None:
        return SweepPageSent(command.sweep_id, command.page, 0, 0, _NO_MORE_TABLES, b"")
    unexpanded = unexpanded_count(
        transaction.work, command.bucket_id, command.after_death, command.until_death, MAX_UNEXPANDED_COUNT
    )
    page = _Page(transaction, command)
    next_table, next_key = page.carry_out(*bounds)
    return SweepPageSent(command.sweep_id, command.page, page.sent, unexpanded, next_table, next_key)


class _Page:
    """One page of a sweep: starts at its command's position, and ends at the limit of read or sent rows."""

    def __init__(self, transaction: Transaction, command: SweepPage) -> None:
        self._transaction = transaction
        self._command = command
        self._kind = DeletedKind.KEY
        self._message: list[Entry] = []
        self._parts = 0
        self._read = 0
        self._most_sent = max(1, min(command.max_rows, command.max_bytes // _ENTRY_BYTES))
        self.sent = 0

    def carry_out(self, first: bytes, end: bytes) -> tuple[int, bytes]:
        """Send the swept rows between two keys, one table after the other. Return the table and key at which to
        continue.
        """
        command = self._command
        beyond = _NO_MORE_TABLES if command.with_claimed else _GARBAGE_TABLES
        ended = (_NO_MORE_TABLES, b"")
        for number in range(command.start_table, beyond):
            start = max(first, command.start_key) if number == command.start_table else first
            next_key = self._sweep(_TABLES[number], start, end)
            if next_key is not None:
                ended = (number, next_key)
                break
        self._end_message()
        return ended

    def _sweep(self, definition: TableDefinition[Any], start: bytes, end: bytes) -> bytes | None:
        """Send the swept rows of one table. Return the key at which to continue if the page is full, else None.

        Of other rows only the birth is decoded.
        """
        table = self._transaction.work.table(definition)
        kind = _KINDS.get(definition, DeletedKind.KEY)
        for key, row in table.scan_encoded(start, end):
            if self._read >= MAX_ROWS_READ or self.sent >= self._most_sent:
                return key
            self._read += 1
            if self._is_swept(key, _birth(definition, key, row)):
                self._add(kind, _entry(key, table.decode(row)))
        return None

    def _is_swept(self, key: bytes, birth: int) -> bool:
        """Return whether a row within the bounds of the scan belongs to the sweep.

        The bounds limit the deaths of one bucket, but not those of a sweep over every bucket.
        """
        command = self._command
        if command.until_death and command.bucket_id == EVERY_BUCKET:
            _, death, _ = identity_of_garbage_key(key)
            if death > command.until_death:
                return False
        return birth > command.after_birth and (not command.until_birth or birth <= command.until_birth)

    def _add(self, kind: DeletedKind, entry: Entry) -> None:
        """Add a row to the message for its kind.

        Messages depend on the rows of the page only, and are numbered within it.
        """
        if kind is not self._kind or len(self._message) == MAX_ROWS_PER_MESSAGE:
            self._end_message()
        self._kind = kind
        self._message.append(entry)
        self.sent += 1

    def _end_message(self) -> None:
        """Send the present message; the next row starts another one."""
        if self._message:
            page = (self._command.sweep_id, self._command.page, self._parts)
            self._transaction.entries.add(self._kind, self._message, *page)
            self._message = []
            self._parts += 1


def _bounds(transaction: Transaction, command: SweepPage) -> tuple[bytes, bytes] | None:
    """Return the first key and the end key of the swept rows, the same for each table; None for an unknown bucket."""
    if command.bucket_id == EVERY_BUCKET:
        return _EVERYTHING
    identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(command.bucket_id))
    if identity is None:
        return None
    ids = (identity.volume_id, command.bucket_id)
    end = garbage_from(*ids, command.until_death + 1) if command.until_death else garbage_end(*ids)
    return garbage_from(*ids, command.after_death + 1), end


def _birth(definition: TableDefinition[Any], key: bytes, row: bytes) -> int:
    """Return the birth of the version or directory in an encoded row."""
    if definition is DELETED_DIRECTORY_TABLE:
        return object_txn(identity_of_garbage_key(key)[2])
    if definition is SNAPSHOT_RENAMED_TABLE:
        return codec(RenameRow).decode(row).birth
    if definition is RECLAIM_TABLE:
        return facts_and_numbers(row)[1][0]
    return _KEY_START.decode_head(row).birth


def _entry(key: bytes, row: DeletedKeyRow | DeletedDirectoryRow | RenameRow | ClaimedRow) -> Entry:
    bucket_id, death, object_id = identity_of_garbage_key(key)
    if isinstance(row, DeletedKeyRow):
        birth, snapshots_before_death = row.key.birth, row.snapshots_before_death
    elif isinstance(row, DeletedDirectoryRow):
        birth, snapshots_before_death = object_txn(object_id), row.snapshots_before_death
    elif isinstance(row, RenameRow):
        birth, snapshots_before_death = row.birth, row.snapshots_before_death
    else:
        # No snapshot holds a claimed row, now or later. Another claim is answered with its blocks again.
        birth, snapshots_before_death = row.version.key.birth, row.version.snapshots_before_death
    return bucket_id, object_id, birth, death, snapshots_before_death
