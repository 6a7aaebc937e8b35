"""What a service's units of work have changed, kept in a topic of its own: by it an older database catches up.

Some services decide by more than one input, so that their answers depend on what came first. Taken in again in another
order, the same inputs may give other answers than clients have had. So nobody decides again: before anything else that
a unit of work says goes out, the log has acknowledged what it has changed; a start applies the changes that its
database does not have, and takes in its inputs from there on. What the topic does not hold was never told to anybody.

Each start first puts its beginning into the topic, and reads up to it. So it knows all that an earlier one has told;
whatever of that one arrives still later is left out by every reader, its beginning as well: a beginning says how far
its start had seen the topic, and counts only if no other was behind that. And each unit names the one before it by its
digest: a database of another past, from before a loss that was accepted, is refused rather than mixed with this one.

Kafka Streams calls such a topic a changelog. This one keeps a unit's rows together, positions among them, and is not
compacted: it reaches back as far as the oldest backup that needs it (``deepclean trim-log``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from uuid import uuid4

import structlog

from schemas.codec import DecodeError, codec
from schemas.records import ChangelogRow, OutboxRow, OutboxRun, RowChange, StateChange
from schemas.topics import CHANGELOGS, Topic
from services.runtime.errors import PositionError, RetryableError
from services.runtime.log import Log, LogRecord, Sink
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
_BEGINNING = -1
"""Part of the beginning of a start."""
_DIGEST_BYTES = 16
_ITEM_BYTES = 32
"""What a row or a message takes in a part beside its bytes and names, at most."""
_ALL_KEYS = b"", b"\xff" * 9

_Told = tuple[StateChange, bytes, int]
"""A change, the bytes that told it, which are what a digest is over, and its offset."""

logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Unit:
    """What one unit of work has changed and said."""

    number: int
    previous: bytes = b""
    digest: bytes = b""
    rows: list[RowChange] = field(default_factory=list)
    messages: list[OutboxRun] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Base:
    """A place in the topic from which on it can be read: units up to a number are before it."""

    offset: int = 0
    number: int = 0
    start: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """Changes that a database has written to the topic, and that it does not hold."""

    end: int
    """Where the topic ends now."""
    units: int


class LostChangesError(PositionError):
    """The topic does not hold what a database has written to it behind the unit ``number``."""

    def __init__(self, who: str, topic: str, number: int) -> None:
        super().__init__(
            f"{who}: {topic} does not hold what this database has written to it behind unit {number}: the broker has "
            f"lost its tail, or the database is of a past that was given up; restore the topic, go on without "
            f"(deepclean accept-lost-tail), or put a backup in its place that was taken later"
        )
        self.number = number


class Changelog:
    """One shard's part of a service's changelog, from one start on."""

    def __init__(self, service: str, topic: Topic, shard: int, log: Log) -> None:
        self.topic = topic
        self._who = f"{service}, shard {shard}"
        self._shard = shard
        self._log = log
        self._topic_id = log.topic_ids([topic.name])[topic.name]
        self._start = str(uuid4())
        self._base = Base()

    # ---- writing

    def messages_of(self, work: Work) -> list[OutgoingMessage]:
        """What is to be sent before all else that a unit of work sends; the last thing that is added to it.

        All earlier units are acknowledged by then.
        """
        table = work.table(CHANGELOG)
        before = table.get(CHANGELOG_KEY)
        number = (before.number if before else self._number_without_row(work.store)) + 1
        if number - self._base.number > UNITS_BETWEEN_BASES:
            self._base = Base(self._log.end_offset(self.topic.name, self._shard), number - 1, self._start)
        unit = Unit(number, before.digest if before else b"")
        parts = list(_parts(self._start, unit, _row_changes(work), _runs(work.messages)))
        messages = [self._message(part) for part in parts]
        digest = _digest(message.value for message in messages)
        table.put(CHANGELOG_KEY, self._row_at(number, digest))
        return messages

    def _message(self, change: StateChange) -> OutgoingMessage:
        encoder = codec(StateChange)
        return fitting(self.topic, encoder.fingerprint, encoder.encode(change))

    def _row_at(self, number: int, digest: bytes) -> ChangelogRow:
        base = self._base
        return ChangelogRow(number, digest, self._topic_id, base.offset, base.number, base.start)

    # ---- reading

    def catch_up(self, store: Store, sink: Sink) -> int:
        """Begin a start: apply what a database does not have; says how many units that was.

        Nobody else has the database open, and nothing is kept in memory of it. What the last unit said is in the
        outbox then: all before it was acknowledged, and it perhaps was not.

        Raises:
            PositionError: the topic lacks changes, or is another one; nothing is written that does not belong together.
            RetryableError: the log did not answer; do it again.
        """
        row = self._row(store)
        if row is not None and row.topic_id != self._topic_id:
            raise PositionError(
                f"{self._who}: topic {self.topic.name} was made anew since this database last wrote to it; restore the "
                f"topic, or go on without (deepclean accept-lost-tail); keep the database, which has what was in it"
            )
        self._require_base(row)
        begun_at = self._begin(store, sink)
        number = row.number if row else self._number_without_row(store)
        writer = _Writer(store, self._topic_id)
        for unit in self._units(row, number, _up_to(self._start, self._told(row))):
            if unit.number > number:
                writer.add(unit)
        end = self._log.end_offset(self.topic.name, self._shard)
        self._base = Base(end, max(number, writer.number), self._start)
        if writer.count:
            writer.finish(self._base)
            logger.info("brought up to date by the changelog", who=self._who, units=writer.count, number=writer.number)
        elif row is not None:
            # However often it is started before it changes anything. Not behind its beginning: to lose that is no loss.
            moved = replace(row, base_offset=begun_at, base_number=number, base_start=self._start)
            store.write({CHANGELOG.name: {CHANGELOG_KEY: _encoded(moved)}})
        return writer.count

    def _row(self, store: Store) -> ChangelogRow | None:
        return TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)

    def _number_without_row(self, store: Store) -> int:
        """0 for a database that has never taken anything in; else what stands for all that was never told."""
        positions = TablesReader(store).table(POSITIONS).scan(*_ALL_KEYS)
        return _UNTOLD if any(row.next_offset for _, row in positions) else 0

    def _begin(self, store: Store, sink: Sink) -> int:
        """Have the beginning of this start in the topic; says where it is at the earliest.

        The changes that still wait in the outbox are acknowledged before it is sent: behind it they would not count.
        """
        for value, fingerprint in self._waiting(store):
            sink.send(self.topic.name, self._shard, value, fingerprint)
        sink.flush()
        end = self._log.end_offset(self.topic.name, self._shard)
        beginning = self._message(StateChange(self._start, end, b"", _BEGINNING, False, (), ()))
        sink.send(beginning.topic, self._shard, beginning.value, beginning.fingerprint)
        sink.flush()
        return end

    def _waiting(self, store: Store) -> Iterator[tuple[bytes, bytes]]:
        """Changes that wait in the outbox, and the fingerprints of their schema."""
        for _, row in TablesReader(store).table(OUTBOX).scan(*_ALL_KEYS):
            for run in row.runs:
                if run.topic == self.topic.name:
                    yield from ((value, run.fingerprint) for value in run.values)

    def _units(self, row: ChangelogRow | None, number: int, changes: Iterable[_Told]) -> Iterator[Unit]:
        """Units behind the base, each once and in order; ``number`` is the newest that the database has."""
        base, digest = _base_of(row), row.digest if row else b""
        seen = base.number
        for unit in _whole_units(changes):
            if unit.number == number and row is not None and unit.digest != digest:
                raise self._of_another_past(number)
            if unit.number <= seen:
                continue  # sent again
            if unit.number > seen + 1:
                raise self._lost(seen) if row and seen < number else self._incomplete(seen + 1, unit.number - 1)
            if unit.number > number:
                if unit.previous != digest:
                    raise self._of_another_past(number) if row else self._incomplete(1, unit.number - 1)
                digest = unit.digest
            seen = unit.number
            yield unit
        if seen < number and row is not None:
            raise self._lost(seen)

    def _lost(self, number: int) -> LostChangesError:
        return LostChangesError(self._who, self.topic.name, number)

    def _of_another_past(self, number: int) -> LostChangesError:
        return self._lost(number - 1)

    def _incomplete(self, first: int, last: int) -> PositionError:
        return PositionError(
            f"{self._who}: {self.topic.name} lacks the units {first} to {last}, which this database does not have: "
            f"the broker has lost them; put a backup in its place that was taken later "
            f"(deepclean restore-backup)"
        )

    def _told(self, row: ChangelogRow | None, waiting: Iterable[_Told] = ()) -> Iterator[_Told]:
        """What counts of all that the topic holds from the base to its present end, and of what would come behind."""
        base, end = _base_of(row), self._log.end_offset(self.topic.name, self._shard)
        return _in_force(base, chain(_decoded(self._records(base.offset, end)), waiting))

    def _require_base(self, row: ChangelogRow | None) -> None:
        """The topic reaches from the base on; asked before anything is added to it, which would hide that it does not.

        Raises:
            PositionError: it does not.
        """
        base = _base_of(row)
        if base.offset > self._log.end_offset(self.topic.name, self._shard):
            raise self._lost(base.number)
        if base.offset < (first := self._log.first_offset(self.topic.name, self._shard)):
            raise PositionError(
                f"{self._who}: {self.topic.name} begins at offset {first}, and this database needs it from "
                f"{base.offset} on: it was trimmed; put a backup in its place that was taken later "
                f"(deepclean restore-backup)"
            )

    def _records(self, offset: int, end: int) -> Iterator[LogRecord]:
        if offset == end:
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
        """What the topic does not hold any more of what a database has written to it; None when it holds all.

        The newest unit may still wait in the outbox: it is looked for there, too, where a start would send it.
        """
        row = self._row(store)
        if row is None:
            return None
        end = self._log.end_offset(self.topic.name, self._shard)
        if row.topic_id != self._topic_id:
            return Loss(end, row.number)
        decode = codec(StateChange).decode_message
        waiting = ((decode(value, fingerprint), value, end) for value, fingerprint in self._waiting(store))
        try:
            self._require_base(row)
            for unit in self._units(row, row.number, self._told(row, waiting)):
                if unit.number > row.number:
                    break
        except LostChangesError as error:
            return Loss(end, row.number - error.number)
        except PositionError:
            return None  # what is missing behind this database is for a start to say
        return None

    def accept_loss(self, store: Store) -> None:
        """Go on behind what was lost, under numbers that nobody has used.

        So databases from before lack some, and are refused: they can no longer be brought up to date. Take a backup.
        """
        row = self._row(store)
        if row is None:
            return
        end = self._log.end_offset(self.topic.name, self._shard)
        records = self._records(self._log.first_offset(self.topic.name, self._shard), end)
        numbers = (change.number for change, _, _ in _decoded(records) if change.part != _BEGINNING)
        number = max(row.number, max(numbers, default=0)) + 1
        self._base = Base(end, number)
        store.write({CHANGELOG.name: {CHANGELOG_KEY: _encoded(self._row_at(number, row.digest))}})


def changelog_of(service: str, shard: int, log: Log) -> Changelog | None:
    """The changelog of a service's shard; None when it has none."""
    topic = CHANGELOGS.get(service)
    return None if topic is None else Changelog(service, topic, shard, log)


