"""Decides which garbage ranges are deep clean, from the markers of the chain and the results of sweeps.

The garbage range of a snapshot S with the snapshot P before it has the rows with P < death <= S; the active range has
the rows that died after the newest snapshot. When a snapshot is dropped, its range is merged into the next range, and
only rows that this snapshot alone held become reclaimable. The drop of either of the two snapshots before a range
resets the range's flags.

A range is clean when it has no sweep, running, queued or suspended: rows that may have become reclaimable belong to a
sweep until a sweep finds none, and a sweep moves with its rows when their range is merged into another. So the flags
need no state of their own.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import (
    ChainCapture,
    ChainDrop,
    ChainedSnapshot,
    GarbageRangeRow,
    SetDeepClean,
    SnapshotChainRecord,
    SnapshotCommand,
    SweepRow,
)
from schemas.topics import SNAPSHOTS_COMMANDS
from services.domain.chain_view import ChainView
from services.domain.collection import WHOLE_SHARD, may_claim
from services.domain.durations import backoff_ms
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.sweeps import ACTIVE, EVERY_BUCKET, EVERY_ROW, RowRange, Sweeps, found_nothing
from services.key_deletion.tables import GARBAGE_RANGE_TABLE, SAFETY_SWEEP_MS
from services.runtime.loop.service import Work
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.counts import count, count_done, set_count
from services.storage.tables import Tables


class GarbageRanges:
    """The garbage ranges of all live snapshots of the shard."""

    def __init__(
        self,
        sweeps: Sweeps,
        settings: KeyDeletionSettings,
        metrics: KeyDeletionMetrics,
        collection: CollectionFollower,
    ) -> None:
        self._sweeps = sweeps
        self._collection = collection
        self._settings = settings
        self._metrics = metrics
        self._rows: dict[str, GarbageRangeRow] = {}
        self._safety_sweep_ms = 0

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables."""
        self._rows = {row.snapshot_id: row for _, row in tables.table(GARBAGE_RANGE_TABLE).scan()}
        self._safety_sweep_ms = count(SAFETY_SWEEP_MS, tables)

    def follow(self, record: SnapshotChainRecord, view: ChainView, work: Work) -> None:
        """Apply a new marker, which the view has applied already."""
        body = record.body
        count_done(work)
        if isinstance(body, ChainCapture):
            self._captured(ChainedSnapshot(body.snapshot_id, body.ordinal, body.txn, True), body.bucket_id, view, work)
        elif isinstance(body, ChainDrop):
            self._dropped(body, view, work)
        else:
            self._start_over(view, work)

    def _captured(self, snapshot: ChainedSnapshot, bucket_id: int, view: ChainView, work: Work) -> None:
        """Create the range of a new snapshot from the rows of the active range, and sweep it once."""
        previous = view.previous_live(bucket_id, snapshot.txn)
        self._put(GarbageRangeRow(snapshot.snapshot_id, bucket_id, view.version, attempt=0), work)
        rows = RowRange(previous.txn if previous else 0, snapshot.txn)
        self._sweeps.queue(bucket_id, snapshot.snapshot_id, rows, work)

    def _dropped(self, drop: ChainDrop, view: ChainView, work: Work) -> None:
        """Merge the range of a dropped snapshot, with its sweeps, into the next range."""
        following = view.next_live(drop.bucket_id, drop.txn)
        merged_into_id = following.snapshot_id if following else ACTIVE
        self._sweeps.hand_over(drop.bucket_id, drop.snapshot_id, merged_into_id, work)
        self._rows.pop(drop.snapshot_id, None)
        work.table(GARBAGE_RANGE_TABLE).delete(drop.snapshot_id.encode())
        rows = self._rows_of_drop(drop, following, view)
        if rows is not None:
            self._sweeps.queue(drop.bucket_id, merged_into_id, rows, work)
        if following is None:
            return
        self._reset(following, view, work)
        after = view.next_live(drop.bucket_id, following.txn)
        if after is not None:
            # Only its exclusive size has changed: none of its rows became reclaimable.
            self._reset(after, view, work)

    def _rows_of_drop(self, drop: ChainDrop, following: ChainedSnapshot | None, view: ChainView) -> RowRange | None:
        """Return the rows of the next range that the drop may have made reclaimable; None if it made none."""
        if not drop.rows_held_alone:
            return None
        previous = view.previous_live(drop.bucket_id, drop.txn)
        return RowRange(drop.txn, following.txn if following else 0, previous.txn if previous else 0, drop.txn)

    def _reset(self, snapshot: ChainedSnapshot, view: ChainView, work: Work) -> None:
        """Reset a range's flags. Set them again at once if the range is clean, else after its sweeps."""
        garbage_range = replace(self._rows[snapshot.snapshot_id], reset_version=view.version, attempt=0)
        self._put(garbage_range, work)
        self._flag_if_clean(garbage_range, work)

    def _start_over(self, view: ChainView, work: Work) -> None:
        """Replace all ranges after a full chain, and sweep every row: nothing is known about any range."""
        for snapshot_id, row in list(self._rows.items()):
            self._sweeps.forget(row.bucket_id, snapshot_id, work)
            work.table(GARBAGE_RANGE_TABLE).delete(snapshot_id.encode())
        self._rows.clear()
        for bucket_id in view.bucket_ids():
            for snapshot in view.live(bucket_id):
                self._captured(snapshot, bucket_id, view, work)
            self._sweeps.queue(bucket_id, ACTIVE, EVERY_ROW, work)

    def swept(self, sweep: SweepRow | None, work: Work) -> None:
        """Apply the end of a sweep, if one has ended: its range is clean, or its rows are swept again after a pause.

        Rows that the sweep found are being claimed by now; suspended ones stay where they are, and are swept after the
        resume. The active range has no flags, so its sweep is not repeated. A reclaimable directory that waits for a
        held child is not counted: it is removed after the child, and has no blocks.
        """
        if sweep is None or (garbage_range := self._rows.get(sweep.snapshot_id)) is None:
            return
        if found_nothing(sweep):
            self._flag_if_clean(garbage_range, work)
            return
        garbage_range = replace(garbage_range, attempt=garbage_range.attempt + 1)
        self._put(garbage_range, work)
        place = (garbage_range.bucket_id, garbage_range.snapshot_id, RowRange.of(sweep))
        if not may_claim(self._collection.of(garbage_range.bucket_id)):
            self._sweeps.suspend(*place, work)
            return
        settings = self._settings
        pause_ms = backoff_ms(settings.first_sweep_again_ms, settings.longest_sweep_again_ms, garbage_range.attempt)
        # Not before the end of the undo window: an earlier sweep would find the same rows.
        self._sweeps.queue(*place, work, max(pause_ms, settings.undo_window_ms))

    def sweep_again(self, bucket_id: int, work: Work) -> None:
        """Sweep a bucket, or all, whose collection state became looser: suspended rows, which are still in metadata's
        garbage tables, are judged and claimed now.
        """
        self._sweeps.queue(bucket_id, ACTIVE, EVERY_ROW, work)
        pause_ms = self._settings.first_sweep_again_ms  # by then the rows of the first sweep are removed
        self._sweeps.resume(lambda row: bucket_id in (WHOLE_SHARD, row.bucket_id), pause_ms, work)

    def tick(self, now_ms: int, work: Work) -> None:
        """Start the safety sweep if it is due: every garbage row is judged again, and claimed rows are sent, too.

        It recovers rows that a dead letter or a lost database has left behind. While one is running, no other starts.
        """
        next_ms = now_ms + self._settings.safety_sweep_interval_ms
        if self._safety_sweep_ms > next_ms:  # by a clock that was set back since
            self._plan_safety_sweep(next_ms, work)
        if now_ms < self._safety_sweep_ms:
            return
        if self._safety_sweep_ms and self._sweeps.is_clean(EVERY_BUCKET, ACTIVE):
            self._sweeps.queue(EVERY_BUCKET, ACTIVE, EVERY_ROW, work)
        self._plan_safety_sweep(next_ms, work)

    def _plan_safety_sweep(self, due_ms: int, work: Work) -> None:
        self._safety_sweep_ms = due_ms
        set_count(SAFETY_SWEEP_MS, due_ms, work)

    def _flag_if_clean(self, garbage_range: GarbageRangeRow, work: Work) -> None:
        """Report a range as clean, at the chain version of its last reset, unless it has a sweep."""
        if not self._sweeps.is_clean(garbage_range.bucket_id, garbage_range.snapshot_id):
            return
        clean = SetDeepClean(garbage_range.snapshot_id, garbage_range.reset_version, True, True)
        work.send(SNAPSHOTS_COMMANDS, SnapshotCommand(work.shard, "", 0, clean, sender="key_deletion"))
        self._metrics.garbage_ranges_flagged.inc()
        count_done(work)

    def _put(self, row: GarbageRangeRow, work: Work) -> None:
        self._rows[row.snapshot_id] = row
        work.table(GARBAGE_RANGE_TABLE).put(row.snapshot_id.encode(), row)
