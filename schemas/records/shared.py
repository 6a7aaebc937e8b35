"""Records and enums that several other modules use."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from enum import StrEnum

from schemas.frozen import record


class AclIdentity(StrEnum):
    """Whom an entry of an access list names: a user, the members of a group, everybody with a secret, or everybody
    without one.
    """

    USER = "USER"
    GROUP = "GROUP"
    WORLD = "WORLD"
    ANONYMOUS = "ANONYMOUS"


class AclRight(StrEnum):
    """A right that an entry of an access list gives. ALL gives each other one, NONE takes all of the entry away."""

    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    LIST = "LIST"
    DELETE = "DELETE"
    READ_ACL = "READ_ACL"
    WRITE_ACL = "WRITE_ACL"
    ALL = "ALL"
    NONE = "NONE"


class AclScope(StrEnum):
    """Whether an entry of an access list is for the object alone, or is inherited by what is created below it."""

    ACCESS = "ACCESS"
    DEFAULT = "DEFAULT"


class AclObject(StrEnum):
    """Kind of an object that has an access list; a directory of a tree is a KEY."""

    VOLUME = "VOLUME"
    BUCKET = "BUCKET"
    PREFIX = "PREFIX"
    KEY = "KEY"


@record
class Barrier:
    """A mark that passes through every topic behind all messages sent before it, and counts the work that it meets."""

    barrier_id: str
    """Id of the request to settle."""
    round: int
    """Round of that request, from 1."""
    work: int
    """Work that the barrier has met so far: items that are still to be done, or were done since the barrier before."""
    origin: str
    """Service that returns the barrier; empty before."""
    collection_txn: int = 0
    """txn of the newest change of a collection state that the sender knows. A service that does not know the newest
    change still has work; metadata sends all states again to a service that returns an older txn.
    """
    passed_txn: int = 0
    """Last txn before the barrier when metadata forwarded it: the undo windows of deaths up to this txn end, and
    those of later deaths do not. 0 before metadata.
    """


@record
class BlockGroups:
    """Claimed rows and their blocks. The blocks of a row are a group, which SCM deletes as a whole or not at all.
    All lists have the same length, with one place per group.
    """

    bucket_ids: tuple[int, ...]
    """For each group, the objectID of its bucket."""
    object_ids: tuple[int, ...]
    """For each group, the objectID of the key."""
    births: tuple[int, ...]
    """For each group, the txn that committed the version."""
    deaths: tuple[int, ...]
    """For each group, the txn that took the version out of the active namespace."""
    container_ids: tuple[int, ...]
    """For each group, the container that holds its blocks."""
    first_local_ids: tuple[int, ...]
    """For each group, the local id of its first block; the other ids follow consecutively."""
    block_counts: tuple[int, ...]
    """For each group, its number of blocks."""
    block_sizes_bytes: tuple[int, ...]
    """For each group, the size of every block but the last."""
    sizes_bytes: tuple[int, ...]
    """For each group, the size of all its blocks together."""


@record
class BlockRun:
    """The blocks of one committed version: consecutive local ids in one container."""

    container_id: int
    """Container that holds the blocks; 0 is the shard's first, which needs no grant."""
    first_local_id: int
    """Local id of the first block; the other ids follow consecutively."""
    block_count: int
    """Number of blocks."""
    block_size_bytes: int
    """Size of every block but the last."""
    size_bytes: int
    """Size of all blocks together."""


class BreakerCause(StrEnum):
    """Why the breaker trips. LIMITS: a claim would have exceeded the limits of the hour. FORECAST: a claim would
    have exceeded the amount that no snapshot holds by the space matrix. FIGURES: rows and figures of the bucket
    disagree.
    """

    LIMITS = "LIMITS"
    FORECAST = "FORECAST"
    FIGURES = "FIGURES"


class BucketLayout(StrEnum):
    """Layout of a bucket: flat keys, or in FILE_SYSTEM_OPTIMIZED a tree of directories."""

    OBJECT_STORE = "OBJECT_STORE"
    FILE_SYSTEM_OPTIMIZED = "FILE_SYSTEM_OPTIMIZED"
    LEGACY = "LEGACY"


