"""The answers of the services' HTTP reads: one frozen dataclass each, sent as JSON with the same names.

A read that answers with a stored row uses the row's record of ``schemas.records``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from schemas.records import (
    BreakerCause,
    BreakerLimits,
    BreakerTrip,
    ClaimHourRow,
    CollectionState,
    DeadLetterRow,
    DeadLetterState,
    DeletedKind,
    DirectoryRow,
    KeyRow,
    OpenKeyRow,
    RetentionPolicy,
    SpaceCellValue,
)


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
    """The row of one path: of a key or of a directory."""

    key: KeyRow | None = None
    directory: DirectoryRow | None = None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version of a key."""

    version: int
    """Id of the version: its birth."""
    is_current: bool
    size_bytes: int
    tag: str
    modification_time_ms: int


@dataclass(frozen=True, slots=True)
class ListedOpenKey:
    """A key, or a part of an upload, that a client is writing."""

    row: OpenKeyRow
    is_taken_away: bool
    """Whether the version that was synced is no longer the live one at its place: it was deleted, overwritten, renamed
    or rolled back. Such an open key can only be abandoned."""


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A delegation token without its secret; the times are log times."""

    token_id: str
    owner: str
    renewer: str
    issue_time_ms: int
    expiry_time_ms: int
    max_time_ms: int


class Returning(StrEnum):
    """The result that an undelete would have now."""

    ITSELF = "ITSELF"
    NEW_OBJECT = "NEW_OBJECT"
    """A new objectID with the same blocks."""
    ONLY_A_COPY = "ONLY_A_COPY"
    """Not possible: a snapshot holds the object, which can be copied from there."""
    ONLY_ITS_FILES = "ONLY_ITS_FILES"
    """Not possible for the directory as a whole: its files can be undeleted one by one, once they are listed."""


@dataclass(frozen=True, slots=True)
class ListedDeletion:
    """A deleted version or directory that is not claimed."""

    kind: DeletedKind
    path: str
    """Path at the death; empty when it is not known."""
    name: str
    """Name in the directory; the whole path in a flat bucket."""
    object_id: int
    birth: int
    death: int
    size_bytes: int
    """0 for a directory."""
    tag: str
    deletion_time_ms: int
    """Log time at which the row was created; for an object below a deleted directory, that of the expansion."""
    is_held: bool
    """Whether a snapshot holds the object, so that it is not claimed."""
    until_ms: int
    """Approximate time before which the object is not claimed, unless a settle runs; -1 while a snapshot holds it."""
    returning: Returning
    version_of: int = 0
    """0, or the objectID of the key of which this was a noncurrent version."""


@dataclass(frozen=True, slots=True)
class BucketSpace:
    """The bytes of a bucket by stage, at one txn of its shard."""

    txn: int
    chain_version: int
    live_bytes: int
    live_namespace: int
    deleted_bytes: int
    """Bytes of deleted versions whose rows are not removed yet: held, pending and claimed together."""
    deleted_namespace: int
    held_bytes: int
    held_versions: int
    pending_bytes: int
    """Held by no snapshot and not claimed yet."""
    pending_versions: int
    claimed_bytes: int
    claimed_versions: int
    freed_bytes: int
    """Bytes whose deletion SCM has confirmed, ever."""
    freed_versions: int
    unexpanded_directories: int
    """Deleted directories that are not expanded; their files still count as live. Counted up to 1,000."""
    cells: tuple[SpaceCellValue, ...]
    """A page of the space matrix, by first and last holder; all other figures cover the whole matrix."""
    live_snapshots: int
    claims_stopped: str
    """Why all claims of the shard are stopped; empty while they are not stopped."""
    live_replicated_bytes: int = 0
    """What the blocks of these bytes take on disks, with all copies and parity. So for the following."""
    deleted_replicated_bytes: int = 0
    held_replicated_bytes: int = 0
    pending_replicated_bytes: int = 0
    claimed_replicated_bytes: int = 0
    freed_replicated_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ShadowHour:
    """The versions of a bucket that would have been claimed within an hour without shadow mode, and that still wait."""

    began_ms: int
    """Log time at which the hour began; 0 for the sum of all hours before the kept ones."""
    versions: int
    bytes: int
    oldest_deletion_ms: int
    """Oldest deletion that was counted in the hour, including versions that were claimed or undeleted since."""
    newest_deletion_ms: int


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """The collection state of a bucket, or of the whole shard, and the amounts that wait because of it."""

    volume: str
    """Empty for the whole shard."""
    bucket: str
    is_deleted: bool
    """Whether the bucket was deleted; its garbage rows still wait."""
    bucket_id: int
    """objectID, which tells apart several buckets that had the same name; 0 for the whole shard."""
    state: CollectionState
    """State that was set for this bucket, or for the shard."""
    effective_state: CollectionState
    """The stricter one of the bucket's state and the shard's."""
    reason: str
    changed_by: str
    changed_ms: int
    """Log time of the last change; -1 when no state was ever set."""
    pending_bytes: int
    """Held by no snapshot and not claimed."""
    pending_versions: int
    claimed_bytes: int
    """Claimed and not confirmed by the block store; a pause does not stop the deletion of these blocks."""
    claimed_versions: int
    unexpanded_directories: int
    """Deleted directories that are not expanded, counted up to 1,000; no figure here includes the files below them.
    -1 when not counted: only the status of a single bucket counts them.
    """
    limits: BreakerLimits | None = None
    """Limits of the breaker that were set for this bucket, or for the shard."""
    trip: BreakerTrip | None = None
    """Why the breaker has tripped; null when it has not."""
    hour: ClaimHourRow | None = None
    """Claims of the bucket in its last hour with limits."""
    stopped_ms: int = -1
    """Log time at which all claims of the shard were stopped; -1 while they are not stopped."""
    shard: int = 0
    shadow: tuple[ShadowHour, ...] = ()
    """Versions that shadow mode counted in each hour of the last two weeks, and before, and that still wait."""

    def since_ms(self, state: CollectionState) -> int:
        """Return the log time at which a state began: that of the trip, of the stop, or else of the last change."""
        if state is CollectionState.STOPPED:
            return self.stopped_ms
        return self.trip.at_ms if self.trip and state is CollectionState.TRIPPED else self.changed_ms


@dataclass(frozen=True, slots=True)
class SnapshotTag:
    """A tag, which protects a snapshot."""

    tag: str
    snapshot: str
    """Name of the snapshot."""
    snapshot_id: str
    owner: str
    reason: str
    creation_time_ms: int
    expiry_time_ms: int
    """Time at which the tag is removed automatically; -1: never."""
    is_automatic: bool


@dataclass(frozen=True, slots=True)
class SnapshotConsumer:
    """A consumer and its position."""

    consumer: str
    next_snapshot: str
    """Name of the oldest snapshot that the consumer has still to read; empty when it has read all."""
    next_txn: int
    """The consumer has still to read the snapshots captured at this txn or later."""
    seen_time_ms: int


@dataclass(frozen=True, slots=True)
class RetentionReason:
    """One reason why a snapshot stays, with its facts; ``services/domain/retention.py`` defines the reasons."""

    reason: str
    """MINIMUM, CONSUMER, TAG, LIMIT or AGE; one is enough."""
    bound: int
    """MINIMUM and LIMIT: the figure of the policy; else 0."""
    names: tuple[str, ...]
    """CONSUMER and TAG: names of the consumers or tags."""
    until_ms: int
    """AGE: the time at which this reason ends; -1 when that depends on future snapshots, and for other reasons."""


@dataclass(frozen=True, slots=True)
class RetainedSnapshot:
    """A snapshot that stays."""

    snapshot: str
    snapshot_id: str
    create_txn: int
    """txn of the capture, which orders the snapshots that stay and those that expire."""
    creation_time_ms: int
    reasons: tuple[RetentionReason, ...]


@dataclass(frozen=True, slots=True)
class ExpiringSnapshot:
    """A snapshot that expires."""

    snapshot: str
    snapshot_id: str
    create_txn: int
    creation_time_ms: int


@dataclass(frozen=True, slots=True)
class RetentionPreview:
    """The result that a run of retention would have at a moment; the preview changes nothing."""

    now_ms: int
    policy: RetentionPolicy
    expired: tuple[ExpiringSnapshot, ...]
    """Snapshots that would expire, oldest first."""
    kept: tuple[RetainedSnapshot, ...]
    """All other snapshots, oldest first."""
    freed_bytes: int
    """Bytes that only the expiring snapshots hold."""
    freed_versions: int
    is_exact: bool
    """False while a deleted directory is not expanded yet, so that the figures may still change."""
    dropped_consumers: tuple[str, ...]
    dropped_tags: tuple[str, ...]
    freed_replicated_bytes: int = 0
    """What the blocks of the freed bytes take on disks, with all copies and parity."""


@dataclass(frozen=True, slots=True)
class ShardBacklog:
    """The bytes of one shard by stage, over all buckets, deleted ones included."""

    txn: int
    held_bytes: int
    held_versions: int
    pending_bytes: int
    """Held by no snapshot and not claimed yet."""
    pending_versions: int
    claimed_bytes: int
    claimed_versions: int
    freed_bytes: int
    """Bytes whose deletion SCM has confirmed, ever."""
    freed_versions: int
    refused_rows: int
    """Rows that two judges passed and that metadata kept because a snapshot holds them, ever: must stay 0."""
    chain_version: int
    live_bytes: int
    """Live, held, pending and claimed bytes add up to SCM's inventory, at rest and with no unexpanded directory."""
    cells: int
    """Cells of the space matrices."""
    suspended_bytes: int
    """Pending bytes whose claims are suspended."""
    suspended_versions: int
    shadow_bytes: int
    """Bytes that would have been claimed without shadow mode, and that still wait."""
    shadow_versions: int
    collection_states: dict[CollectionState, int]
    """Number of buckets by own collection state; the shard counts as one more. Only states that were set count."""
    trips: dict[BreakerCause, int]
    """Buckets whose breaker has tripped, by cause."""
    live_replicated_bytes: int = 0
    """What the blocks of these bytes take on disks, with all copies and parity. So for the following."""
    held_replicated_bytes: int = 0
    pending_replicated_bytes: int = 0
    claimed_replicated_bytes: int = 0
    freed_replicated_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ShardKept:
    """What a shard keeps."""

    database_bytes: int
    """Bytes of metadata's database on disk, without checkpoints."""


