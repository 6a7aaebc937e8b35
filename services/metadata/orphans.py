"""Blocks that nothing refers to go the way of all others: each run gets a garbage row, and the judges do the rest.

An audit names them, and may be wrong or late: so the whole bucket is looked through once more, here, where the order of
things is certain. One row that refers to one of them, and nothing is done. What nothing refers to, nothing can bring
back: a version gets its blocks when it is committed, and block ids are never given twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.codec import codec
from schemas.records import (
    BlockRun,
    BucketIdentity,
    BucketLayout,
    Committed,
    DeletedKeyRow,
    DeletedKind,
    KeyHead,
    KeyRow,
    RequeueOrphans,
)
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import (
    bucket_id_key,
    bucket_key,
    flat_key,
    garbage_key,
    local_id_shard,
    local_id_txn,
)
from services.metadata.errors import CommandError, ErrorCode
from services.metadata.garbage import Death, death_now, key_cell
from services.metadata.tables import (
    BUCKET_ID_TABLE,
    BUCKET_TABLE,
    DELETED_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    RECLAIM_TABLE,
)
from services.metadata.transaction import Transaction
from services.storage.store import prefix_end
from services.storage.tables import TableDefinition

MAX_ORPHANS = 200
"""In one command: each becomes an object of its own, of which a command makes at most 255."""
_KEY_HEAD = codec(KeyHead)

_BEYOND = b"\xff"


def requeue_orphans(transaction: Transaction, command: RequeueOrphans) -> Committed:
    """Give orphaned runs garbage rows, all of them or none.

    Raises:
        CommandError: INVALID_REQUEST, one is not an orphan as far as can be seen from here; BUCKET_BUSY, later it may
            be done; BUCKET_NOT_FOUND.
    """
    identity = transaction.work.table(BUCKET_ID_TABLE).get(bucket_id_key(command.bucket_id))
    if identity is None:
        raise CommandError(ErrorCode.BUCKET_NOT_FOUND, f"there never was a bucket with the id {command.bucket_id}")
    _check_blocks(transaction, command)
    _check_bucket(transaction, identity)
    _check_unreferenced(transaction, command)
    death = death_now(transaction, identity.bucket_id)
    for run in command.blocks:
        _bury(transaction, identity, run, death)
    return Committed(0)


def _check_blocks(transaction: Transaction, command: RequeueOrphans) -> None:
    runs = command.blocks
    if not 0 < len(runs) <= MAX_ORPHANS or len({run.first_local_id for run in runs}) != len(runs):
        raise CommandError(ErrorCode.INVALID_REQUEST, f"name 1 to {MAX_ORPHANS} runs of blocks, each once")
    if command.audited_txn >= transaction.txn:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"the audit saw txn {command.audited_txn}, which shard {transaction.shard} has not reached: audit again",
        )
    for run in runs:
        is_ours = local_id_shard(run.first_local_id) == transaction.shard
        if not is_ours or not 0 < local_id_txn(run.first_local_id) <= command.audited_txn:
            raise CommandError(
                ErrorCode.INVALID_REQUEST,
                f"block {run.first_local_id} is not one of this shard from before the audit: it is kept",
            )
        if min(run.block_count, run.block_size_bytes, run.size_bytes) <= 0:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"block {run.first_local_id} has no size: it is kept")
        if local_id_txn(run.first_local_id + run.block_count - 1) != local_id_txn(run.first_local_id):
            raise CommandError(
                ErrorCode.INVALID_REQUEST,
                f"{run.block_count} blocks from {run.first_local_id} on are of more than one version: they are kept",
            )


def _check_bucket(transaction: Transaction, identity: BucketIdentity) -> None:
    bucket = transaction.work.table(BUCKET_TABLE).get(bucket_key(identity.volume, identity.bucket))
    is_rolling_back = bucket is not None and bucket.object_id == identity.bucket_id and bucket.rollback_snapshot_id
    snapshots = transaction.snapshots.of(transaction.work, identity.bucket_id)
    if is_rolling_back or snapshots.newest_live_txn == _birth(transaction):
        raise CommandError(
            ErrorCode.BUCKET_BUSY, f"{identity.volume}/{identity.bucket} is amid a snapshot or a rollback: try again"
        )


def _check_unreferenced(transaction: Transaction, command: RequeueOrphans) -> None:
    """Look through the shard for a version that owns one of the blocks: the audit may err about the bucket, too."""
    # A txn writes the blocks of one version: whatever it wrote besides would be this version's, too.
    wanted = {local_id_txn(run.first_local_id) for run in command.blocks}
    looked_through = 0
    for _, identity in transaction.work.table(BUCKET_ID_TABLE).scan(b"", _BEYOND):
        for row in _versions(transaction, identity):
            looked_through += 1
            if looked_through > command.max_rows:
                raise CommandError(
                    ErrorCode.INVALID_REQUEST,
                    f"shard {transaction.shard} has more than {command.max_rows} versions to be looked through: "
                    f"the blocks are kept; allow more (deepclean audit --repair-rows)",
                )
            owned = _KEY_HEAD.decode_head(row).blocks
            if owned is not None and local_id_txn(owned.first_local_id) in wanted:
                raise CommandError(
                    ErrorCode.INVALID_REQUEST,
                    f"block {owned.first_local_id} has an owner in {identity.volume}/{identity.bucket}: it is kept",
                )


def _versions(transaction: Transaction, identity: BucketIdentity) -> Iterator[bytes]:
    """Every version of a bucket that has a row: live ones first, as what dies meanwhile is none of this command's."""
    work = transaction.work
    of_ids = b"/%d/%d/" % (identity.volume_id, identity.bucket_id)
    if identity.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        live, prefix = FILE_TABLE, of_ids
    else:
        live, prefix = KEY_TABLE, flat_key(identity.volume, identity.bucket, "")
    places: tuple[tuple[TableDefinition[Any], bytes], ...] = (
        (live, prefix),
        (DELETED_TABLE, of_ids),
        (RECLAIM_TABLE, of_ids),
    )
    for table, start in places:
        for _, row in work.table(table).scan_encoded(start, prefix_end(start)):
            yield row


def _birth(transaction: Transaction) -> int:
    """The txn before the death, since a version lives from one txn to a later one; no snapshot was taken at it."""
    return transaction.txn - 1


def _bury(transaction: Transaction, identity: BucketIdentity, run: BlockRun, death: Death) -> None:
    """Make the garbage row of a run, and send it to the judges."""
    now = transaction.log_time_ms
    key = KeyRow(
        object_id=transaction.new_object_id(),
        birth=_birth(transaction),
        size_bytes=run.size_bytes,
        blocks=run,
        parent_id=0,
        name=f"orphan-{run.first_local_id}",
        update_id=transaction.txn,
        rename_txn=0,
        tag="",
        creation_time_ms=now,
        modification_time_ms=now,
    )
    ids = (identity.volume_id, identity.bucket_id)
    row = DeletedKeyRow(key, death.txn, death.snapshots_before)
    transaction.work.table(DELETED_TABLE).put(garbage_key(*ids, death.txn, key.object_id), row)
    transaction.figures.adopt(identity.bucket_id, run.size_bytes)
    transaction.space.add(identity.bucket_id, NOBODY, key_cell(key.size_bytes))
    entry = (identity.bucket_id, key.object_id, key.birth, *death)
    transaction.entries.add(DeletedKind.KEY, [entry])
