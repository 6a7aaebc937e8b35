"""The diffs of one shard: they are queued, computed by a thread, and kept for a while, also over restarts.

::

    <directory>/<job id>.json      the job, written at its request and again at its end
    <directory>/<job id>.entries   its differences, one JSON array a line: kind, path, old path
    <directory>/<job id>.parts     what a Spark job has written so far

A thread of this process reads at most ``diff_direct_rows`` rows. If there are more changed rows, or more rows below new
and deleted directories, a Spark job computes the diff, if ``diff_spark_command`` is set.

A job without an end in its file is computed again after a restart. Diffs are not in the shard's log: another owner of
the shard computes them again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import shlex
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from schemas.answers import DiffJob, DiffStatus, DiffWay
from schemas.records import BucketLayout
from services.domain.errors import DeepcleanError
from services.domain.refusals import CommandError
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.log.clock import Clock
from services.metadata.diffs.differences import compare_changes, opened_states
from services.metadata.metrics import SnapshotDiffMetrics
from services.metadata.reads.queries import get_bucket, missing_snapshot
from services.metadata.settings import MetadataSettings
from services.runtime.process.child_job import ChildJobError, run_child_job
from services.storage.rocks import RocksStore
from services.storage.store import Store, StoreError
from services.storage.tables import TablesReader

LINES_PER_MARK = 1_000
"""Lines between two marks. A page of differences is found from the nearest mark before it."""
RETRY_SECONDS = 60

logger = structlog.get_logger(__name__)
_JOB: TypeAdapter[DiffJob] = TypeAdapter(DiffJob)


class DiffNotFoundError(DeepcleanError):
    """There is no such diff, or it has expired."""

    code = "DIFF_NOT_FOUND"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no diff {job_id}; request it again")


class DiffStateError(DeepcleanError):
    """The request does not fit the status of the diff."""

    code = "DIFF_NOT_DONE"


class _CancelledError(Exception):
    """The client has cancelled the diff."""


class _TooLargeError(Exception):
    """The diff has more rows than a thread may read beside the shard's writer."""


