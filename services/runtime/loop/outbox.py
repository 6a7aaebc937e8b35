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
from services.log.port import Headers, Sink
from services.log.published import published_below_header
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
class _Waiting:
    """A row to be sent."""

    key: bytes
    row: OutboxRow
    first: int | None = None
    """Where the unit of work begins in the service's input. All that was caused before is acknowledged: a unit is
    written after that. None when that is not known: for rows of an earlier run, and for those that were deferred."""

    def headers(self) -> Headers:
        """Return the headers of the last message of each run."""
        return () if self.first is None else published_below_header(self.first)


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A row that stays in the database for now."""

    key: bytes
    behind: int
    """Offset behind the inputs of its unit of work."""
    messages: int


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
        self._waiting: deque[_Waiting] = deque()
        self._sent: list[_Waiting] = []
        self._acknowledged: list[bytes] = []
        self._deferred: deque[_Deferred] = deque()
        self._deferred_messages = 0
        self._next_number = 1

    def restore(self, tables: TablesReader, position: int = 0) -> None:
        """Load the rows that the last run wrote and may not have sent: of inputs below ``position``."""
        self._waiting.clear()
        self._sent = []
        self._acknowledged = []
        self._deferred.clear()
        self._deferred_messages = 0
        for key, row in tables.table(OUTBOX).scan():
            self._next_number = int.from_bytes(key, "big") + 1
            if self.is_deferring:  # they may cover the shard's whole history: too many for memory
                self._defer(_Deferred(key, position, _count(row)))
            else:
                self._waiting.append(_Waiting(key, row))

    def read_deferred(self, tables: TablesReader) -> bool:
        """Queue the oldest deferred rows for sending; return whether there are any."""
        rows = islice(tables.table(OUTBOX).scan(), DEFERRED_ROWS_AT_ONCE)
        self._waiting = deque(_Waiting(key, row) for key, row in rows)
        for _ in range(min(len(self._waiting), len(self._deferred))):
            self._take_deferred()
        return bool(self._waiting)

    def drop_published(self, below: int) -> bool:
        """Have the next unit of work remove the deferred rows of inputs below an offset; return whether any is.

        Another process has published them.
        """
        dropped = False
        while self._deferred and self._deferred[0].behind <= below:
            self._acknowledged.append(self._take_deferred())
            dropped = True
        return dropped

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

    def written(self, added: Added, first: int | None = None, behind: int = 0) -> None:
        """Queue the messages of a unit of work. Call it once the unit is durable.

        The unit has applied the inputs from offset ``first`` up to ``behind``; None for a service with several inputs.
        """
        del self._acknowledged[: len(added.removed)]
        if added.row is not None:
            key = row_key(self._next_number)
            if self.is_deferring:
                self._defer(_Deferred(key, behind, _count(added.row)))
            else:
                self._waiting.append(_Waiting(key, added.row, first))
            self._next_number += 1

    def _defer(self, deferred: _Deferred) -> None:
        self._deferred.append(deferred)
        self._deferred_messages += deferred.messages

    def _take_deferred(self) -> bytes:
        oldest = self._deferred.popleft()
        self._deferred_messages -= oldest.messages
        return oldest.key

    def waiting(self) -> int:
        """Return the number of messages that are written and not yet acknowledged."""
        return self._deferred_messages + sum(_count(one.row) for one in (*self._waiting, *self._sent))

    def send(self) -> None:
        """Hand all waiting messages to the log, which may not have acknowledged them when this returns.

        Raises:
            RetryableError: no row is removed; the next call sends all of them again.
        """
        while self._waiting:
            try:
                self._send(self._waiting[0])
            except Exception:
                self._send_again()
                raise
            self._sent.append(self._waiting.popleft())
        self._sink.start_flush()

    def _send(self, waiting: _Waiting) -> None:
        headers = waiting.headers()
        for run in waiting.row.runs:
            last = len(run.values) - 1
            for place, (value, key) in enumerate(zip(run.values, run.keys or repeat(b""), strict=bool(run.keys))):
                self._sink.send(run.topic, self._shard, value, key, headers if place == last else ())
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
        messages = sum(_count(one.row) for one in self._sent)
        self._acknowledged += [one.key for one in self._sent]
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
