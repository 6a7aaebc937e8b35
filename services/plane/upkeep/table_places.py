"""Find the databases whose tables are to be read: in a home by service, shard and snapshot, or in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from services.plane.stack.process_names import METADATA, SERVICES
from services.plane.upkeep.key_formats import key_formats
from services.plane.upkeep.readable_tables import TableReadError, nearest
from services.plane.upkeep.shard_databases import database_directory, layout_of
from services.plane.upkeep.stored_tables import StoredTables
from services.runtime.loop.runner import RUNTIME_TABLES
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE
from services.storage.rocks_backups import CHECKPOINTS, DATABASE, has_database
from services.storage.rocks_checkpoints import AGAIN, REMOVED, TRIMMED
from services.storage.rocks_files import list_families, reading_files
from services.storage.tables import TablesReader

SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class TablesPlace:
    """A database: its directory, and the service whose tables it has."""

    directory: Path
    service: str

    @property
    def is_checkpoint(self) -> bool:
        """Whether it is a snapshot checkpoint, which has the tables of the namespace only."""
        return self.directory.parent.name == CHECKPOINTS or (self.directory / TRIMMED).exists()


@contextmanager
def reading_tables(place: TablesPlace) -> Iterator[StoredTables]:
    """Open the tables of a database. Raise StoreError if it cannot be read, or if a newer program has written it."""
    tables, checkpointed = layout_of(place.service)
    wanted = [table for table in tables if not place.is_checkpoint or table.name in checkpointed]
    with reading_files(place.directory, wanted) as view:
        yield StoredTables(view, wanted, key_formats(place.service))


def place_in_directory(directory: Path) -> TablesPlace:
    """Return the database in a directory, or in its ``db``; its tables tell of which service it is."""
    found = next((one for one in (directory, directory / DATABASE) if (one / "CURRENT").exists()), None)
    if found is None:
        raise TableReadError(
            f"{directory} holds no database: name a directory with a file CURRENT, as data/metadata/0/db in a home"
        )
    there = list_families(found) - {table.name for table in RUNTIME_TABLES}
    common = {service: len(there & {table.name for table in layout_of(service)[0]}) for service in SERVICES}
    service = max(SERVICES, key=lambda one: common[one])
    if not common[service]:
        raise TableReadError(f"{found} has no table of this program: name a database of deepclean")
    return TablesPlace(found, service)


def places_in_home(home: Path, service: str, shard: int, snapshot: str, table: str = "") -> list[TablesPlace]:
    """Return the databases of a shard: of one service, of those that have a table, or of all; or one checkpoint."""
    if service and service not in SERVICES:
        raise TableReadError(f"there is no service {service}: {nearest(service, SERVICES)}")
    if snapshot:
        if service not in ("", METADATA):
            raise TableReadError(f"{service} has no snapshot checkpoints: leave out --service, or --snapshot")
        return [TablesPlace(_checkpoint(home, shard, snapshot), METADATA)]
    names = {one: {each.name for each in layout_of(one)[0]} for one in SERVICES}
    if table and not service and not any(table in having for having in names.values()):
        raise TableReadError(f"no service has a table {table}: {nearest(table, set().union(*names.values()))}")
    wanted = [service] if service else [one for one in SERVICES if not table or table in names[one]]
    there = [one for one in wanted if has_database(database_directory(home, one, shard))]
    return [TablesPlace(_database(home, one, shard), one) for one in there or wanted]


def _database(home: Path, service: str, shard: int) -> Path:
    directory = database_directory(home, service, shard)
    if not has_database(directory):
        raise TableReadError(
            f"{home} has no database of {service}, shard {shard}: set another --home or --shard, or name it (--db)"
        )
    return directory / DATABASE


def _checkpoint(home: Path, shard: int, wanted: str) -> Path:
    """Return the directory of a snapshot checkpoint, by the snapshot's id, name, or VOLUME/BUCKET/NAME."""
    directories = (database_directory(home, METADATA, shard) / CHECKPOINTS).glob("[!.]*")
    there = {unquote(one.name.partition(AGAIN)[0]): one for one in directories if not (one / REMOVED).exists()}
    if wanted in there:
        return there[wanted]
    with reading_tables(TablesPlace(_database(home, SNAPSHOTS, shard), SNAPSHOTS)) as tables:
        rows = [row for _, row in TablesReader(tables.reader).table(SNAPSHOT_INFO_TABLE).scan()]
    named = {f"{row.volume}/{row.bucket}/{row.name}": row.snapshot_id for row in rows if row.snapshot_id in there}
    names = [name for name in named if wanted in (name, name.rpartition("/")[2])]
    if len(names) > 1:
        raise TableReadError(f"{wanted} is the name of several snapshots: choose {' or '.join(names)}")
    if not names:
        raise TableReadError(f"shard {shard} has no checkpoint of a snapshot {wanted}: {nearest(wanted, named)}")
    return there[named[names[0]]]
