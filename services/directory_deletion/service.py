"""directory_deletion of one shard: expands deleted directories, and removes their rows when no snapshot holds them."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from schemas.records import (
    Barrier,
    CollectionChanged,
    DirectoriesRemoved,
    DirectoryExpanded,
    DirectoryVerdict,
    MetadataCommand,
    MetadataProgress,
    SnapshotChainRecord,
)
from schemas.topics import METADATA_COMMANDS, METADATA_PROGRESS, PURGE_DIRECTORIES, SNAPSHOT_CHAIN
from services.directory_deletion.metrics import DirectoryDeletionMetrics
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.directory_deletion.tables import TABLES
from services.directory_deletion.trees import Trees
from services.runtime.loop.remembering import RememberingService
from services.runtime.loop.service import Message, Work
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.counts import count_done, pop_done
from services.runtime.parts.feature_level import require_known_level
from services.runtime.parts.stored_chain import ChainFollower, stopping_at_misfit
from services.storage.tables import Tables


class DirectoryDeletionService(RememberingService):
    """One shard of directory_deletion."""

    name = "directory_deletion"
    inputs = (SNAPSHOT_CHAIN, METADATA_PROGRESS, PURGE_DIRECTORIES)
    tables = TABLES

    def __init__(
        self, settings: DirectoryDeletionSettings | None = None, metrics: DirectoryDeletionMetrics | None = None
    ) -> None:
        metrics = metrics or DirectoryDeletionMetrics(CollectorRegistry())
        self._chain = ChainFollower()
        self._collection = CollectionFollower()
        self._trees = Trees(settings or DirectoryDeletionSettings(), metrics, self._collection)
        self._is_reported = False

    def read_memory(self, tables: Tables) -> None:
        """Replace the state in memory with the state of the tables."""
        self._chain.restore(tables)
        self._collection.restore(tables)
        self._trees.restore(tables)

    def carry_out(self, message: Message, work: Work) -> None:
        """Apply one message."""
        record = message.record
        if isinstance(record, SnapshotChainRecord):
            with stopping_at_misfit(record, work):
                self._chain.follow(record, work)
        elif isinstance(record, DirectoryVerdict):
            for judged in record.directories:
                self._trees.receive(judged, record.chain_version, work)
            if record.barrier is not None:
                self._pass_barrier(record.barrier, work)
        elif isinstance(record, MetadataProgress):
            require_known_level(record)
            self._on_progress(record.body, work)

    def _on_progress(self, body: object, work: Work) -> None:
        if isinstance(body, DirectoryExpanded):
            self._trees.expanded(body, work)
        elif isinstance(body, DirectoriesRemoved):
            for removed in body.rows:
                self._trees.removed(removed, work)
        elif isinstance(body, CollectionChanged):
            count_done(work)
            followed = self._collection.follow(body, work)
            if followed.is_changed:
                self._trees.collection_changed(followed.different, work)

    def _pass_barrier(self, barrier: Barrier, work: Work) -> None:
        """End pauses, and send the barrier to metadata after all earlier commands."""
        left = self._trees.work + pop_done(work) + self._collection.is_behind(barrier)
        passed = replace(
            barrier, work=barrier.work + left, origin=self.name, collection_txn=self._collection.complete_txn
        )
        self._trees.make_due(barrier.passed_txn, work)
        work.send(METADATA_COMMANDS, MetadataCommand(work.shard, "", 0, passed, sender=self.name, wants_reply=False))

    def do_due(self, now_ms: int, work: Work) -> None:
        """Do the work that is due, and start expansions and removals as far as there is room."""
        self._trees.tick(now_ms, self._chain.view, work)

    def end_batch(self, work: Work) -> None:
        """Report the gauges."""
        if work.is_changed() or not self._is_reported:
            self._is_reported = True
            self._trees.report(str(work.shard))
