"""Volumes and buckets: creating, deleting, finding."""

from __future__ import annotations

from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    BucketIdentity,
    BucketLayout,
    BucketRow,
    Committed,
    CreateBucket,
    CreateBucketLink,
    CreateVolume,
    DeleteBucket,
    DeleteVolume,
    VolumeRow,
)
from services.domain.names import MAX_OWNER_LENGTH, check_bucket_name, check_length, check_volume_name
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_id_key, bucket_key, flat_key, tree_key, volume_key
from services.metadata.namespace.inheritance import bucket_created
from services.metadata.state.bucket_links import bucket_at
from services.metadata.state.owned_volumes import change_owner
from services.metadata.state.tables import (
    BUCKET_ID_TABLE,
    BUCKET_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    VOLUME_TABLE,
)
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.store import prefix_end


def find_bucket(work: Work, volume: str, bucket: str) -> BucketRow:
    """Return a bucket by its name, to change its contents. Raise CommandError (BUCKET_BUSY) during a rollback."""
    row = work.table(BUCKET_TABLE).get(bucket_key(volume, bucket))
    if row is None or row.source_bucket:
        row = bucket_row(work, volume, bucket)
    if row.rollback_snapshot_id:
        raise CommandError(
            ErrorCode.BUCKET_BUSY, f"bucket {volume}/{bucket} is being rolled back; try again when that is done"
        )
    return row


def bucket_row(work: Work, volume: str, bucket: str) -> BucketRow:
    """Return a bucket by its name or that of a link to it, also during a rollback."""
    row = bucket_at(work, volume, bucket)
    if row is None:
        volume_row(work, volume)
        raise CommandError(ErrorCode.BUCKET_NOT_FOUND, f"there is no bucket {volume}/{bucket}")
    return row


def named_bucket(work: Work, volume: str, bucket: str) -> BucketRow:
    """Return the bucket of a name, which can be a link. Raise CommandError if there is none."""
    return work.table(BUCKET_TABLE).get(bucket_key(volume, bucket)) or bucket_row(work, volume, bucket)


def volume_row(work: Work, volume: str) -> VolumeRow:
    """Return a volume by its name. Raise CommandError (VOLUME_NOT_FOUND) if there is none."""
    row = work.table(VOLUME_TABLE).get(volume_key(volume))
    if row is None:
        raise CommandError(ErrorCode.VOLUME_NOT_FOUND, f"there is no volume {volume} in shard {work.shard}")
    return row


def create_volume(transaction: Transaction, command: CreateVolume) -> Committed:
    """Create a volume."""
    check_volume_name(command.volume)
    check_length("an owner", command.owner, MAX_OWNER_LENGTH)
    table = transaction.work.table(VOLUME_TABLE)
    key = volume_key(command.volume)
    if table.get(key) is not None:
        raise CommandError(ErrorCode.VOLUME_ALREADY_EXISTS, f"there is a volume {command.volume} already")
    object_id = transaction.new_object_id()
    row = VolumeRow(object_id, command.volume, command.owner, transaction.log_time_ms, transaction.txn)
    table.put(key, row)
    change_owner(transaction.work, transaction.counters.feature_level, command.volume, "", command.owner)
    return Committed(object_id)


def delete_volume(transaction: Transaction, command: DeleteVolume) -> Committed:
    """Remove a volume without buckets."""
    work = transaction.work
    volume = volume_row(work, command.volume)
    if volume.tenant:
        raise CommandError(
            ErrorCode.VOLUME_IS_REFERENCED, f"volume {command.volume} belongs to the tenant {volume.tenant}"
        )
    prefix = bucket_key(command.volume, "")
    if work.table(BUCKET_TABLE).has_any(prefix, prefix_end(prefix)):
        raise CommandError(ErrorCode.VOLUME_NOT_EMPTY, f"volume {command.volume} has buckets; delete them first")
    work.table(VOLUME_TABLE).delete(volume_key(command.volume))
    transaction.acls.remove(work, volume.object_id, volume.object_id)
    change_owner(work, transaction.counters.feature_level, command.volume, volume.owner, "")
    return Committed(volume.object_id)


def create_bucket(transaction: Transaction, command: CreateBucket) -> Committed:
    """Create a bucket."""
    volume = _volume_with_room(transaction, command.volume, command.bucket, is_link=False)
    row = _new_bucket(transaction, volume, command.bucket, command.layout)
    _put_new(transaction, row)
    identity = BucketIdentity(
        volume.object_id, row.object_id, command.volume, command.bucket, command.layout, is_deleted=False
    )
    transaction.work.table(BUCKET_ID_TABLE).put(bucket_id_key(row.object_id), identity)
    return Committed(row.object_id)


