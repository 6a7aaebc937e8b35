"""Finds the highest txn and chain version of a shard in the topics that metadata writes.

A log that has lost its newest commands assigns their txns to other commands. A database that was rebuilt or restored
cannot notice this, nor can an empty one. But the results of the lost commands are on other topics, with their txns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.codec import DecodeError, codec
from schemas.records import (
    BlocksWritten,
    ChainCapture,
    ChainDrop,
    DeletedEntries,
    FullChain,
    LedgerRows,
    MetadataProgress,
    MetadataReply,
    ScmCommand,
    ShardState,
    SnapshotChainRecord,
    SpaceUpdate,
)
from schemas.topics import BY_NAME, NUMBERED, Topic
from services.domain.errors import RetryableError
from services.domain.table_keys import HIGHEST_TXN, local_id_txn
from services.log.port import Log, LogRecord

POLL_SECONDS = 10.0
RECORDS_PER_POLL = 10_000


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest known numbers of a shard."""

    txn: int = 0
    chain_version: int = 0

    def and_of(self, other: Highest) -> Highest:
        """Return the maximum of each number."""
        return Highest(max(self.txn, other.txn), max(self.chain_version, other.chain_version))


@dataclass(frozen=True, slots=True)
class SentNumbers:
    """The highest published numbers, and the log time of the newest message with each of them."""

    highest: Highest
    txn_ms: int
    chain_version_ms: int


def highest_of(state: ShardState | None) -> Highest:
    """Return the numbers of a database."""
    return Highest() if state is None else Highest(state.txn, state.chain_version)


def numbers_of(record: Any) -> Highest:
    """Return the txn and the chain version in a message of metadata; zeros if one is beyond ``HIGHEST_TXN``."""
    found = _named_by(record)
    return found if max(found.txn, found.chain_version) <= HIGHEST_TXN else Highest()


def _named_by(record: Any) -> Highest:
    match record:
        case DeletedEntries():
            return Highest(max(record.rows.deaths, default=0), record.chain_version)
        case SnapshotChainRecord():
            return Highest(_newest_capture(record.body), record.version)
        case MetadataReply() | MetadataProgress() | SpaceUpdate():
            return Highest(record.txn)
        case LedgerRows():
            return Highest(record.finish_txn)
        case ScmCommand(body=BlocksWritten() as written):
            return Highest(max(map(local_id_txn, written.first_local_ids), default=0))
        case _:
            return Highest()


def _newest_capture(body: ChainCapture | ChainDrop | FullChain) -> int:
    if isinstance(body, FullChain):
        return max((bucket.newest_txn for bucket in body.buckets), default=0)
    return body.txn


def sent_numbers(
    log: Log, shard: int, most_records: int | None = None, topics: Sequence[Topic] = NUMBERED
) -> SentNumbers:
    """Return the highest numbers in the last ``most_records`` records of each topic, or in all records.

    A unit of work is acknowledged before the next one is written, and the outbox repeats at most the last one. So the
    highest numbers are in the messages of the last unit.

    Raises:
        RetryableError: the records were not read in time.
    """
    ends = {topic.name: log.end_offset(topic.name, shard) for topic in topics}
    firsts = {topic: log.first_offset(topic, shard) for topic in ends}
    if most_records is not None:
        firsts = {topic: max(first, ends[topic] - most_records) for topic, first in firsts.items()}
    left = {topic for topic, first in firsts.items() if first < ends[topic]}
    # Each number with the time of its newest message. Repeats of lower numbers may come much later.
    txn, chain_version = (0, 0), (0, 0)
    if not left:
        return SentNumbers(Highest(), 0, 0)
    source = log.open_source(sorted(left), shard, firsts)
    try:
        while left:
            before = source.positions()
            records = source.poll(RECORDS_PER_POLL, POLL_SECONDS)
            positions = source.positions()
            if not records and positions == before:
                raise RetryableError(
                    f"{', '.join(sorted(left))}, partition {shard}: no records were read within {POLL_SECONDS:g} "
                    f"seconds: check that the broker runs"
                )
            for record in records:
                numbers = _numbers_in(record)
                txn = max(txn, (numbers.txn, record.timestamp_ms))
                chain_version = max(chain_version, (numbers.chain_version, record.timestamp_ms))
            left -= {topic for topic, position in positions.items() if position >= ends[topic]}
    finally:
        source.close()
    return SentNumbers(Highest(txn[0], chain_version[0]), txn[1], chain_version[1])


def _numbers_in(record: LogRecord) -> Highest:
    try:
        return numbers_of(codec(BY_NAME[record.topic].record).decode_message(record.value))
    except DecodeError:
        return Highest()
