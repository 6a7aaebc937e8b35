"""Find records that a broker lost after services had read them, and let a stopped plane resume without them.

The databases keep the effects of the lost records. When commands of metadata are lost, a command is appended to the end
of metadata's log. The command makes metadata skip every txn and chain version that another process may have seen;
metadata has applied the command when the call returns. Each service resumes reading where its topics continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.codec import DecodeError, codec
from schemas.records import AcceptLostTail, MetadataCommand, PositionRow, ShardState, SnapshotChainRecord
from schemas.stored_rows import row_codec
from schemas.topics import DELETED_ENTRIES, LEDGER, METADATA_COMMANDS, NUMBERED, SNAPSHOT_CHAIN
from services.domain.chain_view import ChainView, ChainViewError
from services.log.clock import SystemClock
from services.log.port import Log, LogRecord
from services.log.reads import all_records, records_between
from services.log.signing import Signer, person_command
from services.metadata.checkpoints.lost_tail import HIGHEST_EPOCH
from services.metadata.namespace.access import require_administrator
from services.metadata.recovery.rebuild import Rebuild
from services.metadata.recovery.sent_numbers import Highest, highest_of, numbers_of, sent_numbers
from services.metadata.recovery.start_check import LostCommandsError
from services.metadata.state.tables import SECRET_TABLE, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.machine.errors import StackError
from services.plane.stack.process_names import METADATA, SERVICES
from services.plane.stack.secrets import person
from services.plane.upkeep.shard_databases import database_directory, input_topics, open_database, positions_of
from services.runtime.loop.changelog import changelog_of
from services.runtime.loop.last_reads import last_read
from services.runtime.loop.outbox import OUTBOX
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.service import Message
from services.runtime.parts.signers import DeniedError, Signers
from services.runtime.parts.stored_chain import CHAIN_TABLE
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import has_database
from services.storage.store import Store
from services.storage.tables import TablesReader

SKIPPED_NUMBERS = 1_000_000
"""Numbers skipped beyond the highest found: only clients may have seen them, and clients store nothing to search."""
FAR_AHEAD = 1 << 40
"""Added to the position until the command is in the log: metadata refuses to start beyond the end of its topic."""


@dataclass(frozen=True, slots=True)
class LostTail:
    """A service has read records of a topic that the topic no longer holds, at its end or before newer records."""

    service: str
    topic: str
    shard: int
    read_to: int
    """Offset up to which the service has read the topic; for a changelog, up to which the service has written it."""
    end: int
    """Offset at which the service resumes: the end of the topic, or the first record appended after the loss."""


@dataclass(frozen=True, slots=True)
class LostNumbers:
    """Txns or chain versions that other processes know, but that metadata does not reach by applying its whole log."""

    known: Highest
    sent: Highest


@dataclass(frozen=True, slots=True)
class Losses:
    """All detectable losses of a shard."""

    tails: tuple[LostTail, ...]
    numbers: LostNumbers | None = None
    is_chain_whole: bool = True
    """Whether a reader of gc.snapshot-chain from its beginning reaches metadata's chain version."""

    def __bool__(self) -> bool:
        return bool(self.tails) or self.needs_skip

    @property
    def needs_skip(self) -> bool:
        """Whether metadata must continue in a new epoch and publish the whole chain again.

        Otherwise it is enough to set the services' positions.
        """
        has_lost_commands = any(one.service == METADATA for one in self.tails)
        return has_lost_commands or self.numbers is not None or not self.is_chain_whole


def find_losses(log: Log, home: Path, shard: int) -> Losses:
    """Return the topics that lack records a stopped service has read, and the numbers that metadata does not reach.

    To find those numbers, metadata first applies the rest of its log, as at a start, and publishes nothing.

    Raises:
        StackError: a topic was recreated since a service read it, which is not a lost tail.
    """
    tails: list[LostTail] = []
    for service in SERVICES:
        directory = database_directory(home, service, shard)
        if has_database(directory):
            with closing(open_database(directory, service)) as store:
                tails += _lost_tails_of(log, store, service, shard)
    directory = database_directory(home, METADATA, shard)
    if any(one.service == METADATA for one in tails) or not has_database(directory):
        return Losses(tuple(tails))
    with closing(open_database(directory, METADATA)) as store:
        numbers = _catch_up(log, store, shard) or _more_that_is_known(home, store, shard)
        return Losses(tuple(tails), numbers, _is_chain_whole(log, store, shard))


def _catch_up(log: Log, store: RocksStore, shard: int) -> LostNumbers | None:
    """Apply the rest of the log; its messages are published at the next start. Return the numbers it does not reach."""
    with closing(Rebuild(shard, store, log)) as run:
        try:
            run.run_to(run.end)
            run.check()
        except LostCommandsError as error:
            return LostNumbers(error.known, error.sent)
    return None


