"""Quotas of buckets and volumes, by Ozone's rules.

Bytes and names count from their put until they are freed: live ones, and deleted ones that a snapshot holds or that
wait to be freed. The bytes are those that blocks take on disks, with their redundancy. A put needs room for whole
blocks, since the last one is allocated whole; further blocks of an open key need it together with those that it has and
nobody sees yet. Blocks that never belonged to a version count no more as soon as they are given up: unused ones, and
parts that were replaced, left out or aborted. A key counts as one name, however many runs of blocks it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import BlockRun, BucketRow, Committed, RepairQuota, SetQuota, VolumeRow
from services.domain.refusals import CommandError
from services.domain.replication import redundancy_bytes
from services.domain.table_keys import bucket_key, volume_key
from services.metadata.namespace.buckets import find_bucket, named_bucket, volume_row
from services.metadata.state.figures import live_bucket
from services.metadata.state.tables import BUCKET_TABLE, VOLUME_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.store import prefix_end

NO_QUOTA = -1


def check_room(transaction: Transaction, bucket: BucketRow, size_bytes: int, names: int) -> None:
    """Refuse a command for whose bytes, with their redundancy, and names the bucket has no room. Call it before the
    command counts them.

    Raises:
        CommandError: QUOTA_EXCEEDED.
    """
    if bucket.quota_bytes == NO_QUOTA and bucket.quota_namespace == NO_QUOTA:
        return
    transaction.is_answered = True
    used_bytes, used_names = _used(transaction, bucket)
    for quota, used, more, unit in (
        (bucket.quota_bytes, used_bytes, size_bytes, "bytes"),
        (bucket.quota_namespace, used_names, names, "keys and directories"),
    ):
        if NO_QUOTA != quota < used + more and more > 0:
            raise CommandError(
                ErrorCode.QUOTA_EXCEEDED,
                f"{bucket.volume}/{bucket.bucket} has a quota of {quota} {unit}: {used} are used, deleted ones that "
                f"are not freed yet included, and {more} more are needed",
            )


def room_bytes(runs: Iterable[BlockRun]) -> int:
    """Return the bytes for which runs of blocks need room: whole blocks, with their redundancy."""
    taken_bytes = 0
    for run in runs:
        whole_bytes = run.block_count * run.block_size_bytes
        taken_bytes += whole_bytes
        taken_bytes += redundancy_bytes(run.container_id, run.block_count, run.block_size_bytes, whole_bytes)
    return taken_bytes


def _used(transaction: Transaction, bucket: BucketRow) -> tuple[int, int]:
    return transaction.figures.counted_by_quotas(bucket)


def set_quota(transaction: Transaction, command: SetQuota) -> Committed:
    """Set both quotas of a bucket, or of a volume.

    Raises:
        CommandError: NOT_SUPPORTED_OPERATION for a link; QUOTA_ERROR when more is used already, or when a bucket of a
            volume with a quota of bytes would have none; QUOTA_EXCEEDED when the quotas of the buckets would exceed
            the volume's, or when it has more buckets and links.
    """
    if any(quota < NO_QUOTA or quota == 0 for quota in (command.quota_bytes, command.quota_namespace)):
        raise CommandError(ErrorCode.QUOTA_ERROR, "a quota is at least 1, or -1 for no limit")
    if command.bucket:
        return _set_of_bucket(transaction, command)
    return _set_of_volume(transaction, command)


def _set_of_bucket(transaction: Transaction, command: SetQuota) -> Committed:
    work, bucket = transaction.work, find_bucket(transaction.work, command.volume, command.bucket)
    if named_bucket(work, command.volume, command.bucket).source_bucket:
        raise CommandError(
            ErrorCode.NOT_SUPPORTED_OPERATION,
            f"{command.volume}/{command.bucket} is a link: name the bucket {bucket.volume}/{bucket.bucket}",
        )
    for quota, used in zip((command.quota_bytes, command.quota_namespace), _used(transaction, bucket), strict=True):
        if NO_QUOTA != quota < used:
            raise CommandError(ErrorCode.QUOTA_ERROR, f"{used} are used already: the quota cannot be {quota}")
    volume = volume_row(work, bucket.volume)
    if volume.quota_bytes != NO_QUOTA:
        rows = _buckets_and_links(work, volume.volume)
        others = [one.quota_bytes for one in rows if not one.source_bucket and one.object_id != bucket.object_id]
        _check_sum(volume, [*others, command.quota_bytes], volume.quota_bytes)
    quotas = replace(
        bucket, quota_bytes=command.quota_bytes, quota_namespace=command.quota_namespace, update_id=transaction.txn
    )
    work.table(BUCKET_TABLE).put(bucket_key(bucket.volume, bucket.bucket), quotas)
    return Committed(bucket.object_id)


def _set_of_volume(transaction: Transaction, command: SetQuota) -> Committed:
    work, volume = transaction.work, volume_row(transaction.work, command.volume)
    rows = list(_buckets_and_links(work, command.volume))
    if command.quota_bytes != NO_QUOTA:
        _check_sum(volume, [one.quota_bytes for one in rows if not one.source_bucket], command.quota_bytes)
    if NO_QUOTA != command.quota_namespace < len(rows):
        raise CommandError(
            ErrorCode.QUOTA_EXCEEDED, f"the volume {volume.volume} has {len(rows)} buckets and links already"
        )
    quotas = replace(
        volume, quota_bytes=command.quota_bytes, quota_namespace=command.quota_namespace, update_id=transaction.txn
    )
    work.table(VOLUME_TABLE).put(volume_key(command.volume), quotas)
    return Committed(volume.object_id)


def repair_quota(transaction: Transaction, command: RepairQuota) -> Committed:
    """Correct the used figures of a bucket by the differences that an audit has found.

    What commands have counted since the audit stays counted: a difference does not depend on it.

    Raises:
        CommandError: BUCKET_NOT_FOUND; INVALID_REQUEST when the figures were repaired since the audit, or would become
            negative.
    """
    work, bucket = transaction.work, live_bucket(transaction.work, command.bucket_id)
    if bucket is None:
        raise CommandError(ErrorCode.BUCKET_NOT_FOUND, f"there is no bucket with the id {command.bucket_id}")
    if not bucket.repaired_txn <= command.audited_txn < transaction.txn:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"the figures of {bucket.volume}/{bucket.bucket} were repaired at txn {bucket.repaired_txn}, and the audit "
            f"is as of txn {command.audited_txn}: audit again",
        )
    amounts = (
        *(command.used_bytes, command.used_namespace),
        *(command.snapshot_used_bytes, command.snapshot_used_namespace),
        *(command.upload_bytes, command.spare_bytes, command.block_rows),
        *(command.used_redundancy_bytes, command.snapshot_used_redundancy_bytes),
        *(command.upload_redundancy_bytes, command.spare_redundancy_bytes),
    )
    stated = transaction.figures.stated(bucket)
    if min(one + more for one, more in zip(stated, amounts, strict=True)) < 0:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"the figures of {bucket.volume}/{bucket.bucket} would become negative: audit again",
        )
    work.table(BUCKET_TABLE).put(
        bucket_key(bucket.volume, bucket.bucket), replace(bucket, repaired_txn=transaction.txn)
    )
    transaction.figures.repair(bucket.object_id, amounts)
    return Committed(bucket.object_id)


def _check_sum(volume: VolumeRow, of_buckets: list[int], most: int) -> None:
    if NO_QUOTA in of_buckets:
        raise CommandError(
            ErrorCode.QUOTA_ERROR,
            f"in a volume with a quota of bytes each bucket has one: set those of the buckets of {volume.volume} first",
        )
    if sum(of_buckets) > most:
        raise CommandError(
            ErrorCode.QUOTA_EXCEEDED,
            f"the quotas of the buckets of {volume.volume} would add up to more than {most} bytes",
        )


def _buckets_and_links(work: Work, volume: str) -> Iterator[BucketRow]:
    """Yield the rows of a volume. A link is a name of the volume, and has no bytes of its own."""
    prefix = bucket_key(volume, "")
    for _, row in work.table(BUCKET_TABLE).scan(prefix, prefix_end(prefix)):
        yield row
