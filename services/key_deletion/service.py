"""key_deletion of one shard: the second judge, and the steps from a verdict to freed blocks.

Answers are applied as they arrive. Tasks, retries and sweeps are started by ``tick``, at the end of the unit of work,
when there is room for them.
"""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from schemas.records import (
    Barrier,
    BlocksDeleted,
    CollectionChanged,
    MetadataCommand,
    MetadataProgress,
    PurgeKeys,
    RowsClaimed,
    RowsFinished,
    ScmCommand,
    ScmReply,
    SnapshotChainRecord,
    SweepPageSent,
    SweepResult,
    WritesExpired,
)
from schemas.topics import (
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    PURGE_KEYS,
    SCM_COMMANDS,
    SCM_REPLIES,
    SNAPSHOT_CHAIN,
    SWEEP_RESULTS,
    Topic,
)
from services.domain.row_columns import columns, row_count
from services.key_deletion.barriers import joined
from services.key_deletion.garbage_ranges import GarbageRanges
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.pace import LIMITS, Pace, ThrottledBy
from services.key_deletion.purges import WaitingPurges
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.sweeps import Sweeps
from services.key_deletion.tables import TABLES
from services.key_deletion.tasks import Tasks
from services.key_deletion.write_expiry import WriteExpiry
from services.runtime.loop.remembering import RememberingService
from services.runtime.loop.service import Message, Work
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.counts import count_done, pop_done
from services.runtime.parts.feature_level import require_known_level
from services.runtime.parts.stored_chain import ChainFollower, stopping_at_misfit
from services.storage.tables import Tables

MOST_IN_VAIN = 20
"""Judgements of queued purge requests, in one unit of work, that leave no row to claim: all are held, or suspended. The
whole queue may be so after a pause, and other messages wait meanwhile."""


