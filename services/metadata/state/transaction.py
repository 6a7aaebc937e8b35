"""The command that is being applied: its txn, log time and tables, and the ids that it assigns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from schemas.error_codes import ErrorCode
from schemas.records import BlockRun, BucketRow, Replication, ShardState
from services.domain.refusals import CommandError
from services.domain.replication import container_of
from services.domain.table_keys import LAST_TXN_WITH_BLOCKS, MAX_OBJECTS_PER_COMMAND, local_id, object_id
from services.metadata.state.acl_rows import AclRows
from services.metadata.state.batch_sums import PresentTxn
from services.metadata.state.changed_rows import note_changes
from services.metadata.state.client_numbers import ClientNumbers
from services.metadata.state.collection_states import CollectionStates
from services.metadata.state.directory_paths import DirectoryPaths
from services.metadata.state.figures import MAX_BYTES, BucketFigures
from services.metadata.state.orphan_search import OrphanSearch
from services.metadata.state.reclaim_clocks import FreedVersions
from services.metadata.state.sent_entries import SentEntries
from services.metadata.state.snapshot_lists import SnapshotLists
from services.metadata.state.space import SpaceChanges
from services.metadata.state.tables import SECRET_TABLE, TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.metadata.state.written_blocks import WrittenBlocks
from services.runtime.loop.service import Work
from services.runtime.parts.signers import Signers
from services.storage.tables import TablesReader


@dataclass(slots=True)
class ShardCounters:
    """The shard's counters, kept in memory between batches: the fields of ``ShardState`` in the same order."""

    txn: int = 0
    log_time_ms: int = 0
    epoch: int = 0
    chain_version: int = 0
    container_id: int = 0
    claims_stopped: str = ""
    skipped_txns: int = 0
    stored_bytes: int = 0
    claims_stopped_ms: int = -1
    refused_rows: int = 0
    feature_level: int = 1
    announced_schema_id: int = 0
    reported_local_id: int = 0
    default_replication: Replication = Replication.RATIS_ONE
    has_redundancy: bool = False

    @classmethod
    def of(cls, state: ShardState | None) -> ShardCounters:
        """Return the counters of a stored state."""
        return cls() if state is None else cls(*_COUNTERS(state))

    def state(self) -> ShardState:
        """Return the counters as they are stored."""
        return ShardState(*_COUNTERS(self))


_ONE_COPY = Replication.RATIS_ONE  # reading a member of an enum takes longer
_COUNTERS = attrgetter(*(field.name for field in fields(ShardCounters)))


