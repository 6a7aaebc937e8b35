"""Which snapshots' stores are deep clean: what every marker changes, and what every sweep shows.

The rows of a snapshot's store died after the snapshot before it and not after itself; those of the active store died
after the newest one. When a snapshot is dropped its store joins the next one, and only rows that it alone held become
reclaimable. A store's flags are reset by the drop of either of the two snapshots before it.

A store is clean when no sweep is of it, neither on its way nor queued nor suspended: whatever may have become
reclaimable is in the range of one until it has found nothing, and a sweep goes with its rows when their store joins
another one. So the flags need no memory of their own.
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
from services.key_deletion.row_range import EVERY_ROW, RowRange
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.sweeps import ACTIVE, EVERY_BUCKET, Sweeps
from services.key_deletion.tables import GARBAGE_RANGE_TABLE, SAFETY_SWEEP_MS, Tables
from services.runtime.loop.service import Work
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.counts import count, count_done, set_count


class GarbageRanges:
    """The stores of all live snapshots of the shard."""

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
        """Make what is kept in memory anew."""
        self._rows = {row.snapshot_id: row for _, row in tables.table(GARBAGE_RANGE_TABLE).scan()}
        self._safety_sweep_ms = count(SAFETY_SWEEP_MS, tables)

    def follow(self, record: SnapshotChainRecord, view: ChainView, work: Work) -> None:
        """Do what a new marker asks for; the view has followed it already."""
        body = record.body
        count_done(work)
        if isinstance(body, ChainCapture):
            self._captured(ChainedSnapshot(body.snapshot_id, body.ordinal, body.txn, True), body.bucket_id, view, work)
        elif isinstance(body, ChainDrop):
            self._dropped(body, view, work)
        else:
            self._start_over(view, work)

    def _captured(self, snapshot: ChainedSnapshot, bucket_id: int, view: ChainView, work: Work) -> None:
        """A new store holds what the active one held until now: it is swept once."""
        previous = view.previous_live(bucket_id, snapshot.txn)
        self._put(GarbageRangeRow(snapshot.snapshot_id, bucket_id, view.version, attempt=0), work)
        rows = RowRange(previous.txn if previous else 0, snapshot.txn)
        self._sweeps.queue(bucket_id, snapshot.snapshot_id, rows, work)

    def _dropped(self, drop: ChainDrop, view: ChainView, work: Work) -> None:
        """A store joins the next one, with whatever is still to be swept in it."""
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
            # Only what it holds exclusively is another sum now: none of its rows became reclaimable.
            self._reset(after, view, work)

    def _rows_of_drop(self, drop: ChainDrop, following: ChainedSnapshot | None, view: ChainView) -> RowRange | None:
        """What may have become reclaimable, in the store that the dropped one joins; None when nothing has."""
        if not drop.rows_held_alone:
            return None
        previous = view.previous_live(drop.bucket_id, drop.txn)
        return RowRange(drop.txn, following.txn if following else 0, previous.txn if previous else 0, drop.txn)

    def _reset(self, snapshot: ChainedSnapshot, view: ChainView, work: Work) -> None:
        """A store's flags are off: set them again when it is clean for sure, else when a sweep has shown it."""
        garbage_range = replace(self._rows[snapshot.snapshot_id], reset_version=view.version, attempt=0)
        self._put(garbage_range, work)
        self._flag_if_clean(garbage_range, work)

    def _start_over(self, view: ChainView, work: Work) -> None:
        """The chain was taken up at a full-chain record: nothing is known of any store."""
        for snapshot_id, row in list(self._rows.items()):
            self._sweeps.forget(row.bucket_id, snapshot_id, work)
            work.table(GARBAGE_RANGE_TABLE).delete(snapshot_id.encode())
        self._rows.clear()
        for bucket_id in view.bucket_ids():
            for snapshot in view.live(bucket_id):
                self._captured(snapshot, bucket_id, view, work)
            self._sweeps.queue(bucket_id, ACTIVE, EVERY_ROW, work)

    def swept(self, sweep: SweepRow, work: Work) -> None:
        """A sweep has ended: what it was over is clean, or is swept again after a pause.

        Rows that it found are on their way by now, or stay where they are until the collector may claim them; they are
        swept then. Of the active store no flag says whether it is clean, so nothing has to be shown again. A directory
        that nobody holds but that waits for a child that is held is not counted: it goes with the child, and it has no
        blocks.
        """
        garbage_range = self._rows.get(sweep.snapshot_id)
        if garbage_range is None:
            return
        if not sweep.reclaimable_rows and not sweep.unexpanded_directories:
            self._flag_if_clean(garbage_range, work)
            return
        garbage_range = replace(garbage_range, attempt=garbage_range.attempt + 1)
        self._put(garbage_range, work)
        place = (garbage_range.bucket_id, garbage_range.snapshot_id, RowRange.of(sweep))
        if not may_claim(self._collection.of(garbage_range.bucket_id)):
            self._sweeps.suspend(*place, work)
            return
        pause_ms = backoff_ms(
            self._settings.first_sweep_again_ms, self._settings.longest_sweep_again_ms, garbage_range.attempt
        )
        pause_ms = max(pause_ms, self._settings.undo_window_ms)  # before that it would only find the same rows
        self._sweeps.queue(*place, work, pause_ms)

    def sweep_again(self, bucket_id: int, work: Work) -> None:
        """The collector may do more for a bucket, or for all: whatever was held back is judged and claimed now.

        Nothing of it was kept here: it is where it was, in metadata's garbage tables.
        """
        self._sweeps.queue(bucket_id, ACTIVE, EVERY_ROW, work)
        pause_ms = self._settings.first_sweep_again_ms  # the rows that the other one finds have gone by then
        self._sweeps.resume(lambda row: bucket_id in (WHOLE_SHARD, row.bucket_id), pause_ms, work)

    def tick(self, now_ms: int, work: Work) -> None:
        """The safety net: now and then every garbage row of the shard is judged again, and what is claimed asked for.

        It brings back what a dead letter, or a lost database has left behind. One that takes longer goes on to its end.
        """
        if now_ms < self._safety_sweep_ms:
            return
        if self._safety_sweep_ms and self._sweeps.is_clean(EVERY_BUCKET, ACTIVE):
            self._sweeps.queue(EVERY_BUCKET, ACTIVE, EVERY_ROW, work)
        self._safety_sweep_ms = now_ms + self._settings.safety_sweep_interval_ms
        set_count(SAFETY_SWEEP_MS, self._safety_sweep_ms, work)

    def _flag_if_clean(self, garbage_range: GarbageRangeRow, work: Work) -> None:
        """Report a store as clean, at the newest chain version that concerns it, unless something of it is swept."""
        if not self._sweeps.is_clean(garbage_range.bucket_id, garbage_range.snapshot_id):
            return
        clean = SetDeepClean(garbage_range.snapshot_id, garbage_range.reset_version, True, True)
        work.send(SNAPSHOTS_COMMANDS, SnapshotCommand(work.shard, "", 0, clean, sender="key_deletion"))
        self._metrics.garbage_ranges_flagged.inc()
        count_done(work)

    def _put(self, row: GarbageRangeRow, work: Work) -> None:
        self._rows[row.snapshot_id] = row
        work.table(GARBAGE_RANGE_TABLE).put(row.snapshot_id.encode(), row)
