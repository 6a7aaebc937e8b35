"""What the services' reads answer over HTTP, as JSON of the same names: one frozen dataclass each.

Where a read answers with a stored row, it is the row's record of ``schemas.records``.
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
    """The row of one path: that of a key or that of a directory."""

    key: KeyRow | None = None
    directory: DirectoryRow | None = None


class Returning(StrEnum):
    """As what something deleted would come back now."""

    ITSELF = "ITSELF"
    NEW_OBJECT = "NEW_OBJECT"
    """With the same blocks, under a new objectID."""
    ONLY_A_COPY = "ONLY_A_COPY"
    """Not at all: a snapshot holds it, from which it can be copied."""
    ONLY_ITS_FILES = "ONLY_ITS_FILES"
    """Not as a whole: the files of this directory come back one by one, once they are listed."""


@dataclass(frozen=True, slots=True)
class ListedDeletion:
    """A deleted version or directory that is not claimed."""

    kind: DeletedKind
    path: str
    """Where it was when it died; empty when that cannot be told."""
    name: str
    """In a tree its last name, else its path."""
    object_id: int
    birth: int
    death: int
    size_bytes: int
    """0 for a directory."""
    tag: str
    deletion_time_ms: int
    """When its row came to be: of what was in a directory, when that was expanded."""
    is_held: bool
    """Whether a snapshot holds it, so that nobody claims it."""
    until_ms: int
    """Not claimed before about then, unless the plane is settled; -1 while a snapshot holds it."""
    returning: Returning


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
    """A page of the space matrix, by first and last holder; all figures beside it are of the whole matrix."""
    live_snapshots: int
    claims_stopped: str
    """Why nothing of the shard is claimed until a person says otherwise; empty while claims go on."""


@dataclass(frozen=True, slots=True)
class ShadowHour:
    """What of a bucket would have been claimed within an hour, had its collector not been in the shadow, as far as it
    still waits.
    """

    began_ms: int
    """Log time at which the hour began; 0 for all that was counted before the hours that are kept."""
    versions: int
    bytes: int
    oldest_deletion_ms: int
    """Of all that was counted in the hour, also of what was claimed or brought back since."""
    newest_deletion_ms: int


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """What the collector does for a bucket, or for all of a shard, and what waits because of it."""

    volume: str
    """Empty for all of the shard."""
    bucket: str
    is_deleted: bool
    """Whether the bucket was deleted; what it has left behind still waits."""
    bucket_id: int
    """objectID, by which one of several buckets of a name can be held back; 0 for all of the shard."""
    state: CollectionState
    """As it was set for this bucket, or for all of the shard."""
    effective_state: CollectionState
    """Of both the stricter one."""
    reason: str
    changed_by: str
    changed_ms: int
    """Log time of the last change; -1 when nothing was ever set."""
    pending_bytes: int
    """Held by nobody and not claimed."""
    pending_versions: int
    claimed_bytes: int
    """Claimed, and not confirmed by the block store: a pause does not end that."""
    claimed_versions: int
    unexpanded_directories: int
    """Deleted trees that are not taken apart, counted up to 1,000: what is below them comes on top. -1 when not
    counted, which it is for one bucket alone.
    """
    limits: BreakerLimits | None = None
    """Limits of the breaker that were set for this bucket, or for each that has none of its own."""
    trip: BreakerTrip | None = None
    """Why the breaker has tripped; null when it has not."""
    hour: ClaimHourRow | None = None
    """What was claimed of the bucket in its last hour with a limit."""
    stopped_ms: int = -1
    """Log time since when all claims of the shard are stopped; -1 when they are not."""
    shard: int = 0
    shadow: tuple[ShadowHour, ...] = ()
    """What would have been claimed in each hour of the last two weeks, while in the shadow, and still waits."""

    def since_ms(self, state: CollectionState) -> int:
        """Log time at which a state of it began: of a trip and of a stop theirs, else that of the last change."""
        if state is CollectionState.STOPPED:
            return self.stopped_ms
        return self.trip.at_ms if self.trip and state is CollectionState.TRIPPED else self.changed_ms


@dataclass(frozen=True, slots=True)
class SnapshotTag:
    """A named hold on a snapshot."""

    tag: str
    snapshot: str
    """Name of the snapshot."""
    snapshot_id: str
    owner: str
    reason: str
    creation_time_ms: int
    expiry_time_ms: int
    """When it goes by itself; -1: never."""
    is_automatic: bool


@dataclass(frozen=True, slots=True)
class SnapshotConsumer:
    """A named reader and its place."""

    consumer: str
    next_snapshot: str
    """Name of the oldest snapshot that it has still to read; empty when it has read all."""
    next_txn: int
    """It has still to read what was taken at this txn or later."""
    seen_time_ms: int


@dataclass(frozen=True, slots=True)
class RetentionReason:
    """One reason why a snapshot stays, with its facts; ``services/domain/retention.py`` defines them."""

    reason: str
    """MINIMUM, CONSUMER, TAG, LIMIT or AGE; each is enough by itself."""
    bound: int
    """MINIMUM and LIMIT: the figure of the policy; else 0."""
    names: tuple[str, ...]
    """CONSUMER and TAG: who holds it."""
    until_ms: int
    """AGE: when age alone will not hold it any more; -1 when that depends on snapshots to come, and for the others."""


@dataclass(frozen=True, slots=True)
class RetainedSnapshot:
    """A snapshot that stays."""

    snapshot: str
    snapshot_id: str
    create_txn: int
    """Its place in the chain, among those that stay and those that expire."""
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
    """What a run of retention would do at a moment; nothing is changed by asking."""

    now_ms: int
    policy: RetentionPolicy
    expired: tuple[ExpiringSnapshot, ...]
    """Those that would go, oldest first."""
    kept: tuple[RetainedSnapshot, ...]
    """All others, oldest first."""
    freed_bytes: int
    """What is held by those that would go and by nothing else."""
    freed_versions: int
    is_exact: bool
    """False while a directory that was deleted is not yet expanded and the figures may still change."""
    dropped_consumers: tuple[str, ...]
    dropped_tags: tuple[str, ...]


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
    refused_rows: int
    """Rows that two judges had passed and that were kept because a snapshot holds them, ever: must stay 0."""
    chain_version: int
    live_bytes: int
    """With held, pending and claimed it is SCM's inventory, at rest and when no directory is unexpanded."""
    cells: int
    """Cells of the space matrices."""
    suspended_bytes: int
    """What of the pending bytes waits because the collector may not claim."""
    suspended_versions: int
    shadow_bytes: int
    """What was counted in the shadow and still waits: what would have been claimed."""
    shadow_versions: int
    collection_states: dict[CollectionState, int]
    """Buckets, and the shard as one more, for which something was said of the collector, by what it does."""
    trips: dict[BreakerCause, int]
    """Buckets whose breaker has tripped, by why."""


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
    """How many dead letters there are of one kind."""

    service: str
    topic: str
    error: str
    state: DeadLetterState
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterHeader:
    """One header of a message that was put aside."""

    name: str
    value_hex: str


