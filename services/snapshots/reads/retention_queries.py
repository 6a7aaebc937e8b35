"""Reads of retention from committed tables: policies, tags, consumers, and the preview of a run."""

from __future__ import annotations

from schemas.answers import (
    ExpiringSnapshot,
    RetainedSnapshot,
    RetentionPreview,
    RetentionReason,
    SnapshotConsumer,
    SnapshotTag,
)
from schemas.error_codes import ErrorCode
from schemas.records import ConsumerRow, RetentionPolicy, RetentionRow, SnapshotInfo, TagRow
from services.domain.refusals import CommandError
from services.snapshots.reads.queries import freed_by_deleting, list_snapshots
from services.snapshots.retention.expiry import checked, decide
from services.snapshots.state.tables import (
    CONSUMER_TABLE,
    RETENTION_TABLE,
    TAG_TABLE,
    bucket_key,
    name_key,
)
from services.storage.store import prefix_end
from services.storage.tables import Tables


def retention_of(tables: Tables, volume: str, bucket: str) -> RetentionRow:
    """Return a bucket's policy and the state of its runs.

    Raises:
        CommandError: RETENTION_NOT_FOUND.
    """
    row = tables.table(RETENTION_TABLE).get(bucket_key(volume, bucket))
    if row is None:
        raise CommandError(
            ErrorCode.RETENTION_NOT_FOUND,
            f"{volume}/{bucket} has no retention policy: nothing expires there (deepclean retention set)",
        )
    return row


def tag_rows(tables: Tables, volume: str, bucket: str) -> list[TagRow]:
    """Return the tags of a bucket, by name."""
    prefix = name_key(volume, bucket, "")
    return [row for _, row in tables.table(TAG_TABLE).scan(prefix, prefix_end(prefix))]


def consumer_rows(tables: Tables, volume: str, bucket: str) -> list[ConsumerRow]:
    """Return the consumers of a bucket, by name."""
    prefix = name_key(volume, bucket, "")
    return [row for _, row in tables.table(CONSUMER_TABLE).scan(prefix, prefix_end(prefix))]


def list_tags(tables: Tables, volume: str, bucket: str) -> list[SnapshotTag]:
    """Return the tags of a bucket, by name, with the names of their snapshots."""
    names = {row.snapshot_id: row.name for row in list_snapshots(tables, volume, bucket, with_deleted=True)}
    return [
        SnapshotTag(
            row.tag,
            names.get(row.snapshot_id, ""),
            row.snapshot_id,
            row.owner,
            row.reason,
            row.creation_time_ms,
            row.expiry_time_ms,
            row.is_automatic,
        )
        for row in tag_rows(tables, volume, bucket)
    ]


def list_consumers(tables: Tables, volume: str, bucket: str) -> list[SnapshotConsumer]:
    """Return the consumers of a bucket, by name, with the names of the snapshots that they read next."""
    chain = list_snapshots(tables, volume, bucket)
    return [
        SnapshotConsumer(row.consumer, _next_of(row, chain), row.next_txn, row.seen_time_ms)
        for row in consumer_rows(tables, volume, bucket)
    ]


def _next_of(consumer: ConsumerRow, chain: list[SnapshotInfo]) -> str:
    unread = (row.name for row in chain if row.bucket_id == consumer.bucket_id and row.create_txn >= consumer.next_txn)
    return next(unread, "")


def preview(
    tables: Tables, volume: str, bucket: str, now_ms: int, policy: RetentionPolicy | None = None
) -> RetentionPreview:
    """Return what a run at ``now_ms`` would do, with the bucket's policy or with another one.

    Raises:
        CommandError: RETENTION_NOT_FOUND (neither argument nor bucket has a policy), INVALID_REQUEST.
    """
    chosen = retention_of(tables, volume, bucket).policy if policy is None else checked(policy)
    chain = list_snapshots(tables, volume, bucket)
    consumers, tags = consumer_rows(tables, volume, bucket), tag_rows(tables, volume, bucket)
    decision = decide(chosen, chain, consumers, tags, now_ms)
    rows = {row.snapshot_id: row for row in chain}
    expired = [rows[snapshot_id] for snapshot_id in decision.expired]
    freed, is_exact = freed_by_deleting(tables, volume, bucket, [row.name for row in expired])
    return RetentionPreview(
        now_ms,
        chosen,
        tuple(ExpiringSnapshot(row.name, row.snapshot_id, row.create_txn, row.creation_time_ms) for row in expired),
        tuple(
            RetainedSnapshot(
                rows[snapshot_id].name,
                snapshot_id,
                rows[snapshot_id].create_txn,
                rows[snapshot_id].creation_time_ms,
                tuple(RetentionReason(one.reason.value, one.bound, one.names, one.until_ms) for one in reasons),
            )
            for snapshot_id, reasons in decision.kept.items()
        ),
        freed.bytes,
        freed.versions,
        is_exact,
        decision.dropped_consumers,
        decision.dropped_tags,
        freed.replicated_bytes,
    )
