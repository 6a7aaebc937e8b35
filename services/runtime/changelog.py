"""What a service's units of work have changed, kept in a topic of its own: by it an older database catches up.

Some services decide by more than one input, so that their answers depend on what came first. Taken in again in another
order, the same inputs may give other answers than clients have had. So nobody decides again: before anything else that
a unit of work says goes out, the log has acknowledged what it has changed; a start applies the changes that its
database does not have, and takes in its inputs from there on. What the topic does not hold, nobody has ever seen.

Kafka Streams calls such a topic a changelog. This one keeps a unit's rows together, positions among them, and is not
compacted: it reaches back as far as the oldest backup that needs it (``deepclean trim-log``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import structlog

from schemas.codec import DecodeError, codec
from schemas.records import ChangelogRow, OutboxRow, OutboxRun, RowChange, StateChange
from schemas.topics import CHANGELOGS, Topic
from services.runtime.errors import PositionError, RetryableError
from services.runtime.log import Log, LogRecord
from services.runtime.outbox import OUTBOX, row_key
from services.runtime.positions import POSITIONS
from services.runtime.service import OutgoingMessage, Work, fitting
from services.storage.store import Store
from services.storage.tables import TableDefinition, TablesReader

CHANGELOG = TableDefinition("changelog", ChangelogRow)
CHANGELOG_KEY = b"changelog"
UNITS_BETWEEN_BASES = 256
"""A start reads from the base on: so many units and few more."""
PART_BYTES = 1024 * 1024
WRITTEN_AT_ONCE_BYTES = 8 * 1024 * 1024
POLL_SECONDS = 10.0
RECORDS_PER_POLL = 2_000
_UNTOLD = 1
"""Number of a state that no change has led to: so that nobody takes the changes behind it for all there are."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Unit:
    """What one unit of work has changed and said."""

    number: int
    rows: list[RowChange] = field(default_factory=list)
    messages: list[OutboxRun] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loss:
    """Changes that a database has written to the topic, and that it does not hold."""

    end: int
    """Where the topic ends now."""
    units: int
    """How many units of work, or one more when the newest was on its way."""


class LostChangesError(PositionError):
    """The topic does not hold what a database has written to it behind the unit ``number``."""

    def __init__(self, who: str, topic: str, number: int) -> None:
        super().__init__(
            f"{who}: {topic} does not hold what this database has written to it behind unit {number}: the broker has "
            f"lost its tail; restore it, or go on without (deepclean accept-lost-tail)"
        )
        self.number = number