@dataclass(frozen=True, slots=True)
class DeadLetterBytes:
    """A dead letter with the message that it is about."""

    letter: DeadLetterRow
    has_bytes: bool
    """False once the letter was dealt with: the bytes are in its topic, and where the message came from."""
    fingerprint_hex: str = ""
    value_hex: str = ""
    key_hex: str = ""
    headers: tuple[DeadLetterHeader, ...] = ()


class DiffStatus(StrEnum):
    """How far a diff has come; Ozone's words."""

    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_end(self) -> bool:
        """Whether nothing more will happen to it."""
        return self not in (DiffStatus.QUEUED, DiffStatus.IN_PROGRESS)


class DiffWay(StrEnum):
    """How a diff is made."""

    UNDECIDED = ""
    DIRECT = "direct"
    """By the owner of the shard, from what changed between the two."""
    SPARK = "spark"
    """By a Spark job, from all keys of both."""


@dataclass(frozen=True, slots=True)
class DiffJob:
    """A diff that was asked for. An empty snapshot id is the active namespace."""

    job_id: str
    volume: str
    bucket: str
    from_snapshot_id: str
    to_snapshot_id: str
    status: DiffStatus
    created_ms: int
    way: DiffWay = DiffWay.UNDECIDED
    progress_percent: int = 0
    """Of the rows that it expects to look at; 100 only when it is done."""
    entry_count: int = 0
    """How many differences there are; known when it is done."""
    message: str = ""
    """Why it was rejected or has failed, and what to do."""
    ended_ms: int = -1


@dataclass(frozen=True, slots=True)
class AuditCopy:
    """A copy of a shard's database for an audit."""

    directory: str
    """Where it lies, as the service's machine names it."""
    txn: int
    """What it includes: the txn that metadata had applied, or the one of the newest block that the store knew."""
    snapshots: dict[str, str] = field(default_factory=dict)
    """By id, where the checkpoint of each snapshot lies that was live then."""
