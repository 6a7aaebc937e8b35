"""Records of snapshots.commands, snapshots.replies and snapshots.info."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from enum import StrEnum

from schemas.frozen import record
from schemas.records.commands import SetSecret
from schemas.records.shared import ExecutionMode, SnapshotStatus


@record
class CreateSnapshot:
    """Create a snapshot of a bucket."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot."""
    at_ms: int = -1
    """Creation time that retention uses, for replayed histories; -1: the log time of the capture."""


@record
class CreateTag:
    """Protect a snapshot by a named tag: it neither expires nor can it be deleted."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot."""
    tag: str
    """Name of the tag, unique in the bucket."""
    owner: str = ""
    """Owner of the tag, as free text."""
    reason: str = ""
    """Purpose of the tag, as free text."""
    time_to_live_ms: int = 0
    """Time from the creation of the tag until it is removed automatically; 0: never."""


class DeadLetterState(StrEnum):
    """State of a dead letter. OPEN: not resolved. RETRIED: the message was sent again. DROPPED: an operator decided
    that the message is not applied.
    """

    OPEN = "OPEN"
    RETRIED = "RETRIED"
    DROPPED = "DROPPED"


@record
class DeleteConsumer:
    """Remove a consumer, which then protects no snapshots any more."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    consumer: str
    """Name of the consumer."""


@record
class DeleteSnapshot:
    """Delete a snapshot."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot."""


@record
class DeleteTag:
    """Remove a tag, which then does not protect its snapshot any more."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot that must have the tag; empty: any snapshot."""
    tag: str
    """Name of the tag."""


@record
class RetentionPolicy:
    """Which snapshots of a bucket expire, and which snapshots and tags are created automatically. The rules are in
    services/domain/retention.py.
    """

    num_retained_min: int = 10
    """Never expire the newest N snapshots; at least 1."""
    num_retained_max: int = 0
    """Age does not keep a snapshot that is older than the newest N snapshots; at least num_retained_min, or 0: no
    maximum.
    """
    time_retained_ms: int = 3600000
    """A snapshot may expire once the snapshot after it is older than this."""
    expire_limit: int = 50
    """One run considers at most the N oldest snapshots; at least 1."""
    execution_mode: ExecutionMode = ExecutionMode.SYNC
    """When runs take place, and when a request to expire is answered."""
    consumer_expiration_ms: int = 0
    """A consumer that has not reported its position for longer than this is removed; 0: never."""
    snapshot_every_ms: int = 0
    """Period of automatic snapshots; 0: none."""
    tag_every_ms: int = 0
    """Period of automatic tags, each on the first snapshot of its period; 0: none."""
    tag_num_retained_max: int = 0
    """Keep at most the newest N automatic tags; 0: all."""
    tag_time_retained_ms: int = 0
    """Time to live of an automatic tag; 0: for ever."""


@record
class RenameSnapshot:
    """Change the name of a snapshot."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source: str
    """Present name."""
    target: str
    """New name."""


@record
class RollBackBucket:
    """Make a snapshot the active namespace of its bucket again; newer snapshots are deleted."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot; empty when tag is given."""
    tag: str = ""
    """Tag of the snapshot; empty when snapshot is given."""


@record
class SetConsumer:
    """Set the position of a consumer: the snapshot that it reads next, and all later snapshots, do not expire."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    consumer: str
    """Name of the consumer, unique in the bucket."""
    snapshot: str
    """Name of a snapshot."""
    is_behind: bool = False
    """False: the consumer reads this snapshot next. True: the consumer has read this snapshot, and reads the one
    after it next, which need not exist yet.
    """


@record
class SetDeepClean:
    """Set the flags of a snapshot whose garbage range is deep clean. Sent by key_deletion."""

    snapshot_id: str
    """Id of the snapshot."""
    chain_version: int
    """Chain version for which the flags are valid; flags older than the last reset are ignored."""
    has_deep_cleaned_keys: bool
    """New value of the flag for keys and renames."""
    has_deep_cleaned_directories: bool
    """New value of the flag for directories."""


@record
class Settle:
    """Answer when nothing is left to do in the plane."""

    barrier_id: str
    """Id of this request, a new one for each request."""


@record
class UnsetRetention:
    """Remove a bucket's retention policy: nothing expires there, and no automatic snapshot is created."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""


