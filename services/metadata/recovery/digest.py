"""The digest of one shard's metadata: every table, and the checkpoint of every live snapshot.

Two databases with the same digest have the same state, whichever version of this program wrote their rows
(``RowCodec.oldest_form``). The digest leaves out all that does not follow from the log alone: the outbox and the
positions, which depend on the batches, and the rows of changedTable that no diff can read any more, since the clean-up
removes them a page at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from operator import attrgetter
from typing import Any, Protocol

from schemas.records import SnapshotListRow
from schemas.stored_rows import row_codec
from services.domain.errors import InvariantError
from services.metadata.checkpoints.kept_rows import rows_of_bucket
from services.metadata.reads.queries import shard_state
from services.metadata.state.changed_rows import unneeded_changes
from services.metadata.state.tables import (
    CHANGED_TABLE,
    CHECKPOINTED,
    LATER_TABLES,
    SNAPSHOT_LIST_TABLE,
    TABLES,
)
from services.storage.defragmentation import Ranges
from services.storage.digest import RowsDigest, ShardDigest, digest_names, digest_rows
from services.storage.store import BEYOND, Reader
from services.storage.tables import TableDefinition, TablesReader


class CheckpointedReader(Reader, Protocol):
    """A database, or a copy of one, with its checkpoints."""

    def open_checkpoint(self, name: str) -> Reader:
        """Return a view of a checkpoint. Raise KeyError when there is none of that name."""
        ...


def digest_shard(store: CheckpointedReader) -> ShardDigest:
    """Return the digest of a database, which no process may write meanwhile.

    Raises:
        InvariantError: a live snapshot has no checkpoint.
    """
    tables = TablesReader(store)
    return ShardDigest(
        txn=shard_state(tables).txn,
        tables=dict(
            _digested((table, digest_rows(_in_oldest_form(table, _rows(store, table.name)))) for table in TABLES)
        ),
        checkpoints={
            row.snapshot_id: _digest_checkpoint(store, row.snapshot_id, rows_of_bucket(tables, row.bucket_id))
            for row in _live_snapshots(tables)
        },
    )


def live_snapshot_ids(tables: TablesReader) -> list[str]:
    """Return the ids of all live snapshots of the shard. Each has a checkpoint."""
    return [row.snapshot_id for row in _live_snapshots(tables)]


def _live_snapshots(tables: TablesReader) -> list[SnapshotListRow]:
    return [row for _, row in tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0")]


def _digest_checkpoint(store: CheckpointedReader, name: str, kept: Ranges) -> RowsDigest:
    try:
        checkpoint = store.open_checkpoint(name)
    except KeyError as error:
        raise InvariantError(
            f"snapshot {name} is live but has no checkpoint: rebuild this database from the log (deepclean rebuild), "
            f"or restore a backup"
        ) from error
    tables = sorted((table for table in TABLES if table.name in CHECKPOINTED), key=attrgetter("name"))
    with closing(checkpoint):
        rows = ((table, checkpoint.scan(table.name, *kept.get(table.name, (b"", BEYOND)))) for table in tables)
        found = list(_digested((table, digest_rows(_in_oldest_form(table, each))) for table, each in rows))
    return RowsDigest(sum(one.rows for _, one in found), digest_names(found))


def _digested(found: Iterable[tuple[TableDefinition[Any], RowsDigest]]) -> Iterator[tuple[str, RowsDigest]]:
    """Yield the digests by the names of the tables, without empty tables that an earlier release did not have."""
    return ((table.name, one) for table, one in found if one.rows or table.name not in LATER_TABLES)


def _in_oldest_form(table: TableDefinition[Any], rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Return stored rows in the oldest version of their schema that keeps all of their values."""
    stored = row_codec(table.record)
    if stored.version == 1:
        return rows
    return ((key, stored.oldest_form(row)) for key, row in rows)


def _rows(reader: Reader, table: str) -> Iterator[tuple[bytes, bytes]]:
    if table != CHANGED_TABLE.name:
        yield from reader.scan(table, b"", BEYOND)
        return
    start = b""
    for unneeded, end in unneeded_changes(TablesReader(reader)).values():
        yield from reader.scan(table, start, unneeded)
        start = end
    yield from reader.scan(table, start, BEYOND)
