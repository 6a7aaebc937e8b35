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
from dataclasses import dataclass, replace
from itertools import chain
from uuid import uuid4

import structlog

from schemas.codec import codec
from schemas.records import ChangelogRow, StateChange
from schemas.topics import CHANGELOGS, Topic
from services.domain.errors import PositionError
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
    parts_of,
    row_changes,
    runs_of,
    up_to,
    whole_units,
)
from services.runtime.loop.outbox import OUTBOX
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.service import OutgoingMessage, Work, fitting
from services.storage.store import Store
from services.storage.tables import TablesReader

UNITS_BETWEEN_BASES = 256
"""A start reads from the base on: so many units and few more."""
_UNPUBLISHED = 1
"""Number of a state that no change has led to: so that nobody takes the changes behind it for all there are."""

logger = structlog.get_logger(__name__)


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
        parts = list(parts_of(self._start, unit, row_changes(work), runs_of(work.messages)))
        messages = [self._message(part) for part in parts]
        digest = digest_of(message.value for message in messages)
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
                f"{self._who}: topic {self.topic.name} was recreated since this database last wrote to it; restore the "
                f"topic, or go on without (deepclean accept-lost-tail); keep the database, which has what was in it"
            )
        self._require_base(row)
        begun_at = self._begin(store, sink)
        number = row.number if row else self._number_without_row(store)
        writer = ChangelogWriter(store, self._topic_id)
        for unit in self._units(row, number, up_to(self._start, self._sent_changes(row))):
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
            store.write({CHANGELOG.name: {CHANGELOG_KEY: encoded_row(moved)}})
        return writer.count

    def _row(self, store: Store) -> ChangelogRow | None:
        return TablesReader(store).table(CHANGELOG).get(CHANGELOG_KEY)

    def _number_without_row(self, store: Store) -> int:
        """0 for a database that has never taken anything in; else what stands for all that was never told."""
        positions = TablesReader(store).table(POSITIONS).scan()
        return _UNPUBLISHED if any(row.next_offset for _, row in positions) else 0

    def _begin(self, store: Store, sink: Sink) -> int:
        """Have the beginning of this start in the topic; says where it is at the earliest.

        The changes that still wait in the outbox are acknowledged before it is sent: behind it they would not count.
        """
        for value, fingerprint in self._waiting(store):
            sink.send(self.topic.name, self._shard, value, fingerprint)
        sink.flush()
        end = self._log.end_offset(self.topic.name, self._shard)
        beginning = self._message(StateChange(self._start, end, b"", BEGINNING, False, (), ()))
        sink.send(beginning.topic, self._shard, beginning.value, beginning.fingerprint)
        sink.flush()
        return end

    def _waiting(self, store: Store) -> Iterator[tuple[bytes, bytes]]:
        """Changes that wait in the outbox, and the fingerprints of their schema."""
        for _, row in TablesReader(store).table(OUTBOX).scan():
            for run in row.runs:
                if run.topic == self.topic.name:
                    yield from ((value, run.fingerprint) for value in run.values)

    def _units(self, row: ChangelogRow | None, number: int, changes: Iterable[SentChange]) -> Iterator[Unit]:
        """Units behind the base, each once and in order; ``number`` is the newest that the database has."""
        base, digest = base_of(row), row.digest if row else b""
        seen = base.number
        for unit in whole_units(changes):
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

    def _sent_changes(self, row: ChangelogRow | None, waiting: Iterable[SentChange] = ()) -> Iterator[SentChange]:
        """What counts of all that the topic holds from the base to its present end, and of what would come behind."""
        base, end = base_of(row), self._log.end_offset(self.topic.name, self._shard)
        records = records_between(self._log, self.topic.name, self._shard, base.offset, end)
        return in_force(base, chain(decoded(records), waiting))

    def _require_base(self, row: ChangelogRow | None) -> None:
        """The topic reaches from the base on; asked before anything is added to it, which would hide that it does not.

        Raises:
            PositionError: it does not.
        """
        base = base_of(row)
        if base.offset > self._log.end_offset(self.topic.name, self._shard):
            raise self._lost(base.number)
        if base.offset < (first := self._log.first_offset(self.topic.name, self._shard)):
            raise PositionError(
                f"{self._who}: {self.topic.name} begins at offset {first}, and this database needs it from "
                f"{base.offset} on: it was trimmed; put a backup in its place that was taken later "
                f"(deepclean restore-backup)"
            )

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
            for unit in self._units(row, row.number, self._sent_changes(row, waiting)):
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
        records = all_records(self._log, self.topic.name, self._shard)
        numbers = (change.number for change, _, _ in decoded(records) if change.part != BEGINNING)
        number = max(row.number, max(numbers, default=0)) + 1
        self._base = Base(end, number)
        store.write({CHANGELOG.name: {CHANGELOG_KEY: encoded_row(self._row_at(number, row.digest))}})


def changelog_of(service: str, shard: int, log: Log) -> Changelog | None:
    """The changelog of a service's shard; None when it has none."""
    topic = CHANGELOGS.get(service)
    return None if topic is None else Changelog(service, topic, shard, log)
