"""A service's changelog: the changes of its units of work, in a topic of its own; an older database catches up by it.

Some services read more than one input, and their answers depend on the order of the inputs. A replay in another order
could give other answers than clients have received. Therefore no decision is made again: the log acknowledges the
changes of a unit of work before any other message of that unit is sent. A start applies the changes that its database
lacks and reads its inputs from there on. Changes that the topic does not hold were never published.

Each start first writes a beginning into the topic, and reads up to it; so it knows all that earlier starts have
published. Readers ignore messages of an earlier start that arrive after that, its beginning included: a beginning holds
the end of the topic that its start had seen, and is valid only if no valid beginning lies behind that end. Each unit
holds the digest of the unit before it: a database with a different history, as before an accepted loss, is refused.

Kafka Streams calls such a topic a changelog. This one keeps the rows of a unit together, positions included, and is not
compacted: it reaches back to the oldest backup that needs it (``deepclean trim-log``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from uuid import uuid4

import structlog

from schemas.codec import codec
from schemas.records import ChangelogRow, StateChange
from schemas.topics import CHANGELOGS, Topic
from services.domain.errors import OutdatedError, PositionError, RetryableError
from services.log.port import Log, Sink
from services.log.reads import all_records, records_between
from services.runtime.loop.changelog_table import (
    CHANGELOG,
    CHANGELOG_KEY,
    ChangelogWriter,
    base_of,
    encoded_row,
)
from services.runtime.loop.changelog_units import (
    BEGINNING,
    Base,
    SentChange,
    Unit,
    decoded,
    digest_of,
    in_force,
    later_schemas,
    parts_of,
    row_changes,
    runs_of,
    up_to,
    whole_units,
)
from services.runtime.loop.outbox import OUTBOX
from services.runtime.loop.positions import POSITIONS, trimmed
from services.runtime.loop.service import OutgoingMessage, Work, fitting
from services.storage.store import BEYOND, Store
from services.storage.tables import TablesReader

READABLE_SECONDS = 15.0
UNITS_BETWEEN_BASES = 256
"""Units after which the base moves: a start reads from the base on, which is this number of units and few more."""
_UNPUBLISHED = 1
"""Unit number of a database that has state but no changelog row. It is not 0: the units that follow are not the whole
state, and an empty database must not be built from them."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """Changes that a database has written to the topic and the topic does not hold."""

    end: int
    """Present end offset of the topic."""
    units: int


class LostChangesError(PositionError):
    """The topic lacks the units after ``number`` that a database has written to it."""

    def __init__(self, who: str, topic: str, number: int) -> None:
        super().__init__(
            f"{who}: {topic} lacks the units after unit {number} that this database has written to it: the broker has "
            f"lost its tail, or the database is from an abandoned history; restore the topic, accept the loss "
            f"(deepclean accept-lost-tail), or restore a later backup (deepclean restore-backup)"
        )
        self.number = number


class Changelog:
    """The changelog of one shard of a service, for one start."""

    def __init__(self, service: str, topic: Topic, shard: int, log: Log) -> None:
        self.topic = topic
        self._who = f"{service}, shard {shard}"
        self._shard = shard
        self._log = log
        self._topic_id = log.topic_ids([topic.name])[topic.name]
        self._start = str(uuid4())
        self._base = Base()
        self._first_number = 0
        """Number of the first unit of this start. It holds the schemas by which the start writes its rows: after going
        back to an older program, an older copy of the database learns them with the rows."""

    # ---- writing

    def messages_of(self, work: Work) -> list[OutgoingMessage]:
        """Return the changelog messages of a unit of work, which are sent before its other messages.

        Call it last, after all other changes to the unit. All earlier units are acknowledged by then.
        """
        table = work.table(CHANGELOG)
        before = table.get(CHANGELOG_KEY)
        number = (before.number if before else self._number_without_row(work.store)) + 1
        if number - self._base.number > UNITS_BETWEEN_BASES:
            self._base = Base(self._log.end_offset(self.topic.name, self._shard), number - 1, self._start)
        unit = Unit(number, before.digest if before else b"")
        schemas = later_schemas(work.store) if number == self._first_number else ()
        parts = list(parts_of(self._start, unit, chain(schemas, row_changes(work)), runs_of(work.messages)))
        messages = [self._message(part) for part in parts]
        digest = digest_of(message.value for message in messages)
        table.put(CHANGELOG_KEY, self._row_at(number, digest))
        return messages

    def _message(self, change: StateChange) -> OutgoingMessage:
        return fitting(self.topic, codec(StateChange).encode_message(change))

    def _row_at(self, number: int, digest: bytes) -> ChangelogRow:
        base = self._base
        return ChangelogRow(number, digest, self._topic_id, base.offset, base.number, base.start)

    # ---- reading

    def catch_up(self, store: Store, sink: Sink, families: Iterable[str] = ()) -> int:
        """Begin a start: apply the units that a database lacks; return their number.

        The caller alone has the database open, and keeps nothing of it in memory. Afterwards the outbox holds the
        messages of the last unit, since they may not be acknowledged; those of earlier units are.

        A database whose last unit was never published, because another process had taken the shard, is built anew:
        its ``families`` are emptied.

        Raises:
            OutdatedError: the topic was trimmed beyond what the database needs.
            PositionError: the topic lacks changes, or was recreated; only whole units are written.
            RetryableError: the log did not answer; call it again.
        """
        row = self._row(store)
        if row is not None and row.topic_id != self._topic_id:
            raise PositionError(
                f"{self._who}: topic {self.topic.name} was recreated since this database last wrote to it; restore the "
                f"topic, or accept the loss (deepclean accept-lost-tail) and keep the database"
            )
        self._require_base(row)
        begun_at = self._begin(store, sink)
        try:
            return self._apply(store, row, begun_at)
        except LostChangesError as error:
            if row is None or not self._is_overtaken(store, row):
                raise
            self._require_beginning(error)
        logger.warning(
            "rebuilt from the changelog without its last, unpublished unit of work", who=self._who, number=row.number
        )
        store.write({family: dict.fromkeys(_keys(store, family)) for family in families})
        return self._apply(store, None, begun_at)

    def _apply(self, store: Store, row: ChangelogRow | None, begun_at: int) -> int:
        """Apply the units that a database lacks; return their number."""
        number = row.number if row else self._number_without_row(store)
        writer = ChangelogWriter(store, self._topic_id)
        for unit in self._units(row, number, up_to(self._start, self._sent_changes(row))):
            if unit.number > number:
                writer.add(unit)
        end = self._log.end_offset(self.topic.name, self._shard)
        self._base = Base(end, max(number, writer.number), self._start)
        self._first_number = self._base.number + 1
        if writer.count:
            writer.finish(self._base)
            logger.info("brought up to date by the changelog", who=self._who, units=writer.count, number=writer.number)
        elif row is not None:
            # Else starts without changes lengthen the next read. Not behind the beginning: losing that is no loss.
            moved = replace(row, base_offset=begun_at, base_number=number, base_start=self._start)
            store.write({CHANGELOG.name: {CHANGELOG_KEY: encoded_row(moved)}})
        return writer.count

    def _is_overtaken(self, store: Store, row: ChangelogRow) -> bool:
        """Return whether all of a database is in the topic but its last unit, which waits in the outbox.

        Then the topic was not lost: another process began before it had that unit, and nobody has seen what it caused.
        """
        decode = codec(StateChange).decode_message
        waiting = map(decode, self._waiting(store))
        previous = next((change.previous for change in waiting if change.number == row.number), None)
        is_base_there = row.base_offset <= self._log.end_offset(self.topic.name, self._shard)
        if previous is None or row.base_number >= row.number or not is_base_there:
            return False
        digest = None if row.base_number < row.number - 1 else previous
        for unit in whole_units(self._sent_changes(row)):
            if unit.number == row.number - 1:
                digest = unit.digest
            elif unit.number == row.number and unit.previous != previous:
                return False
        return digest == previous

    def _require_beginning(self, reason: LostChangesError) -> None:
        """Raise PositionError if a database cannot be built from the topic alone."""
        try:
            self._require_base(None)
            for _ in self._units(None, 0, up_to(self._start, self._sent_changes(None))):
                pass
        except PositionError as error:
            raise OutdatedError(
                f"{self._who}: another process took this shard over before the last unit of work of this database was "
                f"published; the database cannot be rebuilt from {self.topic.name}, which no longer has all units: "
                f"restore a backup (deepclean restore-backup)"
            ) from (error.__cause__ or reason)

    def _row(self, store: Store) -> ChangelogRow | None:
        return TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)

    def _number_without_row(self, store: Store) -> int:
        """Return 0 for a database that has applied no input, else ``_UNPUBLISHED``."""
        positions = TablesReader(store).table(POSITIONS).scan()
        return _UNPUBLISHED if any(row.next_offset for _, row in positions) else 0

    def _begin(self, store: Store, sink: Sink) -> int:
        """Write the beginning of this start to the topic; return the lowest offset that it can have.

        The log acknowledges the changes in the outbox first: readers would ignore them behind the beginning.
        """
        for value in self._waiting(store):
            sink.send(self.topic.name, self._shard, value)
        sink.flush()
        end = self._log.end_offset(self.topic.name, self._shard)
        beginning = self._message(StateChange(self._start, end, b"", BEGINNING, False, (), ()))
        sink.send(beginning.topic, self._shard, beginning.value)
        sink.flush()
        self._await_readable(beginning.value, end)
        return end

    def _await_readable(self, value: bytes, first: int) -> None:
        """Wait until a message of this start can be read; raise RetryableError if it cannot be for long."""
        until, pause = time.monotonic() + READABLE_SECONDS, threading.Event()
        while True:
            end = self._log.end_offset(self.topic.name, self._shard)
            sent = records_between(self._log, self.topic.name, self._shard, first, end)
            if any(record.value == value for record in sent):
                return
            if time.monotonic() > until:
                raise RetryableError(f"{self._who}: what was sent to {self.topic.name} cannot be read yet")
            pause.wait(0.01)

    def _waiting(self, store: Store) -> Iterator[bytes]:
        """Yield the messages of the changes that wait in the outbox."""
        for _, row in TablesReader(store).table(OUTBOX).scan():
            for run in row.runs:
                if run.topic == self.topic.name:
                    yield from run.values

    def _units(self, row: ChangelogRow | None, number: int, changes: Iterable[SentChange]) -> Iterator[Unit]:
        """Yield the units behind the base, each once and in order; ``number`` is the newest that the database has."""
        base, digest = base_of(row), row.digest if row else b""
        seen = base.number
        for unit in whole_units(changes):
            if unit.number == number and row is not None and unit.digest != digest:
                raise self._lost(number - 1)  # the database is of another past
            if unit.number <= seen:
                continue  # a duplicate
            if unit.number > seen + 1:
                raise self._lost(seen) if row and seen < number else self._incomplete(seen + 1, unit.number - 1)
            if unit.number > number:
                if unit.previous != digest:
                    raise self._lost(number - 1) if row else self._incomplete(1, unit.number - 1)
                digest = unit.digest
            seen = unit.number
            yield unit
        if seen < number and row is not None:
            raise self._lost(seen)

    def _lost(self, number: int) -> LostChangesError:
        return LostChangesError(self._who, self.topic.name, number)

    def _incomplete(self, first: int, last: int) -> PositionError:
        return PositionError(
            f"{self._who}: {self.topic.name} lacks the units {first} to {last}, which this database does not have: "
            f"the broker has lost them; restore a later backup (deepclean restore-backup)"
        )

    def _sent_changes(self, row: ChangelogRow | None, waiting: Iterable[SentChange] = ()) -> Iterator[SentChange]:
        """Yield the valid changes from the base to the present end of the topic, then the valid ones of ``waiting``."""
        base, end = base_of(row), self._log.end_offset(self.topic.name, self._shard)
        records = records_between(self._log, self.topic.name, self._shard, base.offset, end)
        return in_force(base, chain(decoded(records), waiting))

    def _require_base(self, row: ChangelogRow | None) -> None:
        """Raise PositionError if the topic ends before the base or begins behind it. Call it before anything is sent,
        which would hide a lost tail.
        """
        base = base_of(row)
        if base.offset > self._log.end_offset(self.topic.name, self._shard):
            raise self._lost(base.number)
        if base.offset < (first := self._log.first_offset(self.topic.name, self._shard)):
            raise trimmed(self._who, self.topic.name, first, base.offset)

    # ---- after a loss

    def find_loss(self, store: Store) -> Loss | None:
        """Return the units that a database has written to the topic and the topic has lost; None when it holds all.

        Units that wait in the outbox count as present, since a start would send them.
        """
        row = self._row(store)
        if row is None:
            return None
        end = self._log.end_offset(self.topic.name, self._shard)
        if row.topic_id != self._topic_id:
            return Loss(end, row.number)
        decode = codec(StateChange).decode_message
        waiting = ((decode(value), value, end) for value in self._waiting(store))
        try:
            self._require_base(row)
            for unit in self._units(row, row.number, self._sent_changes(row, waiting)):
                if unit.number > row.number:
                    break
        except LostChangesError as error:
            return None if self._is_overtaken(store, row) else Loss(end, row.number - error.number)
        except PositionError:
            return None  # units that this database never had are missing: the next start reports that
        return None

    def accept_loss(self, store: Store) -> None:
        """Continue after a loss, under unit numbers that no start has used.

        Older databases and backups lack the skipped numbers and are refused. Take a backup afterwards.
        """
        row = self._row(store)
        if row is None:
            return
        end = self._log.end_offset(self.topic.name, self._shard)
        records = all_records(self._log, self.topic.name, self._shard)
        numbers = (change.number for change, _, _ in decoded(records) if change.part != BEGINNING)
        number = max(row.number, max(numbers, default=0)) + 1
        self._base = Base(end, number)
        store.write({CHANGELOG.name: {CHANGELOG_KEY: encoded_row(self._row_at(number, row.digest))}})


def _keys(store: Store, family: str) -> list[bytes]:
    return [key for key, _ in store.scan(family, b"", BEYOND)]


def changelog_of(service: str, shard: int, log: Log) -> Changelog | None:
    """Return the changelog of a service's shard; None when the service has none."""
    topic = CHANGELOGS.get(service)
    return None if topic is None else Changelog(service, topic, shard, log)