def _new_bucket(transaction: Transaction, volume: VolumeRow, bucket: str, layout: BucketLayout) -> BucketRow:
    """Return the row of an empty bucket with a new objectID."""
    return BucketRow(
        volume_id=volume.object_id,
        object_id=transaction.new_object_id(),
        volume=volume.volume,
        bucket=bucket,
        layout=layout,
        creation_time_ms=transaction.log_time_ms,
        update_id=transaction.txn,
        used_bytes=0,
        used_namespace=0,
        snapshot_used_bytes=0,
        snapshot_used_namespace=0,
        rollback_snapshot_id="",
        owner=transaction.creator,
        replication=transaction.counters.default_replication,
    )


def _put_new(transaction: Transaction, row: BucketRow) -> None:
    transaction.work.table(BUCKET_TABLE).put(bucket_key(row.volume, row.bucket), row)
    bucket_created(transaction, row)


def _volume_with_room(transaction: Transaction, volume: str, bucket: str, *, is_link: bool) -> VolumeRow:
    """Return the volume for a new bucket or link. Refuse a name in use, and one too many for the volume's quota."""
    check_bucket_name(bucket)
    table, row = transaction.work.table(BUCKET_TABLE), volume_row(transaction.work, volume)
    if table.get(bucket_key(volume, bucket)) is not None:
        raise CommandError(ErrorCode.BUCKET_ALREADY_EXISTS, f"there is a bucket {volume}/{bucket} already")
    if row.quota_bytes >= 0 and not is_link:
        raise CommandError(
            ErrorCode.QUOTA_ERROR,
            f"the volume {volume} has a quota of bytes, and a new bucket has none: take the volume's away, create the "
            f"bucket, set its quota, then the volume's again",
        )
    prefix = bucket_key(volume, "")
    if 0 <= row.quota_namespace <= sum(1 for _ in table.scan(prefix, prefix_end(prefix))):
        raise CommandError(
            ErrorCode.QUOTA_EXCEEDED, f"the volume {volume} has its {row.quota_namespace} buckets and links already"
        )
    return row


def create_bucket_link(transaction: Transaction, command: CreateBucketLink) -> Committed:
    """Create a bucket that is a link. The bucket to which it leads need not exist."""
    volume = _volume_with_room(transaction, command.volume, command.bucket, is_link=True)
    check_volume_name(command.source_volume)
    check_bucket_name(command.source_bucket)
    row = _new_bucket(transaction, volume, command.bucket, BucketLayout.OBJECT_STORE)
    _put_new(transaction, replace(row, source_volume=command.source_volume, source_bucket=command.source_bucket))
    return Committed(row.object_id)


def delete_bucket(transaction: Transaction, command: DeleteBucket) -> Committed:
    """Delete a bucket without keys, directories or snapshots. Its garbage rows are still processed, by its id."""
    work = transaction.work
    named = work.table(BUCKET_TABLE).get(bucket_key(command.volume, command.bucket))
    if named is not None and named.source_bucket:
        work.table(BUCKET_TABLE).delete(bucket_key(command.volume, command.bucket))
        transaction.acls.remove(work, named.object_id, named.object_id)
        return Committed(named.object_id)
    bucket = find_bucket(work, command.volume, command.bucket)
    if _has_keys(work, bucket):
        raise CommandError(
            ErrorCode.BUCKET_NOT_EMPTY, f"bucket {command.volume}/{command.bucket} has keys; delete them first"
        )
    if transaction.snapshots.of(work, bucket.object_id).live_txns:
        raise CommandError(
            ErrorCode.CONTAINS_SNAPSHOT,
            f"bucket {command.volume}/{command.bucket} has snapshots; delete them first",
        )
    work.table(BUCKET_TABLE).delete(bucket_key(command.volume, command.bucket))
    identities = work.table(BUCKET_ID_TABLE)
    identity = identities.get(bucket_id_key(bucket.object_id))
    if identity is not None:
        identities.put(bucket_id_key(bucket.object_id), replace(identity, is_deleted=True))
    transaction.acls.remove_bucket(work, bucket)
    transaction.space.bucket_deleted(bucket.object_id, f"{command.volume}/{command.bucket}", transaction.log_time_ms)
    return Committed(bucket.object_id)


def _has_keys(work: Work, bucket: BucketRow) -> bool:
    """Return whether a key or directory can be reached from the bucket's root."""
    if bucket.layout is not BucketLayout.FILE_SYSTEM_OPTIMIZED:
        prefix = flat_key(bucket.volume, bucket.bucket, "")
        return work.table(KEY_TABLE).has_any(prefix, prefix_end(prefix))
    prefix = tree_key(bucket.volume_id, bucket.object_id, bucket.object_id, "")
    end = prefix_end(prefix)
    return work.table(DIRECTORY_TABLE).has_any(prefix, end) or work.table(FILE_TABLE).has_any(prefix, end)
