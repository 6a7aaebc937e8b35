"""What a broker has lost that services had read already, and how a stopped plane goes on without it.

The databases keep what the lost records did. metadata is told, by a command at the end of its log, to leap over every
txn and chain version that anybody may have seen; each service goes on reading at the new end of each topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.codec import DecodeError, codec
from schemas.records import (
    AcceptLostTail,
    BlocksWritten,
    ChainTake,
    DeletedEntries,
    MetadataCommand,
    MetadataProgress,
    MetadataReply,
    PositionRow,
    ScmCommand,
    ShardState,
    SnapshotChainRecord,
    SpaceUpdate,
)
from schemas.topics import BY_NAME, METADATA_COMMANDS, TOPICS
from services.domain.table_keys import local_id_txn
from services.metadata.lost_tail import HIGHEST_EPOCH
from services.metadata.rebuild import Rebuild
from services.metadata.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.errors import StackError
from services.plane.plane_secrets import person
from services.plane.shard_databases import (
    database_directory,
    has_database,
    input_topics,
    open_database,
    positions_of,
)
from services.plane.stack_settings import METADATA, SERVICES
from services.runtime.chain_follower import CHAIN_TABLE
from services.runtime.clock import SystemClock
from services.runtime.log import Log
from services.runtime.loop import POSITIONS
from services.runtime.signing import Signer, person_command
from services.storage.rocks import RocksStore
from services.storage.store import Store
from services.storage.tables import TablesReader

LEAP = 1_000_000
"""Beyond the highest that is found: what only clients saw, who keep nothing that could be looked at."""
FAR_AHEAD = 1 << 40
"""A position beyond every end, until the command is in the log: nobody starts on it."""
POLL_SECONDS = 10.0
RECORDS_PER_POLL = 10_000


@dataclass(frozen=True, slots=True)
class LostTail:
    """A service has read a topic further than it reaches now."""

    service: str
    topic: str
    shard: int
    read_to: int
    end: int


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest numbers of a shard that anybody has seen."""

    txn: int = 0
    chain_version: int = 0

    def and_of(self, other: Highest) -> Highest:
        """The higher of each."""
        return Highest(max(self.txn, other.txn), max(self.chain_version, other.chain_version))


def find_lost_tails(log: Log, home: Path, shard: int) -> list[LostTail]:
    """Every topic that ends before a stored position of a stopped service.

    Raises:
        StackError: a topic is not the one that was read: that is no lost tail.
    """
    found: list[LostTail] = []
    for service in SERVICES:
        directory = database_directory(home, service, shard)
        if not has_database(directory):
            continue
        store = open_database(directory, service)
        try:
            found += _lost_tails_of(log, store, service, shard)
        finally:
            store.close()
    return found


def _lost_tails_of(log: Log, store: Store, service: str, shard: int) -> Iterator[LostTail]:
    topic_ids = log.topic_ids(input_topics(service))
    for topic, row in positions_of(store, service).items():
        if row.topic_id != topic_ids[topic]:
            raise StackError(
                f"Topic {topic} was made anew since {service} read it: that is no lost tail; restore the topic."
            )
        end = log.end_offset(topic, shard)
        if row.next_offset > end:
            yield LostTail(service, topic, shard, row.next_offset, end)


def accept_lost_tail(log: Log, home: Path, shard: int, lost: Sequence[LostTail], reason: str) -> AcceptLostTail:
    """Have a stopped plane go on without what was lost; called again after a crash it ends what it began.

    Raises:
        StackError: metadata has no database, or somebody writes to the log meanwhile.
    """
    store = open_database(database_directory(home, METADATA, shard), METADATA)
    try:
        if not any(one.service == METADATA for one in lost):
            _catch_up(log, store, shard)
        state = _state(store)
        command = _begun(log, shard, state)
        if command is None:
            highest = highest_seen(log, home, shard).and_of(Highest(state.txn, state.chain_version))
            # A start between the two steps must not take the command for one that was applied.
            _set_position(store, log, METADATA_COMMANDS.name, log.end_offset(METADATA_COMMANDS.name, shard) + FAR_AHEAD)
            command = _append(log, shard, state, highest, reason, person(home))
        _set_position(store, log, METADATA_COMMANDS.name, command.offset)
    finally:
        store.close()
    for one in lost:
        if one.service != METADATA:
            other = open_database(database_directory(home, one.service, shard), one.service)
            try:
                _set_position(other, log, one.topic, one.end)
            finally:
                other.close()
    return command