class Changelog:
    """One shard's part of a service's changelog."""

    def __init__(self, service: str, topic: Topic, shard: int, log: Log) -> None:
        self.topic = topic
        self._who = f"{service}, shard {shard}"
        self._shard = shard
        self._log = log
        self._topic_id = log.topic_ids([topic.name])[topic.name]
        self._base_offset = 0
        self._base_number = 0

    # ---- writing

    def messages_of(self, work: Work) -> list[OutgoingMessage]:
        """What is to be sent before all else that a unit of work sends; the last thing that is added to it.

        All earlier units are acknowledged by then.
        """
        table = work.table(CHANGELOG)
        before = table.get(CHANGELOG_KEY)
        number = (before.number if before else 0 if self._is_new(work.store) else _UNTOLD) + 1
        if number - self._base_number > UNITS_BETWEEN_BASES:
            self._base_offset, self._base_number = self._log.end_offset(self.topic.name, self._shard), number - 1
        parts = list(_parts(number, _row_changes(work), _runs(work.messages)))
        table.put(CHANGELOG_KEY, ChangelogRow(number, self._topic_id, self._base_offset, self._base_number))
        encoder = codec(StateChange)
        return [fitting(self.topic, encoder.fingerprint, encoder.encode(part)) for part in parts]

    # ---- reading

    def catch_up(self, store: Store) -> int:
        """Apply what a database does not have; says how many units that was.

        Nobody else has the database open, and nothing is kept in memory of it. What the last unit said is in the
        outbox then: all before it was acknowledged, and it perhaps was not.

        Raises:
            PositionError: the topic lacks changes, or is another one; nothing is written that does not belong together.
            RetryableError: the log did not answer.
        """
        row = self._row(store)
        number = row.number if row else 0 if self._is_new(store) else _UNTOLD
        end = self._log.end_offset(self.topic.name, self._shard)
        writer = _Writer(store, self._topic_id, row)
        for unit in self._units(row, number, end):
            if unit.number > number:
                writer.add(unit)
        writer.write()
        self._base_offset, self._base_number = end, max(number, writer.number)
        if writer.count:
            logger.info("brought up to date by the changelog", who=self._who, units=writer.count, number=writer.number)
        return writer.count

    def _row(self, store: Store) -> ChangelogRow | None:
        row = TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)
        if row is not None and row.topic_id != self._topic_id:
            raise PositionError(
                f"{self._who}: topic {self.topic.name} was made anew since this database last wrote to it; restore the "
                f"topic, or start this service on an empty directory"
            )
        return row

    def _is_new(self, store: Store) -> bool:
        """Whether a database has never taken anything in."""
        positions = TablesReader(store).table(POSITIONS).scan(b"", b"\xff")
        return not any(row.next_offset for _, row in positions)

    def _units(self, row: ChangelogRow | None, number: int, end: int) -> Iterator[Unit]:
        """Units behind the base, each once and in order; ``number`` is the newest that the database has."""
        first = self._log.first_offset(self.topic.name, self._shard)
        offset, seen = (row.base_offset, row.base_number) if row else (0, 0)
        if offset > end:
            raise self._lost(seen)
        if first > offset:  # trimmed: what this database has itself cannot be compared any more
            offset, seen = first, number
        for unit in _whole_units(self._read(offset, end)):
            if unit.number <= seen:
                continue  # sent again
            if unit.number > seen + 1:
                raise self._lost(seen) if seen < number else self._incomplete(seen + 1, unit.number - 1)
            seen = unit.number
            yield unit
        # The newest unit of the database may wait to be sent; every one before it was acknowledged.
        if seen < number - 1:
            raise self._lost(seen)

    def _lost(self, number: int) -> LostChangesError:
        return LostChangesError(self._who, self.topic.name, number)

    def _incomplete(self, first: int, last: int) -> PositionError:
        return PositionError(
            f"{self._who}: {self.topic.name} lacks the units {first} to {last}, which this database does not have: "
            f"they were trimmed, or the broker has lost them; put a backup in its place that was taken later "
            f"(deepclean restore-backup)"
        )

    def _read(self, offset: int, end: int) -> Iterator[LogRecord]:
        if offset >= end:
            return
        source = self._log.open_source([self.topic.name], self._shard, {self.topic.name: offset})
        try:
            while offset < end:
                records = source.poll(RECORDS_PER_POLL, POLL_SECONDS)
                if not records:
                    raise RetryableError(
                        f"{self._who}: {self.topic.name} did not come within {POLL_SECONDS:g} seconds: see that the "
                        f"broker runs; it is tried again"
                    )
                for record in records:
                    offset = record.offset + 1
                    yield record
        finally:
            source.close()

    # ---- after a loss

    def find_loss(self, store: Store) -> Loss | None:
        """What the topic does not hold any more of what a database has written to it; None when it holds all."""
        row = self._row(store)
        if row is None:
            return None
        end = self._log.end_offset(self.topic.name, self._shard)
        try:
            for unit in self._units(row, row.number, end):
                if unit.number > row.number:
                    break  # what may be missing behind that is for a start to say
        except LostChangesError as error:
            return Loss(end, row.number - error.number)
        return None

    def accept_loss(self, store: Store) -> None:
        """Go on behind what was lost. Databases from before can no longer be brought up to date: take a backup."""
        row = self._row(store)
        if row is not None:
            end = self._log.end_offset(self.topic.name, self._shard)
            accepted = ChangelogRow(row.number, row.topic_id, end, row.number)
            store.write({CHANGELOG.name: {CHANGELOG_KEY: codec(ChangelogRow).encode(accepted)}})


