"""deletedNameTable: an index by name of deletedTable and deletedDirectoryTable, whose keys are ordered by death.

It has a row for every deleted directory, and for every version that a snapshot held when it moved to deletedTable.
Other versions have none: no later snapshot can hold them, and they will be freed soon. So every held version has a row,
and versions that are deleted before any snapshot sees them, usually the most, cost nothing here. A renamed object has a
second row, by its objectID: a snapshot may show it under a name that it no longer had at its death.

A row is written and removed in the same batch as the row that it points to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.codec import codec
from schemas.records import DeletedNameRow, DirectoryRow, KeyNames, KeyRow
from services.domain.reclaimability import Txn
from services.domain.table_keys import HIGHEST_TXN, deleted_name_key, deleted_object_key, end_of_name_key, name_prefix
from services.metadata.state.tables import DELETED_NAME_TABLE
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

_NOTHING = codec(DeletedNameRow).encode(DeletedNameRow())
_Named = KeyNames | KeyRow | DirectoryRow


def note_death(work: Work, bucket_id: int, row: _Named, death: Txn) -> None:
    """Note a directory, or a version that a snapshot holds."""
    table = work.table(DELETED_NAME_TABLE)
    table.put_encoded(deleted_name_key(bucket_id, row.parent_id, row.name, death, row.object_id), _NOTHING)
    if row.rename_txn:
        table.put_encoded(deleted_object_key(bucket_id, row.object_id, death), _NOTHING)


def forget_death(work: Work, bucket_id: int, row: _Named, death: Txn) -> None:
    """Remove the note of a directory or version that leaves its garbage table. It need not have one."""
    table = work.table(DELETED_NAME_TABLE)
    table.delete(deleted_name_key(bucket_id, row.parent_id, row.name, death, row.object_id))
    if row.rename_txn:
        table.delete(deleted_object_key(bucket_id, row.object_id, death))


@dataclass(frozen=True, slots=True)
class Dead:
    """Death and objectID, the end of a garbage row's key."""

    death: Txn
    object_id: int


def died_under(tables: TablesReader, bucket_id: int, parent_id: int, name: str) -> Iterator[Dead]:
    """Yield the deaths under a name, oldest first."""
    start = name_prefix(bucket_id, parent_id, name)
    for key, _ in tables.table(DELETED_NAME_TABLE).scan_encoded(start, prefix_end(start)):
        yield Dead(*end_of_name_key(key))


def died_of(tables: TablesReader, bucket_id: int, object_id: int) -> Iterator[Dead]:
    """Yield the deaths of a renamed object, oldest first."""
    start = deleted_object_key(bucket_id, object_id, 0)
    for key, _ in tables.table(DELETED_NAME_TABLE).scan_encoded(
        start, deleted_object_key(bucket_id, object_id, HIGHEST_TXN + 1)
    ):
        yield Dead(*end_of_name_key(key))
