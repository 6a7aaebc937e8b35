"""chainTable: a shard's chain as a reader of the markers stores it, with a row for each bucket and live snapshot.

================ ===================================================================================
key              row
================ ===================================================================================
#PART/number     a part of a full chain, as received, until all parts are there
#VERSION         the chain version, as a full chain without buckets
/bucketId        the end of the bucket's list, as a full chain with this bucket and no snapshots
/bucketId/txn    a live snapshot, as a capture at the chain version at which it was written here
================ ===================================================================================

A drop removes the row of its snapshot, so that the table does not grow with the number of snapshots ever captured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from schemas.records import (
    ChainCapture,
    ChainDrop,
    ChainedBucket,
    ChainedSnapshot,
    ChainRow,
    FullChain,
    SnapshotChainRecord,
)
from services.domain.chain_view import ChainView, ChainViewError
from services.domain.errors import ChainBrokenError, InvariantError
from services.domain.table_keys import bucket_id_key
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition, Tables

CHAIN_TABLE = TableDefinition("chainTable", ChainRow)
_FIRST, _BEYOND = b"#", b"\xff"
_VERSION = b"#VERSION"
_PARTS, _BEYOND_PARTS = b"#PART/", b"#PART0"


def _part_key(part: int) -> bytes:
    return b"%s%016x" % (_PARTS, part)


def _snapshot_key(bucket_id: int, txn: int) -> bytes:
    return b"%s/%016x" % (bucket_id_key(bucket_id), txn)


class StoredChain:
    """A view of the chain, and its rows, which are written with each marker and read at a restart."""

    def __init__(self) -> None:
        self.view = ChainView()

    def restore(self, tables: Tables) -> None:
        """Rebuild the view from the rows. Raise InvariantError if an older build has written them."""
        self.view = view = ChainView()
        buckets: dict[int, ChainedBucket] = {}
        snapshots: dict[int, list[ChainedSnapshot]] = {}
        parts, version = [], 0
        for key, row in tables.table(CHAIN_TABLE).scan(_FIRST, _BEYOND):
            body = row.record.body
            if key == _VERSION:
                version = row.record.version
            elif key.startswith(_PARTS):
                parts.append(row.record)
            elif not key.startswith(b"/"):
                raise InvariantError(
                    "chainTable was written by an older build: start this service on an empty directory, so that it "
                    "reads the chain from the topic"
                )
            elif isinstance(body, FullChain):
                buckets[body.buckets[0].bucket_id] = body.buckets[0]
            elif isinstance(body, ChainCapture):
                snapshot = ChainedSnapshot(body.snapshot_id, body.ordinal, body.txn, is_live=True)
                snapshots.setdefault(body.bucket_id, []).append(snapshot)
        if version:
            listed = {bucket_id: tuple(snapshots.get(bucket_id, ())) for bucket_id in buckets}
            view.full(version, [replace(buckets[one], snapshots=found) for one, found in listed.items()])
        for part in parts:
            view.follow(part)

    def clear(self, work: Work) -> None:
        """Forget the chain, when a marker is missing and it cannot be followed further."""
        self.view = ChainView()
        _delete(work, _FIRST, _BEYOND)

    def follow(self, record: SnapshotChainRecord, work: Work) -> bool:
        """Apply a marker; return whether the view has changed.

        Raises:
            ChainViewError: an earlier marker is missing, or this one contradicts them.
        """
        before, had_parts = self.view.version, self.view.pending_parts
        is_new = self.view.follow(record) is not None
        body = record.body
        if isinstance(body, FullChain) and record.version >= before:
            self._keep_full(record, body, work, is_new=is_new)
        elif is_new:
            self._keep_marker(body, work)
            if had_parts:
                _delete(work, _PARTS, _BEYOND_PARTS)
        return is_new

    def _keep_full(self, record: SnapshotChainRecord, part: FullChain, work: Work, *, is_new: bool) -> None:
        if is_new:
            _delete(work, _FIRST, _BEYOND)
            for bucket_id in self.view.bucket_ids():
                self._put_bucket(bucket_id, work)
                for one in self.view.live(bucket_id):
                    self._put_capture(ChainCapture(bucket_id, one.snapshot_id, one.ordinal, one.txn), work)
            self._put_version(work)
            return
        if part.part == 1 or not self.view.pending_parts:
            _delete(work, _PARTS, _BEYOND_PARTS)
        if self.view.pending_parts:
            work.table(CHAIN_TABLE).put(_part_key(part.part), ChainRow(record))

    def _keep_marker(self, body: ChainCapture | ChainDrop | FullChain, work: Work) -> None:
        if isinstance(body, ChainCapture):
            self._put_capture(body, work)
        elif isinstance(body, ChainDrop):
            work.table(CHAIN_TABLE).delete(_snapshot_key(body.bucket_id, body.txn))
        if not isinstance(body, FullChain):
            self._put_bucket(body.bucket_id, work)
        self._put_version(work)

    def _put_version(self, work: Work) -> None:
        work.table(CHAIN_TABLE).put(_VERSION, _full(self.view.version, ()))

    def _put_bucket(self, bucket_id: int, work: Work) -> None:
        bucket = ChainedBucket(bucket_id, (), self.view.ever(bucket_id), self.view.newest_txn(bucket_id))
        work.table(CHAIN_TABLE).put(bucket_id_key(bucket_id), _full(self.view.version, (bucket,)))

    def _put_capture(self, capture: ChainCapture, work: Work) -> None:
        version = self.view.version
        row = ChainRow(SnapshotChainRecord(version, version - 1, capture))
        work.table(CHAIN_TABLE).put(_snapshot_key(capture.bucket_id, capture.txn), row)


class ChainFollower(StoredChain):
    """The chain of a judge, which must stop at a missing marker."""

    def follow(self, record: SnapshotChainRecord, work: Work) -> bool:
        """As ``StoredChain.follow``, but a misfit raises ChainBrokenError: nothing may be judged."""
        try:
            return super().follow(record, work)
        except ChainViewError as error:
            raise ChainBrokenError(work.shard, str(error)) from error


@contextmanager
def stopping_at_misfit(record: SnapshotChainRecord, work: Work) -> Iterator[None]:
    """Raise any error in applying a marker as one that stops the service: a dead-lettered marker would leave a gap."""
    try:
        yield
    except InvariantError:
        raise
    except Exception as error:
        raise ChainBrokenError(work.shard, f"version {record.version}: {error!r}") from error


def _full(version: int, buckets: tuple[ChainedBucket, ...]) -> ChainRow:
    return ChainRow(SnapshotChainRecord(version, version, FullChain(buckets)))


def _delete(work: Work, start: bytes, end: bytes) -> None:
    table = work.table(CHAIN_TABLE)
    for key, _ in list(table.scan(start, end)):
        table.delete(key)
