"""Open the databases of services from outside their process, to copy, compare or repair them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schemas.records import PositionRow
from schemas.topics import CHANGELOGS
from services.directory_deletion.service import DirectoryDeletionService
from services.key_deletion.service import KeyDeletionService
from services.metadata.service import MetadataService
from services.metadata.state.tables import CHECKPOINTED
from services.mock_scm.service import MockScmService
from services.plane.machine.errors import StackError
from services.plane.stack.process_names import METADATA
from services.runtime.loop.changelog_table import CHANGELOG, CHANGELOG_KEY
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.runner import RUNTIME_TABLES
from services.snapshots.service import SnapshotsService
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import DATABASE, RocksCopy, has_database
from services.storage.store import Reader
from services.storage.tables import TableDefinition, TablesReader

_SERVICES: dict[str, Any] = {
    one.name: one
    for one in (MetadataService, SnapshotsService, KeyDeletionService, DirectoryDeletionService, MockScmService)
}


def database_directory(home: Path, service: str, shard: int) -> Path:
    """Return the directory of a service's shard, which holds its database and related files."""
    return home / "data" / service / str(shard)


def input_topics(service: str) -> list[str]:
    """Return the topics that a service reads."""
    return [topic.name for topic in _SERVICES[service].inputs]


def layout_of(service: str) -> tuple[tuple[TableDefinition[Any], ...], frozenset[str]]:
    """Return the tables of a service's database, and the names of those that its checkpoints keep."""
    checkpointed = CHECKPOINTED if service == METADATA else frozenset()
    return (*_SERVICES[service].tables, *RUNTIME_TABLES), checkpointed


def open_database(directory: Path, service: str) -> RocksStore:
    """Open a shard's existing database. Raise StackError if there is none, StoreError if it is in use."""
    if not has_database(directory):
        raise StackError(f"{directory} holds no database of {service}: name the directory that has its {DATABASE}.")
    return new_database(directory, service)


def new_database(directory: Path, service: str) -> RocksStore:
    """Open a shard's database; create it if it is missing."""
    return RocksStore(directory / DATABASE, *layout_of(service))


def open_copy(directory: Path, service: str) -> RocksCopy:
    """Open a copy of a shard's database, read-only."""
    return RocksCopy(directory, *layout_of(service))


def positions_of(reader: Reader, service: str) -> dict[str, PositionRow]:
    """Return the stored position of each input topic that the service has read.

    The position in a changelog is the offset from which a start looks for rows that the database lacks.
    """
    tables = TablesReader(reader)
    rows = {topic: tables.table(POSITIONS).get(topic.encode()) for topic in input_topics(service)}
    found = {topic: row for topic, row in rows.items() if row is not None}
    changelog, row = CHANGELOGS.get(service), tables.table(CHANGELOG).get(CHANGELOG_KEY)
    if changelog is not None and row is not None:
        found[changelog.name] = PositionRow(changelog.name, row.topic_id, row.base_offset)
    return found
