"""Messages on their way out: written with the state that caused them, removed when the log has acknowledged them.

One row holds the messages of one unit of work, under a rising number. A row is published whole, again after a
crash; it is removed by a later write, never before the acknowledgement. A marker of the snapshot chain is
acknowledged before anything behind it is sent: who reads an entry can then read every marker before it.
"""

from __future__ import annotations

from collections import deque

from schemas.records import OutboxMessage, OutboxRow
from schemas.topics import SNAPSHOT_CHAIN
from services.runtime.log import Sink
from services.runtime.probe import Point, Probe
from services.storage.tables import TableDefinition, TablesReader, UnitOfWork

OUTBOX = TableDefinition("outbox", OutboxRow)
_FIRST, _BEYOND = (0).to_bytes(8, "big"), b"\xff" * 8


class Outbox:
    """The outbox of one runner."""

    def __init__(self, shard: int, sink: Sink, probe: Probe) -> None:
        self._shard = shard
        self._sink = sink
        self._probe = probe
        self._waiting: deque[tuple[bytes, tuple[OutboxMessage, ...]]] = deque()
        self._published: list[bytes] = []
        self._next_number = 1

    def restore(self, tables: TablesReader) -> None:
        """Take up what the last run wrote and may not have sent."""
        self._waiting = deque((key, row.messages) for key, row in tables.table(OUTBOX).scan(_FIRST, _BEYOND))
        self._published = []
        if self._waiting:
            self._next_number = int.from_bytes(self._waiting[-1][0], "big") + 1

    def add(self, messages: list[OutboxMessage], work: UnitOfWork) -> list[bytes]:
        """Make the messages part of a unit of work, which also removes what was acknowledged; says which rows."""
        table = work.table(OUTBOX)
        removed = list(self._published)
        for key in removed:
            table.delete(key)
        if messages:
            table.put(self._next_number.to_bytes(8, "big"), OutboxRow(tuple(messages)))
        return removed

    def written(self, messages: list[OutboxMessage], removed: list[bytes]) -> None:
        """The unit of work is durable: its messages may go."""
        del self._published[: len(removed)]
        if messages:
            self._waiting.append((self._next_number.to_bytes(8, "big"), tuple(messages)))
            self._next_number += 1

    def waiting(self) -> int:
        """How many messages are written and not yet acknowledged."""
        return sum(len(messages) for _, messages in self._waiting)

    def publish(self) -> int:
        """Send all that waits and have it acknowledged; says how many messages.

        Raises:
            RetryableError: nothing is removed; all of it is sent again at the next call.
        """
        sent = 0
        for _, messages in self._waiting:
            for message in messages:
                self._sink.send(message.topic, self._shard, message.value, message.fingerprint)
                sent += 1
                self._probe(Point.MID_PUBLISH)
                if message.topic == SNAPSHOT_CHAIN.name:
                    self._sink.flush()
        if sent:
            self._sink.flush()
            self._probe(Point.AFTER_PUBLISH)
        self._published += [key for key, _ in self._waiting]
        self._waiting.clear()
        return sent
