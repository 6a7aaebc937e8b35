"""Rows that snapshots keeps."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.snapshots import DeadLetterState, RetentionPolicy, SnapshotsExpired


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """consumerTable: a named reader and its place in the bucket's snapshots."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    consumer: str
    """Its name."""
    bucket_id: int
    """objectID of the bucket whose snapshots it reads: another bucket of the same name is not meant."""
    next_txn: int
    """It still reads the snapshots captured at this txn or later."""
    seen_time_ms: int
    """Log time at which it was heard of last."""


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """deadLetterTable: a dead letter without its bytes, and what was done about it."""

    number: int
    """Its offset in the shard's partition of dead-letters."""
    service: str
    """Who could not read or apply the message."""
    topic: str
    """Where the message came from."""
    partition: int
    """Where the message came from."""
    offset: int
    """Where the message came from."""
    error: str
    """Kind of the error."""
    message: str
    """The error in words."""
    size_bytes: int
    """Bytes of the original message."""
    is_cut: bool
    """Whether the letter does not have all of the original."""
    time_ms: int
    """When the letter was appended to its topic."""
    attempts: int
    """How often the message had been sent again before it failed this time; 0 the first time."""
    retry_of: int
    """Number of the letter that was retried with this message; -1 the first time."""
    state: DeadLetterState = DeadLetterState.OPEN
    """Whether anybody has to look at it."""
    who: str = ""
    """Who has resolved it."""
    reason: str = ""
    """Why it was dealt with so."""
    resolved_time_ms: int = -1
    """When the resolution was received, in log time; -1 while it is open."""


@dataclass(frozen=True, slots=True)
class DroppedSnapshotRow:
    """droppedSnapshotTable: the last dropped snapshot of a name."""

    snapshot_id: str
    """Its id."""
    bucket_id: int
    """objectID of its bucket."""
    create_txn: int
    """txn of its checkpoint."""
    deletion_time_ms: int
    """Log time of its deletion or expiry."""


@dataclass(frozen=True, slots=True)
class ExpiryRow:
    """expiryTable: a request to expire that is answered when its snapshots are removed."""

    client_id: str
    """Who is to be answered."""
    number: int
    """The client's number."""
    outcome: SnapshotsExpired
    """The answer. It waits for those of its snapshots that still have a row."""


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """pendingTable: a snapshot half made or half dropped."""

    snapshot_id: str
    """Id of the snapshot."""
    action: str
    """CREATE, DROP, DROPPED (answered while the chain was corrupted: ask again) or UNDO."""
    client_id: str
    """Who is to be answered; empty when nobody."""
    number: int
    """The client's number."""
    since_ms: int
    """Log time of the request."""
    at_ms: int = -1
    """Creation time that was asked for; -1: the log time of its checkpoint."""
    is_automatic: bool = False
    """Whether a retention policy makes it."""
    user: str = ""
    """User who asked for it, on a plane that requires signatures."""


@dataclass(frozen=True, slots=True)
class RetentionRow:
    """retentionTable: a bucket's policy, and where its runs are."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    policy: RetentionPolicy
    """The policy."""
    next_run_ms: int
    """When the next run is due."""
    last_run_ms: int
    """When the last run was; -1 before the first."""
    last_expired: int
    """Snapshots that expired in the last run."""
    last_snapshot_period: int
    """Number of the last period that has its automatic snapshot, counted from the epoch."""
    last_tag_period: int
    """Number of the last period that has its automatic tag."""
    failure: str
    """Why the last run, or the last automatic snapshot, failed; empty when neither did, or it was reported."""
    failure_time_ms: int
    """When it failed; -1 when nothing did."""
    is_failure_of_snapshot: bool
    """Whether it is an automatic snapshot that failed: then it stays until the next one is due."""
    set_ms: int = 0
    """Log time of the request that set the policy."""


@dataclass(frozen=True, slots=True)
class RollbackTaskRow:
    """rollbackTable of snapshots: a rollback in progress."""

    rollback_id: str
    """Names the rollback."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Snapshot that is rolled back to."""
    client_id: str
    """Who is to be answered; empty when nobody."""
    number: int
    """The client's number."""
    page: int
    """Page that metadata was asked for."""


@dataclass(frozen=True, slots=True)
class SettleRow:
    """settleTable: a request to settle in progress."""

    barrier_id: str
    """Names the request."""
    client_id: str
    """Who is to be answered."""
    number: int
    """The client's number."""
    round: int
    """Present round."""
    quiet_rounds: int
    """Rounds in a row without work."""
    work: int
    """Work met in the present round."""
    returned: tuple[str, ...]
    """Branches whose barrier is back."""


@dataclass(frozen=True, slots=True)
class TagRow:
    """tagTable: a tag, which protects a snapshot."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    tag: str
    """Its name."""
    snapshot_id: str
    """Id of the snapshot that it protects."""
    owner: str
    """Whose it is."""
    reason: str
    """What it is for."""
    creation_time_ms: int
    """Log time of its making."""
    expiry_time_ms: int
    """When it goes by itself; -1: never."""
    is_automatic: bool
    """Whether a policy has made it."""
