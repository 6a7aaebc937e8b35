"""Diffs as jobs: their states, what a restart keeps, and that a page is a page."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.answers import DiffStatus, DiffWay
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteSnapshot,
    PutKey,
)
from services.domain.refusals import CommandError
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.log.clock import VirtualClock
from services.metadata.diffs import differences
from services.metadata.diffs import jobs as diff_jobs
from services.metadata.diffs.jobs import DiffJobs, DiffNotFoundError, DiffStateError
from services.metadata.metrics import SnapshotDiffMetrics
from services.metadata.settings import MetadataSettings
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.memory import MemoryStore
from services.storage.store import StoreError
from tests.diffed_shard import DiffedShard

END_SECONDS = 20.0
NEW_KEYS = 2_500


class Bucket:
    """A bucket with a snapshot, keys that were put after it, and diffs in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = VirtualClock()
        plane = InMemoryPlane()
        client = InMemoryClient(plane)
        for command in (CreateVolume("vol"), CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)):
            client.answer(0, client.submit(0, command))
        self.first = client.request(0, CreateSnapshot("vol", "bucket", "first")).snapshot_id
        for number in range(NEW_KEYS):
            client.submit(0, PutKey("vol", "bucket", f"ключ {number:05}", 1))
        self.second = client.request(0, CreateSnapshot("vol", "bucket", "second")).snapshot_id
        self.client = client
        self.store: MemoryStore = plane.processes["metadata", 0].store

    def jobs(self, **settings: Any) -> DiffJobs:
        """The diffs, as a process that has just started has them."""
        self.metrics = SnapshotDiffMetrics(None)
        return DiffJobs(self.store, self.directory, self.clock, MetadataSettings(**settings), self.metrics)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "diffs")


class Gate:
    """Holds diffs up while they look at rows."""

    def __init__(self) -> None:
        self.entered, self.killed, self.opened = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
        self.is_killing = False

    def wait(self) -> None:
        self.entered.release()
        assert self.opened.wait(END_SECONDS)
        if self.is_killing:  # does nothing more, as after the end of its process
            self.killed.release()
            threading.Event().wait()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held = Gate()

    def compare(*arguments: object) -> list[DiffEntry]:
        held.wait()
        compare_changes: Callable[..., list[DiffEntry]] = differences.compare_changes
        return compare_changes(*arguments)

    monkeypatch.setattr(diff_jobs, "compare_changes", compare)
    yield held
    held.opened.set()


def test_a_diff_is_made_and_read_page_by_page(bucket: Bucket) -> None:
    jobs = bucket.jobs()
    asked = jobs.ask("vol", "bucket", bucket.first, bucket.second)
    done = jobs.job(asked.job_id, END_SECONDS)
    assert (done.status, done.way, done.progress_percent) == (DiffStatus.DONE, DiffWay.DIRECT, 100)
    assert done.entry_count == NEW_KEYS
    expected = [DiffEntry(DiffKind.CREATED, f"ключ {number:05}") for number in range(NEW_KEYS)]
    for start_after, limit in ((0, 3), (999, 2), (1_000, 1), (2_499, 10), (2_500, 10), (0, NEW_KEYS)):
        assert jobs.entries(done.job_id, start_after, limit) == expected[start_after : start_after + limit]
    assert bucket.metrics.ended_jobs.labels("DONE")._value.get() == 1


def test_the_same_two_snapshots_are_compared_once_but_the_present_each_time(bucket: Bucket) -> None:
    jobs = bucket.jobs(diff_threads=0)
    first = jobs.ask("vol", "bucket", bucket.first, bucket.second)
    assert jobs.ask("vol", "bucket", bucket.first, bucket.second) == first
    assert jobs.ask("vol", "bucket", bucket.second, bucket.first).job_id != first.job_id
    now = [jobs.ask("vol", "bucket", bucket.first, "").job_id for _ in range(2)]
    assert len({first.job_id, *now}) == 3
    assert len(jobs.jobs("vol", "bucket")) == 4
    assert jobs.jobs("vol", "other") == []


