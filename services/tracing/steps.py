"""What a message says about the way of a deletion: which rows have come to which station, and when.

The names of the stations and their order are those of docs/architecture.md, "The way of a deletion".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import repeat
from typing import Any, NamedTuple

from schemas.records import (
    BlockGroups,
    BlocksDeleted,
    ClaimRows,
    DeleteBlocks,
    DeletedEntries,
    DeletedKind,
    DirectoriesRemoved,
    DirectoryVerdict,
    FinishRows,
    LedgerRows,
    MetadataCommand,
    MetadataProgress,
    PurgeKeys,
    RemovalOutcome,
    RowNames,
    RowsClaimed,
    ScmCommand,
    ScmReply,
)
from services.log.port import LogRecord

Facts = tuple[tuple[str, int], ...]
MOST_BATCHES = 256
"""Batches of block deletions whose rows are remembered until the block store answers; key_deletion has 64 of them."""


class Version(NamedTuple):
    """What was deleted: a row of a garbage table, within its shard."""

    kind: DeletedKind
    bucket_id: int
    object_id: int
    birth: int
    """0 for a directory: not every message says it, and its death tells its rows apart."""
    death: int


class Station(Enum):
    """A station of the way, with the process that has published the message."""

    REQUESTED = ("requested", "client")
    DELETED = ("deleted", "metadata")
    SWEPT = ("sent again by a sweep", "metadata")
    JUDGED = ("judged reclaimable", "streaming")
    EXPANDED = ("judged", "streaming")
    """A directory is passed on whatever the verdict, since it is expanded in any case."""
    CLAIM_SENT = ("judged again", "key_deletion")
    CLAIMED = ("claimed", "metadata")
    REMOVED = ("removed", "metadata")
    MISSING = ("found missing", "metadata")
    REFUSED = ("refused, since a snapshot holds it", "metadata")
    SUSPENDED = ("suspended", "metadata")
    BLOCKS_SENT = ("block deletion sent", "key_deletion")
    BLOCKS_DELETED = ("blocks deleted", "mock_scm")
    BLOCKS_FAILED = ("blocks not deleted", "mock_scm")
    FINISH_SENT = ("finish sent", "key_deletion")
    FREED = ("freed", "metadata")

    def __init__(self, says: str, process: str) -> None:
        self.says = says
        self.process = process


ORDER = {station: place for place, station in enumerate(Station)}
"""The order of steps that happened in the same millisecond."""


class Step(NamedTuple):
    """A row has come to a station."""

    version: Version
    station: Station
    time_ms: int
    """When the broker appended the message."""
    topic: str
    offset: int
    facts: Facts = ()
    """What else the message says: txns, tasks, chain versions, bytes."""

    @property
    def place(self) -> tuple[int, int, int]:
        """Return what steps of one way are sorted by."""
        return self.time_ms, ORDER[self.station], self.offset


_REMOVALS = {
    RemovalOutcome.REMOVED: Station.REMOVED,
    RemovalOutcome.MISSING: Station.MISSING,
    RemovalOutcome.HELD: Station.REFUSED,
    RemovalOutcome.SUSPENDED: Station.SUSPENDED,
}
"""The outcomes that tell more than that a directory is still being expanded."""
_Found = tuple[Station, Iterable[Version], Facts]


class StepsOfShard:
    """Finds the steps in the messages of one shard.

    Messages of a topic come in order. A block store's answer names a batch only, so its command has to come before.
    """

    def __init__(self) -> None:
        self._batches: OrderedDict[tuple[int, int], tuple[Version, ...]] = OrderedDict()
        """By task and attempt the versions whose blocks key_deletion wants deleted."""

    def of_message(self, record: LogRecord, message: Any) -> Iterator[Step]:
        """Yield the steps of which a message tells."""
        for station, versions, facts in self._found(message):
            for version in versions:
                yield Step(version, station, record.timestamp_ms, record.topic, record.offset, facts)

    def _found(self, message: Any) -> Iterator[_Found]:
        yield from _of_judges(message)
        yield from _of_claims(message)
        match message:
            case ScmCommand(body=DeleteBlocks() as body):
                versions = tuple(_grouped(body.groups))
                self._remember((body.task, body.attempt), versions)
                yield Station.BLOCKS_SENT, versions, (("task", body.task), ("attempt", body.attempt))
            case ScmReply(body=BlocksDeleted() as body):
                yield from self._answered(body)
            case _:
                pass

    def _remember(self, batch: tuple[int, int], versions: tuple[Version, ...]) -> None:
        self._batches[batch] = versions
        if len(self._batches) > MOST_BATCHES:
            self._batches.popitem(last=False)

    def _answered(self, body: BlocksDeleted) -> Iterator[_Found]:
        versions = self._batches.pop((body.task, body.attempt), ())
        facts, failed = (("task", body.task), ("attempt", body.attempt)), set(body.failed)
        yield Station.BLOCKS_DELETED, [one for place, one in enumerate(versions) if place not in failed], facts
        yield Station.BLOCKS_FAILED, [one for place, one in enumerate(versions) if place in failed], facts


def _of_judges(message: Any) -> Iterator[_Found]:
    match message:
        case DeletedEntries(sweep_id=0):
            yield Station.DELETED, _named(message.rows), (("chain_version", message.chain_version),)
        case DeletedEntries():
            facts = (("chain_version", message.chain_version), ("sweep", message.sweep_id))
            yield Station.SWEPT, _named(message.rows), facts
        case PurgeKeys():
            yield Station.JUDGED, _named(message.rows), (("chain_version", message.chain_version),)
        case DirectoryVerdict():
            for one in message.directories:
                version = Version(DeletedKind.DIRECTORY, one.bucket_id, one.object_id, 0, one.death)
                facts = (("chain_version", message.chain_version), ("reclaimable", int(one.is_reclaimable)))
                yield Station.EXPANDED, [version], facts
        case _:
            pass


def _of_claims(message: Any) -> Iterator[_Found]:
    match message:
        case MetadataCommand(body=ClaimRows() as body):
            yield Station.CLAIM_SENT, _named(*body.rows), (("task", body.task), ("chain_version", body.chain_version))
        case MetadataProgress(body=RowsClaimed() as body):
            facts = (("txn", message.txn), ("task", body.task))
            yield Station.CLAIMED, _grouped(body.groups), facts
            yield Station.REMOVED, _named(*body.removed), facts
            yield Station.MISSING, _named(*body.missing), facts
            yield Station.REFUSED, _named(*body.refused), facts
            yield Station.SUSPENDED, _named(*body.suspended), facts
        case MetadataProgress(body=DirectoriesRemoved() as body):
            for row in body.rows:
                if (station := _REMOVALS.get(row.outcome)) is not None:
                    version = Version(DeletedKind.DIRECTORY, row.bucket_id, row.object_id, 0, row.death)
                    yield station, [version], (("txn", message.txn),)
        case MetadataCommand(body=FinishRows() as body):
            yield Station.FINISH_SENT, _named(*body.rows), (("task", body.task),)
        case LedgerRows():
            for version, size_bytes in zip(_grouped(message.groups), message.groups.sizes_bytes, strict=False):
                yield Station.FREED, [version], (("txn", message.finish_txn), ("bytes", size_bytes))
        case _:
            pass


def _named(*rows: RowNames) -> Iterator[Version]:
    for one in rows:
        births = repeat(0) if one.kind is DeletedKind.DIRECTORY else one.births
        for columns in zip(one.bucket_ids, one.object_ids, births, one.deaths, strict=False):
            yield Version(one.kind, *columns)


def _grouped(groups: BlockGroups) -> Iterator[Version]:
    for columns in zip(groups.bucket_ids, groups.object_ids, groups.births, groups.deaths, strict=False):
        yield Version(DeletedKind.KEY, *columns)
