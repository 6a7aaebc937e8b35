"""The live snapshots of every bucket, and the number of all that it ever had, kept decoded between commands.

Ordinals are never reused, so the number of snapshots before a death is well defined. The row of a dropped snapshot
stays only as long as a command may still name its id (``services/metadata/state/spent_ids.py``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.records import SnapshotCountRow, SnapshotListRow
from services.domain.errors import InvariantError
from services.domain.table_keys import bucket_id_key, bucket_id_prefix, snapshot_id_key, snapshot_list_key
from services.metadata.state.tables import SNAPSHOT_COUNT_TABLE, SNAPSHOT_LIST_TABLE
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

_NONE_EVER = SnapshotCountRow(0, 0)


@dataclass(frozen=True, slots=True)
class SnapshotList:
    """The snapshots of one bucket, in the order of their ordinals."""

    rows: tuple[SnapshotListRow, ...]
    """The live snapshots."""
    live_txns: tuple[int, ...]
    ever: int
    """Number of snapshots that the bucket ever had."""
    newest_txn: int
    """txn of the newest snapshot, live or dropped; 0 if there never was one."""

    @classmethod
    def of(cls, rows: tuple[SnapshotListRow, ...], count: SnapshotCountRow = _NONE_EVER) -> SnapshotList:
        """Return the list with these live snapshots."""
        return cls(rows, tuple(row.txn for row in rows), count.snapshots_ever, count.newest_txn)

    @property
    def newest_live_txn(self) -> int:
        """txn of the newest live snapshot; 0 if there is none."""
        return self.live_txns[-1] if self.live_txns else 0

    def previous(self, death: int) -> int:
        """Return the txn of the newest live snapshot before a death; 0 if there is none."""
        before = bisect_left(self.live_txns, death)
        return self.live_txns[before - 1] if before else 0

    def next(self, birth: int) -> int:
        """Return the txn of the oldest live snapshot at or after a birth; 0 if there is none."""
        after = bisect_left(self.live_txns, birth)
        return self.live_txns[after] if after < len(self.live_txns) else 0

    def live_from(self, death: int) -> tuple[SnapshotListRow, ...]:
        """Return the live snapshots captured after a death."""
        return self.rows[bisect_right(self.live_txns, death) :]

    def place(self, txn: int) -> int:
        """Return the place of the live snapshot captured at a txn."""
        return bisect_left(self.live_txns, txn)


class SnapshotLists:
    """The lists of all buckets of the shard."""

    def __init__(self) -> None:
        self._lists: dict[int, SnapshotList] = {}

    def clear(self) -> None:
        """Discard the lists in memory: a unit of work was aborted."""
        self._lists.clear()

    def restore(self, tables: TablesReader) -> None:
        """Start with a database.

        Raises:
            InvariantError: an older build wrote it without counting snapshots, so ordinals would be used twice.
        """
        self.clear()
        listed = next(tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0"), None)
        if listed and tables.table(SNAPSHOT_COUNT_TABLE).get(bucket_id_key(listed[1].bucket_id)) is None:
            raise InvariantError(
                "this database was written by an older build and has no counts of its buckets' snapshots: "
                "rebuild it from the log (deepclean rebuild)"
            )

    def of(self, work: Work, bucket_id: int) -> SnapshotList:
        """Return the list of a bucket."""
        found = self._lists.get(bucket_id)
        if found is None:
            prefix = bucket_id_prefix(bucket_id)
            rows = work.table(SNAPSHOT_LIST_TABLE).scan(prefix, prefix_end(prefix))
            count = work.table(SNAPSHOT_COUNT_TABLE).get(bucket_id_key(bucket_id))
            found = self._lists[bucket_id] = SnapshotList.of(tuple(row for _, row in rows), count or _NONE_EVER)
        return found

    def append(self, work: Work, row: SnapshotListRow) -> None:
        """Add the newest snapshot of a bucket."""
        before, count = self.of(work, row.bucket_id), SnapshotCountRow(row.ordinal, row.txn)
        work.table(SNAPSHOT_LIST_TABLE).put(snapshot_id_key(row.snapshot_id), row)
        work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(row.bucket_id, row.ordinal), row)
        work.table(SNAPSHOT_COUNT_TABLE).put(bucket_id_key(row.bucket_id), count)
        self._lists[row.bucket_id] = SnapshotList.of((*before.rows, row), count)

    def update(self, work: Work, bucket_id: int, changed: Sequence[SnapshotListRow]) -> None:
        """Replace the rows of some live snapshots of a bucket."""
        if not changed:
            return
        before = self.of(work, bucket_id)
        rows = list(before.rows)
        for row in changed:
            rows[before.place(row.txn)] = row
            work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(bucket_id, row.ordinal), row)
        self._lists[bucket_id] = replace(before, rows=tuple(rows))

    def find(self, work: Work, snapshot_id: str) -> SnapshotListRow | None:
        """Return a snapshot by its id, or None if it is unknown. It may be dropped."""
        captured = work.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
        if captured is None or not captured.is_live:
            return captured
        listed = self.of(work, captured.bucket_id)
        return listed.rows[listed.place(captured.txn)]

    def drop(self, work: Work, row: SnapshotListRow, chain_version: int) -> None:
        """Remove a snapshot from its list. Its id stays known."""
        before = self.of(work, row.bucket_id)
        place = before.place(row.txn)
        dropped = replace(row, is_live=False, dropped_chain_version=chain_version)
        work.table(SNAPSHOT_LIST_TABLE).put(snapshot_id_key(row.snapshot_id), dropped)
        work.table(SNAPSHOT_LIST_TABLE).delete(snapshot_list_key(row.bucket_id, row.ordinal))
        self._lists[row.bucket_id] = replace(
            before,
            rows=before.rows[:place] + before.rows[place + 1 :],
            live_txns=before.live_txns[:place] + before.live_txns[place + 1 :],
        )
