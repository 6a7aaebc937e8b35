"""The used figures of buckets and the claimed and freed bytes: summed up over a batch, written once at its end."""

from __future__ import annotations

from dataclasses import replace

from schemas.records import AccountRow, BucketRow
from services.domain.table_keys import bucket_id_key, bucket_key
from services.metadata.state.batch_sums import Amounts, BatchSums, PresentTxn
from services.metadata.state.tables import ACCOUNT_TABLE, BUCKET_ID_TABLE, BUCKET_TABLE
from services.runtime.loop.service import Work

MAX_BYTES = 2**63 - 1
"""Maximum bytes of all blocks of a shard that are not freed yet, with their redundancy, so that sums of sizes fit
into 64 bits. A put that exceeds it is refused (INVALID_REQUEST). Sums that only grow, such as freed bytes, stay at this
value.
"""
_NO_ACCOUNT = AccountRow(0, 0, 0, 0)
_NOTHING_USED, _NO_BLOCKS, _NO_REDUNDANCY = (0,) * 4, (0,) * 3, (0,) * 6


class BucketFigures:
    """The changes of a batch to the live, deleted, claimed and freed figures of each bucket."""

    def __init__(self, present: PresentTxn) -> None:
        self._present = present
        self._used: BatchSums[int] = BatchSums(present)
        """Live bytes and names, deleted bytes, and rows of garbage tables."""
        self._blocks: BatchSums[int] = BatchSums(present)
        """Bytes of parts of uploads, spare bytes, and garbage rows of blocks alone. Most commands change none."""
        self._accounts: BatchSums[int] = BatchSums(present)
        """Claimed bytes and versions, freed bytes and versions."""
        self._redundancy: BatchSums[int] = BatchSums(present)
        """Bytes that blocks take beyond one copy of them: live, deleted, of parts, spare, claimed, freed. Most buckets
        have none.
        """
        self._stored_bytes = 0
        self._stored_before = (-1, 0)
        """The last txn that changed ``_stored_bytes``, and the value before it."""

    def clear(self) -> None:
        """Discard the changes of an aborted batch."""
        for sums in self._all_sums():
            sums.clear()
        self._stored_bytes = 0
        self._stored_before = (-1, 0)

    def undo_message(self) -> None:
        """Roll back the changes of the present message, which was not applied."""
        for sums in self._all_sums():
            sums.undo_message()
        txn, before = self._stored_before
        if txn == self._present.txn:
            self._stored_bytes = before

    def add_redundancy(
        self,
        bucket_id: int,
        live: int = 0,
        deleted: int = 0,
        *,
        upload: int = 0,
        spare: int = 0,
        claimed: int = 0,
        freed: int = 0,
        stored: int = 0,
    ) -> None:
        """Count bytes that blocks take beyond one copy of them, wherever the bytes of the blocks are counted.

        ``stored``: those that were not stored before, or negative, that are not stored any more.
        """
        self._redundancy.add(bucket_id, (live, deleted, upload, spare, claimed, freed))
        self._store(stored)

    def put(self, bucket_id: int, size_bytes: int, names: int) -> None:
        """Count bytes and names that have become live."""
        self._used.add(bucket_id, (size_bytes, names, 0, 0))
        self._store(size_bytes)

    def put_part(self, bucket_id: int, size_bytes: int) -> None:
        """Count a part of an upload. Its bytes are used, and no snapshot refers to them."""
        self._used.add(bucket_id, (size_bytes, 0, 0, 0))
        self._blocks.add(bucket_id, (size_bytes, 0, 0))
        self._store(size_bytes)

    def join_parts(self, bucket_id: int, size_bytes: int) -> None:
        """Count the bytes of parts that have become those of a version."""
        self._blocks.add(bucket_id, (-size_bytes, 0, 0))

    def move_to_garbage(self, bucket_id: int, size_bytes: int, *, names: int, rows: int, block_rows: int = 0) -> None:
        """Count keys or directories that have died. Keys without bytes have no row in a garbage table.

        ``block_rows`` of the rows are those of further runs of blocks, or of noncurrent versions.
        """
        self._used.add(bucket_id, (-size_bytes, -names, size_bytes, rows))
        if block_rows:
            self._blocks.add(bucket_id, (0, 0, block_rows))

    def lose_runs(self, bucket_id: int, size_bytes: int, rows: int) -> None:
        """Count runs of blocks that a live version has lost."""
        self._used.add(bucket_id, (-size_bytes, 0, size_bytes, rows))
        self._blocks.add(bucket_id, (0, 0, rows))

    def free_runs(self, bucket_id: int, size_bytes: int, rows: int, *, upload_bytes: int = 0) -> None:
        """Count runs of blocks that never belonged to a version. ``upload_bytes`` of them are those of parts of
        uploads.
        """
        self._used.add(bucket_id, (-upload_bytes, 0, size_bytes, rows))
        self._blocks.add(bucket_id, (-upload_bytes, size_bytes, rows))

    def allocate(self, size_bytes: int) -> None:
        """Count what allocated blocks take, which are stored until SCM has confirmed that they are deleted.

        Negative when blocks become part of a version, which counts its own bytes.
        """
        self._store(size_bytes)

    def add_garbage(self, bucket_id: int, size_bytes: int) -> None:
        """Count a garbage row that was made for orphaned blocks."""
        self._used.add(bucket_id, (0, 0, size_bytes, 1))

    def restore(self, bucket_id: int, size_bytes: int, *, rows: int = 1) -> None:
        """Count a key or directory that was restored from one or more rows of a garbage table."""
        self._used.add(bucket_id, (size_bytes, 1, -size_bytes, -rows))
        self._blocks.add(bucket_id, (0, 0, 1 - rows))

    def restore_version(self, bucket_id: int) -> None:
        """Count that the row of what was restored was that of a noncurrent version, which counted among block rows."""
        self._blocks.add(bucket_id, (0, 0, -1))

    def repair(self, bucket_id: int, amounts: Amounts) -> None:
        """Add what a recount has found, in the order of ``stated``."""
        self._used.add(bucket_id, amounts[:4])
        self._blocks.add(bucket_id, amounts[4:7])
        self._redundancy.add(bucket_id, (*amounts[7:], 0, 0))

    def remove_directory(self, bucket_id: int) -> None:
        """Count a removed row of a deleted directory."""
        self._used.add(bucket_id, (0, 0, 0, -1))

    def claim(self, bucket_id: int, size_bytes: int, versions: int = 1) -> None:
        """Count claimed versions."""
        self._accounts.add(bucket_id, (size_bytes, versions, 0, 0))

    def finish(self, bucket_id: int, size_bytes: int, versions: int, *, spare_bytes: int, block_rows: int) -> None:
        """Count claimed versions that SCM has confirmed. ``spare_bytes`` of them never belonged to a version, and
        ``block_rows`` of the rows had blocks only, or were noncurrent versions.
        """
        self._accounts.add(bucket_id, (-size_bytes, -versions, size_bytes, versions))
        self._used.add(bucket_id, (0, 0, -size_bytes, -versions))
        if spare_bytes or block_rows:
            self._blocks.add(bucket_id, (0, -spare_bytes, -block_rows))
        self._store(-size_bytes)

    def _all_sums(self) -> tuple[BatchSums[int], ...]:
        return self._used, self._blocks, self._accounts, self._redundancy

    def _store(self, size_bytes: int) -> None:
        if self._stored_before[0] != self._present.txn:
            self._stored_before = (self._present.txn, self._stored_bytes)
        self._stored_bytes += size_bytes

    def moved_stored(self) -> int:
        """Return the batch's change of the shard's bytes that are put and not freed, with their redundancy."""
        return self._stored_bytes

    def moved_live(self) -> tuple[int, int, int]:
        """Return the bytes, names and bytes of redundancy that the present message subtracted from the live figures."""
        moved = [amounts for _, amounts in self._used.message()]
        redundancy = -sum(amounts[0] for _, amounts in self._redundancy.message())
        return -sum(amounts[0] for amounts in moved), -sum(amounts[1] for amounts in moved), redundancy

    def live_and_deleted(self, work: Work, bucket_id: int) -> tuple[int, int] | None:
        """Return a bucket's bytes and names, live and deleted together, with the changes of this batch so far.

        Return None for a deleted bucket.
        """
        bucket = live_bucket(work, bucket_id)
        if bucket is None:
            return None
        live_bytes, live_names, deleted_bytes, deleted_names, *_ = self.stated(bucket)
        return live_bytes + deleted_bytes, live_names + deleted_names

    def stated(self, bucket: BucketRow) -> Amounts:
        """Return what a bucket's row states, with the changes of this batch so far: live bytes and names, deleted ones,
        bytes of uploads, spare bytes and rows of blocks; then the redundancy of the four figures of bytes.
        """
        row = (
            *(bucket.used_bytes, bucket.used_namespace, bucket.snapshot_used_bytes, bucket.snapshot_used_namespace),
            *(bucket.upload_bytes, bucket.spare_bytes, bucket.block_rows),
            *(bucket.used_redundancy_bytes, bucket.snapshot_used_redundancy_bytes),
            *(bucket.upload_redundancy_bytes, bucket.spare_redundancy_bytes),
        )
        used = self._used.of(bucket.object_id) or _NOTHING_USED
        blocks = self._blocks.of(bucket.object_id) or _NO_BLOCKS
        redundancy = self._redundancy.of(bucket.object_id) or _NO_REDUNDANCY
        return tuple([one + more for one, more in zip(row, used + blocks + redundancy[:4], strict=True)])

    def counted_by_quotas(self, bucket: BucketRow) -> tuple[int, int]:
        """Return the bytes and names of a live bucket that its quotas count, with the changes of this batch so far:
        all bytes that its blocks take, with redundancy.
        """
        stated = self.stated(bucket)
        live_bytes, live_names, deleted_bytes, deleted_names, _, spare_bytes, block_rows = stated[:7]
        live, deleted, _, spare = stated[7:]
        plain_bytes = live_bytes + deleted_bytes - spare_bytes
        return plain_bytes + live + deleted - spare, live_names + deleted_names - block_rows

    def write(self, work: Work) -> None:
        """Write the changed figures, and clear them."""
        used, blocks, accounts, redundancy = (dict(sums.items()) for sums in self._all_sums())
        for bucket_id in used | blocks | redundancy:
            moved = used.get(bucket_id, _NOTHING_USED) + blocks.get(bucket_id, _NO_BLOCKS)
            self._write_bucket(work, bucket_id, moved, redundancy.get(bucket_id, _NO_REDUNDANCY))
        for bucket_id in accounts | redundancy:
            moved = accounts.get(bucket_id, _NOTHING_USED)
            _write_account(work, bucket_id, moved, redundancy.get(bucket_id, _NO_REDUNDANCY))
        self.clear()

    def _write_bucket(self, work: Work, bucket_id: int, moved: Amounts, redundancy: Amounts) -> None:
        """Update the figures in a bucket's row. A deleted bucket has none."""
        bucket = live_bucket(work, bucket_id)
        if bucket is None:
            return
        live_bytes, live_names, deleted_bytes, deleted_names, upload_bytes, spare_bytes, block_rows = moved
        live, deleted, upload, spare, _, _ = redundancy
        last_txn = max(self._used.last_txn(bucket_id), self._blocks.last_txn(bucket_id))
        figures = replace(
            bucket,
            update_id=max(bucket.update_id, last_txn),  # a later command may have set the row
            used_bytes=bucket.used_bytes + live_bytes,
            used_namespace=bucket.used_namespace + live_names,
            snapshot_used_bytes=bucket.snapshot_used_bytes + deleted_bytes,
            snapshot_used_namespace=bucket.snapshot_used_namespace + deleted_names,
            upload_bytes=bucket.upload_bytes + upload_bytes,
            spare_bytes=bucket.spare_bytes + spare_bytes,
            block_rows=bucket.block_rows + block_rows,
            used_redundancy_bytes=bucket.used_redundancy_bytes + live,
            snapshot_used_redundancy_bytes=bucket.snapshot_used_redundancy_bytes + deleted,
            upload_redundancy_bytes=bucket.upload_redundancy_bytes + upload,
            spare_redundancy_bytes=bucket.spare_redundancy_bytes + spare,
        )
        work.table(BUCKET_TABLE).put(bucket_key(bucket.volume, bucket.bucket), figures)


