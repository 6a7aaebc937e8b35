"""Requests of clients: create, delete and rename. A create is answered only after metadata's answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from schemas.error_codes import ErrorCode
from schemas.records import (
    CreateSnapshot,
    DeleteSnapshot,
    PendingSnapshot,
    RenameSnapshot,
    RetentionRow,
    SnapshotCommand,
    SnapshotInfo,
    SnapshotReply,
    SnapshotStatus,
)
from services.domain.names import check_snapshot_name
from services.domain.refusals import CommandError
from services.domain.retention import LATEST_TIME_MS
from services.runtime.loop.service import Message, Work
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.lifecycle.snapshots import Lifecycle, PendingAction, capture_of
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.answers import Answers
from services.snapshots.state.commands import send_to_metadata
from services.snapshots.state.refusals import TaggedSnapshotError
from services.snapshots.state.rows import SnapshotRows, is_active

_NAMESPACE = UUID("67ee73f1-4be3-5a97-8cf9-467f142b7896")


def new_snapshot_id(message: Message, shard: int) -> str:
    """Return the id of the snapshot that a command creates: the same id whenever the log is read again."""
    return str(uuid5(_NAMESPACE, f"{shard}/{message.topic.name}/{message.offset}/{message.timestamp_ms}"))


def scheduled_snapshot_id(policy: RetentionRow, name: str, shard: int, now_ms: int) -> str:
    """Return the id of an automatic snapshot that a policy requests now.

    Its name is that of its period, and may have been another snapshot's: if the clock was ahead, and the policy was set
    again since, a period begins twice.
    """
    place = f"{shard}/{policy.volume}/{policy.bucket}/{name}"
    return str(uuid5(_NAMESPACE, f"{place}/{policy.set_ms}/{now_ms}"))


@dataclass(eq=False, repr=False)
class Requests:
    """Carries out creates, deletes and renames."""

    _rows: SnapshotRows
    _lifecycle: Lifecycle
    _protections: Protections
    _answers: Answers
    _settings: SnapshotsSettings
    _metrics: SnapshotsMetrics

    def create(self, message: Message, command: SnapshotCommand, request: CreateSnapshot, work: Work) -> None:
        """Reserve the name and send the capture to metadata. The client is answered after metadata's answer."""
        pending = PendingSnapshot(
            new_snapshot_id(message, work.shard),
            PendingAction.CREATE.value,
            command.client_id,
            command.number,
            message.timestamp_ms,
            request.at_ms,
            user=command.user,
        )
        self._begin_create(request, pending, work)

    def create_on_schedule(self, policy: RetentionRow, name: str, now_ms: int, work: Work) -> None:
        """Reserve the name of an automatic snapshot and send the capture to metadata; no client is answered.

        Raises:
            CommandError: as for a client's create, before any change.
        """
        snapshot_id = scheduled_snapshot_id(policy, name, work.shard, now_ms)
        pending = PendingSnapshot(snapshot_id, PendingAction.CREATE.value, "", 0, now_ms, is_automatic=True)
        self._begin_create(CreateSnapshot(policy.volume, policy.bucket, name), pending, work)

    def _begin_create(self, request: CreateSnapshot, pending: PendingSnapshot, work: Work) -> None:
        check_snapshot_name(request.snapshot)
        if request.at_ms > LATEST_TIME_MS:
            raise CommandError(ErrorCode.INVALID_REQUEST, f"a snapshot cannot be made at {request.at_ms} ms: too late")
        self._lifecycle.check_chain()
        self._lifecycle.check_bucket(request.volume, request.bucket)
        if len(self._rows) >= self._settings.max_snapshots:
            raise CommandError(
                ErrorCode.TOO_MANY_SNAPSHOTS,
                f"the shard has {len(self._rows)} snapshots, with deleted ones that are not yet purged; "
                f"at most {self._settings.max_snapshots} are allowed: delete some",
            )
        self._check_free(request.volume, request.bucket, request.snapshot)
        row = SnapshotInfo(
            snapshot_id=pending.snapshot_id,
            name=request.snapshot,
            volume=request.volume,
            bucket=request.bucket,
            status=SnapshotStatus.SNAPSHOT_ACTIVE,
            creation_time_ms=pending.since_ms,
            snapshot_path=f"{request.volume}/{request.bucket}",
        )
        self._rows.put(row, work)
        self._lifecycle.put_pending(pending, work)
        send_to_metadata(capture_of(row, pending), work)

    def delete(self, message: Message, command: SnapshotCommand, request: DeleteSnapshot, work: Work) -> None:
        """Delete a snapshot that no tag protects."""
        self._lifecycle.check_chain()
        self._lifecycle.check_bucket(request.volume, request.bucket)
        row = self._rows.readable(request.volume, request.bucket, request.snapshot)
        tags = self._protections.tags_on(row, message.timestamp_ms)
        if tags:
            raise TaggedSnapshotError(row.name, tags)
        self._lifecycle.delete(row, message.timestamp_ms, work)
        self._metrics.commands.labels("delete").inc()
        self._answer(command, row, work)

    def rename(self, command: SnapshotCommand, request: RenameSnapshot, work: Work) -> None:
        """Give a snapshot another name; its id stays."""
        if not self._settings.is_rename_allowed:
            raise CommandError(ErrorCode.FEATURE_NOT_ENABLED, "renaming of snapshots is not enabled on this plane")
        check_snapshot_name(request.target)
        self._check_free(request.volume, request.bucket, request.target)
        row = self._rows.readable(request.volume, request.bucket, request.source)
        self._rows.put(replace(row, name=request.target), work)
        self._metrics.commands.labels("rename").inc()
        self._answer(command, row, work)

    def _check_free(self, volume: str, bucket: str, name: str) -> None:
        row = self._rows.named(volume, bucket, name)
        if row is not None:
            reason = "" if is_active(row) else ", though it is not readable: a name is free again after the purge"
            raise CommandError(
                ErrorCode.FILE_ALREADY_EXISTS, f"snapshot {name} of {volume}/{bucket} exists already{reason}"
            )

    def _answer(self, command: SnapshotCommand, row: SnapshotInfo, work: Work) -> None:
        self._answers.answer(SnapshotReply(command.client_id, command.number, snapshot_id=row.snapshot_id), work)