class _Writer:
    """Writes units to a database, several at once and each whole."""

    def __init__(self, store: Store, topic_id: str) -> None:
        self._store = store
        self._topic_id = topic_id
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
        if self._size_bytes >= WRITTEN_AT_ONCE_BYTES:
            self._write(_base_of(TablesReader(self._store).table(CHANGELOG).get(CHANGELOG_KEY)))
        for change in unit.rows:
            self._batch.setdefault(change.table, {})[change.key] = None if change.is_removed else change.value
            self._size_bytes += len(change.key) + len(change.value)
        self._last = unit
        self.count += 1

    def finish(self, base: Base) -> None:
        """Write what was added last; the next start may read from ``base`` on."""
        if self._last is not None:
            self._write(base)

    def _write(self, base: Base) -> None:
        """With what the last unit said in place of all that waited to be sent."""
        if self._last is None:
            return
        outbox: dict[bytes, bytes | None] = {key: None for key, _ in self._store.scan(OUTBOX.name, *_ALL_KEYS)}
        if self._last.messages:
            outbox[row_key(1)] = codec(OutboxRow).encode(OutboxRow(tuple(self._last.messages)))
        last = self._last
        row = ChangelogRow(last.number, last.digest, self._topic_id, base.offset, base.number, base.start)
        changelog: dict[bytes, bytes | None] = {CHANGELOG_KEY: _encoded(row)}
        self._store.write({**self._batch, OUTBOX.name: outbox, CHANGELOG.name: changelog})
        self._batch, self._size_bytes = {}, 0


