"""How far the log may be trimmed: up to what readers, backups and the oldest unfinished transaction still need.

The minimum over all of them, per topic and shard, and never more: RocksDB's rule for its write-ahead logs. Nothing is
trimmed of a shard that has no backup, since from then on it can only be made again from one. gc.snapshot-chain is
trimmed up to a record of the whole chain only, since a reader that starts there must know all snapshots. And of what
a service has read the last message stays: by it the service sees at its next start that the log is the one it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas.records import FullChain, SnapshotChainRecord
from schemas.topics import CHANGELOGS, CLIENTS, METADATA_COMMANDS, SNAPSHOT_CHAIN, TOPICS, Topic
from services.domain.full_chain import FullChainParts
from services.plane.stack.settings import METADATA, STREAMING
from services.plane.upkeep.backups import Backup

Place = tuple[str, str, int]
"""A reader, a topic and a shard."""
FindFullChain = Callable[[int, int], int | None]
"""Returns the offset of a shard's newest record of the whole chain up to an offset; None if there is none."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Something that still needs a topic from an offset on."""

    offset: int
    who: str


@dataclass(frozen=True, slots=True)
class Trim:
    """What is to be trimmed of one partition of a topic: from ``first`` up to, and without, ``until``."""

    topic: str
    shard: int
    first: int
    until: int
    pinned_by: str

    @property
    def messages(self) -> int:
        """Return the number of messages to trim."""
        return self.until - self.first


def plan_trims(
    shards: int,
    firsts: Mapping[tuple[str, int], int],
    positions: Mapping[Place, int],
    backups: Sequence[Backup],
    find_full_chain: FindFullChain,
) -> list[Trim]:
    """Return the trims of every topic and shard. ``positions`` are those of the running readers, where known."""
    return [
        _plan(topic, shard, firsts[topic.name, shard], positions, backups, find_full_chain)
        for topic in TOPICS
        for shard in range(shards)
    ]


def newest_start(markers: Iterable[tuple[int, SnapshotChainRecord]]) -> int | None:
    """Where a reader may start: the offset of part 1 of the newest full chain of which all parts are there."""
    parts, begun, found = FullChainParts(), None, None
    for offset, marker in markers:
        if isinstance(marker.body, FullChain):
            begun = offset if marker.body.part == 1 else begun
            if parts.follow(marker.version, marker.body):
                found = begun
                parts.clear()
    return found


def _plan(
    topic: Topic,
    shard: int,
    first: int,
    positions: Mapping[Place, int],
    backups: Sequence[Backup],
    find_full_chain: FindFullChain,
) -> Trim:
    if CLIENTS in topic.consumers:
        return Trim(topic.name, shard, first, first, "clients read it, and nobody knows how far they are")
    oldest = min(_pins(topic, shard, positions, backups), key=lambda pin: pin.offset)
    until, pinned_by = max(oldest.offset, first), oldest.who
    if topic is SNAPSHOT_CHAIN and until > first:
        full = find_full_chain(shard, until + 1)  # all who read it keep what they have read last, which has its end
        if full is None or full <= first:
            return Trim(topic.name, shard, first, first, "no record of the whole chain is old enough (--full-chain)")
        if full < until:
            until, pinned_by = full, "a record of the whole chain begins here"
    return Trim(topic.name, shard, first, until, pinned_by)


def _pins(topic: Topic, shard: int, positions: Mapping[Place, int], backups: Sequence[Backup]) -> Iterator[Pin]:
    for reader in topic.consumers:
        if reader == STREAMING and topic is SNAPSHOT_CHAIN:
            continue  # it reads the chain anew at each start: from the beginning, wherever that is
        # In a changelog, where the next start begins to look for what its database lacks. Copies need not be older:
        # those from before a loss that was accepted may know of more of the topic than there is.
        position = positions.get((reader, topic.name, shard), 0)
        if reader == STREAMING:
            yield Pin(position, f"{reader}, as far as it has read")
            continue  # its place in its input is all that it keeps; what it has judged is in its outputs
        as_far = "from which its next start reads" if topic in CHANGELOGS.values() else "as far as it has read"
        yield Pin(_needed_from(topic, position), f"{reader}, {as_far}")
        copies = [(backup, copy) for backup in backups if (copy := backup.copy_of(reader, shard)) is not None]
        if not copies:
            yield Pin(0, f"no backup of {reader}")
        for backup, copy in copies:
            read = copy.position(topic.name)
            yield Pin(_needed_from(topic, read.next_offset if read else 0), f"backup {backup.name} of {reader}")
            if reader == METADATA and topic is METADATA_COMMANDS and copy.unfinished_offset is not None:
                yield Pin(copy.unfinished_offset, f"txn {copy.unfinished_txn}, unfinished in backup {backup.name}")


def _needed_from(topic: Topic, next_offset: int) -> int:
    """From where a service, or a copy of it, needs a topic: the last message that it has read, but for a changelog."""
    return next_offset if topic in CHANGELOGS.values() else max(0, next_offset - 1)
