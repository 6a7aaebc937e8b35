"""Closes open keys without recent commands and ends old uploads: a page of a table for each command."""

from __future__ import annotations

from typing import Any

from schemas.records import ExpireWrites, OpenKeyRow, UploadRow, WritesExpired
from services.domain.errors import InvalidMessageError
from services.metadata.namespace.uploads import end_upload
from services.metadata.namespace.writing import close_unfinished
from services.metadata.state.tables import OPEN_FILE_TABLE, OPEN_KEY_TABLE, UPLOAD_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.tables import TableDefinition

MAX_PAGE_ROWS = 10_000
"""Maximum rows of a page, whatever the command asks for. Even with the runs of its last open key, a page reports fewer
runs to the block store than a txn has marks (``MAX_LATE_REPORTS``)."""
_TABLES: tuple[TableDefinition[Any], ...] = (OPEN_KEY_TABLE, OPEN_FILE_TABLE, UPLOAD_TABLE)


def expire_writes(transaction: Transaction, command: ExpireWrites) -> WritesExpired:
    """Carry out one page: what is old enough is closed, and its blocks are freed. What was synced stays.

    Raises:
        InvalidMessageError: the command names no table.
    """
    if not 0 <= command.table < len(_TABLES):
        raise InvalidMessageError(f"table {command.table} has neither open keys nor uploads")
    next_key, left, expired = b"", min(max(1, command.max_rows), MAX_PAGE_ROWS), 0
    for key, row in transaction.work.table(_TABLES[command.table]).scan(command.start_key):
        if left <= 0:
            next_key = key
            break
        left -= 1
        if _is_old(transaction, command, row):
            left -= _expire(transaction, command, key, row)
            expired += 1
    return WritesExpired(command.table, command.start_key, next_key, expired)


def _is_old(transaction: Transaction, command: ExpireWrites, row: OpenKeyRow | UploadRow) -> bool:
    if isinstance(row, UploadRow):
        return row.creation_time_ms + command.upload_age_ms <= transaction.log_time_ms
    return row.update_time_ms + command.open_key_age_ms <= transaction.log_time_ms


def _expire(transaction: Transaction, command: ExpireWrites, key: bytes, row: OpenKeyRow | UploadRow) -> int:
    """Close an open key or end an upload. Return the number of rows that this took, beside its own."""
    if isinstance(row, UploadRow):
        return end_upload(transaction, key, row)
    table = transaction.work.table(_TABLES[command.table])
    close_unfinished(transaction, table, key.rpartition(b"/")[0], row)
    return len(row.runs)