def _encoded(row: ChangelogRow) -> bytes:
    return codec(ChangelogRow).encode(row)


def _base_of(row: ChangelogRow | None) -> Base:
    return Base(row.base_offset, row.base_number, row.base_start) if row else Base()


def _digest(values: Iterable[bytes]) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for value in values:
        digest.update(value)
    return digest.digest()


def _row_changes(work: Work) -> Iterator[RowChange]:
    for table, rows in work.encoded().items():
        for key, value in rows.items():
            yield RowChange(table, key, value is None, value or b"")


def _runs(messages: Iterable[OutgoingMessage]) -> Iterator[OutboxRun]:
    for topic, fingerprint, value in messages:
        yield OutboxRun(topic, fingerprint, (value,))


def _size_bytes(one: RowChange | OutboxRun) -> int:
    if isinstance(one, RowChange):
        return _ITEM_BYTES + len(one.table) + len(one.key) + len(one.value)
    return _ITEM_BYTES + len(one.topic) + len(one.fingerprint) + sum(map(len, one.values))


def _parts(start: str, unit: Unit, rows: Iterable[RowChange], messages: Iterable[OutboxRun]) -> Iterator[StateChange]:
    """A unit in messages of ``PART_BYTES`` at most; what is larger by itself is alone."""
    taken: tuple[list[RowChange], list[OutboxRun]] = [], []
    index = size_bytes = 0
    everything: Iterator[RowChange | OutboxRun] = chain(rows, messages)
    for one in everything:
        if size_bytes and size_bytes + _size_bytes(one) > PART_BYTES:
            yield StateChange(start, unit.number, unit.previous, index, False, tuple(taken[0]), tuple(taken[1]))
            taken, size_bytes, index = ([], []), 0, index + 1
        if isinstance(one, RowChange):
            taken[0].append(one)
        else:
            taken[1].append(one)
        size_bytes += _size_bytes(one)
    yield StateChange(start, unit.number, unit.previous, index, True, tuple(taken[0]), tuple(taken[1]))


