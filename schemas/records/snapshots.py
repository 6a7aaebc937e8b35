"""Records of snapshots.commands, snapshots.replies and the topic of snapshots' figures."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.records.commands import SetSecret
from schemas.records.shared import ExecutionMode, SnapshotStatus


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """Make a snapshot of a bucket."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot."""
    at_ms: int = -1
    """Creation time that retention reads, for histories that are played again; -1: the log time of its checkpoint."""


@dataclass(frozen=True, slots=True)
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
    """Whose tag it is; for people."""
    reason: str = ""
    """What it is for; for people."""
    time_to_live_ms: int = 0
    """When it goes by itself, from its making; 0: never."""


class DeadLetterState(StrEnum):
    """State of a dead letter: OPEN, not resolved; RETRIED, the message was sent again; DROPPED, a person decided
    that it stays undone.
    """

    OPEN = "OPEN"
    RETRIED = "RETRIED"
    DROPPED = "DROPPED"


@dataclass(frozen=True, slots=True)
class DeleteConsumer:
    """A named reader needs nothing any more."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    consumer: str
    """Name of the reader."""


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Delete a snapshot."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot."""


@dataclass(frozen=True, slots=True)
class DeleteTag:
    """Let go of a snapshot."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot that it must be on; empty: whichever it is."""
    tag: str
    """Name of the tag."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Which snapshots of a bucket expire, and what is made by the clock. The rules are in
    services/domain/retention.py.
    """

    num_retained_min: int = 10
    """Never expire the newest N snapshots; at least 1."""
    num_retained_max: int = 0
    """At most this many snapshots stay, whatever their age; 0: no such bound, else at least the minimum."""
    time_retained_ms: int = 3600000
    """A snapshot may expire once the one after it is older than this."""
    expire_limit: int = 50
    """One run considers at most the N oldest snapshots; at least 1."""
    execution_mode: ExecutionMode = ExecutionMode.SYNC
    """When runs take place, and when a request to expire is answered."""
    consumer_expiration_ms: int = 0
    """A consumer that was not heard of for longer is dropped; 0: never."""
    snapshot_every_ms: int = 0
    """Period of automatic snapshots; 0: none."""
    tag_every_ms: int = 0
    """Period of automatic tags, each on the first snapshot of its period; 0: none."""
    tag_num_retained_max: int = 0
    """At most this many automatic tags stay, the newest; 0: all."""
    tag_time_retained_ms: int = 0
    """Time to live of an automatic tag; 0: for ever."""


@dataclass(frozen=True, slots=True)
class RenameSnapshot:
    """Give a snapshot another name."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    source: str
    """Present name."""
    target: str
    """New name."""


@dataclass(frozen=True, slots=True)
class RollBackBucket:
    """Make a snapshot the active namespace of its bucket again; newer snapshots are dropped."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    snapshot: str
    """Name of the snapshot; empty when a tag names it."""
    tag: str = ""
    """Tag on the snapshot; empty when it is named itself."""


@dataclass(frozen=True, slots=True)
class SetConsumer:
    """Set the place of a named reader: the next snapshot that it reads, and all after it, do not expire."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    consumer: str
    """Name of the reader, unique in the bucket."""
    snapshot: str
    """Name of a snapshot."""
    is_behind: bool = False
    """False: that snapshot is read next. True: it was read, and the one after it is next, which need not be there
    yet.
    """


@dataclass(frozen=True, slots=True)
class SetDeepClean:
    """A sweep found nothing left to do in a snapshot's garbage range. Sent by key_deletion."""

    snapshot_id: str
    """Id of the snapshot."""
    chain_version: int
    """Chain version at which this was found; one older than the last reset is ignored."""
    has_deep_cleaned_keys: bool
    """New value of the flag for keys and renames."""
    has_deep_cleaned_directories: bool
    """New value of the flag for directories."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Answer when there is nothing more that the plane can do."""

    barrier_id: str
    """Names this request; new each time."""


