"""Writes small databases of an Ozone Manager, row by row, for what the recorded ones do not show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.ozone_database import RawTables
from services.lens.ozone import tables
from services.lens.ozone.messages import BucketInfo, DirectoryInfo, KeyInfo, RepeatedKeyInfo, SnapshotInfo, VolumeInfo
from services.lens.ozone.tables import BucketKeys
from tests.ozone_model import object_id

VOLUME_ID = object_id(1)
OBJECT_STORE, LEGACY = 3, 1


def key_info(keys: BucketKeys, name: str, born: int, blocks: Sequence[tuple[int, int]], **fields: Any) -> Any:
    """A key's row with one version: its blocks are pairs of a local id and a length."""
    given: dict[str, Any] = {"type": 1, "factor": 1, "object_id": object_id(born), "update_id": born, **fields}
    row = KeyInfo(volume=keys.volume, bucket=keys.bucket, name=name.encode(), **given)
    row.data_bytes = fields.get("data_bytes", sum(length for _, length in blocks))
    add_version(row, blocks)
    return row


def add_version(row: Any, blocks: Sequence[tuple[int, int]]) -> None:
    """Add a list of locations."""
    version = row.versions.add(version=len(row.versions))
    for local, length in blocks:
        location = version.locations.add(offset=0, length=length, create_version=version.version)
        location.block.id.container, location.block.id.local = 1, local


class OzoneDatabase:
    """A database in the making; a snapshot is a checkpoint of it."""

    def __init__(self, directory: Path, volume: str = "vol") -> None:
        self.directory = directory
        self.volume = volume.encode()
        self.rows = RawTables(directory / "om.db")
        self.rows.put(tables.VOLUME, b"/" + self.volume, VolumeInfo(name=self.volume, object_id=VOLUME_ID))
        self._previous: dict[bytes, UUID] = {}

    def bucket(self, name: str, born: int, layout: int = OBJECT_STORE, **fields: Any) -> BucketKeys:
        """Add a bucket."""
        is_file_system = layout == tables.FILE_SYSTEM_OPTIMIZED
        keys = BucketKeys(self.volume, name.encode(), VOLUME_ID, object_id(born), is_file_system)
        row = BucketInfo(volume=self.volume, bucket=keys.bucket, object_id=keys.bucket_id, layout=layout, **fields)
        self.rows.put(tables.BUCKET, b"/%b/%b" % (self.volume, keys.bucket), row)
        return keys

    def live(self, keys: BucketKeys, row: Any) -> None:
        """Put a live row."""
        self.rows.put(keys.key_table, keys.key_of(row.name, row.parent_id), row)

    def remove(self, keys: BucketKeys, row: Any) -> None:
        """Take a live row away."""
        self.rows.delete(keys.key_table, keys.key_of(row.name, row.parent_id))

    def deleted(self, keys: BucketKeys, suffix: int | str, *infos: Any, key: bytes = b"", bucket_id: int = 0) -> None:
        """Put a row into ``deletedTable``."""
        row = RepeatedKeyInfo(bucket_id=bucket_id)
        row.infos.extend(infos)
        self.rows.put(tables.DELETED, key or keys.by_name + b"%b/%b" % (infos[0].name, str(suffix).encode()), row)

    def directory_row(self, keys: BucketKeys, name: str, parent_id: int, born: int) -> int:
        """Put a row into ``directoryTable``; its id."""
        row = DirectoryInfo(name=name.encode(), object_id=object_id(born), parent_id=parent_id)
        self.rows.put(tables.DIRECTORY, keys.key_of(name.encode(), parent_id), row)
        return object_id(born)

    def deleted_directory(self, keys: BucketKeys, name: str, parent_id: int, born: int) -> None:
        """Put a row into ``deletedDirectoryTable``."""
        row = KeyInfo(volume=keys.volume, bucket=keys.bucket, name=name.encode(), type=1, factor=1)
        row.object_id, row.parent_id = object_id(born), parent_id
        key = keys.key_of(name.encode(), parent_id) + b"/%d" % row.object_id
        self.rows.put(tables.DELETED_DIRECTORY, key, row)

    def snapshot(self, keys: BucketKeys, name: str, seen: int, number: int, **fields: Any) -> UUID:
        """Create a snapshot that has seen the transactions up to ``seen``."""
        snapshot_id = UUID(int=number << 100 | number)
        self.rows.put(tables.TRANSACTION_INFO, tables.TRANSACTION_KEY, b"1#%d" % seen)
        self.rows.checkpoint(self.directory_of(snapshot_id))
        previous = self._previous.get(keys.bucket)
        self._previous[keys.bucket] = snapshot_id
        self.snapshot_row(keys, name, snapshot_id, previous, create_transaction=b"1#%d" % (seen + 1), **fields)
        for table in (tables.DELETED, tables.RENAMED):
            self.rows.clear(table, keys.by_name)
        self.rows.clear(tables.DELETED_DIRECTORY, keys.by_id)
        return snapshot_id

    def snapshot_row(
        self, keys: BucketKeys, name: str, snapshot_id: UUID, previous: UUID | None, **fields: Any
    ) -> None:
        """Put a row into ``snapshotInfoTable``."""
        row = SnapshotInfo(name=name, volume=keys.volume, bucket=keys.bucket, **fields)
        for field, value in ((row.id, snapshot_id), (row.previous, previous)):
            if value is not None:
                half = 1 << 64
                field.most, field.least = (bits - half if bits >> 63 else bits for bits in divmod(value.int, half))
        self.rows.put(tables.SNAPSHOT_INFO, keys.by_name + name.encode(), row)

    def directory_of(self, snapshot_id: UUID) -> Path:
        """Where a snapshot's database is."""
        return self.directory / "db.snapshots" / "checkpointState" / f"om.db-{snapshot_id}"

    def close(self) -> Path:
        """Write everything; the directory to be named."""
        self.rows.close()
        return self.directory
