"""The lens foretells what Apache Paimon's own expiry removes, file by file, and which snapshots it expires."""

from __future__ import annotations

import itertools
import os
import re
import time
from argparse import Namespace
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from schemas.records import RetentionPolicy
from services.lens.paimon.metadata import PaimonError
from services.lens.questions import BucketQuestions
from services.lens.relation import LensBucket, RefKind
from services.lens.report import Report
from streaming.lens.paimon.source import write
from streaming.lens.paimon.table import CHANGELOGS_NEED_TAGS
from streaming.lens.table_files import ORPHANS_NOT_LOOKED_FOR
from streaming.lens.writer import ReportWriter
from tests.paimon_histories import COLUMNS, KINDS, MINUTE_MS, random_table
from tests.paimon_runtime import FOREVER, INSERT, Paimon, PaimonTable, paimon
from tests.spark_session import SPARK_MARKS, started_session

pytestmark = [*SPARK_MARKS, pytest.mark.timeout(240), pytest.mark.long]


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as session:
        yield session


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paimon]:
    with paimon(tmp_path_factory.mktemp("warehouse")) as runtime:
        yield runtime


HISTORY = os.environ.get("DEEPCLEAN_PAIMON_HISTORY", "79")
"""Which random histories are played. A history can meet an error of Paimon, so each run of the tests plays the same."""
_LOST_BY_A_BRANCH = re.compile(r"The manifest list \S+ of b\d+/\d+ ")
"""Paimon expires the changelog of a snapshot with which a branch begins, and does not ask the branch."""


def report_of(session: SparkSession, location: Path, directory: Path) -> Report:
    with ReportWriter(session, directory, "paimon", str(location)) as writer:
        write(str(location), Namespace(), writer)
    return Report(directory)


def asked(report: Report) -> BucketQuestions:
    (bucket,) = report.buckets.values()
    return BucketQuestions(report, bucket)


@pytest.mark.parametrize("kind", KINDS)
def test_expiry_removes_what_was_foretold(session: SparkSession, runtime: Paimon, tmp_path: Path, kind: str) -> None:
    random = Random(f"{HISTORY} {kind}")
    table = random_table(runtime, f"t{random.getrandbits(40)}", KINDS[kind], random)
    judge(session, table, tmp_path / "report", random)


def test_damage_is_said_in_one_sentence_each(session: SparkSession, runtime: Paimon, tmp_path: Path) -> None:
    table = runtime.create("damaged", COLUMNS, {"bucket": "1", "file.format": "avro"}, primary=("k",))
    for number in range(3):
        table.write([(INSERT, ("d", number, "v"))])
    sound = asked(report_of(session, table.directory, tmp_path / "sound"))
    held = {thing.path: thing for thing in sound.report.things("db.damaged", pc.scalar(True))}
    data = next(path for path, thing in held.items() if thing.kind == "data" and thing.runs[0][0] == 1)
    first = next(path for path, thing in held.items() if thing.kind == "manifest" and thing.runs[0][0] == 0)
    last = next(path for path, thing in held.items() if thing.kind == "manifest" and thing.runs[0][0] == 2)
    (table.directory / "bucket-0/left-behind").write_bytes(b"12345")
    (orphan,) = asked(report_of(session, table.directory, tmp_path / "orphaned")).report.findings()
    assert (orphan.kind, orphan.path, orphan.bytes) == ("orphaned-file", "bucket-0/left-behind", 5)
    assert "a writer may still commit it" in orphan.sentence
    (table.directory / data).unlink()
    (table.directory / first).unlink()
    cut_short = (table.directory / last).read_bytes()
    (table.directory / last).write_bytes(cut_short[:-16] + bytes(16))
    snapshot = table.directory / "snapshot/snapshot-2"
    snapshot.write_text(snapshot.read_text().replace('"version" : 3', '"version" : 4'))
    (table.directory / "tag").mkdir()
    (table.directory / "tag/tag-torn").write_text(snapshot.read_text()[:40])
    (table.directory / "consumer").mkdir()
    (table.directory / "consumer/consumer-torn").write_text("{")

    before = table.files()
    question = asked(report_of(session, table.directory, tmp_path / "damaged"))
    assert table.files() == before
    notes = "\n".join(question.notes)
    assert len(question.notes) == 6
    assert question.bucket.not_looked_for == (ORPHANS_NOT_LOOKED_FOR,)
    assert "consumer/consumer-torn cannot be read" in notes
    assert "The referenced bytes of other snapshots are right, but dropping them may free more or less" in notes
    assert f"The manifest {first} is missing: the figures of 1 to main are wrong." in notes
    assert f"The manifest {last} is damaged: the figures of " in notes
    assert f"{data} is missing: {held[data].bytes:,} bytes by the metadata, which count as 0" in notes
    assert "format version 4 are newer than this program" in notes
    assert "tag/tag-torn cannot be read" in notes
    findings = {(finding.kind, finding.path): finding for finding in question.report.findings()}
    assert "references from 2 to main need it" in findings["missing-file", data].sentence
    assert "orphaned-file" not in {kind for kind, _ in findings}

    with pytest.raises(PaimonError, match="has no schema/schema-0"):
        report_of(session, table.directory / "bucket-0", tmp_path / "no-table")
    with pytest.raises(PaimonError, match="cannot be listed"):
        report_of(session, tmp_path / "nowhere", tmp_path / "nothing")


