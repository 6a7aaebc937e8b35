"""Settings of the snapshots service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotsSettings:
    """Settings of one snapshots service; the defaults are Ozone's."""

    max_snapshots: int = 10_000
    """Snapshots of one shard, with those in creation and those that are deleted and not yet purged."""
    is_rename_allowed: bool = False
    """Whether snapshots may be renamed; Ozone does not allow it."""
    remembered_client_ms: int = 3_600_000
    """How long a client's last answer is kept, in the time of the log."""
    retention_run_ms: int = 60_000
    """How often a bucket's retention policy runs while no snapshot is created."""
    max_tags: int = 10_000
    """Tags of one shard, automatic ones too."""
    max_consumers: int = 10_000
    """Consumers of one shard."""
    max_policies: int = 10_000
    """Buckets of one shard with a retention policy."""
    max_rollback_page_entries: int = 2_000
    """Rows that metadata reads for one page of a rollback. Commands to other buckets wait for at most one page."""
    max_dropped_snapshots: int = 10_000
    """Most dropped snapshots that a shard remembers, so that a reader gets SNAPSHOT_EXPIRED and the next snapshot;
    those that were deleted first are forgotten first."""
