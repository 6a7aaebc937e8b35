"""The diff job on real Spark says what a comparison of everything says, in its order."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from schemas.answers import DiffStatus, DiffWay
from schemas.records import BucketLayout, PutKey
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.log.clock import VirtualClock
from services.metadata.diffs.jobs import DiffJobs
from services.metadata.settings import MetadataSettings
from services.plane.machine.home import jars_directory
from streaming.diff.__main__ import compare
from tests.diffed_shard import DiffedShard
from tests.spark_session import SPARK_MARKS, java_for_spark, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(300), pytest.mark.long]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as started:
        yield started


def entries_in(output: Path) -> list[DiffEntry]:
    lines = [line for file in sorted(output.glob("part-*")) for line in file.read_text("utf-8").splitlines()]
    return [DiffEntry(DiffKind(kind), path, old_path) for kind, path, old_path in map(json.loads, lines)]


@pytest.mark.parametrize("layout", [BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE])
def test_the_job_equals_a_comparison_of_everything(session: SparkSession, layout: BucketLayout, tmp_path: Path) -> None:
    random = Random(3)
    shard = DiffedShard(tmp_path, layout)
    names = []
    for number in range(3):
        shard.do(*(PutKey("vol", "bucket", f"many/é{key % 7}\n/{key:04}", 1) for key in range(number, 300, 2)))
        shard.random_steps(random, 60)
        names.append(f"s{number}")
        shard.snapshot(names[-1])
    compared = 0
    for one, other in ((0, 1), (2, 0), (1, 2), (1, 1)):
        output = tmp_path / f"{one}-{other}"
        compare(session, shard.compared(names[one], names[other]), output)
        expected = shard.expected(names[one], names[other])
        assert entries_in(output) == expected
        compared += len(expected)
    assert compared > 300
    shard.store.close()


def test_both_ways_give_the_same_answer(tmp_path: Path) -> None:
    """The owner of a shard starts the job as a process; the present is compared, too."""
    random = Random(5)
    shard = DiffedShard(tmp_path, BucketLayout.FILE_SYSTEM_OPTIMIZED)
    shard.random_steps(random, 100)
    shard.snapshot("one")
    shard.random_steps(random, 100)
    command = [sys.executable, "-m", "streaming.diff", "--jars-directory", str(jars_directory() / "spark")]
    answers = []
    with java_for_spark():
        for rows in (10_000, 1):
            settings = MetadataSettings(diff_direct_rows=rows, diff_spark_command=shlex.join(command))
            jobs = DiffJobs(shard.store, tmp_path / f"diffs-{rows}", VirtualClock(), settings)
            done = jobs.job(jobs.ask("vol", "bucket", "one", "").job_id, 120)
            assert done.status is DiffStatus.DONE, done
            assert done.way is (DiffWay.SPARK if rows == 1 else DiffWay.DIRECT)
            answers.append(jobs.entries(done.job_id, 0, 1_000))
    assert answers[0] == answers[1] == shard.expected("one", "")
    assert answers[0]
    assert shard.store.checkpoints() == ["one"]
    shard.store.close()
