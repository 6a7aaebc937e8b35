"""The used figures of buckets: summed up over a batch, written once at its end.

Every command changes them, so that writing the bucket's row each time would cost more than the command itself.
What a refused command has moved is dropped with it. A take reads figures that are written, as it is alone in its
batch.
"""

from __future__ import annotations

from dataclasses import replace

from services.domain.table_keys import bucket_id_key, bucket_key
from services.metadata.tables import BUCKET_ID_TABLE, BUCKET_TABLE
from services.runtime.service import Work

MAX_BYTES = 2**63 - 1


class BucketFigures:
    """What a batch has moved between the live and the deleted figures of each bucket."""

    def __init__(self) -> None:
        self._message: list[tuple[int, int, int, int, int]] = []
        self._batch: dict[int, list[int]] = {}

    def clear(self) -> None:
        """Forget: the batch was thrown away."""
        self._message.clear()
        self._batch.clear()

    def begin_message(self) -> None:
        """Whatever follows belongs to the next message; what was not kept is dropped."""
        self._message.clear()

    def move(
        self,
        bucket_id: int,
        *,
        live_bytes: int = 0,
        live_names: int = 0,
        deleted_bytes: int = 0,
        deleted_names: int = 0,
    ) -> None:
        """Add to the figures of a bucket, or take from them."""
        self._message.append((bucket_id, live_bytes, live_names, deleted_bytes, deleted_names))

    def bury(self, bucket_id: int, size_bytes: int, *, has_row: bool) -> None:
        """Move one key or directory from the live figures to the deleted ones; without a row it is just gone."""
        kept = 1 if has_row else 0
        self._message.append((bucket_id, -size_bytes, -1, size_bytes * kept, kept))

    def live_bytes(self, bucket_id: int, written_bytes: int) -> int:
        """Live bytes of a bucket with what this batch has moved, given what is written."""
        moved = self._batch.get(bucket_id)
        total = written_bytes + (moved[1] if moved else 0)
        return total + sum(move[1] for move in self._message if move[0] == bucket_id)

    def moved_live(self) -> tuple[int, int]:
        """Bytes and names that the present message has taken off the live figures."""
        return -sum(move[1] for move in self._message), -sum(move[2] for move in self._message)

    def keep_message(self, txn: int) -> None:
        """The present message was applied at a txn."""
        for bucket_id, live_bytes, live_names, deleted_bytes, deleted_names in self._message:
            sums = self._batch.get(bucket_id)
            if sums is None:
                sums = self._batch[bucket_id] = [0, 0, 0, 0, 0]
            sums[0] = txn
            sums[1] += live_bytes
            sums[2] += live_names
            sums[3] += deleted_bytes
            sums[4] += deleted_names
        self._message.clear()

    def write(self, work: Work) -> None:
        """Write the changed figures; a bucket that was deleted has none to correct."""
        for bucket_id, (txn, live_bytes, live_names, deleted_bytes, deleted_names) in self._batch.items():
            identity = work.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
            if identity is None or identity.is_deleted:
                continue
            key = bucket_key(identity.volume, identity.bucket)
            bucket = work.table(BUCKET_TABLE).get(key)
            if bucket is None or bucket.object_id != bucket_id:
                continue
            figures = replace(
                bucket,
                update_id=txn,
                used_bytes=bucket.used_bytes + live_bytes,
                used_namespace=bucket.used_namespace + live_names,
                snapshot_used_bytes=bucket.snapshot_used_bytes + deleted_bytes,
                snapshot_used_namespace=bucket.snapshot_used_namespace + deleted_names,
            )
            work.table(BUCKET_TABLE).put(key, figures)
        self._batch.clear()
