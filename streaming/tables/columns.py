"""The tables: their columns, with types and comments, and how their files are divided.

docs/tables.md lists the same columns; a test compares both. A table that is there keeps its columns: a new version adds
columns at the end, and ``Lake.make_tables`` adds them to existing tables.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMESPACE = "deepclean"
"""Where the tables are in a catalog, unless a user names another place."""
_AS_OF = (
    ("as_of_txn", "bigint", "Last txn of the shard that the row takes into account."),
    ("as_of_time", "timestamp", "Log time of that txn."),
)
_BUCKET = (
    ("shard", "int", "Shard."),
    ("bucket_id", "bigint", "objectID of the bucket."),
    ("volume", "string", "Name of the volume."),
    ("bucket", "string", "Name of the bucket."),
)
_RUN = (
    ("container_id", "bigint", "Container of the blocks."),
    ("first_local_id", "bigint", "Local id of the first block; the others follow consecutively."),
    ("block_count", "int", "Number of blocks."),
    ("block_size_bytes", "bigint", "Bytes of every block but the last."),
    ("size_bytes", "bigint", "Bytes of all blocks together."),
)


def _sizes(name: str, means: str) -> tuple[tuple[str, str, str], ...]:
    return (
        (f"{name}_bytes", "bigint", means),
        (f"{name}_replicated_bytes", "bigint", "What the blocks of these bytes take on disks."),
    )


@dataclass(frozen=True, slots=True)
class TableColumns:
    """One table."""

    name: str
    columns: tuple[tuple[str, str, str], ...]
    """Name, type in Spark's SQL, and meaning of each column."""
    partitioned_by: str = "shard"
    is_written_by_each_task: bool = False
    """Tasks write the rows that they have, without bringing the rows of a partition together first."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(name for name, _, _ in self.columns)


LEDGER = TableColumns(
    "ledger",
    (
        ("shard", "int", "Shard."),
        ("finish_txn", "bigint", "txn that removed the row, after the block store had confirmed its blocks."),
        ("finish_time", "timestamp", "Log time of the finish: the bytes are freed."),
        ("claim_txn", "bigint", "txn of the claim."),
        ("claim_time", "timestamp", "Log time of the claim."),
        ("chain_version", "bigint", "The shard's chain version at the claim."),
        ("previous_txn", "bigint", "Newest snapshot before the death, of those live at the claim; 0 for none."),
        ("next_txn", "bigint", "Oldest snapshot at or after the birth, of those live at the claim; 0 for none."),
        ("task", "bigint", "key_deletion's number for the batch of rows."),
        ("first_judge_version", "bigint", "Oldest chain version with which streaming judged; 0: not known."),
        ("second_judge_version", "bigint", "Chain version with which key_deletion judged."),
        ("bucket_id", "bigint", "objectID of the bucket."),
        ("object_id", "bigint", "objectID of the version; for a further run of its blocks, of the run's own row."),
        ("birth", "bigint", "txn that committed the version."),
        ("death", "bigint", "txn that took it out of the active namespace."),
        *_RUN,
    ),
    partitioned_by="shard, days(finish_time)",
)
CHAIN = TableColumns(
    "chain",
    (
        *_BUCKET,
        ("snapshot_id", "string", "Id of the snapshot; it never changes."),
        ("name", "string", "Name of the snapshot: its last one, if it is dropped."),
        ("ordinal", "bigint", "Ordinal among all snapshots that the bucket ever had, from 1."),
        ("status", "string", "ACTIVE; DELETED by a user or by retention, and not dropped yet; or DROPPED."),
        ("create_txn", "bigint", "txn at which the snapshot was captured."),
        ("creation_time", "timestamp", "Log time of the capture, or the time that the command named."),
        ("deletion_time", "timestamp", "Log time of the deletion; null while the snapshot is active."),
        ("drop_txn", "bigint", "txn at or before which the drop was applied; null as long as it is not known."),
        *_sizes("referenced", "Bytes that the snapshot references; of a dropped one: referenced last."),
        *_sizes("exclusive", "Bytes that only this snapshot holds; of a dropped one: held last."),
    ),
)
BUCKETS = TableColumns(
    "buckets",
    (
        *_BUCKET,
        ("layout", "string", "FILE_SYSTEM_OPTIMIZED or OBJECT_STORE."),
        ("is_deleted", "boolean", "Whether the bucket was deleted; its row stays, so that its id has a name."),
        *_sizes(
            "live",
            "Bytes of the active namespace, of files below deleted directories that are not expanded yet, and of parts "
            "of uploads.",
        ),
        *_sizes("held", "Deleted bytes that snapshots hold."),
        *_sizes("pending", "Deleted bytes that no snapshot holds and that are not claimed yet."),
        *_sizes("claimed", "Claimed bytes, whose blocks the block store has not confirmed yet."),
        *_sizes("freed", "Bytes that were ever freed."),
        ("freed_versions", "bigint", "Versions that were ever freed."),
        *_AS_OF,
    ),
)
SPACE = TableColumns(
    "space",
    (
        *_BUCKET,
        ("first_holder", "bigint", "create_txn of the oldest live snapshot that holds the versions; 0: none does."),
        ("last_holder", "bigint", "create_txn of the newest live snapshot that holds them; 0: none does."),
        ("size_bytes", "bigint", "Bytes of the deleted versions with these holders."),
        ("replicated_bytes", "bigint", "What the blocks of these bytes take on disks."),
        ("versions", "bigint", "Number of these versions that have blocks."),
        ("key_rows", "bigint", "Rows of deletedTable."),
        ("directory_rows", "bigint", "Rows of deletedDirectoryTable."),
        ("rename_rows", "bigint", "Rows of snapshotRenamedTable."),
        *_AS_OF,
    ),
)
SNAPSHOT_SPACE = TableColumns(
    "snapshot_space",
    (
        *_BUCKET,
        ("snapshot_id", "string", "Id of the live snapshot."),
        ("create_txn", "bigint", "txn at which the snapshot was captured."),
        ("exclusive_versions", "bigint", "Number of versions that only this snapshot holds."),
        *_sizes("referenced", "Bytes that the snapshot references."),
        *_sizes("held", "The part of them that is not live any more."),
        *_sizes("exclusive", "Bytes that only this snapshot holds: its deletion frees them."),
        *_sizes("shared_with_previous", "Bytes that the previous live snapshot references, too."),
        *_sizes("shared_with_next", "Bytes that the next one references, too; for the newest: the active namespace."),
        *_AS_OF,
    ),
)
INVENTORY = TableColumns(
    "inventory",
    (
        *_BUCKET,
        (
            "stage",
            "string",
            (
                "LIVE (also below a deleted directory that is not expanded yet), UPLOAD (a part of an upload), HELD by "
                "snapshots, PENDING or CLAIMED."
            ),
        ),
        ("object_id", "bigint", "objectID of the version; for a further run of its blocks, of the run's own row."),
        ("parent_id", "bigint", "objectID of the directory; 0 in a flat bucket; null for a further run."),
        ("name", "string", "Name in the directory; the whole path in a flat bucket; null for a further run."),
        ("birth", "bigint", "txn that committed the version; 0 for a part of an upload."),
        ("death", "bigint", "txn that took it out of the active namespace; null while it is LIVE or UPLOAD."),
        ("first_holder", "bigint", "create_txn of the oldest live snapshot that holds it; null: none does."),
        (
            "last_holder",
            "bigint",
            (
                "create_txn of the newest live snapshot that holds it; null: none does. Below a deleted directory that "
                "is not expanded yet: the newest live snapshot, even if it does not show the file."
            ),
        ),
        ("modification_time", "timestamp", "Log time of the commit; null for a further run."),
        ("deletion_time", "timestamp", "Log time of the move to deletedTable; null before."),
        *_RUN,
        ("replicated_bytes", "bigint", "What the blocks take on disks."),
        *_AS_OF,
    ),
    is_written_by_each_task=True,
)
UNREADABLE = TableColumns(
    "unreadable",
    (
        ("shard", "int", "Shard."),
        ("topic", "string", "Topic of the message."),
        ("offset", "bigint", "Offset of the message."),
        ("error", "string", "DecodeError or ColumnsError."),
        ("value", "binary", "The message as it is."),
    ),
    partitioned_by="shard, topic",
)
TABLES = (LEDGER, CHAIN, BUCKETS, SPACE, SNAPSHOT_SPACE, INVENTORY, UNREADABLE)
FROM_TOPICS, FROM_COPIES = (LEDGER.name, CHAIN.name), (BUCKETS.name, SPACE.name, SNAPSHOT_SPACE.name, INVENTORY.name)
"""The tables that follow topics, and those that are replaced, shard by shard, by what a copy of metadata has."""
