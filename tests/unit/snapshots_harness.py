"""A snapshots service on a harness: its real tables in memory, and a small metadata that answers what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from prometheus_client import CollectorRegistry

from schemas import records
from schemas.codec import codec
from schemas.records import (
    Barrier,
    CaptureSnapshot,
    ChainCapture,
    ChainDrop,
    CreateSnapshot,
    DeleteSnapshot,
    DropSnapshot,
    MetadataCommand,
    MetadataProgress,
    RenameSnapshot,
    SetDeepClean,
    Settle,
    SnapshotCaptured,
    SnapshotChainRecord,
    SnapshotCommand,
    SnapshotDropped,
    SnapshotInfo,
    SnapshotReply,
    SpaceUpdate,
)
from schemas.topics import (
    BY_NAME,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_COMMANDS,
    SNAPSHOTS_INFO,
    SNAPSHOTS_REPLIES,
    SPACE,
    Topic,
)
from services.domain.errors import InvariantError
from services.domain.snapshot_chain import ChainCorruptedError, SnapshotChain
from services.runtime.loop.service import Message, Work
from services.snapshots.lifecycle.chain_check import ChainCheck
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.reads import queries
from services.snapshots.service import SnapshotsService
from services.snapshots.settings import SnapshotsSettings
from services.snapshots.state.rows import SnapshotRows, in_order_of_captures
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache, Tables, TablesReader


@dataclass(frozen=True)
class Verification:
    """Whether the stored rows form one chain, and how it differs from metadata's."""

    corruption: str
    chain_version: int
    is_chain_known: bool
    differences: dict[str, list[str]]


def verify(tables: Tables) -> Verification:
    rows = SnapshotRows()
    rows.restore(tables)
    check = ChainCheck(rows)
    check.restore(tables)
    corruption = ""
    try:
        SnapshotChain.load(in_order_of_captures(rows))
    except ChainCorruptedError as error:
        corruption = str(error)
    return Verification(corruption, check.version, check.is_known, check.different_snapshots())


START_MS = 1_700_000_000_000
SHARD = 0


@dataclass
class SmallMetadata:
    """Takes, drops and passes barriers as metadata does, for buckets that are told to be there."""

    buckets: dict[tuple[str, str], int] = field(default_factory=lambda: {("vol", "bucket"): 7})
    txn: int = 0
    chain_version: int = 0
    captured: dict[str, SnapshotCaptured] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    ordinals: dict[int, int] = field(default_factory=dict)
    barriers: list[Barrier] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    def apply(self, command: MetadataCommand) -> list[tuple[Topic, Any]]:
        """What metadata sends for one command."""
        assert command.sender == "snapshots"
        assert not command.wants_reply
        body = command.body
        if isinstance(body, Barrier):
            self.barriers.append(body)
            return []
        if isinstance(body, records.StopClaims):
            self.stops.append(body.reason)
            return []
        self.txn += 1
        if isinstance(body, CaptureSnapshot):
            return self._capture(body)
        assert isinstance(body, DropSnapshot)
        return self._drop(body)

    def _capture(self, body: CaptureSnapshot) -> list[tuple[Topic, Any]]:
        sent: list[tuple[Topic, Any]] = []
        bucket_id = self.buckets.get((body.volume, body.bucket))
        if body.snapshot_id not in self.captured:
            if bucket_id is None:
                error = SnapshotCaptured(body.snapshot_id, 0, 0, 0, 0, 0, 0, 0, "BUCKET_NOT_FOUND", "no such bucket")
                return [(METADATA_PROGRESS, MetadataProgress(self.txn, error))]
            ordinal = self.ordinals[bucket_id] = self.ordinals.get(bucket_id, 0) + 1
            self.chain_version += 1
            self.captured[body.snapshot_id] = SnapshotCaptured(
                body.snapshot_id, bucket_id, 1, ordinal, self.txn, START_MS - self.txn, self.chain_version, 100
            )
            marker = ChainCapture(bucket_id, body.snapshot_id, ordinal, self.txn)
            sent.append((SNAPSHOT_CHAIN, SnapshotChainRecord(self.chain_version, self.chain_version - 1, marker)))
        return [*sent, (METADATA_PROGRESS, MetadataProgress(self.txn, self.captured[body.snapshot_id]))]

    def _drop(self, body: DropSnapshot) -> list[tuple[Topic, Any]]:
        sent: list[tuple[Topic, Any]] = []
        captured = self.captured.get(body.snapshot_id)
        if captured is not None and body.snapshot_id not in self.dropped:
            self.chain_version += 1
            self.dropped[body.snapshot_id] = self.chain_version
            marker = ChainDrop(captured.bucket_id, body.snapshot_id, captured.snapshot_txn, 1)
            sent.append((SNAPSHOT_CHAIN, SnapshotChainRecord(self.chain_version, self.chain_version - 1, marker)))
        answer = SnapshotDropped(body.snapshot_id, self.dropped.get(body.snapshot_id, self.chain_version))
        return [*sent, (METADATA_PROGRESS, MetadataProgress(self.txn, answer))]

    def bring_back(self, work: tuple[int, int] = (0, 0)) -> list[tuple[Topic, Any]]:
        """Both branches of the oldest barrier that is out, and the mark of the figures behind them."""
        barrier = self.barriers.pop(0)
        branches = zip(("key_deletion", "directory_deletion"), work, strict=True)
        sent: list[tuple[Topic, Any]] = [
            (
                METADATA_PROGRESS,
                MetadataProgress(self.txn, replace(barrier, work=barrier.work + met, origin=origin)),
            )
            for origin, met in branches
        ]
        return [*sent, (SPACE, SpaceUpdate(self.txn, 0, (), (), 0, 0))]


