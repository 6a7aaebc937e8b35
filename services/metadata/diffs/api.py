"""The HTTP routes of diffs: request, wait, cancel, and read page by page."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.routing import Route

from schemas.answers import DiffJob
from services.domain.snapshot_diff import DiffEntry
from services.log.clock import Clock, SystemClock
from services.metadata.diffs.jobs import DiffJobs
from services.metadata.metrics import SnapshotDiffMetrics
from services.metadata.reads import queries
from services.metadata.settings import MetadataSettings
from services.runtime.http.reads import DEFAULT_LIMIT, Asked, Limit, Number, ReadRoute, Stores
from services.storage.rocks import RocksStore
from services.storage.store import Store

LONGEST_WAIT_SECONDS = 10
WaitSeconds = Annotated[Number, Field(le=LONGEST_WAIT_SECONDS)]


@dataclass
class DiffJobsOfShards:
    """The diffs of the shards of a process, created for a shard at its first request."""

    settings: MetadataSettings = field(default_factory=MetadataSettings)
    metrics: SnapshotDiffMetrics | None = None
    clock: Clock = field(default_factory=SystemClock)
    _jobs: dict[int, tuple[Store, DiffJobs]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, shard: int, store: Store) -> DiffJobs:
        """Return the diffs of one shard. With a database on disk they survive restarts."""
        with self._lock:
            found = self._jobs.get(shard)
            if found is None or found[0] is not store:
                jobs = DiffJobs(store, self._directory_beside(store), self.clock, self.settings, self.metrics)
                found = self._jobs[shard] = (store, jobs)
            return found[1]

    def _directory_beside(self, store: Store) -> Path:
        if isinstance(store, RocksStore):
            return store.path.parent / "diffs"
        scratch = tempfile.mkdtemp(prefix="deepclean-diffs-")
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        return Path(scratch)


def diff_routes(stores: Stores, jobs: DiffJobsOfShards) -> list[Route]:
    """Return the routes of diffs for the shards that this process serves."""

    def listed(asked: Asked, volume: str, bucket: str) -> list[DiffJob]:
        """The diffs of a bucket, oldest first."""
        with asked.rows() as tables:
            row = queries.get_bucket(tables, volume, bucket)
        return jobs.of(asked.shard, asked.store).jobs(row.volume, row.bucket)

    def requested(
        asked: Asked, volume: str, bucket: str, from_snapshot_id: str = "", to_snapshot_id: str = ""
    ) -> DiffJob:
        """Request a diff of two snapshots; an empty id is the active namespace."""
        return jobs.of(asked.shard, asked.store).ask(volume, bucket, from_snapshot_id, to_snapshot_id)

    def job(asked: Asked, job_id: str, wait_seconds: WaitSeconds = 0) -> DiffJob:
        """A diff, as soon as it has ended or the wait is over."""
        return jobs.of(asked.shard, asked.store).job(job_id, wait_seconds)

    def cancelled(asked: Asked, job_id: str) -> DiffJob:
        """Stop a diff that waits or is being made."""
        return jobs.of(asked.shard, asked.store).cancel(job_id)

    def entries(asked: Asked, job_id: str, start_after: Number = 0, limit: Limit = DEFAULT_LIMIT) -> list[DiffEntry]:
        """The entries of a diff that is done, from a number on."""
        return jobs.of(asked.shard, asked.store).entries(job_id, start_after, limit)

    return [
        ReadRoute("/diffs", stores, listed),
        ReadRoute("/diffs", stores, requested, applied_txn=queries.applied_txn, method="POST"),
        ReadRoute("/diff", stores, job),
        ReadRoute("/diff", stores, cancelled, method="DELETE"),
        ReadRoute("/diff/entries", stores, entries),
    ]