def _more_that_is_known(home: Path, store: Store, shard: int) -> LostNumbers | None:
    """Return the numbers that the judges' databases know and metadata does not reach; None if there are none."""
    known, judged = highest_of(_stored_state(store)), _judges_numbers(home, shard)
    return None if known.and_of(judged) == known else LostNumbers(known, judged)


def _is_chain_whole(log: Log, store: Store, shard: int) -> bool:
    """Return whether the markers in the topic and in the outbox lead to metadata's chain version."""
    view = ChainView()
    try:
        for value in _markers(log, store, shard):
            with suppress(DecodeError):  # an undecodable record stops readers in any case
                view.follow(codec(SnapshotChainRecord).decode_message(value))
    except ChainViewError:
        return False
    return view.version >= highest_of(_stored_state(store)).chain_version


def _markers(log: Log, store: Store, shard: int) -> Iterator[bytes]:
    topic = SNAPSHOT_CHAIN.name
    for record in all_records(log, topic, shard):
        yield record.value
    for _, row in TablesReader(store).table(OUTBOX).scan():
        for run in row.runs:
            if run.topic == topic:
                yield from run.values


def _lost_tails_of(log: Log, store: Store, service: str, shard: int) -> Iterator[LostTail]:
    changelog = changelog_of(service, shard, log)
    if changelog is not None and (lost := changelog.find_loss(store)) is not None:
        yield LostTail(service, changelog.topic.name, shard, lost.end + lost.units, lost.end)
    topic_ids = log.topic_ids(input_topics(service))
    for topic, row in positions_of(store, service).items():
        if topic not in topic_ids:
            continue
        if row.topic_id != topic_ids[topic]:
            raise StackError(
                f"Topic {topic} was recreated since {service} read it: that is no lost tail; restore the topic."
            )
        end = log.end_offset(topic, shard)
        if row.next_offset > end:
            yield LostTail(service, topic, shard, row.next_offset, end)
        elif not _is_there(log, shard, row):
            yield LostTail(service, topic, shard, row.next_offset, _grown_from(log, shard, row))


def _is_there(log: Log, shard: int, row: PositionRow) -> bool:
    """Return whether a topic holds the last record read from it; True if that record was trimmed or never noted."""
    offset = row.next_offset - 1
    if row.last_read is None or offset < log.first_offset(row.topic, shard):
        return True
    found = next(records_between(log, row.topic, shard, offset, log.end_offset(row.topic, shard)), None)
    return found is not None and found.offset == offset and last_read(found) == row.last_read


def _grown_from(log: Log, shard: int, row: PositionRow) -> int:
    """Return the offset of the first record that is not older than the last record that was read and lost.

    Records before the loss are older than the lost record. If a clock went back, too many records are read again, which
    every service except metadata ignores, or none; metadata resumes behind all of them in any case.
    """
    read_ms = row.last_read.timestamp_ms if row.last_read else 0
    for record in all_records(log, row.topic, shard):
        if record.timestamp_ms >= read_ms or record.offset + 1 >= row.next_offset:
            return record.offset
    return log.end_offset(row.topic, shard)


def accept_losses(log: Log, home: Path, shard: int, losses: Losses, reason: str) -> AcceptLostTail | None:
    """Let a stopped plane resume without the lost records; a call after a crash completes the interrupted one.

    Return the command that metadata has applied; None if metadata's log is whole and only positions were set.

    Raises:
        StackError: metadata has no database, another client writes to the log, or metadata refuses the command.
    """
    command = None
    if losses.needs_skip:
        with closing(open_database(database_directory(home, METADATA, shard), METADATA)) as store:
            command = _skip(log, home, shard, store, reason)
    for one in losses.tails:
        if one.service == METADATA:
            continue
        with closing(open_database(database_directory(home, one.service, shard), one.service)) as other:
            changelog = changelog_of(one.service, shard, log)
            if changelog is not None and one.topic == changelog.topic.name:
                changelog.accept_loss(other)
            else:
                _set_position(other, log, one.topic, one.end)
    return command