@record
class SnapshotInfo:
    """A snapshot as users see it. Topic snapshots.info and snapshotInfoTable, written by snapshots."""

    snapshot_id: str
    """Id of the snapshot; it never changes."""
    name: str
    """Name, unique in its bucket until the snapshot is removed."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    status: SnapshotStatus
    """Status of the snapshot."""
    creation_time_ms: int
    """Log time of the capture, or the time that the command named; log time of the request until the capture."""
    deletion_time_ms: int = -1
    """Log time of the deletion; -1 while the snapshot is not deleted."""
    path_previous_snapshot_id: str = ""
    """Id of the snapshot before this one in the bucket; empty for the first."""
    global_previous_snapshot_id: str = ""
    """Id of the snapshot before this one in the shard; empty for the first."""
    snapshot_path: str = ""
    """`volume/bucket`, the key of the bucket's chain."""
    has_deep_cleaned_keys: bool = False
    """Whether no reclaimable key or rename row is left in the garbage range."""
    has_deep_cleaned_directories: bool = False
    """Whether no reclaimable or unexpanded directory is left in the garbage range."""
    sst_filtered: bool = False
    """Kept for Ozone's tools; snapshot checkpoints here hold the whole shard."""
    referenced_bytes: int = 0
    """Bytes that the snapshot references."""
    referenced_replicated_bytes: int = 0
    """referenced_bytes with replication; equal here, with one replica."""
    exclusive_bytes: int = 0
    """Bytes that only this snapshot holds, without those below unexpanded directories."""
    exclusive_replicated_bytes: int = 0
    """exclusive_bytes with replication; equal here, with one replica."""
    exclusive_delta_bytes: int = 0
    """Ozone's part from directory cleaning; always 0 here, because exclusive_bytes includes it."""
    exclusive_delta_replicated_bytes: int = 0
    """exclusive_delta_bytes with replication; always 0 here."""
    create_txn: int = 0
    """txn at which the snapshot was captured; 0 before."""
    last_txn: int = 0
    """txn of the last change of the snapshot."""
    bucket_id: int = 0
    """objectID of the bucket."""
    ordinal: int = 0
    """Ordinal of the snapshot among all snapshots that the bucket ever had, from 1; 0 before the capture."""
    is_referenced_exact: bool = True
    """Whether no directory that died before the snapshot is unexpanded, so that referenced_bytes is exact."""
    is_exclusive_exact: bool = True
    """Whether no directory that died after the snapshot is unexpanded, so that exclusive_bytes is exact."""
    is_removed: bool = False
    """True in the last message about a snapshot, after which it has no row any more."""
    chain_version_of_reset: int = 0
    """Chain version at which the deep-clean flags were last reset."""
    owner: str = ""
    """Owner of the volume at the capture, who may manage the snapshot, as administrators may."""


@record
class SnapshotsExpired:
    """Result of a request to expire."""

    snapshots: tuple[str, ...]
    """Names of the expired snapshots, in the order of the chain."""
    snapshot_ids: tuple[str, ...]
    """Ids of the expired snapshots, in the same order."""
    previous_failure: str
    """Why the previous run failed; empty when it did not."""


@record
class ResolveDeadLetter:
    """Resolve a dead letter. The letter itself stays in its topic."""

    number: int
    """Number of the letter: its offset in the shard's partition of dead-letters."""
    state: DeadLetterState
    """RETRIED or DROPPED."""
    who: str
    """Name of the person who resolved the letter."""
    reason: str
    """Reason, as free text; may be empty with RETRIED."""


@record
class ExpireSnapshots:
    """Expire snapshots of a bucket now, by the rules of a retention policy."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    policy: RetentionPolicy | None = None
    """Policy of this run; null: the bucket's policy."""
    now_ms: int = -1
    """Time from which ages are counted; -1: the log time."""


@record
class SetRetention:
    """Set a bucket's retention policy, in place of the previous one."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    policy: RetentionPolicy
    """The policy."""


@record
class SnapshotReply:
    """Answer to a client's snapshot command. Topic snapshots.replies."""

    client_id: str
    """From the command."""
    number: int
    """From the command."""
    error: str = ""
    """Code of the refusal; empty on success."""
    message: str = ""
    """Text of the refusal; empty on success."""
    snapshot_id: str = ""
    """Id of the snapshot that the command is about; empty for none."""
    rounds: int = 0
    """Number of rounds that a settle needed."""
    expired: SnapshotsExpired | None = None
    """Result of a request to expire; null for other commands."""


@record
class SnapshotCommand:
    """A command to the snapshots service. Topic snapshots.commands, one partition per shard."""

    shard: int
    """Shard of the command; must be the number of the partition."""
    client_id: str
    """Id of the client, a new one at each start of the client; empty: a repeat of the command is not recognized."""
    number: int
    """Number of the command, rising with each snapshot command of the client; 0 with an empty client_id."""
    body: (
        CreateSnapshot
        | DeleteSnapshot
        | RenameSnapshot
        | SetDeepClean
        | Settle
        | SetRetention
        | UnsetRetention
        | CreateTag
        | DeleteTag
        | SetConsumer
        | DeleteConsumer
        | ExpireSnapshots
        | RollBackBucket
        | ResolveDeadLetter
        | SetSecret
    )
    """The command."""
    sender: str = ""
    """Service that sends an internal command; empty for a command of a client."""
    user: str = ""
    """User who sends the command; empty for a service."""
    issued_at_ms: int = 0
    """Time at which the user signed the command, by the client's clock; 0 for a service."""
    signature: str = ""
    """HMAC-SHA256, in hexadecimal digits, over the name of the topic and the message up to this field, with the
    secret of the user or, without a user, of the sender; empty when the command is not signed. Must stay the last
    field.
    """
