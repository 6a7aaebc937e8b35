"""Questions and answers about space over HTTP: one frozen dataclass each, sent as JSON with the same names.

They identify snapshots by id, or by the txn of the capture; only the service snapshots has the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class SnapshotSpace:
    """The bytes that one live snapshot references, and the parts that its neighbours share."""

    snapshot_id: str
    txn: int
    creation_time_ms: int
    referenced_bytes: int
    held_bytes: int
    """The part of the referenced bytes that is not live any more."""
    exclusive_bytes: int
    """Bytes that only this snapshot holds; deleting only this snapshot frees them."""
    exclusive_versions: int
    shared_with_previous_bytes: int
    """Bytes that the previous live snapshot references, too; 0 for the oldest."""
    shared_with_next_bytes: int
    """Bytes that the next live snapshot references, too; for the newest, bytes of the active namespace."""
    oldest_sharer: int
    newest_sharer: int
    """Every live snapshot from the txn ``oldest_sharer`` to ``newest_sharer`` shares a version with this one."""
    is_referenced_exact: bool
    """Whether referenced and shared_with_previous are exact. Held is exact if this and is_exclusive_exact are true."""
    is_exclusive_exact: bool
    is_shared_with_next_exact: bool
    referenced_replicated_bytes: int = 0
    """What the blocks of these bytes take on disks, with all copies and parity. So for the following."""
    held_replicated_bytes: int = 0
    exclusive_replicated_bytes: int = 0
    shared_with_previous_replicated_bytes: int = 0
    shared_with_next_replicated_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotSpaces:
    """A page of a bucket's live snapshots, oldest first, exact for one txn of the shard."""

    txn: int
    chain_version: int
    snapshots: tuple[SnapshotSpace, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A question: the bytes that dropping a set of snapshots would free."""

    snapshot_ids: tuple[str, ...]
    leaving_snapshot_ids: tuple[str, ...] = ()
    """Snapshots that a user has deleted and that may not be dropped yet; they do not count as holders."""


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """The bytes that dropping a set of snapshots would free, without those that no snapshot holds already."""

    txn: int
    chain_version: int
    freed_bytes: int
    freed_versions: int
    """Versions of zero bytes have no blocks and are not counted."""
    is_exact: bool
    """Whether no directory that died after the oldest snapshot of the set is unexpanded."""
    freed_replicated_bytes: int = 0
    """What the freed blocks take on disks, with all copies and parity."""


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """A question: the smallest set of snapshots whose drop frees at least ``free_bytes``."""

    free_bytes: int
    protected_snapshot_ids: tuple[str, ...] = ()
    """Snapshots that the plan must not contain."""
    leaving_snapshot_ids: tuple[str, ...] = ()
    """As in a what-if."""
    is_replicated: bool = False
    """Whether ``free_bytes`` are those that the blocks take on disks."""


@dataclass(frozen=True, slots=True)
class SpacePlan:
    """The smallest set of snapshots whose drop frees at least the requested bytes; ties prefer older snapshots."""

    txn: int
    chain_version: int
    snapshot_ids: tuple[str, ...]
    """In the order of the chain."""
    freed_bytes: int
    freed_versions: int
    is_enough: bool
    """Whether ``freed_bytes`` reaches the requested bytes; if not, no plan frees more."""
    is_smallest: bool
    """Whether no smaller set frees as much; False when the search was cut short and a smaller set may exist."""
    is_exact: bool
    """Whether no directory that died after the oldest unprotected snapshot is unexpanded."""
    freed_replicated_bytes: int = 0
    """As in a what-if."""


class VersionStage(StrEnum):
    """Stage of a version between its commit and the deletion of its blocks."""

    LIVE = "LIVE"
    """In the active namespace."""
    UNEXPANDED = "UNEXPANDED"
    """Below a deleted directory that is not expanded yet."""
    HELD = "HELD"
    """Deleted, and held by the live snapshots from ``first_holder`` to ``last_holder``."""
    PENDING = "PENDING"
    """Deleted and held by no snapshot: waits for the judges and the claim."""
    CLAIMED = "CLAIMED"
    """Claimed: waits for the block store."""


@dataclass(frozen=True, slots=True)
class ExplainedVersion:
    """One version of a key."""

    object_id: int
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    tag: str
    size_bytes: int
    birth: int
    modification_time_ms: int
    """Time of the commit."""
    death: int
    """0 for a live version, and for a version of zero bytes, whose death no row records."""
    stage: VersionStage
    first_holder: int
    last_holder: int
    """txns of the oldest and the newest live snapshot that hold the version, as all between do; 0 when none does."""
    version_of: int = 0
    """0, or the objectID of the key of which this is a noncurrent version, or was one when it died."""
    replicated_bytes: int = 0
    """What its blocks take on disks, with all copies and parity."""


@dataclass(frozen=True, slots=True)
class ExplainedDirectory:
    """One directory."""

    object_id: int
    birth: int
    death: int
    """0 for a live directory."""
    is_expanded: bool
    """Whether all children of a deleted directory have rows of their own."""
    first_holder: int
    last_holder: int
    """As in ``ExplainedVersion``."""


@dataclass(frozen=True, slots=True)
class PathExplanation:
    """Every version and directory that has a path now or in a live snapshot, or had the path at its death."""

    txn: int
    chain_version: int
    versions: tuple[ExplainedVersion, ...]
    """By birth."""
    directories: tuple[ExplainedDirectory, ...]
    below_bytes: int
    below_versions: int
    """Versions below a directory of this path in the namespace or in a live snapshot, each counted once."""
    scanned_rows: int
    """Number of garbage rows of the bucket, and of rows below directories, that were read."""
    claims_stopped: str
    """Why all claims of the shard are stopped; empty while they are not stopped."""
    is_exact: bool
    """Whether all rows were read, and no version is below an unexpanded directory of another path."""
    below_replicated_bytes: int = 0
    """What the blocks of these versions take on disks, with all copies and parity."""


@dataclass(frozen=True, slots=True)
class BlockExplanation:
    """The version that owns a block; null when its blocks are freed, or when the search has not found it yet."""

    txn: int
    chain_version: int
    birth: int
    """txn that wrote the block, taken from the block's id."""
    bucket_id: int
    volume: str
    bucket: str
    path: str
    """In a tree, the present path or the path at the death; empty when the row of one of its directories is missing."""
    version: ExplainedVersion | None
    claims_stopped: str
    next_start: str
    """Value of ``start`` with which the next request continues the search; empty when all rows were read."""
