"""The life of a snapshot: captured, dropped or undone; its place in both chains; its flags.

The order of the chains is the order in which metadata captured the snapshots. Every message names the snapshot by its
id, and a repeated message has no effect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from schemas.error_codes import ErrorCode
from schemas.records import (
    CaptureSnapshot,
    DropSnapshot,
    MetadataProgress,
    PendingSnapshot,
    SetDeepClean,
    SnapshotCaptured,
    SnapshotDropped,
    SnapshotInfo,
    SnapshotReply,
    SnapshotStatus,
)
from services.domain.errors import InvariantError
from services.domain.refusals import CommandError
from services.domain.snapshot_chain import NO_SNAPSHOT, SnapshotChain
from services.domain.snapshot_chain import ChainCorruptedError as ChainLinksError
from services.runtime.loop.service import Work
from services.snapshots.lifecycle.sizes import Sizes
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.state.answers import Answers
from services.snapshots.state.commands import send_to_metadata
from services.snapshots.state.refusals import ChainCorruptedError
from services.snapshots.state.rows import SnapshotRows, in_order_of_captures, is_complete
from services.snapshots.state.tables import DEEP_CLEAN_TABLE, PENDING_TABLE, SNAPSHOT_SIZE_TABLE
from services.storage.tables import Tables


class PendingAction(StrEnum):
    """A request to metadata that is not finished."""

    CREATE = "CREATE"
    DROP = "DROP"
    DROPPED = "DROPPED"
    """Metadata's answer to a drop came while the chain was corrupted: the drop is sent again after the repair."""
    UNDO = "UNDO"
    """A drop after a capture whose create has ended with an error."""