def test_one_more_than_may_wait_is_rejected(bucket: Bucket, gate: Gate) -> None:
    jobs = bucket.jobs(diff_queue=2)
    asked = [jobs.ask("vol", "bucket", bucket.first, "")]
    assert gate.entered.acquire(timeout=END_SECONDS)
    asked += [jobs.ask("vol", "bucket", bucket.first, "") for _ in range(3)]
    expected = [DiffStatus.IN_PROGRESS, DiffStatus.QUEUED, DiffStatus.QUEUED, DiffStatus.REJECTED]
    assert [jobs.job(job.job_id).status for job in asked] == expected
    assert "try again in 60 seconds" in asked[-1].message
    gate.opened.set()
    assert [jobs.job(job.job_id, END_SECONDS).status for job in asked[:3]] == 3 * [DiffStatus.DONE]


def test_what_waits_and_what_is_being_made_can_be_cancelled(bucket: Bucket, gate: Gate) -> None:
    jobs = bucket.jobs()
    making = jobs.ask("vol", "bucket", bucket.first, "")
    assert gate.entered.acquire(timeout=END_SECONDS)
    waiting = jobs.ask("vol", "bucket", bucket.first, "")
    assert jobs.cancel(waiting.job_id).status is DiffStatus.CANCELLED
    assert jobs.cancel(making.job_id).status is DiffStatus.IN_PROGRESS
    gate.opened.set()
    assert jobs.job(making.job_id, END_SECONDS).status is DiffStatus.CANCELLED
    with pytest.raises(DiffStateError, match="ended already"):
        jobs.cancel(making.job_id)
    with pytest.raises(DiffStateError, match="can be read when it is DONE"):
        jobs.entries(making.job_id, 0, 1)
    with pytest.raises(DiffNotFoundError):
        jobs.job("none")


def test_a_restart_keeps_what_is_done_and_makes_the_rest(bucket: Bucket, gate: Gate) -> None:
    before = bucket.jobs()
    gate.opened.set()
    done = before.ask("vol", "bucket", bucket.first, bucket.second)
    before.job(done.job_id, END_SECONDS)
    gate.opened.clear()
    cut_short = before.ask("vol", "bucket", bucket.second, bucket.first)
    assert gate.entered.acquire(timeout=END_SECONDS)
    gate.is_killing = True
    gate.opened.set()
    assert gate.killed.acquire(timeout=END_SECONDS)
    gate.is_killing = False
    (bucket.directory / "half.entries").write_text("[")
    after = bucket.jobs()
    assert after.job(done.job_id).entry_count == NEW_KEYS
    assert after.entries(done.job_id, 2_499, 10) == [DiffEntry(DiffKind.CREATED, "ключ 02499")]
    assert not (bucket.directory / "half.entries").exists()
    assert after.job(cut_short.job_id, END_SECONDS).status is DiffStatus.DONE
    assert after.entries(cut_short.job_id, 0, 1) == [DiffEntry(DiffKind.DELETED, "ключ 00000")]


