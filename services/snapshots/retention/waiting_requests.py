"""Requests to expire that are answered when the rows of all their snapshots are removed."""

from __future__ import annotations

from schemas.records import ExpiryRow, SnapshotInfo, SnapshotReply
from services.domain.refusals import CommandError
from services.runtime.loop.service import Work
from services.snapshots.state.answers import Answers
from services.snapshots.state.rows import SnapshotRows
from services.snapshots.state.tables import EXPIRY_TABLE, expiry_key
from services.storage.tables import Tables


class WaitingRequests:
    """The waiting requests. Each waits for those of its snapshots that still have a row in snapshotInfoTable."""

    def __init__(self, rows: SnapshotRows, answers: Answers) -> None:
        self._rows = rows
        self._answers = answers
        self._waiting: dict[bytes, ExpiryRow] = {}
        self._waited_for: dict[str, bytes] = {}
        """By id of a deleted snapshot, the request that waits for its removal."""
        self._left: dict[bytes, int] = {}
        """By request, the number of its snapshots that still have a row."""

    def restore(self, tables: Tables) -> None:
        """Read the requests from the table. The rows of the snapshots must have been read before."""
        self._waiting, self._waited_for, self._left = {}, {}, {}
        for key, row in tables.table(EXPIRY_TABLE).scan():
            self._remember(key, row)

    def unanswered(self) -> set[tuple[str, int]]:
        """Return client id and number of the commands that have no answer yet."""
        return {(row.client_id, row.number) for row in self._waiting.values()}

    def add(self, row: ExpiryRow, work: Work) -> None:
        """Store a request whose snapshots are deleted and not yet removed."""
        key = expiry_key(row.client_id, row.number)
        work.table(EXPIRY_TABLE).put(key, row)
        self._remember(key, row)

    def _remember(self, key: bytes, row: ExpiryRow) -> None:
        going = [snapshot_id for snapshot_id in row.outcome.snapshot_ids if self._rows.of(snapshot_id) is not None]
        self._waiting[key] = row
        self._left[key] = len(going)
        self._waited_for.update(dict.fromkeys(going, key))

    def snapshot_removed(self, row: SnapshotInfo, work: Work) -> None:
        """Answer the request that waited for this snapshot, if it was the request's last one."""
        key = self._waited_for.pop(row.snapshot_id, None)
        if key is None:
            return
        self._left[key] -= 1
        if not self._left[key]:
            self.answer(self._remove(key, work), work)

    def answer(self, row: ExpiryRow, work: Work) -> None:
        """Answer a request with the snapshots that expired. A request without a client id gets no answer."""
        self._answers.answer(SnapshotReply(row.client_id, row.number, expired=row.outcome), work)

    def give_up(self, error: CommandError, work: Work) -> None:
        """Answer every waiting request with an error."""
        for key in sorted(self._waiting):
            row = self._remove(key, work)
            self._answers.answer(SnapshotReply(row.client_id, row.number, str(error.code), str(error)), work)

    def _remove(self, key: bytes, work: Work) -> ExpiryRow:
        row = self._waiting.pop(key)
        for snapshot_id in row.outcome.snapshot_ids:
            self._waited_for.pop(snapshot_id, None)
        del self._left[key]
        work.table(EXPIRY_TABLE).delete(key)
        return row