@dataclass(eq=False, repr=False)
class Lifecycle:
    """Applies metadata's answers to rows, chains and flags."""

    _rows: SnapshotRows
    _sizes: Sizes
    _answers: Answers
    _work_was_done: Callable[[Work], None]
    _metrics: SnapshotsMetrics
    _chain: SnapshotChain = field(default_factory=SnapshotChain)
    pending: dict[str, PendingSnapshot] = field(default_factory=dict)
    _left_open: frozenset[str] = frozenset()
    """Ids of the snapshots whose requests were unfinished when the tables were read."""
    when_completed: list[Callable[[SnapshotInfo, int, Work], None]] = field(default_factory=list)
    """Called with the row and the log time when a snapshot was captured: clients may read it."""
    when_removed: list[Callable[[SnapshotInfo, Work], None]] = field(default_factory=list)
    """Called when the row of a deleted snapshot was removed."""
    when_create_refused: list[Callable[[PendingSnapshot, SnapshotInfo, str, Work], None]] = field(default_factory=list)
    """Called with the reason when a create has ended with an error."""
    rolled_back: frozenset[str] = frozenset()
    """Paths of buckets that are being rolled back."""
    corruption: str = ""
    """Why the chain is corrupted; empty when it is not."""

    def restore(self, tables: Tables) -> None:
        """Build the chains from the rows again, and verify them."""
        self.pending = {row.snapshot_id: row for _, row in tables.table(PENDING_TABLE).scan()}
        self._left_open = frozenset(self.pending)
        self.corruption = ""
        try:
            self._chain = SnapshotChain.load(in_order_of_captures(self._rows))
        except ChainLinksError as error:
            self.corruption = str(error)

    def unanswered(self) -> set[tuple[str, int]]:
        """Return client id and number of the commands that have no answer yet."""
        return {(row.client_id, row.number) for row in self.pending.values() if row.client_id}

    def check_chain(self) -> None:
        """Check that the chain may be changed.

        Raises:
            ChainCorruptedError: the chain is corrupted.
        """
        if self.corruption:
            raise ChainCorruptedError(self.corruption)

    def check_bucket(self, volume: str, bucket: str) -> None:
        """Check that the snapshots of a bucket may be changed.

        Raises:
            CommandError: BUCKET_BUSY: the bucket is being rolled back.
        """
        if f"{volume}/{bucket}" in self.rolled_back:
            raise CommandError(
                ErrorCode.BUCKET_BUSY, f"{volume}/{bucket} is being rolled back; try again when that is done"
            )

    def put_pending(self, pending: PendingSnapshot, work: Work) -> None:
        """Store a request to metadata."""
        self.pending[pending.snapshot_id] = pending
        work.table(PENDING_TABLE).put(pending.snapshot_id.encode(), pending)

    def _remove_pending(self, pending: PendingSnapshot, work: Work) -> None:
        del self.pending[pending.snapshot_id]
        work.table(PENDING_TABLE).delete(pending.snapshot_id.encode())

    # Creates

    def snapshot_captured(
        self, progress: MetadataProgress, captured: SnapshotCaptured, log_time_ms: int, work: Work
    ) -> None:
        """End a create, and answer the client with the snapshot's id or with an error."""
        pending = self.pending.get(captured.snapshot_id)
        row = self._rows.of(captured.snapshot_id)
        if pending is None or pending.action != PendingAction.CREATE or row is None:
            return
        self._work_was_done(work)
        if captured.error:
            self._undo(pending, row, captured.error, captured.message, work)
        elif self.corruption:
            error = ChainCorruptedError(self.corruption)
            self._undo(pending, row, error.code, str(error), work)
        else:
            self._complete(progress, captured, row, pending.at_ms, work)
            self._remove_pending(pending, work)
            self._metrics.commands.labels("create").inc()
            for completed in self.when_completed:
                completed(self._row(row.snapshot_id), log_time_ms, work)
            reply = SnapshotReply(pending.client_id, pending.number, snapshot_id=row.snapshot_id)
            self._answers.answer(reply, work)

    def _undo(self, pending: PendingSnapshot, row: SnapshotInfo, code: str, message: str, work: Work) -> None:
        """End a create with an error, and send a drop after the capture.

        The capture may be in metadata's log twice, and the second one may succeed after the first one was refused.
        """
        self._rows.remove(row, work)
        work.table(DEEP_CLEAN_TABLE).delete(row.snapshot_id.encode())
        self.put_pending(replace(pending, action=PendingAction.UNDO.value, client_id="", number=0), work)
        send_to_metadata(DropSnapshot(row.snapshot_id), work)
        self._metrics.refusals.labels("create").inc()
        self._metrics.undone_creates.inc()
        self._answers.answer(SnapshotReply(pending.client_id, pending.number, code, message), work)
        for refused in self.when_create_refused:
            refused(pending, row, f"{code}: {message}", work)

    def _complete(
        self, progress: MetadataProgress, captured: SnapshotCaptured, row: SnapshotInfo, at_ms: int, work: Work
    ) -> None:
        """Complete a snapshot's row, and link it into both chains at its place in metadata's order of captures."""
        complete = replace(
            row,
            creation_time_ms=captured.creation_time_ms if at_ms < 0 else at_ms,
            create_txn=captured.snapshot_txn,
            last_txn=max(captured.snapshot_txn, progress.txn),
            bucket_id=captured.bucket_id,
            owner=captured.owner,
            ordinal=captured.ordinal,
            referenced_bytes=captured.referenced_bytes,
            referenced_replicated_bytes=captured.referenced_bytes + captured.referenced_redundancy_bytes,
            chain_version_of_reset=captured.chain_version,
        )
        complete = _with_flags(complete, work)
        self._link(complete, work)
        self._sizes.captured(complete)

    def _link(self, row: SnapshotInfo, work: Work) -> None:
        """Link a row into both chains: after the latest, or earlier if old commands are read again after a restore."""
        latest = self._rows.of(self._chain.latest_global)
        if latest is None or latest.create_txn < row.create_txn:
            row = replace(
                row,
                global_previous_snapshot_id=self._chain.latest_global,
                path_previous_snapshot_id=self._chain.latest(row.snapshot_path),
            )
            self._chain.add(row)
            self._rows.put(row, work)
            return
        linked = [other for other in in_order_of_captures(self._rows) if other.snapshot_id != row.snapshot_id]
        before, after = _around(linked, row.create_txn)
        if after is not None:
            self._rows.put(replace(after, global_previous_snapshot_id=row.snapshot_id), work)
        row = replace(row, global_previous_snapshot_id=_id_of(before))
        before, after = _around([other for other in linked if other.snapshot_path == row.snapshot_path], row.create_txn)
        if after is not None:
            after = self._row(after.snapshot_id)
            self._rows.put(replace(after, path_previous_snapshot_id=row.snapshot_id), work)
        self._rows.put(replace(row, path_previous_snapshot_id=_id_of(before)), work)
        self._chain = SnapshotChain.load(in_order_of_captures(self._rows))

    # Deletes

    def delete(self, row: SnapshotInfo, log_time_ms: int, work: Work) -> None:
        """Make a snapshot unreadable and send its drop to metadata. Its name is in use until its row is removed.

        This order is safe: first clients cannot open the snapshot any more, then the versions that it alone held
        become reclaimable in metadata, and its row is removed last.
        """
        deleted = replace(row, status=SnapshotStatus.SNAPSHOT_DELETED, deletion_time_ms=log_time_ms)
        self._rows.put(deleted, work)
        self.put_pending(PendingSnapshot(row.snapshot_id, PendingAction.DROP.value, "", 0, log_time_ms), work)
        send_to_metadata(DropSnapshot(row.snapshot_id), work)

    def snapshot_dropped(self, progress: MetadataProgress, dropped: SnapshotDropped, work: Work) -> None:
        """End a delete: remove the row, and link its neighbours to each other."""
        pending = self.pending.get(dropped.snapshot_id)
        if pending is None or pending.action not in (PendingAction.DROP, PendingAction.UNDO):
            return
        self._work_was_done(work)
        if pending.action == PendingAction.UNDO:
            self._remove_pending(pending, work)
        elif self.corruption:
            self.put_pending(replace(pending, action=PendingAction.DROPPED.value), work)
        else:
            self._remove(progress, dropped, work)
            self._remove_pending(pending, work)
            self._metrics.removals.inc()

    def _remove(self, progress: MetadataProgress, dropped: SnapshotDropped, work: Work) -> None:
        row = self._row(dropped.snapshot_id)
        next_global = self._rows.of(self._chain.next_global(row.snapshot_id))
        if next_global is not None:
            previous_id = row.global_previous_snapshot_id
            self._touch(replace(next_global, global_previous_snapshot_id=previous_id), progress, work)
        next_id = self._chain.next_in_path(row.snapshot_id)
        if next_id:
            previous_id = row.path_previous_snapshot_id
            self._touch(replace(self._row(next_id), path_previous_snapshot_id=previous_id), progress, work)
            # The sizes of the next snapshot become known when the one after it is cleaned: clean both again.
            for snapshot_id in (next_id, self._chain.next_in_path(next_id)):
                if snapshot_id:
                    self._reset_flags(self._row(snapshot_id), progress, dropped.chain_version, work)
        self._chain.delete(row.snapshot_id)
        self._rows.remove(replace(row, is_removed=True, last_txn=max(row.last_txn, progress.txn)), work)
        work.table(DEEP_CLEAN_TABLE).delete(row.snapshot_id.encode())
        work.table(SNAPSHOT_SIZE_TABLE).delete(row.snapshot_id.encode())
        for removed in self.when_removed:
            removed(row, work)

    def _touch(self, row: SnapshotInfo, progress: MetadataProgress, work: Work) -> None:
        self._rows.put(replace(row, last_txn=max(row.last_txn, progress.txn)), work)

    def _row(self, snapshot_id: str) -> SnapshotInfo:
        row = self._rows.of(snapshot_id)
        if row is None:
            raise InvariantError(
                f"snapshot {snapshot_id} is in the chain or pending, but has no row; verify the tables"
            )
        return row

    def ask_again(self, work: Work) -> None:
        """Send the requests again that were unfinished at the start; metadata repeats its first answers.

        An answer may have come while the chain was corrupted; or the request never reached metadata, because the
        broker lost the end of its log, or metadata refused its signature.
        """
        for pending in [self.pending[name] for name in sorted(self._left_open) if name in self.pending]:
            row = self._rows.of(pending.snapshot_id)
            if pending.action == PendingAction.CREATE and row is not None:
                send_to_metadata(capture_of(row, pending), work)
            else:
                if pending.action == PendingAction.DROPPED:
                    self.put_pending(replace(pending, action=PendingAction.DROP.value), work)
                send_to_metadata(DropSnapshot(pending.snapshot_id), work)

    # Flags

    def set_deep_clean(self, flags: SetDeepClean, work: Work) -> None:
        """Apply deep-clean flags, unless they are from before the last reset.

        Flags may overtake metadata's answers. Flags of a snapshot that is still being created are stored for it. Flags
        that were set after a drop that is not yet known here survive the reset that the drop causes.
        """
        row = self._rows.of(flags.snapshot_id)
        before = work.table(DEEP_CLEAN_TABLE).get(flags.snapshot_id.encode())
        is_older = before is not None and flags.chain_version < before.chain_version
        if row is None or is_older or flags.chain_version < row.chain_version_of_reset:
            self._metrics.stale_flags.inc()
            return
        if flags != before:
            work.table(DEEP_CLEAN_TABLE).put(flags.snapshot_id.encode(), flags)
            self._work_was_done(work)
        flagged = _with_flags(row, work)
        if is_complete(row) and flagged != row:
            self._rows.put(flagged, work)
            self._metrics.commands.labels("set_deep_clean").inc()

    def _reset_flags(self, row: SnapshotInfo, progress: MetadataProgress, chain_version: int, work: Work) -> None:
        reset = replace(row, chain_version_of_reset=max(row.chain_version_of_reset, chain_version))
        self._touch(_with_flags(reset, work), progress, work)


