"""Answers to clients: each command once, a repeat gets the first answer again.

A create and a request to settle are answered later than they are taken in; until then a repeat gets nothing, and
afterwards what the first one got.
"""

from __future__ import annotations

from schemas.codec import codec
from schemas.error_codes import ErrorCode
from schemas.records import ClientRow, SnapshotCommand, SnapshotReply
from schemas.topics import SNAPSHOTS_REPLIES
from services.runtime.loop.service import Work
from services.snapshots.state.tables import CLIENT_TABLE, ReadableTables

_NOT_YET = b""


class Answers:
    """Remembers each client's last number and answer."""

    def __init__(self, remembered_client_ms: int) -> None:
        self._remembered_client_ms = remembered_client_ms
        self._log_time_ms = 0
        self._oldest_ms = 0
        self._unanswered: set[tuple[str, int]] = set()

    def restore(self, tables: ReadableTables, unanswered: set[tuple[str, int]]) -> None:
        """Start from the stored clients; ``unanswered`` are commands whose answer is still to come."""
        times = [row.log_time_ms for _, row in tables.table(CLIENT_TABLE).scan()]
        self._log_time_ms = max(times, default=0)
        self._oldest_ms = min(times, default=self._log_time_ms)
        self._unanswered = unanswered

    def is_repeat(self, command: SnapshotCommand, work: Work) -> bool:
        """Whether a command was taken in before; if so, answer it as it then was."""
        if not command.client_id or not command.number:
            return False
        before = work.table(CLIENT_TABLE).get(command.client_id.encode())
        if before is None or command.number > before.number:
            return False
        if (command.client_id, command.number) in self._unanswered:
            return True
        if command.number < before.number:
            message = f"number {before.number} was taken in already; number commands in rising order"
            reply = SnapshotReply(command.client_id, command.number, ErrorCode.OLD_REQUEST, message)
            work.send(SNAPSHOTS_REPLIES, reply)
        elif before.reply:
            work.send_encoded(SNAPSHOTS_REPLIES, before.reply)
        return True

    def received(self, command: SnapshotCommand, timestamp_ms: int, work: Work) -> None:
        """Remember a command whose answer comes later."""
        self._log_time_ms = max(self._log_time_ms, timestamp_ms)
        if command.client_id and command.number:
            row = ClientRow(command.number, self._log_time_ms, _NOT_YET)
            work.table(CLIENT_TABLE).put(command.client_id.encode(), row)
            self._unanswered.add((command.client_id, command.number))

    def answer(self, reply: SnapshotReply, work: Work) -> None:
        """Answer a command that was taken in; nobody waits when it named no client."""
        if not reply.client_id:
            return
        encoded = codec(SnapshotReply).encode(reply)
        work.send_encoded(SNAPSHOTS_REPLIES, encoded)
        self._unanswered.discard((reply.client_id, reply.number))
        clients = work.table(CLIENT_TABLE)
        row = clients.get(reply.client_id.encode())
        if row is not None and row.number == reply.number:
            clients.put(reply.client_id.encode(), ClientRow(row.number, row.log_time_ms, encoded))

    def forget_old_clients(self, work: Work) -> None:
        """Remove clients that were not heard of for an hour of log time; those who wait for an answer stay."""
        if self._log_time_ms - self._oldest_ms < 2 * self._remembered_client_ms:
            return
        table = work.table(CLIENT_TABLE)
        horizon_ms = self._log_time_ms - self._remembered_client_ms
        self._oldest_ms = self._log_time_ms
        for key, row in list(table.scan()):
            if row.log_time_ms >= horizon_ms:
                self._oldest_ms = min(self._oldest_ms, row.log_time_ms)
            elif row.reply:
                table.delete(key)
