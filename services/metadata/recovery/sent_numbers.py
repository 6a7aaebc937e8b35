"""The highest txn and chain version of a shard that the topics know which metadata writes.

A log that has lost its newest commands gives their txns to others, and a database that was made from it does not know
better: made again, restored, or empty. But what the lost commands caused is on other topics, under their txns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """The highest numbers of a shard that somebody has seen."""

    txn: int = 0
    chain_version: int = 0

    def and_of(self, other: Highest) -> Highest:
        """The higher of each."""
        return Highest(max(self.txn, other.txn), max(self.chain_version, other.chain_version))


@dataclass(frozen=True, slots=True)
class SentNumbers:
    """The highest numbers that were sent, and when a message last named each, by the log's time."""

    highest: Highest = field(default_factory=Highest)
    txn_ms: int = 0
    chain_version_ms: int = 0

    def and_of(self, numbers: Highest, appended_ms: int) -> SentNumbers:
        """With another message."""
        before = self.highest
        return SentNumbers(
            before.and_of(numbers),
            _newest_ms(before.txn, self.txn_ms, numbers.txn, appended_ms),
            _newest_ms(before.chain_version, self.chain_version_ms, numbers.chain_version, appended_ms),
        )


def _newest_ms(highest: int, highest_ms: int, number: int, appended_ms: int) -> int:
    """When the higher of two numbers was last named. A lower one may be said again much later: that tells nothing."""
    if number == highest:
        return max(highest_ms, appended_ms)
    return appended_ms if number > highest else highest_ms


def highest_of(state: ShardState | None) -> Highest:
    """The numbers of a database."""
    return Highest() if state is None else Highest(state.txn, state.chain_version)


def numbers_of(record: Any) -> Highest:
    """The txn and the chain version that a message of metadata names; none when no shard can come to them."""
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
    """The highest numbers among the last records of each of these topics, or among all of them.

    A unit of work is acknowledged before the next one is written, and the outbox sends again no more than the last
    one: so the highest are within the last unit's messages.

    Raises:
        RetryableError: the records did not come.
    """
    ends = {topic.name: log.end_offset(topic.name, shard) for topic in topics}
    firsts = {topic: log.first_offset(topic, shard) for topic in ends}
    if most_records is not None:
        firsts = {topic: max(first, ends[topic] - most_records) for topic, first in firsts.items()}
    left = {topic for topic, first in firsts.items() if first < ends[topic]}
    found = SentNumbers()
    if not left:
        return found
    source = log.open_source(sorted(left), shard, firsts)
    try:
        while left:
            records = source.poll(RECORDS_PER_POLL, POLL_SECONDS)
            if not records:
                raise RetryableError(
                    f"{', '.join(sorted(left))}, partition {shard}, did not come within {POLL_SECONDS:g} seconds: see "
                    f"that the broker runs; it is tried again"
                )
            for record in records:
                found = found.and_of(_numbers_in(record), record.timestamp_ms)
            left -= {record.topic for record in records if record.offset + 1 >= ends[record.topic]}
    finally:
        source.close()
    return found


def _numbers_in(record: LogRecord) -> Highest:
    try:
        return numbers_of(codec(BY_NAME[record.topic].record).decode_message(record.value, record.fingerprint))
    except DecodeError:
        return Highest()
