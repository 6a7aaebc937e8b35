"""Reads of space of the plane in memory, directly from metadata's tables."""

from __future__ import annotations

import sys

from schemas.records import BucketRow
from schemas.space_answers import (
    BlockExplanation,
    FreedSpace,
    PathExplanation,
    PlanSpace,
    SnapshotSpaces,
    SpacePlan,
    WhatIf,
)
from services.metadata.reads import block_search, explanations, queries, space_queries
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.in_memory.refusals import refusals
from services.storage.tables import TablesReader


class InMemorySpaceReads:
    """Reads of one shard's metadata about space; implements ``services.client.plane.SpaceReads``."""

    def __init__(self, plane: InMemoryPlane, shard: int) -> None:
        self._store = plane.processes["metadata", shard].store
        self._tables = TablesReader(self._store)
        self._shard = shard

    def _bucket(self, volume: str, bucket: str) -> BucketRow:
        return queries.get_bucket(self._tables, volume, bucket)

    def snapshot_spaces(
        self, volume: str, bucket: str, *, start_after: int = 0, limit: int | None = None
    ) -> SnapshotSpaces:
        """Return live snapshots with referenced and shared bytes: at most ``limit``, or all."""
        rows = sys.maxsize if limit is None else limit
        with refusals():
            return space_queries.snapshot_spaces(self._tables, self._bucket(volume, bucket), start_after, rows)

    def what_if(self, volume: str, bucket: str, question: WhatIf) -> FreedSpace:
        """Return the space that dropping a set of snapshots would free."""
        with refusals():
            return space_queries.what_if(self._tables, self._bucket(volume, bucket), question)

    def plan(self, volume: str, bucket: str, question: PlanSpace) -> SpacePlan:
        """Return the smallest set of snapshots whose drop frees the requested bytes."""
        with refusals():
            return space_queries.plan(self._tables, self._bucket(volume, bucket), question)

    def explain_path(self, volume: str, bucket: str, path: str) -> PathExplanation:
        """Return every version of a path."""
        with refusals():
            return explanations.explain_path(
                self._tables,
                self._bucket(volume, bucket),
                path,
                lambda snapshot_id: TablesReader(self._store.open_checkpoint(snapshot_id)),
            )

    def explain_block(self, local_id: int, *, volume: str = "", bucket: str = "", start: str = "") -> BlockExplanation:
        """Return the version that owns a block, or the place where the search continues."""
        with refusals():
            named = self._bucket(volume, bucket) if bucket else None
            return block_search.explain_block(self._tables, self._shard, local_id, named, start)