def _state(store: Store) -> ShardState:
    state = TablesReader(store).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    if state is None:
        raise StackError("metadata has applied nothing: there is nothing to go on from; restore a backup.")
    return state


def _catch_up(log: Log, store: RocksStore, shard: int) -> None:
    """A database that is not ahead of the log first takes in the rest of it, and sends all that comes of it."""
    run = Rebuild(shard, store, log)
    try:
        run.run_to(run.end)
    finally:
        run.close()


def _begun(log: Log, shard: int, state: ShardState) -> AcceptLostTail | None:
    """The command that a call before this one, which was cut off, has put at the end of the log."""
    end = log.end_offset(METADATA_COMMANDS.name, shard)
    for record in read_partition(log, METADATA_COMMANDS.name, shard, max(0, end - 1)):
        body = record.body
        wanted = (end - 1, state.txn, state.epoch + 1)
        if isinstance(body, AcceptLostTail) and (body.offset, body.expected_txn, body.epoch) == wanted:
            return body
    return None


def _append(
    log: Log, shard: int, state: ShardState, highest: Highest, reason: str, signer: Signer | None
) -> AcceptLostTail:
    if state.epoch >= HIGHEST_EPOCH:
        raise StackError(f"Shard {shard} has gone on without a tail {HIGHEST_EPOCH} times, which is the most it can.")
    end = log.end_offset(METADATA_COMMANDS.name, shard)
    command = AcceptLostTail(
        offset=end,
        expected_txn=state.txn,
        expected_log_time_ms=state.log_time_ms,
        epoch=state.epoch + 1,
        txn=highest.txn + LEAP,
        chain_version=highest.chain_version + LEAP,
        reason=reason,
    )
    encoder = codec(MetadataCommand)
    sink = log.open_sink()
    try:
        unsigned = MetadataCommand(shard, "", 0, command, wants_reply=False)
        body = person_command(unsigned, signer, SystemClock().now_ms())
        sink.send(METADATA_COMMANDS.name, shard, body, encoder.fingerprint)
        sink.flush()
    finally:
        sink.close()
    if log.end_offset(METADATA_COMMANDS.name, shard) != end + 1:
        raise StackError(f"Somebody writes to {METADATA_COMMANDS.name}: stop every client of this broker, do it again.")
    return command


def _set_position(store: Store, log: Log, topic: str, next_offset: int) -> None:
    row = PositionRow(topic, log.topic_ids([topic])[topic], next_offset)
    store.write({POSITIONS.name: {topic.encode(): codec(PositionRow).encode(row)}})


def highest_seen(log: Log, home: Path, shard: int) -> Highest:
    """The highest txn and chain version on any topic that metadata writes, and in any judge's own chain."""
    found = Highest()
    for topic in TOPICS:
        if METADATA in topic.producers:
            for record in read_partition(log, topic.name, shard, log.first_offset(topic.name, shard)):
                found = found.and_of(numbers_of(record))
    for service in SERVICES:
        directory = database_directory(home, service, shard)
        if service != METADATA and has_database(directory):
            store = open_database(directory, service)
            try:
                for _, row in TablesReader(store).table(CHAIN_TABLE).scan(b"", b"\xff"):
                    found = found.and_of(numbers_of(row.record))
            finally:
                store.close()
    return found


def read_partition(log: Log, topic: str, shard: int, first: int) -> Iterator[Any]:
    """Every record from an offset to the present end; those that cannot be read say nothing."""
    end = log.end_offset(topic, shard)
    if first >= end:
        return
    source = log.open_source([topic], shard, {topic: first})
    try:
        while first < end:
            records = source.poll(RECORDS_PER_POLL, POLL_SECONDS)
            if not records:
                raise StackError(f"{topic} did not come within {POLL_SECONDS:g} seconds: see that the broker runs.")
            for record in records:
                first = record.offset + 1
                try:
                    yield codec(BY_NAME[topic].record).decode_message(record.value, record.fingerprint)
                except DecodeError:
                    continue
    finally:
        source.close()


def numbers_of(record: Any) -> Highest:
    """The txn and the chain version that a message of metadata names."""
    match record:
        case DeletedEntries():
            return Highest(max(record.rows.deaths, default=0), record.chain_version)
        case SnapshotChainRecord():
            txn = record.body.txn if isinstance(record.body, ChainTake) else 0
            return Highest(txn, record.version)
        case MetadataReply() | MetadataProgress() | SpaceUpdate():
            return Highest(record.txn)
        case ScmCommand(body=BlocksWritten() as written):
            return Highest(max(map(local_id_txn, written.first_local_ids), default=0))
        case _:
            return Highest()