class Crash(Enum):
    """What may happen before a batch is carried out and written."""

    BETWEEN_BATCHES = "between batches"
    BEFORE_WRITE = "before write"


class Harness:
    """Feeds a service message by message and keeps what it sends."""

    def __init__(self, settings: SnapshotsSettings | None = None, store: MemoryStore | None = None) -> None:
        self.settings = settings or SnapshotsSettings()
        self.store = store or MemoryStore()
        self.metadata = SmallMetadata()
        self.inbox: list[tuple[Topic, Any]] = []
        self.replies: list[SnapshotReply] = []
        self.published: list[SnapshotInfo] = []
        self.asked: list[Any] = []
        self.sent: list[tuple[str, Any]] = []
        self.dead_lettered: list[Exception] = []
        self.make_work = Work
        self.drops_repeats = False
        """Whether what was asked before does not reach metadata again: its answer is here, or on its way."""
        self.crashes: Callable[[], list[Crash]] = list
        self.now_ms = START_MS
        self._offsets: dict[str, int] = {}
        self._number = 0
        self.restart()

    def restart(self) -> None:
        """A new process over the same tables."""
        self.metrics_registry = CollectorRegistry()
        self._metrics = SnapshotsMetrics(self.metrics_registry)
        self._begin()

    def _begin(self) -> None:
        """Forget what is in memory, but for metrics: to make those anew takes longer than all else of a start."""
        self.service = SnapshotsService(self.settings, self._metrics)
        self._cache = RowCache()
        self.service.restore(TablesReader(self.store))

    # Feeding

    def feed(self, *messages: tuple[Topic, Any]) -> None:
        """One batch of messages, and the batch's end; with its crashes, when a test wants any."""
        batch = []
        for topic, record in messages:
            offset = self._offsets.get(topic.name, 0)
            self._offsets[topic.name] = offset + 1
            batch.append(Message(topic, offset, self.now_ms, _over_the_wire(topic, record)))
        for crash in self.crashes():
            if crash is Crash.BEFORE_WRITE:
                self._carry_out(batch)
                self.service.restore(self.tables)
            else:
                self._begin()
        work = self._carry_out(batch)
        work.write()
        for message in work.messages:
            self._deliver(BY_NAME[message.topic], message.value)

    def _carry_out(self, batch: list[Message]) -> Work:
        work = self.make_work(SHARD, self.store, self._cache)
        for message in batch:
            work.begin_message()
            self._apply(message, work)
        work.begin_message()
        self.service.tick(self.now_ms, work)
        self.service.end_batch(work)
        return work

    def _apply(self, message: Message, work: Work) -> None:
        """As the loop does it: what cannot be applied is undone and put aside."""
        try:
            self.service.apply(message, work)
        except InvariantError:
            raise
        except Exception as error:
            work.undo_message()
            self.dead_lettered.append(error)

    def _deliver(self, topic: Topic, value: bytes) -> None:
        record: Any = codec(topic.record).decode_message(value)
        if self.drops_repeats and topic is METADATA_COMMANDS and record.body in self.asked:
            return
        self.sent.append((topic.name, record))
        if topic is SNAPSHOTS_REPLIES:
            self.replies.append(record)
        elif topic is SNAPSHOTS_INFO:
            self.published.append(record)
        else:
            assert topic is METADATA_COMMANDS
            self.asked.append(record.body)
            self.inbox += self.metadata.apply(record)

    def run(self) -> None:
        """Bring all of metadata's answers, one batch each, until there are none."""
        while self.inbox:
            self.feed(self.inbox.pop(0))

    def command(self, body: Any, *, client_id: str = "client", number: int | None = None, sender: str = "") -> int:
        """One command of a client, or of a service when a sender is named."""
        if number is None:
            self._number += 1
            number = self._number
        self.feed((SNAPSHOTS_COMMANDS, SnapshotCommand(SHARD, client_id, number, body, sender)))
        return number

    # What clients do

    def create(self, name: str, *, volume: str = "vol", bucket: str = "bucket") -> SnapshotReply:
        """Create a snapshot and wait for the answer."""
        return self.answered(self.command(CreateSnapshot(volume, bucket, name)))

    def delete(self, name: str, *, volume: str = "vol", bucket: str = "bucket", is_run: bool = True) -> SnapshotReply:
        """Delete a snapshot; without ``is_run`` metadata's answer stays on its way."""
        number = self.command(DeleteSnapshot(volume, bucket, name))
        return self.answered(number, is_run=is_run)

    def rename(self, source: str, target: str) -> SnapshotReply:
        """Rename a snapshot."""
        return self.answered(self.command(RenameSnapshot("vol", "bucket", source, target)))

    def settle(self, barrier_id: str = "barrier") -> int:
        """Ask to settle; says the number of the command."""
        return self.command(Settle(barrier_id))

    def flag(self, snapshot_id: str, chain_version: int, *, is_clean: bool = True) -> None:
        """key_deletion says that a store is clean."""
        flags = SetDeepClean(snapshot_id, chain_version, is_clean, is_clean)
        self.command(flags, client_id="", number=0, sender="key_deletion")

    def answered(self, number: int, *, is_run: bool = True) -> SnapshotReply:
        """The one answer to a command."""
        if is_run:
            self.run()
        [reply] = [reply for reply in self.replies if reply.number == number]
        return reply

    # What can be seen

    @property
    def tables(self) -> TablesReader:
        """Committed tables."""
        return TablesReader(self.store)

    def info(self, name: str, bucket: str = "bucket") -> SnapshotInfo:
        """One snapshot."""
        return queries.snapshot_info(self.tables, "vol", bucket, name)

    def names(self, bucket: str = "bucket", *, with_deleted: bool = False) -> list[str]:
        """Names of a bucket's snapshots in the order of its chain."""
        listed = queries.list_snapshots(self.tables, "vol", bucket, with_deleted=with_deleted)
        return [row.name for row in listed]

    def metric(self, name: str, **labels: str) -> float:
        """A metric's value."""
        value = self.metrics_registry.get_sample_value(name, labels)
        assert value is not None
        return value


def _over_the_wire(topic: Topic, record: Any) -> Any:
    return codec(topic.record).decode(codec(topic.record).encode(record))
