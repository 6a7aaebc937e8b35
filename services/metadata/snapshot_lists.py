"""Every bucket's list of all snapshots it ever had, kept decoded between commands.

The list makes ``n``, how many snapshots a bucket had had at a death, well defined: ordinals are never reused.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

from schemas.records import SnapshotListRow
from services.domain.table_keys import bucket_id_prefix, snapshot_list_key
from services.metadata.tables import SNAPSHOT_ID_TABLE, SNAPSHOT_LIST_TABLE
from services.runtime.service import Work
from services.storage.store import prefix_end


@dataclass(frozen=True, slots=True)
class SnapshotList:
    """All snapshots of one bucket, in the order of their ordinals."""

    rows: tuple[SnapshotListRow, ...]
    live_txns: tuple[int, ...]
    ever: int
    """How many snapshots the bucket ever had."""

    @classmethod
    def of(cls, rows: tuple[SnapshotListRow, ...]) -> SnapshotList:
        """The list with these rows."""
        return cls(rows, tuple(row.txn for row in rows if row.is_live), len(rows))

    @property
    def newest_live_txn(self) -> int:
        """txn of the newest live snapshot; 0 when there is none."""
        return self.live_txns[-1] if self.live_txns else 0

    def previous(self, death: int) -> int:
        """txn of the newest live snapshot before a death; 0 when there is none."""
        before = bisect_left(self.live_txns, death)
        return self.live_txns[before - 1] if before else 0

    def next(self, birth: int) -> int:
        """txn of the oldest live snapshot after a birth; 0 when there is none."""
        after = bisect_left(self.live_txns, birth)
        return self.live_txns[after] if after < len(self.live_txns) else 0

    def live_from(self, death: int) -> list[SnapshotListRow]:
        """Live snapshots that were taken after a death."""
        return [row for row in self.rows if row.is_live and row.txn > death]


class SnapshotLists:
    """The lists of all buckets of the shard."""

    def __init__(self) -> None:
        self._lists: dict[int, SnapshotList] = {}

    def clear(self) -> None:
        """Forget what is in memory: a unit of work was thrown away."""
        self._lists.clear()

    def of(self, work: Work, bucket_id: int) -> SnapshotList:
        """The list of a bucket."""
        found = self._lists.get(bucket_id)
        if found is None:
            prefix = bucket_id_prefix(bucket_id)
            rows = work.table(SNAPSHOT_LIST_TABLE).scan(prefix, prefix_end(prefix))
            found = self._lists[bucket_id] = SnapshotList.of(tuple(row for _, row in rows))
        return found

    def append(self, work: Work, row: SnapshotListRow) -> None:
        """Add the newest snapshot of a bucket."""
        before = self.of(work, row.bucket_id)
        work.table(SNAPSHOT_ID_TABLE).put(row.snapshot_id.encode(), row)
        work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(row.bucket_id, row.ordinal), row)
        self._lists[row.bucket_id] = SnapshotList.of((*before.rows, row))

    def update(self, work: Work, row: SnapshotListRow) -> None:
        """Change one snapshot of a bucket."""
        rows = list(self.of(work, row.bucket_id).rows)
        rows[row.ordinal - 1] = row
        work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(row.bucket_id, row.ordinal), row)
        self._lists[row.bucket_id] = SnapshotList.of(tuple(rows))

    def find(self, work: Work, snapshot_id: str) -> SnapshotListRow | None:
        """A snapshot by its id, live or dropped."""
        taken = work.table(SNAPSHOT_ID_TABLE).get(snapshot_id.encode())
        if taken is None:
            return None
        return self.of(work, taken.bucket_id).rows[taken.ordinal - 1]

    def drop(self, work: Work, row: SnapshotListRow, chain_version: int) -> None:
        """Mark a snapshot as dropped."""
        self.update(work, replace(row, is_live=False, dropped_chain_version=chain_version))