@dataclass(slots=True)
class _Running:
    """A job and its state in memory."""

    job: DiffJob
    is_cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    rows_seen: int = 0
    rows_expected: int = 1
    most_rows: int = sys.maxsize - 1
    end_process: Callable[[], None] = lambda: None
    """Ends the process of a Spark job; nothing without one."""
    marks: list[int] | None = None
    """Byte offsets of every ``LINES_PER_MARK``-th difference; set when the first page is read."""

    def saw(self, count: int) -> None:
        """Count rows that were read. Raise an error if the job is cancelled or too large."""
        self.rows_seen += count
        if self.is_cancelled.is_set():
            raise _CancelledError
        if self.rows_seen > self.most_rows:
            raise _TooLargeError

    def shown(self) -> DiffJob:
        """Return the job with its present progress."""
        if self.job.status is not DiffStatus.IN_PROGRESS:
            return self.job
        return replace(self.job, progress_percent=min(99, 100 * self.rows_seen // self.rows_expected))


class DiffJobs:
    """The diffs of one shard. Safe to use from several threads."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        clock: Clock,
        settings: MetadataSettings | None = None,
        metrics: SnapshotDiffMetrics | None = None,
    ) -> None:
        """With ``diff_threads`` 0 the calling thread computes a diff in ``ask``."""
        self._store = store
        self._directory = directory
        self._clock = clock
        self._settings = settings or MetadataSettings()
        self._metrics = metrics or SnapshotDiffMetrics(None)
        self._lock = threading.Lock()
        self._jobs: dict[str, _Running] = {}
        self._waiting: queue.Queue[_Running] = queue.Queue()
        directory.mkdir(parents=True, exist_ok=True)
        self._load()
        for number in range(self._settings.diff_threads):
            threading.Thread(target=self._work, name=f"diff-{number}", daemon=True).start()

    def ask(self, volume: str, bucket: str, from_snapshot_id: str, to_snapshot_id: str) -> DiffJob:
        """Request a diff. A finished or running diff of the same two snapshots is returned instead of a new one.

        Raises:
            CommandError: there is no such bucket or snapshot.
        """
        with opened_states(self._store, volume, bucket, from_snapshot_id, to_snapshot_id):
            pass  # report a missing bucket or snapshot at once
        with self._lock:
            self._remove_old()
            known = self._known(volume, bucket, from_snapshot_id, to_snapshot_id)
            if known is not None:
                return known.shown()
            job_id, now_ms = str(uuid.uuid4()), self._clock.now_ms()
            job = DiffJob(job_id, volume, bucket, from_snapshot_id, to_snapshot_id, DiffStatus.QUEUED, now_ms)
            running = self._jobs[job.job_id] = _Running(job)
            is_full = self._waiting.qsize() >= self._settings.diff_queue
        if is_full:
            reason = f"{self._settings.diff_queue} diffs are waiting already: try again in {RETRY_SECONDS} seconds"
            self._end(running, DiffStatus.REJECTED, message=reason)
        elif self._settings.diff_threads:
            self._write(job)
            self._waiting.put(running)
        else:
            self._make(running)
        return running.shown()

    def _known(self, volume: str, bucket: str, from_snapshot_id: str, to_snapshot_id: str) -> _Running | None:
        """Return the same diff of two snapshots, if any. A diff with the active namespace is never reused."""
        asked, is_lasting = (
            (volume, bucket, from_snapshot_id, to_snapshot_id),
            bool(from_snapshot_id and to_snapshot_id),
        )
        for running in self._jobs.values():
            job = running.job
            is_same = asked == (job.volume, job.bucket, job.from_snapshot_id, job.to_snapshot_id)
            if is_same and is_lasting and (not job.status.is_end or job.status is DiffStatus.DONE):
                return running
        return None

    def job(self, job_id: str, wait_seconds: float = 0) -> DiffJob:
        """Return a diff, after waiting at most ``wait_seconds`` for its end. Raise DiffNotFoundError."""
        running = self._running(job_id)
        running.ended.wait(wait_seconds)
        return running.shown()

    def jobs(self, volume: str, bucket: str) -> list[DiffJob]:
        """Return the diffs of a bucket, oldest first."""
        with self._lock:
            found = [one.shown() for one in self._jobs.values() if (one.job.volume, one.job.bucket) == (volume, bucket)]
        return sorted(found, key=lambda job: job.created_ms)

    def cancel(self, job_id: str) -> DiffJob:
        """Cancel a waiting or running diff.

        Raises:
            DiffStateError: the diff has ended already.
        """
        running = self._running(job_id)
        if running.job.status.is_end:
            raise DiffStateError(f"diff {job_id} has ended already ({running.job.status}): there is nothing to cancel")
        running.is_cancelled.set()
        if running.job.status is DiffStatus.QUEUED:
            self._end(running, DiffStatus.CANCELLED)
        running.end_process()
        return running.shown()

    def entries(self, job_id: str, start_after: int, limit: int) -> list[DiffEntry]:
        """Return at most ``limit`` differences after the first ``start_after`` ones of a finished diff.

        Raises:
            DiffStateError: the diff is not DONE.
        """
        running = self._running(job_id)
        if running.job.status is not DiffStatus.DONE:
            raise DiffStateError(f"diff {job_id} is {running.job.status}: its differences can be read when it is DONE")
        with self._entries_of(running.job).open("rb") as lines:
            if running.marks is None:
                running.marks = _marks(lines)
            mark = min(start_after // LINES_PER_MARK, len(running.marks) - 1)
            lines.seek(running.marks[mark])
            skipped = start_after - mark * LINES_PER_MARK
            return [_entry(line) for line in itertools.islice(lines, skipped, skipped + limit)]

    def _running(self, job_id: str) -> _Running:
        with self._lock:
            running = self._jobs.get(job_id)
        if running is None:
            raise DiffNotFoundError(job_id)
        return running

    # ---- computing

    def _work(self) -> None:
        while True:
            self._make(self._waiting.get())

    def _make(self, running: _Running) -> None:
        with self._lock:
            if running.job.status.is_end:  # cancelled while it waited
                return
            running.job = replace(running.job, status=DiffStatus.IN_PROGRESS, way=DiffWay.DIRECT)
        try:
            running.saw(0)
            try:
                count = self._compare_directly(running)
            except _TooLargeError:
                count = self._compare_with_spark(running)
        except _CancelledError:
            self._end(running, DiffStatus.CANCELLED)
        except CommandError as error:
            self._end(running, DiffStatus.FAILED, message=f"{error.code}: {error}")
        except ChildJobError as error:
            status = DiffStatus.CANCELLED if running.is_cancelled.is_set() else DiffStatus.FAILED
            self._end(running, status, message="" if status is DiffStatus.CANCELLED else f"the Spark job {error}")
        except StoreError as error:  # its file has no end, so the next start computes it again
            self._end(running, DiffStatus.FAILED, message=str(error), is_kept=False)
        except Exception as error:
            logger.exception("a diff has failed", job_id=running.job.job_id)
            reason = f"unexpected {type(error).__name__}: {error}; this is a defect: report it with the log"
            self._end(running, DiffStatus.FAILED, message=reason)
        else:
            self._end(running, DiffStatus.DONE, entry_count=count)

    def _compare_directly(self, running: _Running) -> int:
        """Compare the changed rows in this thread. Return the number of differences."""
        job = running.job
        if self._settings.diff_spark_command and isinstance(self._store, RocksStore):
            running.most_rows = self._settings.diff_direct_rows
        names = (job.volume, job.bucket, job.from_snapshot_id, job.to_snapshot_id)
        with opened_states(self._store, *names) as states:
            changes = list(itertools.islice(states.changes(), running.most_rows + 1))
            if len(changes) > running.most_rows:
                raise _TooLargeError
            running.rows_expected = len(changes) + 1
            entries = compare_changes(states.before, states.after, changes, running.saw)
        with self._entries_of(job).open("w", encoding="utf-8") as file:
            for entry in entries:
                file.write(json.dumps([entry.kind.value, entry.path, entry.old_path], ensure_ascii=False) + "\n")
        return len(entries)

    def _compare_with_spark(self, running: _Running) -> int:
        """Run the Spark job, which compares all keys. Return the number of differences."""
        with self._lock:
            running.job = job = replace(running.job, way=DiffWay.SPARK)
            running.rows_seen, running.rows_expected = 0, 100

        def started(end: Callable[[], None]) -> None:
            running.end_process = end
            if running.is_cancelled.is_set():
                end()

        def on_line(line: Mapping[str, Any]) -> None:
            if "progress" in line:
                running.rows_seen = int(line["progress"])

        assert isinstance(self._store, RocksStore)  # noqa: S101  else no diff is too large
        output = self._directory / f"{job.job_id}.parts"
        log_file = output.with_suffix(".log")
        with _kept_for(job, self._store) as compared:
            asked = json.dumps({"bucket": compared, "output": str(output)})
            command = [*shlex.split(self._settings.diff_spark_command), asked]
            try:
                run_child_job(command, log_file, on_line, started=started)
            finally:
                log_file.unlink(missing_ok=True)
        count = 0
        with self._entries_of(job).open("wb") as entries:
            for part in sorted(output.glob("part-*")):
                with part.open("rb") as lines:
                    for line in lines:
                        entries.write(line)
                        count += 1
        shutil.rmtree(output)
        return count

    def _end(
        self, running: _Running, status: DiffStatus, *, message: str = "", entry_count: int = 0, is_kept: bool = True
    ) -> None:
        progress = 100 if status is DiffStatus.DONE else running.shown().progress_percent
        job = replace(
            running.job,
            status=status,
            message=message,
            entry_count=entry_count,
            progress_percent=progress,
            ended_ms=self._clock.now_ms(),
        )
        try:
            if is_kept:
                self._write(job)
        finally:
            with self._lock:
                running.job = job
            running.ended.set()
            self._metrics.ended(job)

    # ---- keeping

    def _write(self, job: DiffJob) -> None:
        file = self._directory / f"{job.job_id}.json"
        written = file.with_suffix(".written")
        written.write_bytes(_JOB.dump_json(job))
        written.replace(file)

    def _entries_of(self, job: DiffJob) -> Path:
        return self._directory / f"{job.job_id}.entries"

    def _load(self) -> None:
        """Load the jobs of an earlier process, and remove its partial files."""
        for file in sorted(self._directory.glob("*.json")):
            try:
                job = _JOB.validate_json(file.read_bytes())
            except (ValidationError, OSError) as error:
                logger.warning("a diff's file cannot be read and is skipped", file=str(file), reason=str(error))
                continue
            running = self._jobs[job.job_id] = _Running(job)
            if job.status.is_end:
                running.ended.set()
            else:
                self._waiting.put(running)
        for left in self._directory.glob("*.parts"):
            shutil.rmtree(left)
        for file in (*self._directory.glob("*.entries"), *self._directory.glob("*.log")):
            if file.stem not in self._jobs or file.suffix == ".log":
                file.unlink()

    def _remove_old(self) -> None:
        """Remove expired diffs, and the oldest ones beyond ``diff_kept_count``."""
        kept_since_ms = self._clock.now_ms() - 1_000 * self._settings.diff_kept_seconds
        ended = [running.job for running in self._jobs.values() if running.ended.is_set()]
        ended.sort(key=lambda job: job.ended_ms)
        too_many = len(ended) - self._settings.diff_kept_count
        for place, job in enumerate(ended):
            if job.ended_ms >= kept_since_ms and place >= too_many:
                return
            del self._jobs[job.job_id]
            for file in (self._entries_of(job), self._directory / f"{job.job_id}.json"):
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()


@contextlib.contextmanager
def _kept_for(job: DiffJob, store: RocksStore) -> Iterator[Mapping[str, Any]]:
    """Keep both checkpoints open, and yield the arguments of the Spark job, a process of its own, that compares them.

    An open checkpoint is not removed, even if its snapshot is dropped. For the active namespace a checkpoint is made
    for the diff only. If a crash leaves it behind, the next start removes it, like every checkpoint without a live
    snapshot.

    Raises:
        CommandError: SNAPSHOT_EXPIRED, the checkpoint of a snapshot was removed.
    """
    with contextlib.ExitStack() as kept:
        views = []
        for snapshot_id in (job.from_snapshot_id, job.to_snapshot_id):
            name = snapshot_id or f"diff-{job.job_id}"
            if not snapshot_id:
                store.checkpoint(name)
                kept.callback(store.remove_checkpoint, name)
            try:
                view = store.open_checkpoint(name)
            except KeyError:
                raise missing_snapshot(TablesReader(store), snapshot_id) from None
            views.append(kept.enter_context(contextlib.closing(view)))
        row = get_bucket(TablesReader(views[0]), job.volume, job.bucket)
        yield {
            "checkpoints": [str(view.path) for view in views],
            "volume": row.volume,
            "bucket": row.bucket,
            "volume_id": row.volume_id,
            "bucket_id": row.object_id,
            "is_tree": row.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED,
        }


def _marks(lines: Iterable[bytes]) -> list[int]:
    """Return the byte offsets of every ``LINES_PER_MARK``-th line."""
    marks, offset = [0], 0
    for number, line in enumerate(lines, start=1):
        offset += len(line)
        if number % LINES_PER_MARK == 0:
            marks.append(offset)
    return marks


def _entry(line: bytes) -> DiffEntry:
    kind, path, old_path = json.loads(line)
    return DiffEntry(DiffKind(kind), path, old_path)
