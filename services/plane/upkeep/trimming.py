"""Compute how far the log may be trimmed: readers, backups and the oldest unfinished command of metadata need the rest.

The limit of each topic and shard is the minimum over all of them, as for RocksDB's write-ahead logs. Further rules:

- A topic that a service reads is not trimmed while this service has no backup of the shard, since after a trim the
  service's database can be restored only from a backup. Spark has no backups: gc.deleted-entries, which Spark alone
  reads, is trimmed up to Spark's position, with or without a backup.
- Where hosts share the shards, a host that gains a shard has no database of it, or an old one. It begins with the
  newest of the backups that the hosts share (``backups`` in ``[host]``). Without such a backup of the shard, a topic
  that the service reads is not trimmed at all.
- A topic that clients read is not trimmed, since nobody knows their positions.
- gc.snapshot-chain is trimmed only up to a record of the whole chain, since a reader that starts there must know all
  snapshots.
- The last message that a service has read is kept: at its next start the service uses it to check that the log is the
  same.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from schemas.records import FullChain, SnapshotChainRecord
from schemas.topics import CHANGELOGS, CLIENTS, METADATA_COMMANDS, SNAPSHOT_CHAIN, TOPICS, Topic
from services.domain.full_chain import FullChainParts
from services.plane.stack.process_names import METADATA, SERVICES, STREAMING
from services.runtime.copies.manifests import Backup, CopyName

Place = tuple[str, str, int]
"""A reader, a topic and a shard."""
FindFullChain = Callable[[int, int], int | None]
"""Returns the offset of a shard's newest record of the whole chain up to an offset; None if there is none."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A reader, backup or transaction that needs a topic from ``offset`` on."""

    offset: int
    who: str


@dataclass(frozen=True, slots=True)
class Trim:
    """The records to trim of one partition of a topic: first <= offset < until."""

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
    *,
    may_move: bool = False,
    shared: Sequence[Backup] = (),
    damaged: Container[CopyName] = (),
) -> list[Trim]:
    """Return the trims of every topic and shard. ``positions`` are the known positions of the running readers.

    ``may_move``: hosts share the shards. ``shared``: the backups with which a host begins that has no database.
    ``damaged``: copies that do not count as backups. What they need is kept all the same: they may be mended.
    """

    def has_copy(among: Sequence[Backup], service: str, shard: int) -> bool:
        return any(one.copy_of(service, shard) and (one.name, service, shard) not in damaged for one in among)

    beginning = [{one for one in SERVICES if not may_move or has_copy(shared, one, shard)} for shard in range(shards)]
    backed_up = [{one for one in SERVICES if has_copy(backups, one, shard)} for shard in range(shards)]
    trims = []
    for topic, shard in product(TOPICS, range(shards)):
        pins = _pins(topic, shard, positions, backups, beginning[shard], backed_up[shard])
        trims.append(_plan(topic, shard, firsts[topic.name, shard], pins, find_full_chain))
    return trims


def newest_start(markers: Iterable[tuple[int, SnapshotChainRecord]]) -> int | None:
    """Return the offset of part 1 of the newest full chain with all its parts, where a reader may start; else None."""
    parts, begun, found = FullChainParts(), None, None
    for offset, marker in markers:
        if isinstance(marker.body, FullChain):
            begun = offset if marker.body.part == 1 else begun
            if parts.follow(marker.version, marker.body):
                found = begun
                parts.clear()
    return found


def _plan(topic: Topic, shard: int, first: int, pins: Iterable[Pin], find_full_chain: FindFullChain) -> Trim:
    if CLIENTS in topic.consumers:
        return Trim(
            topic.name, shard, first, first, "clients read it, and the plane does not know the positions of clients"
        )
    oldest = min(pins, key=lambda pin: pin.offset)
    until, pinned_by = max(oldest.offset, first), oldest.who
    if topic is SNAPSHOT_CHAIN and until > first:
        full = find_full_chain(shard, until + 1)  # a chain may end at until: readers keep their last record
        if full is None or full <= first:
            return Trim(topic.name, shard, first, first, "no record of the whole chain is old enough (--full-chain)")
        if full < until:
            until, pinned_by = full, "a record of the whole chain begins here"
    return Trim(topic.name, shard, first, until, pinned_by)


def _pins(
    topic: Topic,
    shard: int,
    positions: Mapping[Place, int],
    backups: Sequence[Backup],
    beginning: Container[str],
    backed_up: Container[str],
) -> Iterator[Pin]:
    """Yield what needs the topic. ``beginning``: the services of which any process has a database to begin with;
    ``backed_up``: those of which a backup can be restored.
    """
    for reader in topic.consumers:
        if reader == STREAMING and topic is SNAPSHOT_CHAIN:
            continue  # Spark reads the chain from the first remaining record at each start
        # For a changelog the position is where the next start looks for rows that the database lacks. A backup's
        # position may be higher: before an accepted loss the topic had more records.
        known = positions.get((reader, topic.name, shard))
        position = known or 0
        as_far = "from which its next start reads" if topic in CHANGELOGS.values() else "as far as it has read"
        who = f"{reader}, {'which does not tell its position' if known is None else as_far}"
        if reader == STREAMING:
            yield Pin(position, who)
            continue  # Spark has no backups: this position is its only state, its verdicts are in its outputs
        if reader not in beginning:
            yield Pin(0, f"{reader} of another host, which may gain the shard and has no backup to begin with")
            continue
        yield Pin(_needed_from(topic, position), who)
        copies = [(backup, copy) for backup in backups if (copy := backup.copy_of(reader, shard)) is not None]
        if reader not in backed_up:
            yield Pin(0, f"no backup of {reader}{' that can be restored' if copies else ''}")
        for backup, copy in copies:
            read = copy.position(topic.name)
            yield Pin(_needed_from(topic, read.next_offset if read else 0), f"backup {backup.name} of {reader}")
            if reader == METADATA and topic is METADATA_COMMANDS and copy.unfinished_offset is not None:
                yield Pin(copy.unfinished_offset, f"txn {copy.unfinished_txn}, unfinished in backup {backup.name}")


def _needed_from(topic: Topic, next_offset: int) -> int:
    """Return the first offset that a service or its copy needs: the last record it has read, except in a changelog."""
    return next_offset if topic in CHANGELOGS.values() else max(0, next_offset - 1)
