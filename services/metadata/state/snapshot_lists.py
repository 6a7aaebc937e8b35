"""Every bucket's snapshots, kept decoded between commands: those that live, and how many there ever were.

The number makes ``n``, how many snapshots a bucket had had at a death, well defined: ordinals are never reused. Of a
dropped snapshot stays what somebody may still ask about by its id, and only for as long as that can be
(``services/metadata/state/spent_ids.py``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.records import SnapshotCountRow, SnapshotListRow
from services.domain.errors import InvariantError
from services.domain.table_keys import bucket_id_key, bucket_id_prefix, snapshot_list_key
from services.metadata.state.tables import SNAPSHOT_COUNT_TABLE, SNAPSHOT_ID_TABLE, SNAPSHOT_LIST_TABLE
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

_NONE_EVER = SnapshotCountRow(0, 0)


@dataclass(frozen=True, slots=True)
class SnapshotList:
    """The snapshots of one bucket, in the order of their ordinals."""

    rows: tuple[SnapshotListRow, ...]
    """Those that live."""
    live_txns: tuple[int, ...]
    ever: int
    """How many snapshots the bucket ever had."""
    newest_txn: int
    """When the newest of those was taken, live or dropped; 0 when there never was one."""

    @classmethod
    def of(cls, rows: tuple[SnapshotListRow, ...], count: SnapshotCountRow = _NONE_EVER) -> SnapshotList:
        """The list with these live snapshots."""
        return cls(rows, tuple(row.txn for row in rows), count.snapshots_ever, count.newest_txn)

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

    def live_from(self, death: int) -> tuple[SnapshotListRow, ...]:
        """Live snapshots that were taken after a death."""
        return self.rows[bisect_right(self.live_txns, death) :]

    def place(self, txn: int) -> int:
        """Where the live snapshot is that was taken at a txn."""
        return bisect_left(self.live_txns, txn)


class SnapshotLists:
    """The lists of all buckets of the shard."""

    def __init__(self) -> None:
        self._lists: dict[int, SnapshotList] = {}

    def clear(self) -> None:
        """Forget what is in memory: a unit of work was thrown away."""
        self._lists.clear()

    def restore(self, tables: TablesReader) -> None:
        """Begin on a database.

        Raises:
            InvariantError: an older build has written it, which did not count snapshots: ordinals would be given twice.
        """
        self.clear()
        listed = next(tables.table(SNAPSHOT_LIST_TABLE).scan(b"/", b"0"), None)
        if listed and tables.table(SNAPSHOT_COUNT_TABLE).get(bucket_id_key(listed[1].bucket_id)) is None:
            raise InvariantError(
                "this database was written by an older build and does not say how many snapshots its buckets ever had: "
                "build it again from the log (deepclean rebuild)"
            )

    def of(self, work: Work, bucket_id: int) -> SnapshotList:
        """The list of a bucket."""
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
        work.table(SNAPSHOT_ID_TABLE).put(row.snapshot_id.encode(), row)
        work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(row.bucket_id, row.ordinal), row)
        work.table(SNAPSHOT_COUNT_TABLE).put(bucket_id_key(row.bucket_id), count)
        self._lists[row.bucket_id] = SnapshotList.of((*before.rows, row), count)

    def update(self, work: Work, bucket_id: int, changed: Sequence[SnapshotListRow]) -> None:
        """Change some live snapshots of a bucket, at once: its list is made anew."""
        if not changed:
            return
        before = self.of(work, bucket_id)
        rows = list(before.rows)
        for row in changed:
            rows[before.place(row.txn)] = row
            work.table(SNAPSHOT_LIST_TABLE).put(snapshot_list_key(bucket_id, row.ordinal), row)
        self._lists[bucket_id] = replace(before, rows=tuple(rows))

    def find(self, work: Work, snapshot_id: str) -> SnapshotListRow | None:
        """A snapshot by its id, live or dropped and not forgotten."""
        captured = work.table(SNAPSHOT_ID_TABLE).get(snapshot_id.encode())
        if captured is None or not captured.is_live:
            return captured
        listed = self.of(work, captured.bucket_id)
        return listed.rows[listed.place(captured.txn)]

    def drop(self, work: Work, row: SnapshotListRow, chain_version: int) -> None:
        """Take a snapshot out of its list; its id is still known."""
        before = self.of(work, row.bucket_id)
        place = before.place(row.txn)
        dropped = replace(row, is_live=False, dropped_chain_version=chain_version)
        work.table(SNAPSHOT_ID_TABLE).put(row.snapshot_id.encode(), dropped)
        work.table(SNAPSHOT_LIST_TABLE).delete(snapshot_list_key(row.bucket_id, row.ordinal))
        self._lists[row.bucket_id] = replace(
            before,
            rows=before.rows[:place] + before.rows[place + 1 :],
            live_txns=before.live_txns[:place] + before.live_txns[place + 1 :],
        )
