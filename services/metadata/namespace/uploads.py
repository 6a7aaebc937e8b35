"""Uploads in parts: initiate, commit a part, complete, abort.

A part is opened and written like a key (``writing``). Its bytes count in the bucket at once, and no snapshot holds
them. The completion joins the named parts to one version of the key, which is born then, and frees the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from schemas.error_codes import ErrorCode
from schemas.records import (
    AbortUpload,
    BucketLayout,
    BucketRow,
    Committed,
    CompleteUpload,
    InitiateUpload,
    KeyRow,
    OpenKeyRow,
    OpenRun,
    PartRow,
    UploadRow,
)
from services.domain.names import MAX_KEY_TAG_LENGTH, check_key_path, check_length
from services.domain.refusals import CommandError
from services.domain.replication import redundancy_of_all
from services.domain.table_keys import MAX_PART_NUMBER, MAX_RUNS_PER_VERSION, flat_key, part_key, upload_key
from services.metadata.namespace import tree
from services.metadata.namespace.buckets import find_bucket
from services.metadata.namespace.first_runs import begin_version
from services.metadata.namespace.garbage import BlocksOf, free_runs
from services.metadata.namespace.growing import written
from services.metadata.namespace.quotas import check_room, room_bytes
from services.metadata.namespace.tree import Place
from services.metadata.state.tables import KEY_TABLE, PART_TABLE, UPLOAD_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.tables import Tables


def place_for_key(transaction: Transaction, bucket: BucketRow, path: str) -> Place[KeyRow]:
    """Return the place of a key, and create missing directories above it."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        return tree.place_for_file(transaction, bucket, path)
    return Place(KEY_TABLE, flat_key(bucket.volume, bucket.bucket, path), 0, path)


