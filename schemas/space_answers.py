"""What is asked and answered about space over HTTP, as JSON of the same names: one frozen dataclass each.

Snapshots are named by their ids, or by the txns at which they were taken; their names are known to snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class SnapshotSpace:
    """What one live snapshot refers to, and what of it others refer to too. Each figure says whether it is exact."""

    snapshot_id: str
    txn: int
    creation_time_ms: int
    referenced_bytes: int
    held_bytes: int
    """Of the referenced bytes those that are not live any more."""
    exclusive_bytes: int
    """What this snapshot alone holds: what dropping it, and it alone, frees."""
    exclusive_versions: int
    shared_with_previous_bytes: int
    """What the live snapshot before it shows too; 0 for the oldest."""
    shared_with_next_bytes: int
    """What the next live snapshot shows too; for the newest what the active namespace shows too."""
    oldest_sharer: int
    newest_sharer: int
    """All live snapshots from the txn of the one to that of the other show something that this one shows."""
    is_referenced_exact: bool
    """Whether referenced and shared_with_previous are; held too if exclusive is."""
    is_exclusive_exact: bool
    is_shared_with_next_exact: bool


@dataclass(frozen=True, slots=True)
class SnapshotSpaces:
    """A page of a bucket's live snapshots, oldest first, exact for one txn of the shard."""

    txn: int
    chain_version: int
    snapshots: tuple[SnapshotSpace, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Asks what dropping a set of snapshots would free."""

    snapshot_ids: tuple[str, ...]
    leaving_snapshot_ids: tuple[str, ...] = ()
    """Deleted for users and perhaps not dropped yet: what they hold counts as held by nobody."""


@dataclass(frozen=True, slots=True)
class FreedSpace:
    """What dropping a set of snapshots would free, beyond what nobody holds already."""

    txn: int
    chain_version: int
    freed_bytes: int
    freed_versions: int
    """Versions of zero bytes have no blocks and are not counted."""
    is_exact: bool
    """Whether no directory that died after the oldest of the set waits for its expansion."""


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """Asks for the least set of snapshots whose drop frees so many bytes."""

    free_bytes: int
    protected_snapshot_ids: tuple[str, ...] = ()
    """Those that must stay."""
    leaving_snapshot_ids: tuple[str, ...] = ()
    """As in a what-if."""


@dataclass(frozen=True, slots=True)
class SpacePlan:
    """The fewest snapshots, then the oldest, whose drop frees what was asked for."""

    txn: int
    chain_version: int
    snapshot_ids: tuple[str, ...]
    """In the order of the chain."""
    freed_bytes: int
    freed_versions: int
    is_enough: bool
    """Whether that is as much as was asked for; otherwise it is all that can be freed."""
    is_smallest: bool
    """Whether no smaller set frees as much; unknown when the search was cut short."""
    is_exact: bool
    """Whether no directory that died after the oldest snapshot that may go waits for its expansion."""


class VersionStage(StrEnum):
    """Where a version is on its way from the namespace to nowhere."""

    LIVE = "LIVE"
    """In the active namespace."""
    UNEXPANDED = "UNEXPANDED"
    """Below a deleted directory that is not expanded yet."""
    HELD = "HELD"
    """Deleted, and held by the snapshots from its first holder to its last."""
    PENDING = "PENDING"
    """Deleted and held by nobody: waits for judgement and claim."""
    CLAIMED = "CLAIMED"
    """Claimed: waits for the block store."""


@dataclass(frozen=True, slots=True)
class ExplainedVersion:
    """One version of a key."""

    object_id: int
    name: str
    """In a tree its last name within its directory, else its path."""
    tag: str
    size_bytes: int
    birth: int
    modification_time_ms: int
    """When it was committed."""
    death: int
    """0 for one that is live, and for one of zero bytes, which leaves no row that would know it."""
    stage: VersionStage
    first_holder: int
    last_holder: int
    """txns of the oldest and the newest live snapshot that hold it, and all between; 0 for nobody."""


@dataclass(frozen=True, slots=True)
class ExplainedDirectory:
    """One directory."""

    object_id: int
    birth: int
    death: int
    """0 for one that is live."""
    is_expanded: bool
    """Of a deleted one: whether all that was in it has rows of its own."""
    first_holder: int
    last_holder: int
    """As of a version."""


@dataclass(frozen=True, slots=True)
class PathExplanation:
    """Every version and directory that has a path now, or has it in a live snapshot, or had it at its death."""

    txn: int
    chain_version: int
    versions: tuple[ExplainedVersion, ...]
    """By birth."""
    directories: tuple[ExplainedDirectory, ...]
    below_bytes: int
    below_versions: int
    """What is below a directory of this path in the namespace or in a live snapshot, each version once."""
    scanned_rows: int
    """Garbage rows of the bucket, and rows below directories, that were looked through."""
    claims_stopped: str
    """As of the bucket: why nothing of the shard is claimed at present; empty as a rule."""
    is_exact: bool
    """Whether everything was looked through, and no version waits in an unexpanded directory of another path."""


@dataclass(frozen=True, slots=True)
class BlockExplanation:
    """The version that owns a block; none when its blocks are freed, or not yet found."""

    txn: int
    chain_version: int
    birth: int
    """txn that wrote the block, from its id."""
    bucket_id: int
    volume: str
    bucket: str
    path: str
    """In a tree that of now or of the death; empty when the row of a directory of it is gone."""
    version: ExplainedVersion | None
    claims_stopped: str
    next_start: str
    """Where the search goes on: ask again with it as ``start``. Empty when everything was looked through."""
