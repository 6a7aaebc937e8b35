"""The HTTP routes of diffs: request, wait, cancel, and read page by page."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.routing import Route

from schemas.answers import DiffJob
from services.domain.snapshot_diff import DiffEntry
from services.log.clock import Clock, SystemClock
from services.metadata.diffs.jobs import DiffJobs
from services.metadata.metrics import SnapshotDiffMetrics
from services.metadata.reads import queries
from services.metadata.settings import MetadataSettings
from services.runtime.http.reads import Question, ReadError, Stores, closing_reader, read_route
from services.storage.rocks import RocksStore
from services.storage.store import Store

LONGEST_WAIT_SECONDS = 10


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

    def asked(answer: Callable[[DiffJobs, Question], DiffJob]) -> Callable[[Question], DiffJob]:
        return lambda question: answer(jobs.of(question.shard, question.store), question)

    def listed(question: Question) -> list[DiffJob]:
        with closing_reader(question.store.reading()) as tables:
            row = queries.get_bucket(tables, question.text("volume"), question.text("bucket"))
        return jobs.of(question.shard, question.store).jobs(row.volume, row.bucket)

    def entries(question: Question) -> list[DiffEntry]:
        of_shard = jobs.of(question.shard, question.store)
        start_after = question.whole_number("start_after", 0)
        return of_shard.entries(question.text("job_id"), start_after, question.limit())

    return [
        read_route("/diffs", stores, listed, list[DiffJob]),
        read_route("/diffs", stores, asked(_ask), DiffJob, applied_txn=queries.applied_txn, method="POST"),
        read_route("/diff", stores, asked(_job), DiffJob),
        read_route("/diff", stores, asked(_cancel), DiffJob, method="DELETE"),
        read_route("/diff/entries", stores, entries, list[DiffEntry]),
    ]


def _ask(jobs: DiffJobs, question: Question) -> DiffJob:
    return jobs.ask(
        question.text("volume"),
        question.text("bucket"),
        question.text("from_snapshot_id", ""),
        question.text("to_snapshot_id", ""),
    )


def _job(jobs: DiffJobs, question: Question) -> DiffJob:
    wait_seconds = question.whole_number("wait_seconds", 0)
    if wait_seconds > LONGEST_WAIT_SECONDS:
        raise ReadError("INVALID_REQUEST", f"wait_seconds is {wait_seconds}; the maximum is {LONGEST_WAIT_SECONDS}")
    return jobs.job(question.text("job_id"), wait_seconds)


def _cancel(jobs: DiffJobs, question: Question) -> DiffJob:
    return jobs.cancel(question.text("job_id"))