class Transaction:
    """The argument of every handler: the command that is applied, and the changes of its batch that are in memory.

    One object serves a shard for as long as its service runs. No other input may affect an outcome: no clock, no
    setting, no random number.
    """

    __slots__ = (
        *("acls", "clients", "collection_states", "counters", "creator", "directories", "entries", "figures"),
        *("freed", "has_parts", "is_answered", "log_time_ms", "objects", "orphans", "signers", "snapshots", "space"),
        *("shard", "txn", "user", "work", "written", "_present", "_reported_before", "_saved_counters"),
    )

    def __init__(self) -> None:
        self._present = PresentTxn()
        self.work: Work
        self.shard: int
        """The shard that the command is applied to: that of ``work``."""
        self.counters = ShardCounters()
        self._saved_counters = self.counters.state()
        self._reported_before = 0
        self.snapshots = SnapshotLists()
        self.space = SpaceChanges(self._present)
        self.figures = BucketFigures(self._present)
        self.written = WrittenBlocks(self._present)
        self.entries = SentEntries(self._present)
        self.directories = DirectoryPaths(self._present)
        self.clients = ClientNumbers()
        self.signers = Signers()
        self.acls = AclRows()
        self.collection_states = CollectionStates()
        self.orphans = OrphanSearch()
        self.freed = FreedVersions()
        """Measurements of the versions that the batch finishes. No outcome depends on them."""
        self.txn = 0
        self.log_time_ms = 0
        self.objects = 0
        self.user = ""
        """The user who signed the client's command."""
        self.is_answered = False
        """Whether the command is answered even if its client wants no reply: its outcome depends on what is used of a
        quota, or on more than the owners of volumes, and a replay of the log reads it from the answer."""
        self.has_parts = False
        """Whether parts of the present command are applied, which ``undo`` does not undo."""
        self.creator = ""
        """This user, if only access lists allow the command: then it gets all rights to what it creates."""

    def restore(self, tables: TablesReader) -> None:
        """Load everything that is kept in memory from the tables, and discard the batch in progress."""
        self.counters = ShardCounters.of(tables.table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY))
        self._saved_counters = self.counters.state()
        self.snapshots.restore(tables)
        self.signers.restore(row for _, row in tables.table(SECRET_TABLE).scan())
        self.acls.restore(tables)
        for notes in (self.space, self.figures, self.written, self.entries, self.directories, self.clients):
            notes.clear()
        for kept in (self.collection_states, self.freed, self.orphans):
            kept.clear()

    def begin(self, work: Work, log_time_ms: int) -> None:
        """Start the next command."""
        self.work, self.shard = work, work.shard
        self.log_time_ms = log_time_ms
        self.is_answered = self.has_parts = False
        self.creator = ""
        self._begin_txn()

    def begin_next(self) -> None:
        """Start the next part of a command that has a txn for each: what ``undo`` undoes begins here."""
        self.has_parts = True
        self.counters.skipped_txns += 1  # this part takes a txn and no offset
        self.work.begin_message()
        self._begin_txn()

    def _begin_txn(self) -> None:
        self.txn = self._present.txn = self.counters.txn + 1
        self._reported_before = self.counters.reported_local_id
        self.objects = 0

    def undo(self) -> None:
        """Roll back the notes of the command, or of its present part, which was not applied."""
        for notes in (self.figures, self.space, self.written, self.entries, self.directories):
            notes.undo_message()
        self.counters.reported_local_id = self._reported_before  # deletions would wait for a report that is never sent
        self.collection_states.clear()
        self.orphans.clear()

    def end(self, work: Work) -> None:
        """At the end of a batch, write and publish the changes of its commands, and save the counters."""
        self.clients.write(work)
        self.written.send(work)
        self.entries.send(work, self.counters.chain_version)
        note_changes(work, self.snapshots)
        self.counters.stored_bytes += self.figures.moved_stored()
        self.figures.write(work)
        self.space.write(work)
        self.space.send(work, self.counters.txn)
        state = self.counters.state()
        if state != self._saved_counters:
            work.table(TRANSACTION_INFO_TABLE).put(TRANSACTION_INFO_KEY, state)
            self._saved_counters = state

    def report_late(self, bucket_id: int, blocks: BlockRun) -> None:
        """Report blocks to SCM that an earlier command has allocated, or whose size has changed.

        The report takes ids. A shard that gives out no blocks any more still has them for what frees blocks.
        """
        self.counters.reported_local_id = self.written.add_late(self.shard, bucket_id, blocks)

    def check_stored(self, added_bytes: int = 0) -> None:
        """Refuse to store more bytes than fit into a sum of 64 bits. Raise CommandError (INVALID_REQUEST)."""
        if self.counters.stored_bytes + self.figures.moved_stored() + added_bytes > MAX_BYTES:
            raise CommandError(
                ErrorCode.INVALID_REQUEST,
                f"shard {self.shard} would store more than 2^63-1 bytes, deleted and not yet freed ones included",
            )

    def first_local_id(self) -> int:
        """Return the id of the first block of this command; the others follow it. A replay of the log gives the same.

        Raise CommandError (SHARD_FULL) when the shard has no ids left.
        """
        if self.txn > LAST_TXN_WITH_BLOCKS:
            raise CommandError(
                ErrorCode.SHARD_FULL,
                f"shard {self.shard} has no ids of blocks left: write to a volume of another shard "
                "(deepclean shards add N makes further ones; new volumes are created there)",
            )
        return local_id(self.shard, self.txn, 0)

    def container_for(self, bucket: BucketRow) -> int:
        """Return the id of the container for new blocks of a bucket."""
        if bucket.replication is _ONE_COPY:
            return self.counters.container_id
        return container_of(bucket.replication, self.counters.container_id)

    def new_object_id(self) -> int:
        """Return the next objectID of this command. Raise CommandError (INVALID_PATH) when all are used."""
        if self.objects >= MAX_OBJECTS_PER_COMMAND:
            raise CommandError(
                ErrorCode.INVALID_PATH,
                f"a command creates at most {MAX_OBJECTS_PER_COMMAND} objects; create the directories in several steps",
            )
        self.objects += 1
        return object_id(self.counters.epoch, self.txn, self.objects)