class BucketVersioning(StrEnum):
    """Whether a bucket keeps overwritten versions as noncurrent ones: UNVERSIONED, it never has; ENABLED; SUSPENDED,
    it keeps those that were written while it was ENABLED, and no others.
    """

    UNVERSIONED = "UNVERSIONED"
    ENABLED = "ENABLED"
    SUSPENDED = "SUSPENDED"


class CollectionState(StrEnum):
    """Collection state of a bucket or a shard, from the loosest to the strictest; only RUNNING allows claims. The
    stricter one of a bucket's own state and its shard's state applies.
    """

    RUNNING = "RUNNING"
    SHADOW = "SHADOW"
    TRIPPED = "TRIPPED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class DeletedKind(StrEnum):
    """The garbage table that holds a row: deletedTable, deletedDirectoryTable or snapshotRenamedTable."""

    KEY = "KEY"
    DIRECTORY = "DIRECTORY"
    RENAME_ENTRY = "RENAME_ENTRY"


class ExecutionMode(StrEnum):
    """SYNC: expire with the creation of a snapshot, and answer a request when the expired snapshots are removed.
    ASYNC: expire after the creation, and answer a request when the expired snapshots are marked.
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"


class ExpansionOutcome(StrEnum):
    """Outcome of one page of a directory's expansion: no child is left, another page is needed, or the row does not
    exist any more.
    """

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


class Replication(StrEnum):
    """How the blocks of a container are kept: in one copy, in three, or erasure-coded. EC_RS_6_3_1024K: cells of
    1024 KiB, Reed-Solomon, 3 parity cells for 6 cells of data; XOR likewise. RATIS is the protocol by which copies
    are written.
    """

    RATIS_ONE = "RATIS_ONE"
    RATIS_THREE = "RATIS_THREE"
    EC_RS_3_2_1024K = "EC_RS_3_2_1024K"
    EC_RS_6_3_1024K = "EC_RS_6_3_1024K"
    EC_RS_10_4_1024K = "EC_RS_10_4_1024K"
    EC_XOR_2_1_1024K = "EC_XOR_2_1_1024K"


class RollbackOutcome(StrEnum):
    """Outcome of one page of a rollback."""

    PARTLY = "PARTLY"
    DONE = "DONE"
    REFUSED = "REFUSED"


class SecretRole(StrEnum):
    """Role of the holder of a secret: a user, a user with all rights, or a service."""

    USER = "USER"
    ADMINISTRATOR = "ADMINISTRATOR"
    SERVICE = "SERVICE"


class SnapshotStatus(StrEnum):
    """Status of a snapshot: active, or deleted and not yet removed. A removed snapshot has no row."""

    SNAPSHOT_ACTIVE = "SNAPSHOT_ACTIVE"
    SNAPSHOT_DELETED = "SNAPSHOT_DELETED"


@record
class Acl:
    """An entry of an access list: the rights that somebody has to an object."""

    identity: AclIdentity
    """Whom the entry names."""
    name: str
    """Name of the user or group; empty for the other identities."""
    rights: tuple[AclRight, ...]
    """The rights, each once, in the order of AclRight."""
    scope: AclScope
    """Whether the entry is inherited."""


@record
class RowName:
    """Names one row of a garbage table, within the partition's shard."""

    kind: DeletedKind
    """Garbage table that holds the row."""
    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the key, directory or renamed object."""
    birth: int
    """txn that committed the version, or created the directory or the renamed object."""
    death: int
    """txn that took the object out of the active namespace, or renamed it."""


@record
class RowNames:
    """Names rows of one garbage table, within the partition's shard. All four lists have the same length, with one
    place per row.
    """

    kind: DeletedKind
    """Garbage table that holds the rows."""
    bucket_ids: tuple[int, ...]
    """For each row, the objectID of its bucket."""
    object_ids: tuple[int, ...]
    """For each row, the objectID of the key, directory or renamed object."""
    births: tuple[int, ...]
    """For each row, the txn that committed the version, or created the directory or the renamed object."""
    deaths: tuple[int, ...]
    """For each row, the txn that took the object out of the active namespace, or renamed it; for an object below a
    deleted directory, the directory's death.
    """