def _skip(log: Log, home: Path, shard: int, store: RocksStore, reason: str) -> AcceptLostTail:
    """Append the command to the log, apply it to the database, and return it."""
    state = _stored_state(store)
    if state is None:
        raise StackError("metadata has applied no command, so it cannot continue from its database: restore a backup.")
    command = _begun(log, shard, store, state)
    if command is None:
        highest = (
            sent_numbers(log, shard, topics=(*NUMBERED, DELETED_ENTRIES, LEDGER))
            .highest.and_of(_judges_numbers(home, shard))
            .and_of(highest_of(state))
        )
        command = _command(log, shard, state, highest, reason)
        record = _record_of(command, shard, person(home))
        _require_accepted(record, store)
        # A start between the two steps must not treat the command as applied.
        _set_position(store, log, METADATA_COMMANDS.name, command.offset + FAR_AHEAD)
        _append(log, record)
        # Check again, with the timestamp that the log assigned.
        sent = records_between(log, METADATA_COMMANDS.name, shard, command.offset, command.offset + 1)
        _require_accepted(next(sent), store)
    _set_position(store, log, METADATA_COMMANDS.name, command.offset)
    # Apply the command at the end of the log; its messages are published at the next start.
    with closing(Rebuild(shard, store, log, is_checked=False)) as run:
        run.run_to(run.end)
    reached = _stored_state(store)
    if reached is None or (reached.epoch, reached.txn) != (command.epoch, command.txn):
        _set_position(store, log, METADATA_COMMANDS.name, log.end_offset(METADATA_COMMANDS.name, shard) + FAR_AHEAD)
        raise StackError(
            f"metadata did not carry out the command at offset {command.offset} of {METADATA_COMMANDS.name}: start "
            f"nothing, and report it."
        )
    return command


def _stored_state(store: Store) -> ShardState | None:
    return TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)


def _begun(log: Log, shard: int, store: Store, state: ShardState) -> AcceptLostTail | None:
    """Return the command that an interrupted earlier call appended to the end of the log; None if there is none."""
    end = log.end_offset(METADATA_COMMANDS.name, shard)
    for record in records_between(log, METADATA_COMMANDS.name, shard, max(0, end - 1), end):
        try:
            body = codec(MetadataCommand).decode_message(record.value).body
        except DecodeError:
            continue
        if not isinstance(body, AcceptLostTail) or _why_refused(record, store):
            continue
        if (body.offset, body.expected_txn, body.epoch) == (end - 1, state.txn, state.epoch + 1):
            return body
    return None


def _command(log: Log, shard: int, state: ShardState, highest: Highest, reason: str) -> AcceptLostTail:
    if state.epoch >= HIGHEST_EPOCH:
        raise StackError(f"Shard {shard} has accepted a lost tail {HIGHEST_EPOCH} times, which is the maximum.")
    return AcceptLostTail(
        offset=log.end_offset(METADATA_COMMANDS.name, shard),
        expected_txn=state.txn,
        expected_log_time_ms=state.log_time_ms,
        epoch=state.epoch + 1,
        txn=highest.txn + SKIPPED_NUMBERS,
        chain_version=highest.chain_version + SKIPPED_NUMBERS,
        reason=reason,
    )


def _record_of(command: AcceptLostTail, shard: int, signer: Signer | None) -> LogRecord:
    """Return the record that appending the command now would produce."""
    now_ms = SystemClock().now_ms()
    value = person_command(MetadataCommand(shard, "", 0, command, wants_reply=False), signer, now_ms)
    return LogRecord(METADATA_COMMANDS.name, shard, command.offset, now_ms, value)


def _append(log: Log, record: LogRecord) -> None:
    with closing(log.open_sink()) as sink:
        sink.send(record.topic, record.partition, record.value)
        sink.flush()
    if log.end_offset(record.topic, record.partition) != record.offset + 1:
        raise StackError(
            f"Another client writes to {record.topic}: stop every client of this broker, and run the command again."
        )


def _require_accepted(record: LogRecord, store: Store) -> None:
    if why := _why_refused(record, store):
        raise StackError(f"metadata would refuse the command: {why}")


def _why_refused(record: LogRecord, store: Store) -> str:
    """Return why metadata would dead-letter the command by its own secrets; empty if it would apply it."""
    signers = Signers()
    signers.restore(row for _, row in TablesReader(store).table(SECRET_TABLE).scan())
    if not signers.is_on:
        return ""
    command = codec(MetadataCommand).decode_message(record.value)
    message = Message(METADATA_COMMANDS, record.offset, record.timestamp_ms, command, record.value)
    try:
        require_administrator(signers, message, command)
    except DeniedError as error:
        return f"{error} (DEEPCLEAN_USER says who signs)"
    return ""


def _set_position(store: Store, log: Log, topic: str, next_offset: int) -> None:
    row = PositionRow(topic, log.topic_ids([topic])[topic], next_offset)
    store.write({POSITIONS.name: {topic.encode(): row_codec(PositionRow).encode(row)}})


def _judges_numbers(home: Path, shard: int) -> Highest:
    """Return the highest numbers in any judge's own chain."""
    found = Highest()
    for service in SERVICES:
        directory = database_directory(home, service, shard)
        if service != METADATA and has_database(directory):
            with closing(open_database(directory, service)) as store:
                for _, row in TablesReader(store).table(CHAIN_TABLE).scan():
                    found = found.and_of(numbers_of(row.record))
    return found
