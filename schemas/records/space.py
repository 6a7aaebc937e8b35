"""Records of gc.space: how much each set of snapshots holds."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """Size of what one snapshot references."""

    snapshot_id: str
    """Id of the snapshot."""
    referenced_bytes: int
    """Bytes that it lists; too high while a directory that died before it is unexpanded."""
    referenced_namespace: int
    """Keys and directories that it lists; as above."""


@dataclass(frozen=True, slots=True)
class SpaceCellValue:
    """One cell of a bucket's space matrix, as an absolute value."""

    first_holder: int
    """txn of the oldest live snapshot that holds these versions; 0 when nobody does."""
    last_holder: int
    """txn of the newest live snapshot that holds them; 0 when nobody does."""
    bytes: int
    """Bytes of the versions."""
    versions: int
    """How many versions with blocks."""
    key_rows: int
    """Rows of deletedTable."""
    directory_rows: int
    """Rows of deletedDirectoryTable."""
    rename_rows: int
    """Rows of snapshotRenamedTable."""


@dataclass(frozen=True, slots=True)
class SpaceUpdate:
    """Changed figures of one bucket, absolute. Topic gc.space, written by metadata."""

    txn: int
    """These figures include everything up to this txn; a reader shows whole txns only."""
    bucket_id: int
    """objectID of the bucket; 0 when nothing changed."""
    cells: tuple[SpaceCellValue, ...]
    """Changed cells."""
    snapshots: tuple[SnapshotSize, ...]
    """Changed snapshots."""
    oldest_unexpanded_death: int
    """Death of the oldest deleted directory that is not expanded; 0 when there is none."""
    newest_unexpanded_death: int
    """Death of the newest deleted directory that is not expanded; 0 when there is none."""
    deleted_path: str = ""
    """Volume and bucket, with a slash between them, in the update that says that the bucket was deleted; else empty."""
    deleted_ms: int = 0
    """Log time of that deletion."""
