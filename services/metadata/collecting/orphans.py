"""Requeues orphaned blocks: each run gets a garbage row, which the judges process like any other.

An audit names the blocks, and may be wrong or late. So the whole shard is searched once more here, in log order. If one
row refers to one of the blocks, all are kept. Blocks without a reference never get one: a row has them from their
allocation on, and block ids are never used twice.

A command reads a limited number of rows and answers that the search is in progress. The same command, sent again, reads
the next rows (``orphan_search``).
"""

from __future__ import annotations

from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    BlockRun,
    BucketIdentity,
    Committed,
    DeletedKeyRow,
    DeletedKind,
    KeyRow,
    OrphanSearchRow,
    RequeueOrphans,
)
from services.domain.refusals import CommandError, NotDone
from services.domain.replication import redundancy_of, replication_of
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import (
    bucket_id_key,
    garbage_key,
    local_id_shard,
    local_id_txn,
)
from services.metadata.namespace.garbage import Death, death_now, key_cell
from services.metadata.state.figures import live_bucket
from services.metadata.state.orphan_search import is_idle, is_through, looked_on
from services.metadata.state.tables import BUCKET_ID_TABLE, DELETED_TABLE
from services.metadata.state.transaction import Transaction

MAX_ORPHANS = 200
"""Maximum runs in one command. Each becomes an object, and a command creates at most 255."""


def requeue_orphans(transaction: Transaction, command: RequeueOrphans) -> Committed | NotDone:
    """Give orphaned runs garbage rows, all of them or none, once no row of the shard refers to one of them.

    Raises:
        CommandError: INVALID_REQUEST, one run has an owner or is invalid; BUCKET_BUSY, a later try may succeed;
            BUCKET_NOT_FOUND.
    """
    work, search = transaction.work, transaction.orphans
    identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(command.bucket_id))
    if identity is None:
        raise CommandError(ErrorCode.BUCKET_NOT_FOUND, f"there never was a bucket with the id {command.bucket_id}")
    if reason := _why_invalid(transaction, command):
        raise CommandError(ErrorCode.INVALID_REQUEST, reason)
    _check_bucket(transaction, identity)
    page = _look_on(transaction, command)
    if why_kept := _why_kept(transaction, page):
        if search.of(work) is None:
            raise CommandError(ErrorCode.INVALID_REQUEST, why_kept)
        search.end(work)
        return NotDone(ErrorCode.INVALID_REQUEST, why_kept)
    if not is_through(page):
        search.save(work, page)
        message = f"no owner of the blocks among the first {page.rows:,} versions: send the same command again"
        return NotDone(ErrorCode.SEARCH_IN_PROGRESS, message)
    search.end(work)
    death = death_now(transaction, identity.bucket_id)
    for run in command.blocks:
        _put_orphan_row(transaction, identity, run, death)
    return Committed(0)


def _look_on(transaction: Transaction, command: RequeueOrphans) -> OrphanSearchRow:
    """Read the next rows, at most those of one command. Return the search's progress, or the owner of a block."""
    before, now_ms = transaction.orphans.of(transaction.work), transaction.log_time_ms
    if before is None or (before.command != command and is_idle(before, now_ms)):
        before = OrphanSearchRow(command, 0, b"", 0, "", now_ms)
    elif before.command != command:
        raise CommandError(ErrorCode.BUCKET_BUSY, "owners of other blocks are being searched for: try again later")
    page = replace(before, log_time_ms=now_ms)
    return page if page.owner else looked_on(transaction.work, page)


def _why_kept(transaction: Transaction, page: OrphanSearchRow) -> str:
    """Return why the search ends and the blocks are kept; empty if it need not end."""
    if page.owner:
        return f"one of the blocks has an owner ({page.owner}): all are kept"
    if page.rows <= page.command.max_rows:
        return ""
    return (
        f"shard {transaction.shard} has more than {page.command.max_rows} versions to search: "
        f"the blocks are kept; allow more (deepclean audit --repair-rows)"
    )


def _why_invalid(transaction: Transaction, command: RequeueOrphans) -> str:
    """Return what is wrong with the named blocks; empty if nothing is."""
    runs, audited_txn = command.blocks, command.audited_txn
    if not 0 < len(runs) <= MAX_ORPHANS or len({run.first_local_id for run in runs}) != len(runs):
        return f"name 1 to {MAX_ORPHANS} runs of blocks, each once"
    if audited_txn >= transaction.txn:
        return f"the audit saw txn {audited_txn}, which shard {transaction.shard} has not reached: audit again"
    for run in runs:
        first, count = run.first_local_id, run.block_count
        if local_id_shard(first) != transaction.shard or not 0 < local_id_txn(first) <= audited_txn:
            return f"block {first} is not one of this shard from before the audit: it is kept"
        if min(count, run.block_size_bytes, run.size_bytes) <= 0 or replication_of(run.container_id) is None:
            return f"block {first} has no size, or a container that cannot be: it is kept"
        if local_id_txn(first + count - 1) != local_id_txn(first):
            return f"{count} blocks from {first} on belong to more than one version: they are kept"
    return ""


def _check_bucket(transaction: Transaction, identity: BucketIdentity) -> None:
    bucket = live_bucket(transaction.work, identity.bucket_id)
    snapshots = transaction.snapshots.of(transaction.work, identity.bucket_id)
    if (bucket is not None and bucket.rollback_snapshot_id) or snapshots.newest_live_txn == _birth(transaction):
        raise CommandError(
            ErrorCode.BUCKET_BUSY,
            f"a snapshot or rollback of {identity.volume}/{identity.bucket} is in progress: try again",
        )


def _birth(transaction: Transaction) -> int:
    """Return the txn before the death, since a death must follow the birth. No snapshot was captured at this txn."""
    return transaction.txn - 1


def _put_orphan_row(transaction: Transaction, identity: BucketIdentity, run: BlockRun, death: Death) -> None:
    """Create the garbage row of a run, and send it to the judges."""
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
    redundancy = redundancy_of(run)
    transaction.figures.add_garbage(identity.bucket_id, run.size_bytes)
    if redundancy:
        transaction.counters.has_redundancy = True
        transaction.figures.add_redundancy(identity.bucket_id, 0, redundancy)
    transaction.space.add(identity.bucket_id, NOBODY, key_cell(key.size_bytes, 1, redundancy))
    entry = (identity.bucket_id, key.object_id, key.birth, *death)
    transaction.entries.add(DeletedKind.KEY, [entry])