class KeyDeletionService(RememberingService):
    """One shard of key_deletion."""

    name = "key_deletion"
    inputs = (SNAPSHOT_CHAIN, METADATA_PROGRESS, SCM_REPLIES, SWEEP_RESULTS, PURGE_KEYS)
    tables = TABLES

    def __init__(self, settings: KeyDeletionSettings | None = None, metrics: KeyDeletionMetrics | None = None) -> None:
        settings = settings or KeyDeletionSettings()
        metrics = metrics or KeyDeletionMetrics(CollectorRegistry())
        self._settings = settings
        self._metrics = metrics
        self._chain = ChainFollower()
        self._collection = CollectionFollower()
        self._purges = WaitingPurges(metrics, settings.undo_window_ms, self._collection)
        self._tasks = Tasks(settings, metrics)
        self._pace = Pace(settings)
        self._throttled_by: ThrottledBy | None = None
        self._reported_throttled_by: ThrottledBy | None = None
        self._sweeps = Sweeps(settings, metrics, lambda: self._tasks.are_failing)
        self._garbage_ranges = GarbageRanges(self._sweeps, settings, metrics, self._collection)
        self._write_expiry = WriteExpiry(settings, metrics)
        self._is_reported = False

    def read_memory(self, tables: Tables) -> None:
        """Replace the state in memory with the state of the tables."""
        parts = (self._chain, self._collection, self._purges, self._tasks, self._sweeps, self._garbage_ranges)
        for part in (*parts, self._write_expiry):
            part.restore(tables)

    def carry_out(self, message: Message, work: Work) -> None:
        """Apply one message."""
        topic, record = message.topic, message.record
        if isinstance(record, SnapshotChainRecord):
            with stopping_at_misfit(record, work):
                if self._chain.follow(record, work):
                    self._garbage_ranges.follow(record, self._chain.view, work)
        elif isinstance(record, PurgeKeys):
            if any(columns(record.rows)):
                self._purges.append(record, work)
                count_done(work)
            self._on_barrier(record.barrier, topic, work)
        elif isinstance(record, SweepResult):
            if record.barrier is None:
                self._garbage_ranges.swept(self._sweeps.judged(record, work), work)
            self._on_barrier(record.barrier, topic, work)
        elif isinstance(record, ScmReply):
            self._on_scm_reply(record.body, work)
        elif isinstance(record, MetadataProgress):
            require_known_level(record)
            self._write_expiry.heard(record.feature_level, work)
            self._on_progress(record.body, record.txn, work)

    def _on_scm_reply(self, body: BlocksDeleted | Barrier, work: Work) -> None:
        if isinstance(body, BlocksDeleted):
            self._tasks.deleted(body, work)
            return
        left = body.work + self._work(work)
        returned = replace(body, work=left, origin=self.name, collection_txn=self._collection.complete_txn)
        work.send(METADATA_COMMANDS, MetadataCommand(work.shard, "", 0, returned, sender=self.name, wants_reply=False))

    def _on_progress(self, body: object, txn: int, work: Work) -> None:
        if isinstance(body, RowsClaimed):
            self._pace.claimed(self._tasks.claimed(body, work))
        elif isinstance(body, RowsFinished):
            self._tasks.finished(body, work)
        elif isinstance(body, SweepPageSent):
            self._garbage_ranges.swept(self._sweeps.page_sent(body, txn, work), work)
        elif isinstance(body, WritesExpired):
            self._write_expiry.page_done(body, work)
        elif isinstance(body, CollectionChanged):
            count_done(work)
            for bucket_id in self._collection.follow(body, work).looser:
                self._garbage_ranges.sweep_again(bucket_id, work)

    def _on_barrier(self, barrier: Barrier | None, topic: Topic, work: Work) -> None:
        """When a barrier has arrived on both topics, end all pauses, and send it to SCM after all earlier commands."""
        both = joined(barrier, topic, work) if barrier is not None else None
        if both is None:
            return
        self._purges.make_due(both.passed_txn, work)
        self._tasks.make_due(work)
        self._sweeps.make_due()
        left = self._work(work) + self._collection.is_behind(both)
        work.send(SCM_COMMANDS, ScmCommand(replace(both, work=both.work + left)))

    def _work(self, work: Work) -> int:
        """Return the work that is left here, plus the work that was done since the last call.

        A garbage range without flags has a queued or running sweep, which counts as work. Suspended sweeps are not
        counted: a settle does not wait for them.
        """
        return len(self._tasks) + len(self._purges) + len(self._sweeps) + pop_done(work)

    def do_due(self, now_ms: int, work: Work) -> None:
        """Do the work that is due, and start tasks and sweeps as far as there is room."""
        self._tasks.tick(now_ms, work)
        self._purges.tick(now_ms, work)
        self._pace.tick(now_ms)
        view = self._chain.view
        self._throttled_by = None
        in_vain = 0
        while self._tasks.has_room and len(self._purges) and in_vain < MOST_IN_VAIN:
            throttled_by = self._pace.throttled_by(now_ms, self._tasks.claiming)
            if throttled_by is not None and not self._purges.are_pressing:
                self._throttled_by = throttled_by
                break
            found = self._purges.pop_rows(
                view, self._tasks.max_rows, now_ms, work, only_pressing=throttled_by is not None
            )
            if found is None:
                break
            rows, first_judge_version = found
            if row_count(rows):
                self._tasks.start(rows, view.version, now_ms, work, first_judge_version)
                self._pace.started(row_count(rows), now_ms)
            else:
                in_vain += 1
        self._garbage_ranges.tick(now_ms, work)
        self._write_expiry.tick(now_ms, work)
        self._sweeps.tick(now_ms, self._max_sweep_pages(), work)

    def _max_sweep_pages(self) -> int:
        """Return the largest number of sweep pages in progress.

        It is 1 while claims are throttled or tasks have no room: new deletions are judged only after the pages that
        were sent before them. It is 0 while rows that a sweep has found wait for room: further rows would wait, too,
        and be found again.
        """
        if self._purges.is_sweep_waiting:
            return 0
        is_all_claimed = self._throttled_by is None and self._tasks.has_room
        return self._settings.max_sweep_pages_in_flight if is_all_claimed else 1

    def end_batch(self, work: Work) -> None:
        """Report the gauges."""
        if work.is_changed() or self._throttled_by is not self._reported_throttled_by or not self._is_reported:
            self._is_reported = True
            self._reported_throttled_by = self._throttled_by
            shard = str(work.shard)
            self._report_purges(shard)
            self._tasks.report(shard)
            self._metrics.sweeps_open.labels(shard).set(len(self._sweeps))

    def _report_purges(self, shard: str) -> None:
        """Set the gauges of purge requests: those that the settings hold back apart from those that wait otherwise."""
        ready = len(self._purges) - self._purges.in_undo_window
        self._metrics.waiting_purges.labels(shard).set(0 if self._throttled_by in LIMITS else ready)
        self._metrics.purges_in_undo_window.labels(shard).set(self._purges.in_undo_window)
        for reason in LIMITS:
            self._metrics.purges_throttled.labels(shard, reason.value).set(ready * (reason is self._throttled_by))