@dataclass(frozen=True, slots=True)
class ScmTotals:
    """The inventory of one shard."""

    mark_txn: int
    inventory_bytes: int
    inventory_blocks: int
    deleted_bytes: int
    deleted_blocks: int
    waiting_deletions: int


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """Number of dead letters with the same service, topic, error and state."""

    service: str
    topic: str
    error: str
    state: DeadLetterState
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterHeader:
    """One header of a dead-lettered message."""

    name: str
    value_hex: str


@dataclass(frozen=True, slots=True)
class DeadLetterBytes:
    """A dead letter with its message."""

    letter: DeadLetterRow
    has_bytes: bool
    """False once the letter is resolved: only the topic dead-letters and the message's topic have the bytes then."""
    value_hex: str = ""
    key_hex: str = ""
    headers: tuple[DeadLetterHeader, ...] = ()


class DiffStatus(StrEnum):
    """Status of a diff, in Ozone's words."""

    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_end(self) -> bool:
        """Return whether the status is final."""
        return self not in (DiffStatus.QUEUED, DiffStatus.IN_PROGRESS)


class DiffWay(StrEnum):
    """How a diff is computed."""

    UNDECIDED = ""
    DIRECT = "direct"
    """By metadata, from the rows that changed between the two snapshots."""
    SPARK = "spark"
    """By a Spark job, from all keys of both snapshots."""


@dataclass(frozen=True, slots=True)
class DiffJob:
    """A requested diff. An empty snapshot id means the active namespace."""

    job_id: str
    volume: str
    bucket: str
    from_snapshot_id: str
    to_snapshot_id: str
    status: DiffStatus
    created_ms: int
    way: DiffWay = DiffWay.UNDECIDED
    progress_percent: int = 0
    """Percentage of the expected rows that are read; 100 only with DONE."""
    entry_count: int = 0
    """Number of differences; known with DONE."""
    message: str = ""
    """Why the diff was rejected or failed, and the remedy."""
    ended_ms: int = -1


@dataclass(frozen=True, slots=True)
class AuditCopy:
    """A copy of a shard's database for an audit."""

    directory: str
    """Path of the copy on the service's machine."""
    txn: int
    """The last txn in the copy: the last one that metadata applied, or that of the newest block of the block store."""
    snapshots: dict[str, str] = field(default_factory=dict)
    """Path of the snapshot checkpoint of each live snapshot, by snapshot id."""
