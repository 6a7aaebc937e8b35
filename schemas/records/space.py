"""Records of gc.space: the bytes and rows that each range of snapshots holds."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record


@record
class SnapshotSize:
    """Size of one snapshot."""

    snapshot_id: str
    """Id of the snapshot."""
    referenced_bytes: int
    """Bytes that the snapshot references; too high while a directory that died before the snapshot is unexpanded."""
    referenced_namespace: int
    """Keys and directories that the snapshot references; too high likewise."""
    referenced_redundancy_bytes: int = 0
    """Bytes that the blocks of referenced_bytes take beyond one copy of them."""


@record
class SpaceCellValue:
    """One cell of a bucket's space matrix, as an absolute value."""

    first_holder: int
    """txn of the oldest live snapshot that holds the versions; 0 when none does."""
    last_holder: int
    """txn of the newest live snapshot that holds the versions; 0 when none does."""
    bytes: int
    """Bytes of the versions."""
    versions: int
    """Number of versions that have blocks."""
    key_rows: int
    """Rows of deletedTable."""
    directory_rows: int
    """Rows of deletedDirectoryTable."""
    rename_rows: int
    """Rows of snapshotRenamedTable."""
    redundancy_bytes: int = 0
    """Bytes that the blocks of the versions take beyond one copy of them."""


@record
class SpaceUpdate:
    """Changed figures of one bucket, as absolute values. Topic gc.space, written by metadata."""

    txn: int
    """The figures include everything up to this txn; a reader shows only complete txns."""
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
    """`volume/bucket` in the update that reports the bucket's deletion; otherwise empty."""
    deleted_ms: int = 0
    """Log time of the deletion."""
