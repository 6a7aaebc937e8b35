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
    CreateVolume,
    DeleteBucket,
    DeleteVolume,
    VolumeRow,
)
from services.domain.names import MAX_OWNER_LENGTH, check_bucket_name, check_length, check_volume_name
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_id_key, bucket_key, flat_key, tree_key, volume_key
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
    row = work.table(BUCKET_TABLE).get(bucket_key(volume, bucket)) or bucket_row(work, volume, bucket)
    if row.rollback_snapshot_id:
        raise CommandError(
            ErrorCode.BUCKET_BUSY, f"bucket {volume}/{bucket} is being rolled back; try again when that is done"
        )
    return row


def bucket_row(work: Work, volume: str, bucket: str) -> BucketRow:
    """Return a bucket by its name, also during a rollback."""
    row = work.table(BUCKET_TABLE).get(bucket_key(volume, bucket))
    if row is None:
        _volume_row(work, volume)
        raise CommandError(ErrorCode.BUCKET_NOT_FOUND, f"there is no bucket {volume}/{bucket}")
    return row


def _volume_row(work: Work, volume: str) -> VolumeRow:
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
    return Committed(object_id)


def delete_volume(transaction: Transaction, command: DeleteVolume) -> Committed:
    """Remove a volume without buckets."""
    work = transaction.work
    volume = _volume_row(work, command.volume)
    prefix = bucket_key(command.volume, "")
    if work.table(BUCKET_TABLE).has_any(prefix, prefix_end(prefix)):
        raise CommandError(ErrorCode.VOLUME_NOT_EMPTY, f"volume {command.volume} has buckets; delete them first")
    work.table(VOLUME_TABLE).delete(volume_key(command.volume))
    return Committed(volume.object_id)


def create_bucket(transaction: Transaction, command: CreateBucket) -> Committed:
    """Create a bucket."""
    check_bucket_name(command.bucket)
    work = transaction.work
    volume = _volume_row(work, command.volume)
    key = bucket_key(command.volume, command.bucket)
    if work.table(BUCKET_TABLE).get(key) is not None:
        raise CommandError(
            ErrorCode.BUCKET_ALREADY_EXISTS, f"there is a bucket {command.volume}/{command.bucket} already"
        )
    object_id = transaction.new_object_id()
    row = BucketRow(
        volume_id=volume.object_id,
        object_id=object_id,
        volume=command.volume,
        bucket=command.bucket,
        layout=command.layout,
        creation_time_ms=transaction.log_time_ms,
        update_id=transaction.txn,
        used_bytes=0,
        used_namespace=0,
        snapshot_used_bytes=0,
        snapshot_used_namespace=0,
        rollback_snapshot_id="",
    )
    identity = BucketIdentity(
        volume.object_id, object_id, command.volume, command.bucket, command.layout, is_deleted=False
    )
    work.table(BUCKET_TABLE).put(key, row)
    work.table(BUCKET_ID_TABLE).put(bucket_id_key(object_id), identity)
    return Committed(object_id)


def delete_bucket(transaction: Transaction, command: DeleteBucket) -> Committed:
    """Delete a bucket without keys, directories or snapshots. Its garbage rows are still processed, by its id."""
    work = transaction.work
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