def test_a_disk_that_fails_leaves_the_diff_to_the_next_start(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[DiffEntry]:
        raise StoreError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(diff_jobs, "compare_changes", fail)
        jobs = bucket.jobs(diff_threads=1)
        asked = jobs.ask("vol", "bucket", bucket.first, bucket.second)
        failed = jobs.job(asked.job_id, END_SECONDS)
    assert (failed.status, failed.message) == (DiffStatus.FAILED, "the disk is gone")
    assert bucket.jobs().job(asked.job_id, END_SECONDS).status is DiffStatus.DONE


def test_a_defect_is_reported_as_one(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff_jobs, "compare_changes", lambda *_: 1 // 0)
    jobs = bucket.jobs(diff_threads=0)
    failed = jobs.ask("vol", "bucket", bucket.first, bucket.second)
    assert failed.status is DiffStatus.FAILED
    assert "this is a defect" in failed.message
    assert jobs.ask("vol", "bucket", bucket.first, bucket.second).job_id != failed.job_id


def test_what_is_not_there_is_refused_at_once(bucket: Bucket) -> None:
    jobs = bucket.jobs(diff_threads=0)
    for volume, from_id, code in (("vol", "none", "FILE_NOT_FOUND"), ("other", "", "VOLUME_NOT_FOUND")):
        with pytest.raises(CommandError) as caught:
            jobs.ask(volume, "bucket", from_id, "")
        assert caught.value.code == code
    assert jobs.jobs("vol", "bucket") == []


def test_a_snapshot_that_goes_while_its_diff_waits_fails_it(bucket: Bucket, gate: Gate) -> None:
    jobs = bucket.jobs()
    jobs.ask("vol", "bucket", bucket.first, "")
    assert gate.entered.acquire(timeout=END_SECONDS)
    waiting = jobs.ask("vol", "bucket", bucket.first, bucket.second)
    bucket.client.request(0, DeleteSnapshot("vol", "bucket", "second"))
    bucket.client.plane.run_until(lambda: bucket.second not in bucket.store.checkpoints())
    gate.opened.set()
    failed = jobs.job(waiting.job_id, END_SECONDS)
    assert failed.status is DiffStatus.FAILED
    assert failed.message.startswith("SNAPSHOT_EXPIRED: ")


def test_a_diff_goes_after_a_while(bucket: Bucket) -> None:
    jobs = bucket.jobs(diff_threads=0, diff_kept_seconds=60)
    old = jobs.ask("vol", "bucket", bucket.first, bucket.second)
    bucket.clock.advance(60_000)
    jobs.ask("vol", "bucket", bucket.first, "")
    assert jobs.job(old.job_id) == old
    bucket.clock.advance(1)
    jobs.ask("vol", "bucket", bucket.first, "")
    with pytest.raises(DiffNotFoundError):
        jobs.job(old.job_id)
    assert not list(bucket.directory.glob(f"{old.job_id}*"))


def test_the_oldest_go_when_there_are_too_many(bucket: Bucket) -> None:
    jobs = bucket.jobs(diff_threads=0, diff_kept_count=3)
    asked = []
    for _ in range(6):
        bucket.clock.advance(1)
        asked.append(jobs.ask("vol", "bucket", bucket.first, "").job_id)
    assert [job.job_id for job in jobs.jobs("vol", "bucket")] == asked[2:]  # the newest was made after the others went
    assert len(list(bucket.directory.glob("*.json"))) == 4


class TestWithSpark:
    """A stand-in for the Spark job, and a real database; the real job is in ``tests/integration``."""

    JOB = """
import json, sys, time
options = json.loads(sys.argv[-1])
assert sorted(options["bucket"]) == ["bucket", "bucket_id", "checkpoints", "is_tree", "volume", "volume_id"]
import pathlib
assert all((pathlib.Path(one) / "CURRENT").exists() for one in options["bucket"]["checkpoints"])
print("a library says something")
print(json.dumps({"progress": 40}), flush=True)
if sys.argv[1] == "hang":
    sys.stdin.read()
if sys.argv[1] == "fail":
    sys.exit("it cannot be")
output = pathlib.Path(options["output"])
output.mkdir()
for part, path in (("part-00001", "b"), ("part-00000", "a")):
    (output / part).write_text(json.dumps(["+", path, ""]) + "\\n")
"""

    @pytest.fixture
    def shard(self, tmp_path: Path) -> Iterator[DiffedShard]:
        shard = DiffedShard(tmp_path, BucketLayout.FILE_SYSTEM_OPTIMIZED)
        shard.snapshot("one")
        shard.do(*(PutKey("vol", "bucket", f"d/{number}", 1) for number in range(20)))
        shard.snapshot("two")
        yield shard
        shard.store.close()

    def jobs(self, shard: DiffedShard, tmp_path: Path, how: str, rows: int = 10) -> DiffJobs:
        tmp_path.mkdir(exist_ok=True)
        script = tmp_path / "job.py"
        script.write_text(self.JOB, "utf-8")
        command = shlex.join([sys.executable, str(script), how])
        settings = MetadataSettings(diff_direct_rows=rows, diff_spark_command=command)
        return DiffJobs(shard.store, tmp_path / "diffs", VirtualClock(), settings)

    def test_few_rows_are_looked_at_directly_and_many_by_spark(self, shard: DiffedShard, tmp_path: Path) -> None:
        # Twenty keys and their directory changed, and what is in a new directory is looked through.
        for rows, way, paths in ((41, DiffWay.DIRECT, 21), (40, DiffWay.SPARK, 2), (20, DiffWay.SPARK, 2)):
            jobs = self.jobs(shard, tmp_path / str(rows), "do", rows)
            done = jobs.job(jobs.ask("vol", "bucket", "one", "two").job_id, END_SECONDS)
            assert (done.status, done.way, done.entry_count) == (DiffStatus.DONE, way, paths), done
        assert [entry.path for entry in jobs.entries(done.job_id, 0, 10)] == ["a", "b"]
        assert sorted(file.suffix for file in (tmp_path / "20" / "diffs").iterdir()) == [".entries", ".json"]

    def test_a_tree_that_went_counts_by_what_is_in_it(self, shard: DiffedShard, tmp_path: Path) -> None:
        shard.do(DeleteDirectory("vol", "bucket", "d"))
        shard.snapshot("three")
        jobs = self.jobs(shard, tmp_path, "do", 19)
        assert jobs.job(jobs.ask("vol", "bucket", "two", "three").job_id, END_SECONDS).way is DiffWay.SPARK

    def test_the_present_gets_a_checkpoint_for_as_long_as_it_takes(self, shard: DiffedShard, tmp_path: Path) -> None:
        jobs = self.jobs(shard, tmp_path, "hang")
        asked = jobs.ask("vol", "bucket", "one", "")
        await_progress(jobs, asked.job_id, 40)
        assert f"diff-{asked.job_id}" in shard.store.checkpoints()
        jobs.cancel(asked.job_id)
        cancelled = jobs.job(asked.job_id, END_SECONDS)
        assert (cancelled.status, cancelled.message) == (DiffStatus.CANCELLED, "")
        assert shard.store.checkpoints() == ["one", "two"]

    def test_a_dropped_snapshot_stays_readable_until_the_end(self, shard: DiffedShard, tmp_path: Path) -> None:
        jobs = self.jobs(shard, tmp_path, "hang")
        asked = jobs.ask("vol", "bucket", "one", "two")
        await_progress(jobs, asked.job_id, 40)
        shard.store.remove_checkpoint("one")
        directory = Path(shard.compared("one", "two").checkpoints[0])
        assert shard.store.checkpoints() == ["two"]
        assert directory.is_dir()
        jobs.cancel(asked.job_id)
        jobs.job(asked.job_id, END_SECONDS)
        assert not directory.exists()

    def test_a_job_that_fails_says_why(self, shard: DiffedShard, tmp_path: Path) -> None:
        jobs = self.jobs(shard, tmp_path, "fail")
        failed = jobs.job(jobs.ask("vol", "bucket", "one", "two").job_id, END_SECONDS)
        assert failed.status is DiffStatus.FAILED
        assert failed.message == "the Spark job ended with status 1; it said last: it cannot be"


def await_progress(jobs: DiffJobs, job_id: str, percent: int) -> None:
    deadline = time.monotonic() + END_SECONDS
    while jobs.job(job_id, 0.01).progress_percent < percent:
        assert time.monotonic() < deadline