def judge(session: SparkSession, table: PaimonTable, directory: Path, random: Random) -> None:
    """Compare what-ifs with Paimon: an expiry of snapshots, then one of changelogs, then the removal of all tags."""
    before = table.files()
    report = report_of(session, table.directory, directory)
    assert table.files() == before, "the table was changed"
    question = asked(report)
    assert [note for note in question.notes if note != CHANGELOGS_NEED_TAGS and not _LOST_BY_A_BRANCH.match(note)] == []
    things = {thing.path: thing for thing in report.things(question.bucket.name, pc.scalar(True))}
    orphans = {finding.path: finding.bytes for finding in report.findings() if finding.kind == "orphaned-file"}
    assert {path: thing.bytes for path, thing in things.items()} | orphans == before
    assert not things.keys() & orphans.keys()

    kept = random.randint(1, 6)
    policy = RetentionPolicy(
        num_retained_min=kept,
        num_retained_max=random.choice([0, kept, kept + 3]),
        time_retained_ms=random.randint(2, 120) * MINUTE_MS,
        expire_limit=random.choice([50, 50, 3]),
        consumer_expiration_ms=0,
        tag_num_retained_max=0,
        tag_time_retained_ms=0,
        snapshot_every_ms=0,
        tag_every_ms=0,
    )
    decision = BucketQuestions(report, aged_by_own_time(question.bucket)).retention(policy, time.time_ns() // 1_000_000)
    stepwise = question.retention(policy, time.time_ns() // 1_000_000).expired
    assert stepwise == decision.expired[: len(stepwise)], "our rule is the stronger one"

    table.expire(
        {
            "snapshot.num-retained.min": str(policy.num_retained_min),
            "snapshot.num-retained.max": str(policy.num_retained_max or FOREVER),
            "snapshot.time-retained": f"{policy.time_retained_ms} ms",
            "snapshot.expire.limit": str(policy.expire_limit),
        }
    )
    snapshots = [ref.name for ref in question.bucket.refs if ref.kind is RefKind.SNAPSHOT]
    assert [int(name) for name in snapshots if name not in decision.expired] == table.snapshots()
    assert_gone(report, decision.expired, vanished(before, table), is_marked=True)

    dropped = [*decision.expired]
    outlived = table.changelogs()
    if outlived:
        newest = str(table.latest() - random.choice(outlived) + 1)
        table.expire_changelogs({"changelog.num-retained.min": newest, "changelog.num-retained.max": newest})
        dropped += [f"{changelog}/changelog" for changelog in outlived if changelog not in table.changelogs()]
        assert_gone(report, dropped, vanished(before, table), is_marked=True)

    tags = [ref.name for ref in question.bucket.refs if ref.kind is RefKind.TAG]
    for tag in tags:
        table.java.deleteTag(tag)
    assert_gone(report, [*dropped, *tags], vanished(before, table), is_marked=False, is_tag=True)


def assert_gone(
    report: Report, dropped: Collection[str], gone: dict[str, int], *, is_marked: bool, is_tag: bool = False
) -> None:
    """Compare what Paimon removed with the report. Paimon does not ask whether a branch holds what main expires."""
    question = asked(report)
    bucket = question.bucket
    of_main = [ref for ref in bucket.refs if ref.kind is not RefKind.BRANCH]
    expected = foretold(report, dropped, {ref.name for ref in of_main})
    if is_tag and question.notes:  # as they say, Paimon does not ask whether a changelog needs what a tag held
        tags = {ref.name for ref in of_main if ref.kind is RefKind.TAG}
        overlooking = {ref.name for ref in of_main if ref.kind is not RefKind.CHANGELOG}
        of_tags = foretold(report, {ref.name for ref in bucket.refs}, tags)
        expected |= {path: size for path, size in foretold(report, dropped, overlooking).items() if path in of_tags}
    assert gone == expected
    of_nobody = foretold(report, dropped, {ref.name for ref in bucket.refs})
    assert sum(of_nobody.values()) == (question.what_if(list(dropped)).freed_bytes if dropped else 0)
    if gone != of_nobody:
        marks = {finding.path for finding in report.findings() if finding.kind == "unprotected-branch"}
        guards = {name for ref in bucket.refs if ref.kind is RefKind.TAG for name in ref.protected_by[1:]}
        assert "main" in marks if is_marked else marks or guards or question.notes


def aged_by_own_time(bucket: LensBucket) -> LensBucket:
    """Return the bucket with each snapshot as old as the one before it.

    Our rule tests the age of the snapshot *after* the one that would expire. The judge's release tests the snapshot's
    own age, which is the same question with these times.
    """
    snapshots = [ref for ref in bucket.refs if ref.kind is RefKind.SNAPSHOT]
    earlier = {ref.name: before.time_ms for before, ref in itertools.pairwise(snapshots)}
    return replace(bucket, refs=tuple(replace(ref, time_ms=earlier.get(ref.name, ref.time_ms)) for ref in bucket.refs))


def foretold(report: Report, dropped: Collection[str], looked_at: Collection[str]) -> dict[str, int]:
    """Return the files that dropped references hold, and none of the other references that are looked at."""
    (bucket,) = report.buckets.values()
    names = [ref.name for ref in bucket.refs]
    found = {}
    for thing in report.things(bucket.name, pc.scalar(True)):
        holders = {names[place] for first, last in thing.runs for place in range(first, last + 1)} & set(looked_at)
        if holders and holders <= set(dropped):
            found[thing.path] = thing.bytes
    return found


def vanished(before: dict[str, int], table: PaimonTable) -> dict[str, int]:
    after = table.files()
    return {path: size_bytes for path, size_bytes in before.items() if path not in after}
