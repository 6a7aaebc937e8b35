"""Outgoing messages: written with the state that caused them, removed when the log has acknowledged them.

One row holds the messages of one unit of work, under a rising number. A row is sent whole, and sent again after a crash
or when the log did not acknowledge it. A later write removes it, never before the acknowledgement. Under load the next
unit of work is applied while the log takes in the messages of this one. A marker of the snapshot chain is acknowledged
before the messages behind it are sent: a service that reads an entry can then read every marker before it. Changelog
messages are also acknowledged before the unit's other messages: a published result can then be restored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice, repeat
from operator import itemgetter

from schemas.records import OutboxRow, OutboxRun
from schemas.topics import CHANGELOGS, SNAPSHOT_CHAIN
from services.log.port import Sink
from services.runtime.loop.probe import Point, Probe
from services.runtime.loop.service import OutgoingMessage
from services.storage.tables import TableDefinition, TablesReader, UnitOfWork

OUTBOX = TableDefinition("outbox", OutboxRow)
DEFERRED_ROWS_AT_ONCE = 1
"""Deferred rows per send. Each row is acknowledged before the next is sent: after a crash at most one unit of work, the
last one sent, is incomplete in the log."""
_CHANGELOGS = frozenset(topic.name for topic in CHANGELOGS.values())


def row_key(number: int) -> bytes:
    """Return the key of the row with a number."""
    return number.to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class Added:
    """The changes of a unit of work to the outbox: the row that it adds, if any, and the keys that it removes."""

    row: OutboxRow | None
    removed: list[bytes]


class Outbox:
    """The outbox of one runner."""

    def __init__(self, shard: int, sink: Sink, probe: Probe, *, is_deferring: bool = False) -> None:
        """With ``is_deferring``, rows stay in the database until ``read_deferred`` queues them."""
        self.is_deferring = is_deferring
        self._shard = shard
        self._sink = sink
        self._probe = probe
        self._waiting: deque[tuple[bytes, OutboxRow]] = deque()
        self._sent: list[tuple[bytes, OutboxRow]] = []
        self._acknowledged: list[bytes] = []
        self._deferred_messages = 0
        self._next_number = 1

    def restore(self, tables: TablesReader) -> None:
        """Load the rows that the last run wrote and may not have sent."""
        self._waiting.clear()
        self._sent = []
        self._acknowledged = []
        self._deferred_messages = 0
        for key, row in tables.table(OUTBOX).scan():
            self._next_number = int.from_bytes(key, "big") + 1
            if self.is_deferring:  # they may cover the shard's whole history: too many for memory
                self._deferred_messages += _count(row)
            else:
                self._waiting.append((key, row))

    def read_deferred(self, tables: TablesReader) -> bool:
        """Queue the oldest deferred rows for sending; return whether there are any."""
        self._waiting = deque(islice(tables.table(OUTBOX).scan(), DEFERRED_ROWS_AT_ONCE))
        read = sum(_count(row) for _, row in self._waiting)
        self._deferred_messages = max(0, self._deferred_messages - read) if read else 0
        return bool(self._waiting)

    def add(self, messages: Sequence[OutgoingMessage], work: UnitOfWork) -> Added:
        """Add the messages to a unit of work, and remove the acknowledged rows in it."""
        table = work.table(OUTBOX)
        removed = list(self._acknowledged)
        for key in removed:
            table.delete(key)
        if not messages:
            return Added(None, removed)
        row = OutboxRow(tuple(_run(topic, list(group)) for topic, group in groupby(messages, itemgetter(0))))
        table.put(row_key(self._next_number), row)
        return Added(row, removed)

    def written(self, added: Added) -> None:
        """Queue the messages of a unit of work. Call it once the unit is durable."""
        del self._acknowledged[: len(added.removed)]
        if added.row is not None:
            if self.is_deferring:
                self._deferred_messages += _count(added.row)
            else:
                self._waiting.append((row_key(self._next_number), added.row))
            self._next_number += 1

    def waiting(self) -> int:
        """Return the number of messages that are written and not yet acknowledged."""
        return self._deferred_messages + sum(_count(row) for _, row in (*self._waiting, *self._sent))

    def send(self) -> None:
        """Hand all waiting messages to the log, which may not have acknowledged them when this returns.

        Raises:
            RetryableError: no row is removed; the next call sends all of them again.
        """
        while self._waiting:
            key, row = self._waiting[0]
            try:
                self._send(row)
            except Exception:
                self._send_again()
                raise
            self._sent.append((key, row))
            self._waiting.popleft()
        self._sink.start_flush()

    def _send(self, row: OutboxRow) -> None:
        for run in row.runs:
            for value, key in zip(run.values, run.keys or repeat(b""), strict=bool(run.keys)):
                self._sink.send(run.topic, self._shard, value, key)
                self._probe(Point.MID_PUBLISH)
                if run.topic == SNAPSHOT_CHAIN.name:
                    self._sink.flush()
            if run.topic in _CHANGELOGS:
                self._sink.flush()

    def settle(self) -> int:
        """Wait until the log has acknowledged all sent messages; return their number. Raise as ``send`` does."""
        if not self._sent:
            return 0
        try:
            self._sink.flush()
        except Exception:
            self._send_again()
            raise
        self._probe(Point.AFTER_PUBLISH)
        messages = sum(_count(row) for _, row in self._sent)
        self._acknowledged += [key for key, _ in self._sent]
        self._sent.clear()
        return messages

    def _send_again(self) -> None:
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()


def _run(topic: str, messages: list[OutgoingMessage]) -> OutboxRun:
    keys = tuple([message.key for message in messages])
    return OutboxRun(topic, tuple([message.value for message in messages]), keys if any(keys) else ())


def _count(row: OutboxRow) -> int:
    return sum(len(run.values) for run in row.runs)
