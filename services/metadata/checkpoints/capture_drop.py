"""Capturing and dropping snapshots: a snapshot checkpoint, a row in the bucket's list and a chain marker at one txn."""

from __future__ import annotations

from schemas.error_codes import ErrorCode
from schemas.records import (
    BucketIdentity,
    CaptureSnapshot,
    ChainCapture,
    ChainDrop,
    ChainedBucket,
    ChainedSnapshot,
    DropSnapshot,
    SnapshotCaptured,
    SnapshotChainRecord,
    SnapshotDropped,
    SnapshotListRow,
)
from schemas.topics import SNAPSHOT_CHAIN
from services.domain.errors import InvalidMessageError
from services.domain.full_chain import in_parts
from services.domain.names import is_snapshot_id
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_id_key, bucket_key, snapshot_id_key, volume_key
from services.metadata.checkpoints.rollback import is_rolled_back_to
from services.metadata.namespace.access import require_manager
from services.metadata.namespace.buckets import find_bucket
from services.metadata.state import spent_ids
from services.metadata.state.reclaim_clocks import note_drop
from services.metadata.state.tables import (
    BUCKET_ID_TABLE,
    BUCKET_TABLE,
    SNAPSHOT_COUNT_TABLE,
    SNAPSHOT_LIST_TABLE,
    VOLUME_TABLE,
)
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.store import Store
from services.storage.tables import TablesReader

_ALL = (b"/", b"0")


def capture_snapshot(transaction: Transaction, command: CaptureSnapshot) -> SnapshotCaptured:
    """Capture a snapshot. A known id gets its first answer again."""
    work = transaction.work
    if not is_snapshot_id(command.snapshot_id):
        raise InvalidMessageError(f"{command.snapshot_id[:100]!r} cannot be the id of a snapshot: use a UUID")
    spent_ids.forget_some(transaction)
    before = transaction.snapshots.find(work, command.snapshot_id)
    if before is not None:
        return _captured(transaction, before)
    if spent_ids.is_uncaptured(transaction, command.snapshot_id):
        return _refused(command, "was dropped before its capture")
    if spent_ids.is_too_late(transaction, command):
        return _refused(command, f"was requested at {command.requested_ms} ms, more than a day away")
    try:
        if transaction.signers.is_on and command.user:
            require_manager(transaction, command.user, command.volume, command.bucket)
        bucket = find_bucket(work, command.volume, command.bucket)
        if (bucket.volume, bucket.bucket) != (command.volume, command.bucket):
            raise CommandError(
                ErrorCode.NOT_SUPPORTED_OPERATION,
                f"{command.volume}/{command.bucket} is a link: name the bucket {bucket.volume}/{bucket.bucket}",
            )
    except CommandError as error:
        return SnapshotCaptured(command.snapshot_id, 0, 0, 0, 0, 0, 0, 0, error.code, str(error))
    # All commands before this one are written: a capture is alone in its batch. An existing checkpoint without a row
    # comes from a capture that was not written, and may contain another state: that capture may have been dead-lettered
    # and sent again.
    work.store.remove_checkpoint(command.snapshot_id)
    work.store.checkpoint(command.snapshot_id)
    row = SnapshotListRow(
        snapshot_id=command.snapshot_id,
        bucket_id=bucket.object_id,
        ordinal=transaction.snapshots.of(work, bucket.object_id).ever + 1,
        txn=transaction.txn,
        is_live=True,
        creation_time_ms=transaction.log_time_ms,
        referenced_bytes=bucket.used_bytes - bucket.upload_bytes,
        referenced_namespace=bucket.used_namespace,
        chain_version=transaction.counters.chain_version + 1,
        dropped_chain_version=0,
        referenced_redundancy_bytes=bucket.used_redundancy_bytes - bucket.upload_redundancy_bytes,
    )
    transaction.snapshots.append(work, row)
    transaction.space.size_changed(row)
    _mark(transaction, ChainCapture(row.bucket_id, row.snapshot_id, row.ordinal, row.txn))
    return _captured(transaction, row)


def _refused(command: CaptureSnapshot, reason: str) -> SnapshotCaptured:
    message = f"snapshot {command.snapshot_id} {reason}: create another one"
    return SnapshotCaptured(command.snapshot_id, 0, 0, 0, 0, 0, 0, 0, ErrorCode.INVALID_REQUEST, message)


