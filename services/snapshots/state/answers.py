"""Answers to clients. Each command is carried out once; a repeat gets the first answer again.

Some commands, such as a create or a settle, are answered later than they are received. Until then a repeat gets no
answer.
"""

from __future__ import annotations

from schemas.codec import codec
from schemas.error_codes import ErrorCode
from schemas.records import ClientRow, SnapshotCommand, SnapshotReply
from schemas.topics import SNAPSHOTS_REPLIES
from services.runtime.loop.service import Work
from services.snapshots.state.tables import CLIENT_TABLE
from services.storage.tables import Tables

_NOT_YET = b""


class Answers:
    """The last number and the last answer of each client."""

    def __init__(self, remembered_client_ms: int) -> None:
        self._remembered_client_ms = remembered_client_ms
        self._log_time_ms = 0
        self._oldest_ms = 0
        self._unanswered: set[tuple[str, int]] = set()

    def restore(self, tables: Tables, unanswered: set[tuple[str, int]]) -> None:
        """Read the times of the clients from the table; ``unanswered`` are the commands that have no answer yet."""
        times = [row.log_time_ms for _, row in tables.table(CLIENT_TABLE).scan()]
        self._log_time_ms = max(times, default=0)
        self._oldest_ms = min(times, default=self._log_time_ms)
        self._unanswered = unanswered

    def is_repeat(self, command: SnapshotCommand, work: Work) -> bool:
        """Return whether a command was received before, and answer it if so.

        The last number of a client gets its first answer again, a lower number OLD_REQUEST, an unanswered one nothing.
        """
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
        """Store the number of a command, without an answer."""
        self._log_time_ms = max(self._log_time_ms, timestamp_ms)
        if command.client_id and command.number:
            row = ClientRow(command.number, self._log_time_ms, _NOT_YET)
            work.table(CLIENT_TABLE).put(command.client_id.encode(), row)
            self._unanswered.add((command.client_id, command.number))

    def answer(self, reply: SnapshotReply, work: Work) -> None:
        """Send and store the answer to a received command. A command without a client id gets no answer."""
        if not reply.client_id:
            return
        encoded = codec(SnapshotReply).encode_message(reply)
        work.send_encoded(SNAPSHOTS_REPLIES, encoded)
        self._unanswered.discard((reply.client_id, reply.number))
        clients = work.table(CLIENT_TABLE)
        row = clients.get(reply.client_id.encode())
        if row is not None and row.number == reply.number:
            clients.put(reply.client_id.encode(), ClientRow(row.number, row.log_time_ms, encoded))

    def forget_old_clients(self, work: Work) -> None:
        """Delete the clients that sent nothing new for ``remembered_client_ms`` of log time and were answered."""
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