def capture_of(row: SnapshotInfo, pending: PendingSnapshot) -> CaptureSnapshot:
    """Return the capture command of a create. When it is sent again, it has the time of the first request."""
    return CaptureSnapshot(row.volume, row.bucket, row.snapshot_id, pending.user, pending.since_ms)


def _with_flags(row: SnapshotInfo, work: Work) -> SnapshotInfo:
    """Return a row with its stored flags; flags of a chain version before the row's last reset count as not set."""
    flags = work.table(DEEP_CLEAN_TABLE).get(row.snapshot_id.encode())
    is_valid = flags is not None and flags.chain_version >= row.chain_version_of_reset
    return replace(
        row,
        has_deep_cleaned_keys=is_valid and flags is not None and flags.has_deep_cleaned_keys,
        has_deep_cleaned_directories=is_valid and flags is not None and flags.has_deep_cleaned_directories,
    )


def _around(rows: list[SnapshotInfo], txn: int) -> tuple[SnapshotInfo | None, SnapshotInfo | None]:
    """Return the rows before and after a txn; ``rows`` are in the order of their captures."""
    place = bisect_left(rows, txn, key=lambda row: row.create_txn)
    return (rows[place - 1] if place else None), (rows[place] if place < len(rows) else None)


def _id_of(row: SnapshotInfo | None) -> str:
    return NO_SNAPSHOT if row is None else row.snapshot_id