def _captured(transaction: Transaction, row: SnapshotListRow) -> SnapshotCaptured:
    work = transaction.work
    identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(row.bucket_id))
    return SnapshotCaptured(
        snapshot_id=row.snapshot_id,
        bucket_id=row.bucket_id,
        volume_id=identity.volume_id if identity else 0,
        ordinal=row.ordinal,
        snapshot_txn=row.txn,
        creation_time_ms=row.creation_time_ms,
        chain_version=row.chain_version,
        referenced_bytes=row.referenced_bytes,
        owner=_owner(work, identity) if identity else "",
        referenced_redundancy_bytes=row.referenced_redundancy_bytes,
    )


def _owner(work: Work, identity: BucketIdentity) -> str:
    """Return the owner of a bucket: its own, or that of its volume."""
    bucket = work.table(BUCKET_TABLE).get(bucket_key(identity.volume, identity.bucket))
    if bucket is not None and bucket.object_id == identity.bucket_id and bucket.owner:
        return bucket.owner
    volume = work.table(VOLUME_TABLE).get(volume_key(identity.volume))
    return volume.owner if volume else ""


def drop_snapshot(transaction: Transaction, command: DropSnapshot) -> SnapshotDropped:
    """Drop a snapshot from its list. A snapshot that was never captured, or is dropped already, needs no marker.

    A snapshot that was never captured cannot be captured afterwards: its capture may still be in progress, or may be
    repeated, although its client was answered that there is no such snapshot.
    """
    work = transaction.work
    spent_ids.forget_some(transaction)
    row = transaction.snapshots.find(work, command.snapshot_id)
    if row is None or not row.is_live:
        version = row.dropped_chain_version if row else transaction.counters.chain_version
        if row is None and is_snapshot_id(command.snapshot_id):
            spent_ids.note_uncaptured(transaction, command.snapshot_id)
        return SnapshotDropped(command.snapshot_id, version)
    if is_rolled_back_to(transaction, row.bucket_id, row.snapshot_id):
        raise InvalidMessageError(f"a rollback to snapshot {row.snapshot_id} is in progress: drop it afterwards")
    live_before = transaction.snapshots.of(work, row.bucket_id).live_txns
    alone = transaction.space.drop(work, row.bucket_id, row.txn, live_before)
    transaction.snapshots.drop(work, row, transaction.counters.chain_version + 1)
    note_drop(work, row.bucket_id, row.txn, transaction.log_time_ms)
    spent_ids.note_dropped(transaction, row.snapshot_id)
    _mark(transaction, ChainDrop(row.bucket_id, row.snapshot_id, row.txn, alone))
    return SnapshotDropped(command.snapshot_id, transaction.counters.chain_version)


def _mark(transaction: Transaction, marker: ChainCapture | ChainDrop) -> None:
    version = transaction.counters.chain_version
    transaction.work.send(SNAPSHOT_CHAIN, SnapshotChainRecord(version + 1, version, marker))
    transaction.counters.chain_version = version + 1


def publish_full_chain(transaction: Transaction) -> None:
    """Publish the full chain in parts. A reader may start with it, and older markers may be trimmed afterwards."""
    live: dict[int, list[ChainedSnapshot]] = {}
    for _, row in transaction.work.table(SNAPSHOT_LIST_TABLE).scan(*_ALL):
        live.setdefault(row.bucket_id, []).append(ChainedSnapshot(row.snapshot_id, row.ordinal, row.txn, row.is_live))
    counts = {int(key[1:]): row for key, row in transaction.work.table(SNAPSHOT_COUNT_TABLE).scan(*_ALL)}
    buckets = (
        ChainedBucket(bucket_id, tuple(live.get(bucket_id, ())), row.snapshots_ever, row.newest_txn)
        for bucket_id, row in sorted(counts.items())
    )
    version = transaction.counters.chain_version
    for part in in_parts(buckets):
        transaction.work.send(SNAPSHOT_CHAIN, SnapshotChainRecord(version, version, part))


def remove_unused_checkpoints(store: Store) -> list[str]:
    """Remove every snapshot checkpoint without a live snapshot: a crash interrupted its capture or removal.

    Return the names of the removed checkpoints.
    """
    tables = TablesReader(store)
    unused = [name for name in store.checkpoints() if not _is_live(tables, name)]
    for name in unused:
        store.remove_checkpoint(name)
    return unused


def _is_live(tables: TablesReader, snapshot_id: str) -> bool:
    row = tables.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
    return row is not None and row.is_live
