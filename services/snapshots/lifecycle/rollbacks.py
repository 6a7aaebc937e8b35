"""Rollbacks: newer snapshots are deleted, then metadata makes the snapshot's namespace the active one, page by page.

The drops of the newer snapshots are in metadata's log before the first page. Metadata refuses that page unless the
snapshot is then the newest one. Until the last page is answered, no snapshot of the bucket is created or deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

from schemas.error_codes import ErrorCode
from schemas.records import (
    RollBackBucket,
    RollbackOutcome,
    RollbackPage,
    RollbackPageDone,
    RollbackTaskRow,
    SnapshotCommand,
    SnapshotInfo,
    SnapshotReply,
)
from services.domain.refusals import CommandError
from services.runtime.loop.service import Message, Work
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.lifecycle.snapshots import Lifecycle, PendingAction
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.answers import Answers
from services.snapshots.state.commands import send_to_metadata
from services.snapshots.state.refusals import TaggedSnapshotError
from services.snapshots.state.rows import SnapshotRows
from services.snapshots.state.tables import ROLLBACK_TABLE, bucket_key
from services.storage.tables import Tables

_NAMESPACE = UUID("0d8f7b52-0ee4-5a83-b5a7-6fd6b8e4e7a1")


@dataclass(eq=False, repr=False)
class Rollbacks:
    """All rollbacks of the shard that are in progress."""

    _rows: SnapshotRows
    _lifecycle: Lifecycle
    _protections: Protections
    _answers: Answers
    _settings: SnapshotsSettings
    _metrics: SnapshotsMetrics
    _tasks: dict[str, RollbackTaskRow] = field(default_factory=dict)
    _left_open: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._tasks)

    def restore(self, tables: Tables) -> None:
        """Read the rollbacks from the table."""
        self._tasks = {row.rollback_id: row for _, row in tables.table(ROLLBACK_TABLE).scan()}
        self._left_open = frozenset(self._tasks)
        self._fence()

    def _fence(self) -> None:
        self._lifecycle.rolled_back = frozenset(f"{row.volume}/{row.bucket}" for row in self._tasks.values())

    def unanswered(self) -> set[tuple[str, int]]:
        """Return client id and number of the commands that have no answer yet."""
        return {(row.client_id, row.number) for row in self._tasks.values() if row.client_id}

    def begin(self, message: Message, command: SnapshotCommand, request: RollBackBucket, work: Work) -> None:
        """Delete the newer snapshots, and request the first page. The client is answered after the last page.

        Raises:
            CommandError: FILE_NOT_FOUND, BUCKET_BUSY, TAGGED_SNAPSHOT (a tag protects a newer one), INVALID_REQUEST.
        """
        self._lifecycle.check_chain()
        self._lifecycle.check_bucket(request.volume, request.bucket)
        row = self._target(request)
        self._check_no_create(row)
        chain = self._rows.active_chain(request.volume, request.bucket)
        newer = [other for other in chain if other.create_txn > row.create_txn]
        for other in newer:
            if tags := self._protections.tags_on(other, message.timestamp_ms):
                raise TaggedSnapshotError(other.name, tags)
        for other in reversed(newer):
            self._lifecycle.delete(other, message.timestamp_ms, work)
        rollback_id = str(uuid5(_NAMESPACE, f"{work.shard}/{message.offset}/{message.timestamp_ms}"))
        task = RollbackTaskRow(
            rollback_id,
            request.volume,
            request.bucket,
            row.bucket_id,
            row.snapshot_id,
            command.client_id,
            command.number,
            page=1,
        )
        self._ask(task, work)

    def _target(self, request: RollBackBucket) -> SnapshotInfo:
        if bool(request.snapshot) == bool(request.tag):
            raise CommandError(ErrorCode.INVALID_REQUEST, "name either a snapshot or a tag to roll back to")
        if request.snapshot:
            return self._rows.readable(request.volume, request.bucket, request.snapshot)
        for tag in self._protections.tags_of(request.volume, request.bucket):
            row = self._rows.of(tag.snapshot_id) if tag.tag == request.tag else None
            if row is not None:
                return self._rows.readable(row.volume, row.bucket, row.name)
        raise CommandError(
            ErrorCode.FILE_NOT_FOUND, f"there is no tag {request.tag} of {request.volume}/{request.bucket}"
        )

    def _check_no_create(self, row: SnapshotInfo) -> None:
        """Refuse a rollback while a snapshot of the bucket is being created: it would be newer than the target.

        Raises:
            CommandError: BUCKET_BUSY.
        """
        for pending in self._lifecycle.pending.values():
            other = self._rows.of(pending.snapshot_id)
            if pending.action == PendingAction.CREATE and other and other.snapshot_path == row.snapshot_path:
                raise CommandError(
                    ErrorCode.BUCKET_BUSY, f"snapshot {other.name} is being made; try again when that is done"
                )

    def _ask(self, task: RollbackTaskRow, work: Work) -> None:
        self._tasks[task.rollback_id] = task
        work.table(ROLLBACK_TABLE).put(bucket_key(task.volume, task.bucket), task)
        self._fence()
        page = RollbackPage(
            task.rollback_id, task.bucket_id, task.snapshot_id, task.page, self._settings.max_rollback_page_entries
        )
        send_to_metadata(page, work)

    def ask_again(self, work: Work) -> None:
        """Request every page again that had no answer at the start; metadata repeats its answer."""
        for task in [self._tasks[name] for name in sorted(self._left_open) if name in self._tasks]:
            self._ask(task, work)

    def page_done(self, done: RollbackPageDone, work: Work) -> bool:
        """Request the next page, or answer the client after the last one. Return False for an answer that is ignored.

        The answer to a page before the requested one is a repeat, and ignored. The answer to a page after it is used:
        this service has been restored to an older state, and metadata is further ahead.
        """
        task = self._tasks.get(done.rollback_id)
        if task is None or done.page < task.page:
            return False
        if done.outcome is RollbackOutcome.PARTLY:
            self._ask(replace(task, page=done.page + 1), work)
            return True
        del self._tasks[task.rollback_id]
        work.table(ROLLBACK_TABLE).delete(bucket_key(task.volume, task.bucket))
        self._fence()
        reply = SnapshotReply(task.client_id, task.number, snapshot_id=task.snapshot_id)
        if done.outcome is RollbackOutcome.REFUSED:
            self._metrics.refusals.labels("roll_back").inc()
            reply = SnapshotReply(task.client_id, task.number, ErrorCode.BUCKET_BUSY, done.message)
        else:
            self._metrics.commands.labels("roll_back").inc()
        self._answers.answer(reply, work)
        return True