def changelog_of(service: str, shard: int, log: Log) -> Changelog | None:
    """The changelog of a service's shard; None when it has none."""
    topic = CHANGELOGS.get(service)
    return None if topic is None else Changelog(service, topic, shard, log)


class _Writer:
    """Writes units to a database, several at once and each whole."""

    def __init__(self, store: Store, topic_id: str, row: ChangelogRow | None) -> None:
        self._store = store
        self._topic_id = topic_id
        self._base = (row.base_offset, row.base_number) if row else (0, 0)
        self._batch: dict[str, dict[bytes, bytes | None]] = {}
        self._size_bytes = 0
        self._last: Unit | None = None
        self.count = 0

    @property
    def number(self) -> int:
        """Number of the newest unit; 0 before the first."""
        return self._last.number if self._last else 0

    def add(self, unit: Unit) -> None:
        """One unit, behind those before it."""
        for change in unit.rows:
            self._batch.setdefault(change.table, {})[change.key] = None if change.is_removed else change.value
            self._size_bytes += len(change.key) + len(change.value)
        self._last = unit
        self.count += 1
        if self._size_bytes >= WRITTEN_AT_ONCE_BYTES:
            self.write()

    def write(self) -> None:
        """Write what was added, with what the last unit said in place of all that waited to be sent."""
        if self._last is None:
            return
        outbox: dict[bytes, bytes | None] = {key: None for key, _ in self._store.scan(OUTBOX.name, b"", b"\xff" * 9)}
        if self._last.messages:
            outbox[row_key(1)] = codec(OutboxRow).encode(OutboxRow(tuple(self._last.messages)))
        row = ChangelogRow(self._last.number, self._topic_id, *self._base)
        self._store.write(
            {
                **self._batch,
                OUTBOX.name: outbox,
                CHANGELOG.name: {CHANGELOG_KEY: codec(ChangelogRow).encode(row)},
            }
        )
        self._batch, self._size_bytes = {}, 0


def _row_changes(work: Work) -> Iterator[RowChange]:
    for table, rows in work.encoded().items():
        for key, value in rows.items():
            yield RowChange(table, key, value is None, value or b"")


def _runs(messages: Iterable[OutgoingMessage]) -> Iterator[OutboxRun]:
    for topic, fingerprint, value in messages:
        yield OutboxRun(topic, fingerprint, (value,))


def _parts(number: int, rows: Iterable[RowChange], messages: Iterable[OutboxRun]) -> Iterator[StateChange]:
    """A unit in messages of about ``PART_BYTES``; what is larger by itself is alone."""
    part, size_bytes, index = Unit(number), 0, 0
    everything: Iterator[RowChange | OutboxRun] = chain(rows, messages)
    for one in everything:
        if size_bytes >= PART_BYTES:
            yield StateChange(number, index, False, tuple(part.rows), tuple(part.messages))
            part, size_bytes, index = Unit(number), 0, index + 1
        if isinstance(one, RowChange):
            part.rows.append(one)
            size_bytes += len(one.key) + len(one.value)
        else:
            part.messages.append(one)
            size_bytes += sum(map(len, one.values))
    yield StateChange(number, index, True, tuple(part.rows), tuple(part.messages))


def _whole_units(records: Iterable[LogRecord]) -> Iterator[Unit]:
    """Units that are there with all parts. One that was cut off begins again, or never existed."""
    unit, parts = Unit(0), 0
    for record in records:
        try:
            change = codec(StateChange).decode_message(record.value, record.fingerprint)
        except DecodeError as error:
            logger.warning("left out of the changelog", topic=record.topic, offset=record.offset, reason=str(error))
            continue
        if change.part == 0:
            if change.number < unit.number:
                continue  # sent again amid a later one
            unit, parts = Unit(change.number), 0
        if change.number != unit.number or change.part != parts:
            continue
        unit.rows += change.rows
        unit.messages += change.messages
        parts += 1
        if change.is_last:
            yield unit
            unit = Unit(unit.number)
            parts = 0
