"""What clients may bring back in a run, and what metadata has answered them."""

from __future__ import annotations

from collections.abc import Iterator

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import BucketIdentity, BucketLayout, DeletedKind, MetadataReply, Undelete
from schemas.topics import METADATA_PROGRESS, METADATA_REPLIES
from services.domain.table_keys import bucket_id_key, object_txn
from services.metadata.reads import queries
from services.metadata.state.tables import BUCKET_ID_TABLE, BUCKET_TABLE, DELETED_DIRECTORY_TABLE, DELETED_TABLE
from services.runtime.loop.outbox import OUTBOX
from services.storage.tables import TablesReader
from tests.simulation.plane import SimulatedPlane


def metadata_replies(plane: SimulatedPlane, shard: int) -> Iterator[MetadataReply]:
    """All that metadata has answered clients: what was sent, and what is written and still to be sent."""
    encoded = [record.value for record in plane.log.records(METADATA_REPLIES.name, shard)]
    for _, row in plane.tables("metadata", shard).table(OUTBOX).scan():
        for run in row.runs:
            if run.topic == METADATA_REPLIES.name:
                encoded += run.values
    for value in encoded:
        try:
            yield codec(MetadataReply).decode_message(value)
        except DecodeError:
            continue  # noise that a run has added


def expiry_answer(plane: SimulatedPlane, shard: int, txn: int) -> records.WritesExpired | None:
    """What metadata has answered, or is going to, to the expiry of a txn."""
    for value in _newest_progress(plane, shard):
        try:
            progress = codec(records.MetadataProgress).decode_message(value)
        except DecodeError:
            continue
        if progress.txn == txn and isinstance(progress.body, records.WritesExpired):
            return progress.body
        if 0 < progress.txn < txn - MOST_TXNS:
            break
    return None


MOST_TXNS = 1_000
"""More than one step takes in: what is looked for is told of no earlier."""


def _newest_progress(plane: SimulatedPlane, shard: int) -> Iterator[bytes]:
    """What metadata tells of its work, the newest first."""
    unsent = [
        value
        for _, row in plane.tables("metadata", shard).table(OUTBOX).scan()
        for run in row.runs
        if run.topic == METADATA_PROGRESS.name
        for value in run.values
    ]
    yield from reversed(unsent)
    yield from (record.value for record in reversed(plane.log.records(METADATA_PROGRESS.name, shard)))


def deleted_rows(plane: SimulatedPlane, shard: int) -> list[Undelete]:
    """Commands that bring each deleted row back to where it was, as far as its directory is still there."""
    tables = plane.tables("metadata", shard)
    buckets = {row.object_id: row for _, row in tables.table(BUCKET_TABLE).scan()}
    paths = {
        entry.object_id: f"{entry.path}/"
        for bucket in buckets.values()
        if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        for entry in queries.walk(tables, bucket)
        if entry.is_directory
    }
    found = []
    for key, row in tables.table(DELETED_TABLE).scan():
        identity = _identity(tables, key)
        path = paths.get(row.key.parent_id, "") + row.key.name
        name = (DeletedKind.KEY, row.key.object_id, row.key.birth, row.death)
        found.append(Undelete(identity.volume, identity.bucket, path, *name))
    for key, deleted in tables.table(DELETED_DIRECTORY_TABLE).scan():
        identity, directory = _identity(tables, key), deleted.directory
        path = paths.get(directory.parent_id, "") + directory.name
        name = (DeletedKind.DIRECTORY, directory.object_id, object_txn(directory.object_id), deleted.death)
        found.append(Undelete(identity.volume, identity.bucket, path, *name))
    return found


def _identity(tables: TablesReader, key: bytes) -> BucketIdentity:
    identity: records.BucketIdentity | None = tables.table(BUCKET_ID_TABLE).get(bucket_id_key(int(key.split(b"/")[2])))
    assert identity is not None
    return identity
