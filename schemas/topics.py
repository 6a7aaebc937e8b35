"""Every topic of messages, in the order in which a deletion travels: what it carries, who writes and who reads it.

Each shard has a partition of every topic: everything about a volume is in the partition of its shard, which a producer
sets explicitly. ``PLANE`` says how many shards there are; a topic may have more partitions while shards are added.
Nothing is removed by age. Everything can be made again from ``metadata.commands``, but for what ``snapshots`` has
decided, which is in its changelog. ``gc.snapshot-chain`` is made again by the command PublishFullChain, upon which
metadata sends the live snapshots of every bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas import records

CLIENTS = "clients"
SCHEMAS = "deepclean.schemas"
"""Topic of the schemas of all others: compacted, of one partition, in JSON (``services.log.schema_topic``)."""

OWNERS = "deepclean.owners"
"""Topic of the addresses of the shards' owners: compacted, of one partition, in JSON (``services.log.owner_topic``)."""

PLANE = "deepclean.plane"
"""Topic of the number of shards: of one partition, in JSON (``services.log.plane_topic``)."""

VOLUMES = "deepclean.volumes"
"""Topic of the shards to which names of volumes belong: of one partition, in JSON (``services.log.volume_topic``)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its name, the one record that it carries, and the services at both ends."""

    name: str
    record: type[Any]
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


METADATA_COMMANDS = Topic(
    "metadata.commands",
    records.MetadataCommand,
    (CLIENTS, "snapshots", "key_deletion", "directory_deletion", "mock_scm"),
    ("metadata",),
)
METADATA_REPLIES = Topic("metadata.replies", records.MetadataReply, ("metadata",), (CLIENTS,))
METADATA_PROGRESS = Topic(
    "metadata.progress",
    records.MetadataProgress,
    ("metadata",),
    ("snapshots", "key_deletion", "directory_deletion"),
)
DELETED_ENTRIES = Topic("gc.deleted-entries", records.DeletedEntries, ("metadata",), ("streaming",))
SNAPSHOT_CHAIN = Topic(
    "gc.snapshot-chain",
    records.SnapshotChainRecord,
    ("metadata",),
    ("streaming", "snapshots", "key_deletion", "directory_deletion"),
)
SPACE = Topic("gc.space", records.SpaceUpdate, ("metadata",), ("snapshots",))
PURGE_KEYS = Topic("gc.purge-keys", records.PurgeKeys, ("streaming",), ("key_deletion",))
PURGE_DIRECTORIES = Topic("gc.purge-directories", records.DirectoryVerdict, ("streaming",), ("directory_deletion",))
SWEEP_RESULTS = Topic("gc.sweep-results", records.SweepResult, ("streaming",), ("key_deletion",))
SCM_COMMANDS = Topic("scm.commands", records.ScmCommand, ("metadata", "key_deletion"), ("mock_scm",))
SCM_REPLIES = Topic("scm.replies", records.ScmReply, ("mock_scm",), ("key_deletion",))
LEDGER = Topic("gc.ledger", records.LedgerRows, ("metadata",), (CLIENTS,))
SNAPSHOTS_COMMANDS = Topic("snapshots.commands", records.SnapshotCommand, (CLIENTS, "key_deletion"), ("snapshots",))
SNAPSHOTS_REPLIES = Topic("snapshots.replies", records.SnapshotReply, ("snapshots",), (CLIENTS,))
SNAPSHOTS_INFO = Topic("snapshots.info", records.SnapshotInfo, ("snapshots",), (CLIENTS,))
SNAPSHOTS_CHANGELOG = Topic("snapshots.changelog", records.StateChange, ("snapshots",), ("snapshots",))
DEAD_LETTERS = Topic(
    "dead-letters",
    records.DeadLetter,
    ("metadata", "snapshots", "streaming", "key_deletion", "directory_deletion", "mock_scm"),
    ("snapshots",),
)

TOPICS = tuple(one for one in list(globals().values()) if isinstance(one, Topic))
"""All of them, in the order above."""
NUMBERED = (METADATA_REPLIES, METADATA_PROGRESS, SNAPSHOT_CHAIN, SPACE, SCM_COMMANDS)
"""Topics by which metadata sees at its start what it has given names to. Not gc.deleted-entries: no judge believes what
is there, so that a false entry in it must not stop metadata either."""
CHANGELOGS: dict[str, Topic] = {"snapshots": SNAPSHOTS_CHANGELOG}
"""By service the topic that keeps what its units of work have changed, for those that would decide otherwise if they
took in their inputs again in another order."""
BY_NAME = {topic.name: topic for topic in TOPICS}
