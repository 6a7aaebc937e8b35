"""Decodes an Iceberg table's metadata file, of the format versions 1 to 3, as far as the lens needs it."""

from __future__ import annotations

import gzip
import zlib
from typing import Final

import msgspec

from services.lens.iceberg.errors import IcebergError

NEWEST_FORMAT: Final = 3
MAIN: Final = "main"
_NO_SNAPSHOT: Final = -1


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """A snapshot of a table."""

    snapshot_id: int
    timestamp_ms: int
    parent_snapshot_id: int | None = None
    sequence_number: int = 0
    manifest_list: str | None = None
    manifests: tuple[str, ...] = ()
    """The manifests of a snapshot without a manifest list, as the first version of the format allows it."""


class Reference(msgspec.Struct, frozen=True, rename="kebab"):
    """A branch or a tag, and its own retention, where it differs from the table's."""

    snapshot_id: int
    type: str
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None

    @property
    def is_branch(self) -> bool:
        """Return whether it is a branch, whose ancestors are kept, too."""
        return self.type == "branch"


class Statistics(msgspec.Struct, frozen=True, rename="kebab"):
    """A statistics file, of a table or of its partitions, which belongs to a snapshot."""

    snapshot_id: int
    statistics_path: str


class MetadataLogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """An earlier metadata file."""

    metadata_file: str


class TableMetadata(msgspec.Struct, frozen=True, rename="kebab"):
    """The content of a metadata file."""

    format_version: int
    location: str
    table_uuid: str | None = None
    """None in metadata of the first version, which need not have it."""
    current_snapshot_id: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    refs: dict[str, Reference] | None = None
    statistics: tuple[Statistics, ...] = ()
    partition_statistics: tuple[Statistics, ...] = ()
    metadata_log: tuple[MetadataLogEntry, ...] = ()
    properties: dict[str, str] = {}

    @property
    def is_never_expired(self) -> bool:
        """Whether Iceberg refuses to expire any snapshot of the table."""
        return self.properties.get("gc.enabled", "true").lower() == "false"

    @property
    def references(self) -> dict[str, Reference]:
        """Return the branches and tags by name; an older writer names the current snapshot only, which is main's."""
        if self.refs is None and self.current_snapshot_id not in (None, _NO_SNAPSHOT):
            return {MAIN: Reference(self.current_snapshot_id or 0, "branch")}
        return self.refs or {}

    @property
    def by_id(self) -> dict[int, Snapshot]:
        """Return the snapshots by id."""
        return {snapshot.snapshot_id: snapshot for snapshot in self.snapshots}


def decode_metadata(content: bytes, location: str) -> TableMetadata:
    """Decode a metadata file, compressed or not.

    Raises:
        IcebergError: it is cut short, no metadata file at all, or of a newer format.
    """
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        version = msgspec.json.decode(content)["format-version"]
    except (EOFError, zlib.error, gzip.BadGzipFile, msgspec.DecodeError, KeyError, TypeError, RecursionError):
        raise IcebergError(
            f"{location} is cut short or no Iceberg metadata: name another metadata.json of the table."
        ) from None
    if not isinstance(version, int) or not 1 <= version <= NEWEST_FORMAT:
        raise IcebergError(
            f"{location} has format version {version}, and this program knows 1 to {NEWEST_FORMAT}: use a newer one."
        )
    try:
        return msgspec.json.decode(content, type=TableMetadata)
    except msgspec.ValidationError as error:
        raise IcebergError(f"{location} is no Iceberg metadata ({error}): name another metadata.json.") from None