def initiate_upload(transaction: Transaction, command: InitiateUpload) -> Committed:
    """Begin an upload. The answer has its id."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    check_key_path(command.key, is_tree=bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED)
    place = place_for_key(transaction, bucket, command.key)
    check_room(transaction, bucket, 0, place.made_directories)
    upload_id = f"{transaction.shard}-{transaction.txn}"
    row = UploadRow(
        upload_id,
        bucket.volume_id,
        bucket.object_id,
        command.key,
        place.parent_id,
        place.name,
        transaction.log_time_ms,
    )
    key = upload_key(bucket.volume, bucket.bucket, command.key, upload_id)
    transaction.work.table(UPLOAD_TABLE).put(key, row)
    transaction.figures.put(bucket.object_id, 0, place.made_directories)
    return Committed(0, upload_id=upload_id)


def find_upload(tables: Tables, bucket: BucketRow, path: str, upload_id: str) -> UploadRow:
    """Return an upload of a key. Raise CommandError (NO_SUCH_MULTIPART_UPLOAD_ERROR) if there is none."""
    row = tables.table(UPLOAD_TABLE).get(upload_key(bucket.volume, bucket.bucket, path, upload_id))
    # The upload of the key a/b could also be named as b/ID of the key a: their row keys are the same.
    if row is None or (row.bucket_id, row.upload_id) != (bucket.object_id, upload_id):
        raise CommandError(
            ErrorCode.NO_SUCH_MULTIPART_UPLOAD_ERROR,
            f"there is no upload {upload_id[:64]!r} of {path[:64]!r}: it was completed or aborted, or it has expired",
        )
    return row


def commit_part(
    transaction: Transaction, bucket: BucketRow, row: OpenKeyRow, size_bytes: int
) -> tuple[int, tuple[OpenRun, ...]]:
    """Make what was written the present version of a part. Return its objectID and the blocks that have no bytes."""
    upload = find_upload(transaction.work, bucket, row.key, row.upload_id)
    if size_bytes < 0:
        raise CommandError(ErrorCode.INVALID_REQUEST, "size_bytes must be at least 0")
    found = written(None, 0, row.runs, size_bytes, transaction.new_object_id)
    table, key = transaction.work.table(PART_TABLE), part_key(row.upload_id, row.part_number)
    replaced = table.get(key)
    if replaced is not None:
        _free_parts(transaction, upload, [replaced])
    _count_runs(transaction, bucket, upload, len(found.runs) - (len(replaced.runs) if replaced else 0))
    part = PartRow(row.part_number, size_bytes, row.tag, found.runs, transaction.log_time_ms)
    redundancy = redundancy_of_all(run.blocks for run in found.runs)
    check_room(transaction, bucket, size_bytes + redundancy, 0)
    table.put(key, part)
    transaction.figures.allocate(-room_bytes(run.blocks for run in found.runs))
    transaction.figures.put_part(bucket.object_id, size_bytes)
    if redundancy:
        transaction.figures.add_redundancy(bucket.object_id, redundancy, upload=redundancy, stored=redundancy)
    for run in found.runs:
        transaction.report_late(bucket.object_id, run.blocks)
    return (found.runs[0].object_id if found.runs else 0), found.unused


def _count_runs(transaction: Transaction, bucket: BucketRow, upload: UploadRow, more: int) -> None:
    """Add to the runs of an upload, all of which the command that ends it changes."""
    run_count = upload.run_count + more
    if run_count > MAX_RUNS_PER_VERSION:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"an upload has at most {MAX_RUNS_PER_VERSION} runs of blocks in its parts: allocate more blocks at a time",
        )
    key = upload_key(bucket.volume, bucket.bucket, upload.key, upload.upload_id)
    transaction.work.table(UPLOAD_TABLE).put(key, replace(upload, run_count=run_count))


def _free_parts(transaction: Transaction, upload: UploadRow, parts: Sequence[PartRow]) -> None:
    """Free parts that are not part of a version and never will be."""
    ids = (upload.volume_id, upload.bucket_id)
    for part in parts:
        owner = BlocksOf(upload.parent_id, upload.name, part.tag)
        free_runs(transaction, ids, part.runs, owner, upload_bytes=part.size_bytes)


def _pop_parts(work: Work, upload_id: str) -> dict[int, PartRow]:
    """Remove all parts of an upload, and return them by number."""
    table = work.table(PART_TABLE)
    found = list(table.scan(part_key(upload_id, 0), part_key(upload_id, MAX_PART_NUMBER + 1)))
    for key, _ in found:
        table.delete(key)
    return {part.part_number: part for _, part in found}


def complete_upload(transaction: Transaction, command: CompleteUpload) -> Committed:
    """Join parts to the present version of the key. The live version, if any, dies, and so do parts not named."""
    work, numbers = transaction.work, command.part_numbers
    bucket = find_bucket(work, command.volume, command.bucket)
    check_length("a tag", command.tag, MAX_KEY_TAG_LENGTH)
    upload = find_upload(work, bucket, command.key, command.upload_id)
    if not numbers or any(first >= second for first, second in pairwise(numbers)):
        raise CommandError(ErrorCode.INVALID_PART_ORDER, "name at least one part, and each once, in ascending order")
    parts = _pop_parts(work, command.upload_id)
    if missing := [number for number in numbers if number not in parts]:
        raise CommandError(ErrorCode.INVALID_PART, f"the upload has no part {missing[0]}")
    joined = [parts.pop(number) for number in numbers]
    runs = [run for part in joined for run in part.runs]
    work.table(UPLOAD_TABLE).delete(upload_key(bucket.volume, bucket.bucket, command.key, command.upload_id))
    place = place_for_key(transaction, bucket, command.key)
    check_room(transaction, bucket, 0, 1 + place.made_directories)
    key = begin_version(transaction, bucket, place, command.key, runs, command.tag, transaction.log_time_ms)
    transaction.figures.put(bucket.object_id, 0, 1 + place.made_directories)
    transaction.figures.join_parts(bucket.object_id, key.size_bytes)
    if redundancy := redundancy_of_all(run.blocks for run in runs):
        transaction.figures.add_redundancy(bucket.object_id, upload=-redundancy)
    _free_parts(transaction, upload, list(parts.values()))
    return Committed(key.object_id, runs=tuple([run.blocks for run in runs]))


def abort_upload(transaction: Transaction, command: AbortUpload) -> Committed:
    """End an upload and free its parts. Parts that are still open cannot be committed any more, and expire."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    upload = find_upload(transaction.work, bucket, command.key, command.upload_id)
    end_upload(transaction, upload_key(bucket.volume, bucket.bucket, command.key, command.upload_id), upload)
    return Committed(0)


def end_upload(transaction: Transaction, key: bytes, upload: UploadRow) -> int:
    """End an upload, whose bucket may be deleted. Return the number of its parts and their runs."""
    transaction.work.table(UPLOAD_TABLE).delete(key)
    parts = _pop_parts(transaction.work, upload.upload_id)
    _free_parts(transaction, upload, list(parts.values()))
    return len(parts) + upload.run_count
