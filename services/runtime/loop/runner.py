"""The loop of every service: read, apply, write once, publish.

One synced batch holds the state changes, the messages that they cause and the positions behind the inputs: a
crash keeps all of it or nothing. Publishing comes after the write and may repeat; every message names its object and
event, so that a duplicate changes nothing. The positions in the service's own database count; Kafka's serve lag metrics
only.

The tables that every service has:

========= =============== =========================================================
table     key             value
========= =============== =========================================================
outbox    number, 8 bytes messages of a unit of work that are not acknowledged yet
positions topic           the position in an input
changelog changelog       the position in the changelog, if the service keeps one
========= =============== =========================================================
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from schemas.access import owner_prefix
from schemas.codec import DecodeError, codec
from schemas.records import LastRead, PositionRow
from schemas.stored_rows import row_codec
from schemas.topics import BY_NAME, DEAD_LETTERS, OWNERS, SCM_REPLIES, SNAPSHOT_CHAIN, Topic
from services.domain.errors import (
    TROUBLE_OF_THE_MACHINE,
    ChainBrokenError,
    HalfAppliedError,
    PositionError,
)
from services.log.clock import Clock
from services.log.followed_topic import PARTITION
from services.log.owner_topic import owner_key, owner_value
from services.log.port import Log, LogRecord, Sink, Source
from services.runtime.loop.changelog import changelog_of
from services.runtime.loop.changelog_table import CHANGELOG, CHANGELOG_KEY
from services.runtime.loop.dead_letters import dead_letter
from services.runtime.loop.last_reads import CheckedSource, ReadRecord, last_read
from services.runtime.loop.outbox import OUTBOX, Added, Outbox
from services.runtime.loop.positions import POSITIONS, trimmed
from services.runtime.loop.probe import Point, Probe, no_probe
from services.runtime.loop.service import Message, Service, Work
from services.storage.store import Store
from services.storage.tables import RowCache, TableDefinition, TablesReader

RUNTIME_TABLES: tuple[TableDefinition[Any], ...] = (OUTBOX, POSITIONS, CHANGELOG)

UNIT_BYTES = 256 * 1024
"""Most input bytes per unit of work. Output is published only after the unit is written: with 30 claims of a thousand
rows in one unit, downstream services wait for the last claim, and this service then waits for their answers."""
UNIT_ROWS = 10_000
"""Changed or scanned rows after which a unit of work accepts no more messages. The byte limit is not enough for short
messages that change many rows: a page of an expansion has some fifty bytes and five hundred files. The service does not
poll its log until the unit is written. The work of a single message is bounded by its handler."""
UNIT_SECONDS = 0.05
"""Time after which a unit of work accepts no more messages. Limits in rows and bytes are not enough: the time that they
take depends on the machine and its load, and latency is what the waiting services see."""
LEAST_OFFERED = 4
"""Fewest messages that a unit of work is offered, whatever the unit before had time for."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class BatchSummary:
    """The messages that one unit of work applied, per topic."""

    next_offsets: dict[str, int] = field(default_factory=dict)
    last_reads: dict[str, LastRead] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    log_times_ms: dict[str, int] = field(default_factory=dict)
    """When the log appended the last message of a topic."""


class LoopMetrics:
    """Receives the figures that the loop reports, and drops them; a process counts them."""

    def polled(self) -> None:
        """Record that a poll has ended: the service is away from its log from now on."""

    def returned(self, messages: int) -> None:
        """Record that the output of ``messages`` messages is written and sent, and the next poll begins."""

    def batch_started(self) -> None:
        """Record that a unit of work begins."""

    def batch_written(self, batch: BatchSummary, waiting_messages: int) -> None:
        """Record that a unit of work is durable and ``waiting_messages`` messages wait to be published."""

    def published(self, messages: int) -> None:
        """Record that the log acknowledged ``messages`` messages."""


_Input = tuple[LogRecord, Message | DecodeError]


def _summary(records: Sequence[LogRecord]) -> BatchSummary:
    last = {record.topic: record for record in records}
    return BatchSummary(
        next_offsets={topic: record.offset + 1 for topic, record in last.items()},
        last_reads={topic: last_read(record) for topic, record in last.items()},
        messages=dict(Counter([record.topic for record in records])),
        log_times_ms={topic: record.timestamp_ms for topic, record in last.items()},
    )


def owner_name(service: str, shard: int) -> str:
    """Return the name by which the log tells the owners of shards apart."""
    return f"{owner_prefix(service)}{shard}"


