"""deletedNameTable: where to find, by name, what is in deletedTable and deletedDirectoryTable, which go by death.

It has a row for every deleted directory, and for every version that a snapshot held when it came to deletedTable. A
version that nobody held then has none, since it is on its way out: so what is deleted before any snapshot sees it,
which is most of what a fast collector frees, costs nothing here. What no snapshot held then, none will ever hold: so
all that is held has a row. An object that was renamed has a second row, by its objectID: a snapshot may show it under a
name that it no longer had at its death.

A row comes and goes in the same batch as the row that it points to.
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
    """Forget a directory or a version that leaves its garbage table; one that was never noted is forgotten, too."""
    table = work.table(DELETED_NAME_TABLE)
    table.delete(deleted_name_key(bucket_id, row.parent_id, row.name, death, row.object_id))
    if row.rename_txn:
        table.delete(deleted_object_key(bucket_id, row.object_id, death))


@dataclass(frozen=True, slots=True)
class Dead:
    """The end of a garbage row's key."""

    death: Txn
    object_id: int


def died_under(tables: TablesReader, bucket_id: int, parent_id: int, name: str) -> Iterator[Dead]:
    """What has died under a name, oldest death first."""
    start = name_prefix(bucket_id, parent_id, name)
    for key, _ in tables.table(DELETED_NAME_TABLE).scan_encoded(start, prefix_end(start)):
        yield Dead(*end_of_name_key(key))


def died_of(tables: TablesReader, bucket_id: int, object_id: int) -> Iterator[Dead]:
    """What has died of an object that was renamed, oldest death first."""
    start = deleted_object_key(bucket_id, object_id, 0)
    for key, _ in tables.table(DELETED_NAME_TABLE).scan_encoded(
        start, deleted_object_key(bucket_id, object_id, HIGHEST_TXN + 1)
    ):
        yield Dead(*end_of_name_key(key))