def _write_account(work: Work, bucket_id: int, moved: Amounts, redundancy: Amounts) -> None:
    claimed_bytes, claimed_versions, freed_bytes, freed_versions = moved
    *_, claimed, freed = redundancy
    accounts, key = work.table(ACCOUNT_TABLE), bucket_id_key(bucket_id)
    before = accounts.get(key) or _NO_ACCOUNT
    after = replace(
        before,
        claimed_bytes=before.claimed_bytes + claimed_bytes,
        claimed_versions=before.claimed_versions + claimed_versions,
        freed_bytes=min(before.freed_bytes + freed_bytes, MAX_BYTES),  # a sum that only grows stays there
        freed_versions=before.freed_versions + freed_versions,
        claimed_redundancy_bytes=before.claimed_redundancy_bytes + claimed,
        freed_redundancy_bytes=min(before.freed_redundancy_bytes + freed, MAX_BYTES),
    )
    if after != before:
        accounts.put(key, after)


def live_bucket(work: Work, bucket_id: int) -> BucketRow | None:
    """Return the row of a bucket; None for a deleted one."""
    identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
    if identity is None or identity.is_deleted:
        return None
    bucket = work.table(BUCKET_TABLE).get(bucket_key(identity.volume, identity.bucket))
    return bucket if bucket is not None and bucket.object_id == bucket_id else None