def _make_codecs(service: Service) -> None:
    """Build the codecs of the service's tables and of all topics: each takes a millisecond, for which the first message
    of its kind would wait otherwise.
    """
    for table in (*service.tables, *RUNTIME_TABLES):
        row_codec(table.record)
    for topic in BY_NAME.values():
        codec(topic.record)


class Runner:
    """Runs one shard of one service."""

    def __init__(
        self,
        service: Service,
        shard: int,
        store: Store,
        log: Log,
        clock: Clock,
        *,
        max_batch_messages: int = 2_000,
        unit_bytes: int = UNIT_BYTES,
        unit_rows: int = UNIT_ROWS,
        unit_seconds: float = math.inf,
        probe: Probe = no_probe,
        metrics: LoopMetrics | None = None,
        after_write: Callable[[], None] | None = None,
        must_defer: Callable[[], bool] | None = None,
        is_fencing: bool = True,
        published_below: int = 0,
        sink: Sink | None = None,
    ) -> None:
        """``must_defer``: while it returns True, output stays in the database. It is not called again after a False.

        ``is_fencing``: the log refuses what earlier runners of this shard publish from now on.
        ``published_below``: what inputs below this offset cause is in the log already, and is left out; for a service
        with one input. ``sink``: where to publish in place of the log.
        """
        self.service = service
        self.shard = shard
        self.store = store
        self._log = log
        self._clock = clock
        self._max_batch_messages = max_batch_messages
        self._most_offered = max_batch_messages
        """A service reads ahead for all messages that a unit is offered. What a unit has no time or room for is offered
        again, and read ahead again: under load most of the work would be for later units."""
        self._unit_bytes = unit_bytes
        self._unit_rows = unit_rows
        self._unit_seconds = unit_seconds
        self._probe = probe
        _make_codecs(service)
        self._metrics = metrics or LoopMetrics()
        self._after_write = after_write
        self._cache = RowCache()
        self._topic_ids = log.topic_ids([topic.name for topic in service.inputs])
        self._inputs = {topic.name: (topic, codec(topic.record)) for topic in service.inputs}
        self._published_below = published_below
        self._sink = sink or log.open_sink(owner_name(service.name, shard) if is_fencing else "")
        self._outbox = Outbox(shard, self._sink, probe, is_deferring=must_defer is not None)
        self._must_defer = must_defer or (lambda: False)
        self._changelog = changelog_of(service.name, shard, log)
        if self._changelog is not None:
            families = [table.name for table in (*service.tables, *RUNTIME_TABLES)]
            self._changelog.catch_up(store, self._sink, families)
        self._only_input = service.inputs[0].name if len(service.inputs) == 1 else ""
        self._position = self.positions().get(self._only_input, 0)
        self._outbox.restore(TablesReader(store), self._position)
        self.service.restore(TablesReader(store))
        self._awaited_ends: dict[str, int] = {}
        self._polled: deque[LogRecord] = deque()
        """Records that are read and not decoded yet."""
        self._ahead: list[_Input] = []
        """Inputs that are decoded and not applied yet."""
        self._source = self._open_source()
        self._is_source_stale = False

    def _open_source(self) -> Source:
        ends = {topic: self._log.end_offset(topic, self.shard) for topic in self._topic_ids}
        firsts = {topic: self._log.first_offset(topic, self.shard) for topic in self._topic_ids}
        rows = self._checked_positions(firsts, ends)
        positions = dict.fromkeys(self._topic_ids, 0) | {topic: row.next_offset for topic, row in rows.items()}
        self._awaited_ends = {topic: end for topic, end in ends.items() if positions[topic] < end}
        read = {
            topic: ReadRecord(row.next_offset - 1, row.last_read)
            for topic, row in rows.items()
            if row.last_read is not None and firsts[topic] < row.next_offset  # else it was trimmed since
        }
        source = self._log.open_source(
            list(self._topic_ids), self.shard, positions | {topic: known.offset for topic, known in read.items()}
        )
        return CheckedSource(source, read, f"{self.service.name}, shard {self.shard}") if read else source

    def _checked_positions(self, firsts: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, PositionRow]:
        """Return the stored positions.

        Raises:
            OutdatedError: a topic was trimmed beyond its position.
            PositionError: a topic was recreated or has lost its tail.
        """
        table = TablesReader(self.store).table(POSITIONS)
        rows = {topic: table.get(topic.encode()) for topic in self._topic_ids}
        positions = {topic: row for topic, row in rows.items() if row is not None}
        for topic, row in positions.items():
            if row.topic_id != self._topic_ids[topic]:
                raise PositionError(
                    f"{self.service.name}, shard {self.shard}: topic {topic} was recreated since this database last "
                    f"read it; restore the topic, or start this service on an empty directory"
                )
            if row.next_offset > ends[topic]:
                raise PositionError(
                    f"{self.service.name}, shard {self.shard}: read {topic} up to {row.next_offset}, but it ends at "
                    f"{ends[topic]}: the broker has lost its tail; restore it, or accept the loss "
                    f"(deepclean accept-lost-tail)"
                )
        for topic, first in firsts.items():
            position = positions[topic].next_offset if topic in positions else 0
            if position < first:
                raise trimmed(f"{self.service.name}, shard {self.shard}", topic, first, position)
        return positions

    def step(self, timeout_seconds: float = 0.0) -> int:
        """Run one unit of work: poll (at most ``timeout_seconds``), apply, write, publish. Return the messages applied.

        The next step applies the rest of a batch, after it has polled the log. While more input is at hand, the next
        unit is applied before the log has acknowledged the messages of this one.

        Raises:
            RetryableError: the same step may succeed soon; nothing was lost.
            InvariantError: the service must stop.
        """
        if self._is_source_stale:  # not in the error path: the broker may be unreachable, too
            self._source = self._open_source()
            self._is_source_stale = False
        self._outbox.send()
        is_full = self._poll(timeout_seconds)
        self._metrics.polled()
        try:
            if self._outbox.is_deferring and not self._must_defer():
                self.send_deferred()
                self._outbox.is_deferring = False
            inputs = self._next_inputs()
            applied = self._run_unit(inputs)
        except BaseException:
            # Polled messages may not be applied, and the service's memory may be ahead of its tables.
            self._drop_source()
            self.service.restore(TablesReader(self.store))
            raise
        del self._ahead[:applied]
        self._offer_as_many_as_fit(len(inputs), applied)
        if not is_full and not self._ahead and not self._polled:
            self._settle()
        self._metrics.returned(applied)
        return applied

    def _poll(self, timeout_seconds: float) -> bool:
        """Poll the log, without waiting if messages are at hand. Return whether the batch is full."""
        waiting = len(self._ahead) + len(self._polled)
        if not waiting:
            self._add(self._read(self._max_batch_messages, timeout_seconds))
        elif waiting < self._max_batch_messages and not self._outbox.is_deferring:
            # While output is deferred, the replay's checks take every message that the log has returned as applied.
            self._add(self._read(self._max_batch_messages - waiting, 0.0))
        return len(self._ahead) + len(self._polled) >= self._max_batch_messages

    def _read(self, max_records: int, timeout_seconds: float) -> Sequence[LogRecord]:
        """Poll the source. Open it again if it is outside the log, since that may be true of the checked record only.

        The record before a position is read to check it; a trim up to the position may have removed it in between.

        Raises:
            OutdatedError: as ``_checked_positions``.
            PositionError: as there, or the checked record is another one.
        """
        try:
            return self._source.poll(max_records, timeout_seconds)
        except PositionError:
            self._drop_source()
            self._source = self._open_source()
            records = self._source.poll(max_records, timeout_seconds)
            self._is_source_stale = False  # after the check, which a source makes once
            return records

    def _drop_source(self) -> None:
        """Close the source, and drop what it has returned and no unit has written: the next source returns it again."""
        self._source.close()
        self._is_source_stale = True
        self._polled.clear()
        self._ahead.clear()

    def _add(self, records: Sequence[LogRecord]) -> None:
        self._polled.extend(records)
        if not self._awaited_ends:
            return
        positions = self._source.positions()
        waiting = {record.topic: record.offset for record in (*(record for record, _ in self._ahead), *self._polled)}
        for topic, end in list(self._awaited_ends.items()):
            if positions[topic] < end:
                continue
            if topic in waiting:  # behind its last message there may be control records
                self._awaited_ends[topic] = min(end, waiting[topic] + 1)
            else:
                del self._awaited_ends[topic]

    def _next_inputs(self) -> Sequence[_Input]:
        """Return the next messages for one unit of work. They stay in ``_ahead`` until the unit is written."""
        size_bytes = 0
        for count in range(self._most_offered):
            if count == len(self._ahead):
                if not self._polled:
                    break
                record = self._polled.popleft()
                self._ahead.append((record, self._decode(record)))
            record, decoded = self._ahead[count]
            if isinstance(decoded, Message) and self.service.stands_alone(decoded):
                return self._ahead[: max(1, count)]
            size_bytes += len(record.value)
            if size_bytes > self._unit_bytes and count:
                return self._ahead[:count]
        return self._ahead[: self._most_offered]

    def _offer_as_many_as_fit(self, offered: int, applied: int) -> None:
        """Offer the next unit as many messages as this one has applied; some more if it has applied all."""
        if applied < offered:
            self._most_offered = max(LEAST_OFFERED, applied)
        elif offered >= self._most_offered:
            self._most_offered = min(self._max_batch_messages, self._most_offered * 5 // 4 + LEAST_OFFERED)

    def _decode(self, record: LogRecord) -> Message | DecodeError:
        topic, decoder = self._inputs[record.topic]
        try:
            decoded = decoder.decode_message(record.value)
        except DecodeError as error:
            if topic is SNAPSHOT_CHAIN:
                raise ChainBrokenError(self.shard, f"offset {record.offset} cannot be read: {error}") from error
            return error
        return Message(topic, record.offset, record.timestamp_ms, decoded, record.value)

    def _run_unit(self, inputs: Sequence[_Input]) -> int:
        """Run one unit of work; return the number of messages applied. If the unit as a whole fails, apply its messages
        one by one and dead-letter those that fail.

        This should not happen, since ``apply`` refuses messages that cannot be applied. If it does, one message must
        not block all messages behind it, now and after each start.
        """
        work = Work(self.shard, self.store, self._cache)
        self._metrics.batch_started()
        try:
            applied, batch = self._carry_out(inputs, work)
            if not work.is_changed() and not work.messages and not applied:
                return 0
            self._settle()
            added = self._write(work, batch)
        except TROUBLE_OF_THE_MACHINE:
            raise
        except Exception as error:
            if not inputs:
                raise
            logger.exception("a unit of work failed", service=self.service.name, messages=len(inputs))
            self.service.restore(TablesReader(self.store))
            self._run_apart(inputs, error)
            return len(inputs)
        self._written(added, batch)
        return applied

    def _carry_out(self, inputs: Sequence[_Input], work: Work) -> tuple[int, BatchSummary]:
        """Apply as many messages as the limits allow, and do the work that is due. Return their number and summary."""
        work.is_caught_up = not self._awaited_ends
        work.has_read_all = self._has_read_all
        work.inputs = [decoded for _, decoded in inputs if isinstance(decoded, Message)]
        applied, dead_letters = 0, Counter[str]()
        ends_at = time.perf_counter() + self._unit_seconds
        for record, decoded in inputs:
            if applied and (work.rows() >= self._unit_rows or time.perf_counter() >= ends_at):
                break
            applied += 1
            if not self._is_applied(record, decoded, work):
                dead_letters[record.topic] += 1
        batch = _summary([record for record, _ in inputs[:applied]])
        batch.dead_letters.update(dead_letters)
        work.is_caught_up = not self._awaited_behind(batch)
        work.begin_message()
        if self._is_published(batch):
            self.service.end_batch(work)
            work.messages.clear()
        else:
            self.service.tick(self._clock.now_ms(), work)
            self.service.end_batch(work)
        return applied, batch

    def _has_read_all(self, topic: Topic) -> bool:
        """Return whether all of an input is applied. False, too, if some of it comes with this unit of work."""
        if any(record.topic == topic.name for record in (*self._polled, *(one for one, _ in self._ahead))):
            return False
        end = self._source.end(topic.name)
        return end is not None and self._source.positions().get(topic.name, 0) >= end

    def _is_published(self, batch: BatchSummary) -> bool:
        """Return whether the log has all that the inputs of a unit of work cause.

        A unit that only does what is due has no inputs.
        """
        return 0 < batch.next_offsets.get(self._only_input, 0) <= self._published_below

    def _awaited_behind(self, batch: BatchSummary) -> dict[str, int]:
        """Return, per topic, the end of the log at the start where a batch does not reach it."""
        return {topic: end for topic, end in self._awaited_ends.items() if batch.next_offsets.get(topic, 0) < end}

    def _run_apart(self, inputs: Sequence[_Input], error: Exception) -> None:
        """Run each message in a unit of work of its own; dead-letter a message that was alone already."""
        if len(inputs) > 1:
            for one in inputs:
                self._run_unit([one])
            return
        ((record, _),) = inputs
        work, batch = Work(self.shard, self.store, self._cache), _summary([record])
        batch.dead_letters[record.topic] = 1
        self._dead_letter(record, error, work)
        self._settle()
        self._written(self._write(work, batch), batch)

    def _is_applied(self, record: LogRecord, decoded: Message | DecodeError, work: Work) -> bool:
        """Apply a message. Return True if it was applied, False if it was dead-lettered."""
        work.begin_message()
        try:
            if isinstance(decoded, DecodeError):
                raise decoded
            self.service.apply(decoded, work)
        except (*TROUBLE_OF_THE_MACHINE, HalfAppliedError):
            raise
        except Exception as error:  # cannot be decoded or applied: dead-lettered, its blocks are kept
            work.undo_message()
            self._dead_letter(record, error, work)
            return False
        return True

    def _dead_letter(self, record: LogRecord, error: Exception, work: Work) -> None:
        logger.warning(
            "message dead-lettered",
            service=self.service.name,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            error=type(error).__name__,
            reason=str(error),
        )
        work.send(DEAD_LETTERS, dead_letter(self.service.name, record, error))

    def _write(self, work: Work, batch: BatchSummary) -> Added:
        """Write the unit of work; return its changes to the outbox."""
        positions = work.table(POSITIONS)
        for topic, next_offset in batch.next_offsets.items():
            row = PositionRow(topic, self._topic_ids[topic], next_offset, batch.last_reads[topic])
            positions.put(topic.encode(), row)
        messages = self._changelog.messages_of(work) + work.messages if self._changelog else work.messages
        added = self._outbox.add(messages, work)
        self._probe(Point.BEFORE_WRITE)
        work.write()
        return added

    def _written(self, added: Added, batch: BatchSummary) -> None:
        """Queue and send the messages of a unit of work that is durable."""
        self._awaited_ends = self._awaited_behind(batch)
        first, self._position = self._position, batch.next_offsets.get(self._only_input, self._position)
        self._outbox.written(added, first if self._only_input else None, self._position)
        self._metrics.batch_written(batch, self._outbox.waiting())
        self._probe(Point.AFTER_WRITE)
        if SCM_REPLIES.name in batch.messages:
            self._probe(Point.BETWEEN_SCM_AND_FINISH)
        if self._after_write:
            self._after_write()
        self._outbox.send()

    def publish(self) -> None:
        """Wait until the log has acknowledged all that is written. Raise as ``Sink.flush`` does."""
        self._outbox.send()
        self._settle()

    def _settle(self) -> None:
        published = self._outbox.settle()
        if published:
            self._metrics.published(published)

    def send_deferred(self) -> int:
        """Publish the deferred messages, oldest first; remove each row once it is acknowledged. Return their number.

        Raises:
            RetryableError: call it again; some messages may be sent twice.
        """
        sent = 0
        while self._outbox.read_deferred(TablesReader(self.store)):
            self._outbox.send()
            published = self._outbox.settle()
            self._metrics.published(published)
            sent += published
            work = Work(self.shard, self.store, self._cache)
            removed = self._outbox.add((), work)
            work.write()
            self._outbox.written(removed)
        return sent

    def leave_out_published(self, below: int) -> None:
        """Leave out, from now on, what inputs below an offset cause; remove what is deferred of it."""
        self._published_below = below
        if self._outbox.drop_published(below):
            work = Work(self.shard, self.store, self._cache)
            removed = self._outbox.add((), work)
            work.write()
            self._outbox.written(removed)

    def announce(self, url: str) -> None:
        """Tell clients where this owner answers. Raise as ``Sink.flush`` does."""
        self._sink.send(OWNERS, PARTITION, owner_value(url), owner_key(self.service.name, self.shard))
        self._sink.flush()

    def positions(self) -> dict[str, int]:
        """Return the stored position per input topic."""
        table = TablesReader(self.store).table(POSITIONS)
        rows = {topic: table.get(topic.encode()) for topic in self._topic_ids}
        return {topic: row.next_offset if row else 0 for topic, row in rows.items()}

    def changelog_offset(self) -> int | None:
        """Return the offset from which the next start reads the changelog; None for a service without one."""
        if self._changelog is None:
            return None
        row = TablesReader(self.store).table(CHANGELOG).get(CHANGELOG_KEY)
        return row.base_offset if row else 0

    def waiting(self) -> int:
        """Return the number of messages that are written and not yet acknowledged."""
        return self._outbox.waiting()

    def lag(self) -> dict[str, int]:
        """Return the number of messages not yet applied, per input topic."""
        polled = Counter([record.topic for record, _ in self._ahead] + [record.topic for record in self._polled])
        return {topic: ahead + polled[topic] for topic, ahead in self._source.lag().items()}

    def close(self) -> None:
        """Close the connections to the log. The caller closes the store."""
        self._source.close()
        self._sink.close()