@dataclass(frozen=True, slots=True)
class UnsetRetention:
    """Remove a bucket's retention policy: nothing expires there, and no automatic snapshot is created."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as an operator sees it. Topic snapshots.info and snapshotInfoTable, written by snapshots."""

    snapshot_id: str
    """Id, chosen once."""
    name: str
    """Name, unique in its bucket until the snapshot is removed."""
    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    status: SnapshotStatus
    """Where in its life it is."""
    creation_time_ms: int
    """Log time of its checkpoint, or the time that its command named; of the request while it is being made."""
    deletion_time_ms: int = -1
    """Log time of its deletion; -1 while it is not deleted."""
    path_previous_snapshot_id: str = ""
    """The one before it in its bucket; empty for the first."""
    global_previous_snapshot_id: str = ""
    """The one before it in its shard; empty for the first."""
    snapshot_path: str = ""
    """`volume/bucket`, key of the path chain."""
    has_deep_cleaned_keys: bool = False
    """No reclaimable key or rename row is left in its garbage range."""
    has_deep_cleaned_directories: bool = False
    """No reclaimable or unexpanded directory is left in its garbage range."""
    sst_filtered: bool = False
    """Kept for Ozone's tools; checkpoints here hold the whole shard."""
    referenced_bytes: int = 0
    """Bytes that it lists."""
    referenced_replicated_bytes: int = 0
    """The same with replication; one replica here."""
    exclusive_bytes: int = 0
    """Bytes that it alone holds, without those below deleted directories."""
    exclusive_replicated_bytes: int = 0
    """The same with replication."""
    exclusive_delta_bytes: int = 0
    """Ozone's part from directory cleaning; always 0 here, the matrix holds one exact figure."""
    exclusive_delta_replicated_bytes: int = 0
    """The same with replication."""
    create_txn: int = 0
    """txn of the checkpoint; 0 while it is being made."""
    last_txn: int = 0
    """txn of the last change that touched the snapshot."""
    bucket_id: int = 0
    """objectID of the bucket."""
    ordinal: int = 0
    """Its number among all snapshots that the bucket ever had."""
    is_referenced_exact: bool = True
    """False while a directory that died before it is unexpanded."""
    is_exclusive_exact: bool = True
    """False while a directory that died after it is unexpanded."""
    is_removed: bool = False
    """True in the last message about a snapshot, when its row is removed."""
    chain_version_of_reset: int = 0
    """Chain version at which the clean flags were last reset."""
    owner: str = ""
    """Owner of the volume at the capture; beside administrators the one who may manage it."""


@dataclass(frozen=True, slots=True)
class SnapshotsExpired:
    """Result of a request to expire."""

    snapshots: tuple[str, ...]
    """Names of those that expired, in the order of the chain."""
    snapshot_ids: tuple[str, ...]
    """Their ids."""
    previous_failure: str
    """Why the run before this one failed; empty when it did not."""


@dataclass(frozen=True, slots=True)
class ResolveDeadLetter:
    """Resolve a dead letter. The letter itself stays in its topic."""

    number: int
    """The letter: its offset in the shard's partition of dead-letters."""
    state: DeadLetterState
    """RETRIED or DROPPED."""
    who: str
    """Who has resolved it."""
    reason: str
    """Why; may be empty when it was retried."""


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Expire snapshots by the rules, now."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    policy: RetentionPolicy | None = None
    """The policy of this run; null: the bucket's."""
    now_ms: int = -1
    """The time that ages are counted from; -1: the log's."""


@dataclass(frozen=True, slots=True)
class SetRetention:
    """Give a bucket a retention policy, in place of the one before."""

    volume: str
    """Name of the volume."""
    bucket: str
    """Name of the bucket."""
    policy: RetentionPolicy
    """The policy."""


@dataclass(frozen=True, slots=True)
class SnapshotReply:
    """Answer to a client's snapshot command. Topic snapshots.replies."""

    client_id: str
    """From the command."""
    number: int
    """From the command."""
    error: str = ""
    """Code of the refusal; empty on success."""
    message: str = ""
    """The refusal in words."""
    snapshot_id: str = ""
    """The snapshot that was made, deleted or renamed."""
    rounds: int = 0
    """Rounds that a settle needed."""
    expired: SnapshotsExpired | None = None
    """Result of a request to expire."""


@dataclass(frozen=True, slots=True)
class SnapshotCommand:
    """Something to do for the snapshots service. Topic snapshots.commands, one partition a shard."""

    shard: int
    """Shard that the sender means; must be the partition."""
    client_id: str
    """Who asks: new with each start of a client; empty when nothing is to be remembered."""
    number: int
    """The client's count of its snapshot commands, rising; 0 when nothing is to be remembered."""
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
    """What to do."""
    sender: str = ""
    """Service that sends an internal command; empty for a client."""
    user: str = ""
    """User who sends it; empty for a service."""
    issued_at_ms: int = 0
    """When a user signed it, by the clock of the client; 0 for a service."""
    signature: str = ""
    """HMAC-SHA256 of all before it, in hexadecimal letters, by the secret of the user or else of the sender; empty
    when not signed. Stays the last field.
    """
