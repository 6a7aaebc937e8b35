"""What may be set for the snapshots service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotsSettings:
    """Settings of one snapshots service; the defaults are Ozone's."""

    max_snapshots: int = 10_000
    """Rows of one shard, with those that are being made and those that are deleted but not yet purged."""
    is_rename_allowed: bool = False
    remembered_client_ms: int = 3_600_000
    """Log time for which a client's last answer is kept."""
    retention_run_ms: int = 60_000
    """Time after which a bucket's retention policy runs again though no snapshot was taken."""
    max_tags: int = 10_000
    """Tags of one shard, automatic ones too."""
    max_consumers: int = 10_000
    """Consumers of one shard."""
    max_policies: int = 10_000
    """Buckets of one shard with a retention policy."""
    max_rollback_page_entries: int = 2_000
    """Rows that metadata looks at for one page of a rollback: other commands wait for no longer than that takes."""
    max_dropped_snapshots: int = 10_000
    """Snapshots of one shard that are remembered after they have gone, the last ones."""
