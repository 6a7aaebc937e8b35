"""What the services' reads answer over HTTP, as JSON of the same names: one frozen dataclass each.

Where a read answers with a stored row, it is the row's record of ``schemas.records``.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import DirectoryRow, KeyRow, SnapshotListRow, SpaceCellValue


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One key or directory of a listing."""

    path: str
    is_directory: bool
    size_bytes: int
    tag: str
    object_id: int
    modification_time_ms: int


@dataclass(frozen=True, slots=True)
class StatAnswer:
    """The row of one path: that of a key or that of a directory."""

    key: KeyRow | None = None
    directory: DirectoryRow | None = None


@dataclass(frozen=True, slots=True)
class BucketSpace:
    """Where the bytes of a bucket are, exact for one txn of its shard."""

    txn: int
    chain_version: int
    live_bytes: int
    live_namespace: int
    deleted_bytes: int
    """Bytes of deleted versions that are not purged: held, pending and claimed together."""
    deleted_namespace: int
    held_bytes: int
    held_versions: int
    pending_bytes: int
    """Held by nobody and not claimed yet."""
    pending_versions: int
    claimed_bytes: int
    claimed_versions: int
    freed_bytes: int
    """Confirmed by SCM, ever."""
    freed_versions: int
    unexpanded_directories: int
    """Deleted directories that are not expanded; their files still count as live. Counted up to 1,000."""
    cells: tuple[SpaceCellValue, ...]
    snapshots: tuple[SnapshotListRow, ...]
    claims_stopped: str
    """Why nothing of the shard is claimed until a person says otherwise; empty while claims go on."""


@dataclass(frozen=True, slots=True)
class ShardBacklog:
    """Where the bytes of one shard are, over all buckets; what is deleted of deleted buckets too."""

    txn: int
    held_bytes: int
    held_versions: int
    pending_bytes: int
    """Held by nobody and not claimed yet."""
    pending_versions: int
    claimed_bytes: int
    claimed_versions: int
    freed_bytes: int
    """Confirmed by SCM, ever."""
    freed_versions: int
    chain_version: int
    live_bytes: int
    """With held, pending and claimed it is SCM's inventory, at rest and when no directory is unexpanded."""
    cells: int
    """Cells of the space matrices."""


@dataclass(frozen=True, slots=True)
class ScmTotals:
    """The inventory of one shard."""

    mark_txn: int
    inventory_bytes: int
    inventory_blocks: int
    deleted_bytes: int
    deleted_blocks: int
    waiting_deletions: int