def _decoded(records: Iterable[LogRecord]) -> Iterator[_Told]:
    """What the topic holds that can be read."""
    decode = codec(StateChange).decode_message
    for record in records:
        try:
            yield decode(record.value, record.fingerprint), record.value, record.offset
        except DecodeError as error:
            logger.warning("left out of the changelog", topic=record.topic, offset=record.offset, reason=str(error))


def _up_to(start: str, changes: Iterable[_Told]) -> Iterator[_Told]:
    """What was told up to the beginning of a start.

    Raises:
        RetryableError: it does not count, since that of another start has come before it; or it is not there.
    """
    for told in changes:
        if told[0].part == _BEGINNING and told[0].start == start:
            return
        yield told
    raise RetryableError("the beginning of this start is not in its changelog, or came too late: it is tried again")


def _in_force(base: Base, changes: Iterable[_Told]) -> Iterator[_Told]:
    """Beginnings that count, and what was told by the start that is under way; by any as long as none is known."""
    start, begun_at = base.start, base.offset
    for told in changes:
        change, _, offset = told
        if change.part == _BEGINNING:
            if change.number < begun_at:
                continue  # of an earlier one, which has not seen the one that is under way
            start, begun_at = change.start, offset + 1
        elif start not in ("", change.start):
            continue  # of an earlier one, which was still on its way
        yield told


def _whole_units(changes: Iterable[_Told]) -> Iterator[Unit]:
    """Units that are there with all parts. One that was cut off begins again, or never existed."""
    unit, values = Unit(0), list[bytes]()
    for change, value, _ in changes:
        if change.number == unit.number and change.part in range(len(values)) and value == values[change.part]:
            continue  # sent again amid its own unit: what follows is of the first time
        if change.part == 0:
            if change.number < unit.number:
                continue  # sent again amid a later one
            unit, values = Unit(change.number, change.previous), []
        if change.number != unit.number or change.part != len(values):
            continue
        unit.rows += change.rows
        unit.messages += change.messages
        values.append(value)
        if change.is_last:
            unit.digest = _digest(values)
            yield unit
            unit, values = Unit(unit.number), []
