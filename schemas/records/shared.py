"""Records and choices that several of the others name."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Barrier:
    """A mark that passes through every topic behind all that was sent before it, and counts the work that it meets."""

    barrier_id: str
    """Names the request to settle."""
    round: int
    """Round of that request, from 1."""
    work: int
    """Things met so far that are still to be done, or were done since the barrier before."""
    origin: str
    """Service whose branch returns with this barrier; empty on the way out."""
    collection_txn: int = 0
    """txn of the last change of a collection state that the sender knows of. A service that does not know of the
    newest one still has work; metadata sends all states again to a service that returns an older one.
    """
    passed_txn: int = 0
    """txn of the last command before it when metadata sent it on: of what died until then undo windows end, and of
    what died later, wherever the two may meet, they do not. 0 before metadata.
    """


@dataclass(frozen=True, slots=True)
class BlockGroups:
    """Claimed rows and their blocks; the blocks of a row are a group, deleted by SCM as a whole or not at all. Each
    has its place in all lists, which are as long as each other.
    """

    bucket_ids: tuple[int, ...]
    """Of each group the objectID of its bucket."""
    object_ids: tuple[int, ...]
    """Of each group the objectID of the key."""
    births: tuple[int, ...]
    """Of each group the txn that committed the version."""
    deaths: tuple[int, ...]
    """Of each group the txn that took it out of the active namespace."""
    container_ids: tuple[int, ...]
    """Of each group the container that holds its blocks."""
    first_local_ids: tuple[int, ...]
    """Of each group the local id of its first block; the others follow it."""
    block_counts: tuple[int, ...]
    """Of each group how many blocks it has."""
    block_sizes_bytes: tuple[int, ...]
    """Of each group the size of every block but the last."""
    sizes_bytes: tuple[int, ...]
    """Of each group the size of all its blocks together."""


@dataclass(frozen=True, slots=True)
class BlockRun:
    """The blocks of one committed version: consecutive local ids in one container."""

    container_id: int
    """Container that holds the blocks; 0 is the shard's first, which needs no lease."""
    first_local_id: int
    """Local id of the first block; the others follow by one."""
    block_count: int
    """How many blocks."""
    block_size_bytes: int
    """Size of every block but the last."""
    size_bytes: int
    """Size of all blocks together."""


class BreakerCause(StrEnum):
    """Why the breaker trips: a claim would have exceeded the limits of the hour, or what the space matrix says that
    nobody holds; or rows and figures of the bucket disagree.
    """

    LIMITS = "LIMITS"
    FORECAST = "FORECAST"
    FIGURES = "FIGURES"


class BucketLayout(StrEnum):
    """How a bucket names what it holds: flat keys, or a tree of directories."""

    OBJECT_STORE = "OBJECT_STORE"
    FILE_SYSTEM_OPTIMIZED = "FILE_SYSTEM_OPTIMIZED"
    LEGACY = "LEGACY"


class CollectionState(StrEnum):
    """What garbage collection may do for a bucket or a shard, from the loosest to the strictest; of a bucket's own
    state and its shard's the stricter one counts.
    """

    RUNNING = "RUNNING"
    SHADOW = "SHADOW"
    TRIPPED = "TRIPPED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class DeletedKind(StrEnum):
    """Which garbage table holds the row: deletedTable, deletedDirectoryTable or snapshotRenamedTable."""

    KEY = "KEY"
    DIRECTORY = "DIRECTORY"
    RENAME_ENTRY = "RENAME_ENTRY"


class ExecutionMode(StrEnum):
    """SYNC: expire with the capture of a snapshot, and answer a request when the expired snapshots are removed.
    ASYNC: expire after it, and answer a request when they are marked.
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"


class ExpansionOutcome(StrEnum):
    """Outcome of one page of a directory's expansion."""

    EXPANDED = "EXPANDED"
    PARTLY = "PARTLY"
    MISSING = "MISSING"


class RemovalOutcome(StrEnum):
    """Outcome of removing a directory's own row."""

    REMOVED = "REMOVED"
    UNEXPANDED = "UNEXPANDED"
    HAS_CHILDREN = "HAS_CHILDREN"
    HELD = "HELD"
    MISSING = "MISSING"
    SUSPENDED = "SUSPENDED"


class RollbackOutcome(StrEnum):
    """Outcome of one page of a rollback."""

    PARTLY = "PARTLY"
    DONE = "DONE"
    REFUSED = "REFUSED"


class SecretRole(StrEnum):
    """What the holder of a secret is: a user, a user who may do everything, or a service."""

    USER = "USER"
    ADMINISTRATOR = "ADMINISTRATOR"
    SERVICE = "SERVICE"


class SnapshotStatus(StrEnum):
    """Life cycle of a snapshot; a removed one has no row."""

    SNAPSHOT_ACTIVE = "SNAPSHOT_ACTIVE"
    SNAPSHOT_DELETED = "SNAPSHOT_DELETED"


@dataclass(frozen=True, slots=True)
class RowName:
    """Names one row of a garbage table, within the partition's shard."""

    kind: DeletedKind
    """Which garbage table holds the row."""
    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the key, directory or renamed object."""
    birth: int
    """txn that committed the version."""
    death: int
    """txn that took it out of the active namespace."""


@dataclass(frozen=True, slots=True)
class RowNames:
    """Names rows of one garbage table, within the partition's shard. Each row has its place in all four lists, which
    are as long as each other.
    """

    kind: DeletedKind
    """Which garbage table holds the rows."""
    bucket_ids: tuple[int, ...]
    """Of each row the objectID of its bucket."""
    object_ids: tuple[int, ...]
    """Of each row the objectID of the key, directory or renamed object."""
    births: tuple[int, ...]
    """Of each row the txn that committed the version."""
    deaths: tuple[int, ...]
    """Of each row the txn that took it out of the active namespace; for a file below a deleted directory the
    directory's death.
    """
