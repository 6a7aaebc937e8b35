"""The command that is being applied: its txn, log time and tables, and the ids that it assigns."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.error_codes import ErrorCode
from schemas.records import ShardState
from services.domain.refusals import CommandError
from services.domain.table_keys import MAX_OBJECTS_PER_COMMAND, object_id
from services.metadata.state.collection_states import CollectionStates
from services.metadata.state.directory_paths import DirectoryPaths
from services.metadata.state.figures import BucketFigures
from services.metadata.state.orphan_search import OrphanSearch
from services.metadata.state.reclaim_clocks import FreedVersions
from services.metadata.state.sent_entries import SentEntries
from services.metadata.state.snapshot_lists import SnapshotLists
from services.metadata.state.space import SpaceChanges
from services.metadata.state.written_blocks import WrittenBlocks
from services.runtime.loop.service import Work
from services.runtime.parts.signers import Signers


@dataclass(slots=True)
class ShardCounters:
    """The shard's counters, kept in memory between batches."""

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

    @classmethod
    def of(cls, state: ShardState | None) -> ShardCounters:
        """Return the counters of a stored state."""
        if state is None:
            return cls()
        return cls(
            state.txn,
            state.log_time_ms,
            state.epoch,
            state.chain_version,
            state.container_id,
            state.claims_stopped,
            state.skipped_txns,
            state.stored_bytes,
            state.claims_stopped_ms,
            state.refused_rows,
        )

    def state(self) -> ShardState:
        """Return the counters as they are stored."""
        return ShardState(
            self.txn,
            self.log_time_ms,
            self.epoch,
            self.chain_version,
            self.container_id,
            self.claims_stopped,
            self.skipped_txns,
            self.stored_bytes,
            self.claims_stopped_ms,
            self.refused_rows,
        )


@dataclass(slots=True)
class Transaction:
    """The argument of every handler; the commands of a batch share it.

    No other input may affect an outcome: no clock, no setting, no random number.
    """

    work: Work
    counters: ShardCounters
    snapshots: SnapshotLists
    space: SpaceChanges
    figures: BucketFigures
    written: WrittenBlocks
    entries: SentEntries
    directories: DirectoryPaths
    signers: Signers
    """Has no default on purpose: empty signers would deny every user, or permit everything."""
    collection_states: CollectionStates
    freed: FreedVersions
    """Measurements of the versions that a unit of work finishes. No outcome depends on them."""
    orphans: OrphanSearch
    txn: int = 0
    log_time_ms: int = 0
    objects: int = 0
    user: str = ""
    """The user who signed the client's command."""

    def begin(self, counters: ShardCounters, log_time_ms: int) -> None:
        """Start the next command."""
        self.counters = counters
        self.txn = counters.txn + 1
        self.log_time_ms = log_time_ms
        self.objects = 0

    @property
    def shard(self) -> int:
        """The shard that the command is applied to."""
        return self.work.shard

    def new_object_id(self) -> int:
        """Return the next objectID of this command. Raise CommandError (INVALID_PATH) when all are used."""
        if self.objects >= MAX_OBJECTS_PER_COMMAND:
            raise CommandError(
                ErrorCode.INVALID_PATH,
                f"a command creates at most {MAX_OBJECTS_PER_COMMAND} objects; create the directories in several steps",
            )
        self.objects += 1
        return object_id(self.counters.epoch, self.txn, self.objects)
