"""Rows in the tables of snapshots."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record
from schemas.records.snapshots import DeadLetterState, RetentionPolicy, SnapshotsExpired


@record
class ConsumerRow:
    """consumerTable: a consumer and its position in the bucket's snapshots."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    consumer: str
    """Name of the consumer."""
    bucket_id: int
    """objectID of the bucket whose snapshots the consumer reads; the row does not apply to another bucket of the
    same name.
    """
    next_txn: int
    """The consumer has still to read the snapshots captured at this txn or later."""
    seen_time_ms: int
    """Log time at which the consumer last reported its position."""


@record
class DeadLetterRow:
    """deadLetterTable: a dead letter without its bytes, and its resolution."""

    number: int
    """Number of the letter: its offset in the shard's partition of dead-letters."""
    service: str
    """Service that could not read or apply the message."""
    topic: str
    """Topic of the message."""
    partition: int
    """Partition of the message."""
    offset: int
    """Offset of the message."""
    error: str
    """Kind of the error."""
    message: str
    """Text of the error."""
    size_bytes: int
    """Size of the original message."""
    is_cut: bool
    """Whether the letter holds only a part of the original message."""
    time_ms: int
    """Time at which the letter was appended to its topic."""
    attempts: int
    """How often the message had been sent again before this failure; 0 the first time."""
    retry_of: int
    """Number of the letter whose retry sent this message; -1 the first time."""
    state: DeadLetterState = DeadLetterState.OPEN
    """State of the letter."""
    who: str = ""
    """Name of the person who resolved the letter; empty while it is open."""
    reason: str = ""
    """Reason of the resolution."""
    resolved_time_ms: int = -1
    """Log time of the resolution; -1 while the letter is open."""


@record
class DroppedSnapshotRow:
    """droppedSnapshotTable: the last dropped snapshot of a name."""

    snapshot_id: str
    """Id of the snapshot."""
    bucket_id: int
    """objectID of the bucket."""
    create_txn: int
    """txn at which the snapshot was captured."""
    deletion_time_ms: int
    """Log time at which the snapshot was deleted or expired."""


@record
class ExpiryRow:
    """expiryTable: a request to expire that is answered when the expired snapshots are removed."""

    client_id: str
    """Client that gets the answer."""
    number: int
    """Number of the client's command."""
    outcome: SnapshotsExpired
    """The answer. It is sent when none of its snapshots has a row any more."""


@record
class PendingSnapshot:
    """pendingTable: the creation or deletion of a snapshot, in progress."""

    snapshot_id: str
    """Id of the snapshot."""
    action: str
    """CREATE, DROP, DROPPED (metadata answered while the chain was corrupted; the drop is requested again) or UNDO
    (a drop after a creation that failed).
    """
    client_id: str
    """Client that gets the answer; empty: none."""
    number: int
    """Number of the client's command."""
    since_ms: int
    """Log time of the request."""
    at_ms: int = -1
    """Requested creation time; -1: the log time of the capture."""
    is_automatic: bool = False
    """Whether a retention policy requested the snapshot."""
    user: str = ""
    """User who requested the snapshot, on a plane that requires signatures."""


@record
class RetentionRow:
    """retentionTable: a bucket's retention policy, and the state of its runs."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    policy: RetentionPolicy
    """The policy."""
    next_run_ms: int
    """Time at which the next run is due."""
    last_run_ms: int
    """Time of the last run; -1 before the first."""
    last_expired: int
    """Snapshots that expired in the last run."""
    last_snapshot_period: int
    """Number of the newest period, counted from 1970, for which no automatic snapshot is due any more."""
    last_tag_period: int
    """Number of the newest period that has its automatic tag."""
    failure: str
    """Why the last run, or the last automatic snapshot, failed; empty when neither did, or after the failure was
    reported.
    """
    failure_time_ms: int
    """Time of the failure; -1 when there is none."""
    is_failure_of_snapshot: bool
    """Whether an automatic snapshot failed; such a failure stays until the next automatic snapshot is due, or until
    it is reported.
    """
    set_ms: int = 0
    """Log time of the request that set the policy."""


@record
class RollbackTaskRow:
    """rollbackTable of snapshots: a rollback in progress."""

    rollback_id: str
    """Id of the rollback."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    bucket_id: int
    """objectID of the bucket."""
    snapshot_id: str
    """Snapshot to which the bucket is rolled back."""
    client_id: str
    """Client that gets the answer; empty: none."""
    number: int
    """Number of the client's command."""
    page: int
    """Page that was requested from metadata."""


@record
class SettleRow:
    """settleTable: a request to settle, in progress."""

    barrier_id: str
    """Id of the request."""
    client_id: str
    """Client that gets the answer."""
    number: int
    """Number of the client's command."""
    round: int
    """Present round."""
    quiet_rounds: int
    """Consecutive rounds without work."""
    work: int
    """Work that the present round has met so far."""
    returned: tuple[str, ...]
    """Branches whose barrier has returned."""


@record
class TagRow:
    """tagTable: a tag, which protects a snapshot."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    tag: str
    """Name of the tag."""
    snapshot_id: str
    """Id of the protected snapshot."""
    owner: str
    """Owner of the tag, as free text."""
    reason: str
    """Purpose of the tag, as free text."""
    creation_time_ms: int
    """Log time of the tag's creation."""
    expiry_time_ms: int
    """Time at which the tag is removed automatically; -1: never."""
    is_automatic: bool
    """Whether a retention policy created the tag."""
