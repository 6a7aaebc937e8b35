"""Lets Iceberg expire snapshots of random tables, and compares what goes with what the lens foretold.

``python -m tests.table_formats.iceberg_judge --tables 12 --seed 7`` prints one JSON object a table. One table in six
is changed by Spark SQL and expired by Iceberg's procedure, the others by its Java library: half of these expire by
the ids of snapshots, the others by age.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from services.lens.iceberg.location import plain_path
from services.lens.iceberg.references import EXPIRABLE
from services.lens.questions import BucketQuestions, questions
from services.lens.report import Report
from streaming.lens.iceberg.source import write
from streaming.lens.writer import ReportWriter
from tests.table_formats.iceberg_sql_table import SqlTable, add_catalog
from tests.table_formats.iceberg_table import RandomTable
from tests.table_formats.session import session_with

NAMES = ("table", "a table", "t+1", "t%20", "täble", "t[1]{2}")


@dataclass(slots=True)
class Judged:
    """What was foretold of a table, and what happened."""

    seed: int
    format_version: int
    how: str
    done: list[str]
    refused: list[str]
    snapshots: int
    dropped: list[int]
    gone: list[int]
    """The snapshots that Iceberg has expired."""
    foretold: dict[str, int]
    """Files that were to go, with their sizes."""
    vanished: dict[str, int]
    """Files that went, without those that were lost."""
    lost: list[str]
    """Files with deletion vectors that went although a snapshot that stays needs them: Iceberg 1.10.1 removes a file
    with the first of its vectors."""
    late: dict[str, int]
    """Files that were to go, and went only with the snapshot that deleted them: Iceberg's incremental expiry leaves
    them until then."""
    freed_bytes: int
    freed_versions: int
    protected_by: list[str]
    protectors: list[str]
    unaccounted: list[str]
    """Files that are neither things of the report nor orphans, or have another size, or are not there."""
    untouched: bool
    """Whether the table was after the reading as it was before."""
    notes: list[str]
    findings: list[str]
    seconds: list[float]

    @property
    def is_right(self) -> bool:
        return (
            self.foretold == self.vanished | self.late
            and (not self.late or self.how.endswith("by age"))
            and (self.freed_bytes, self.freed_versions) == (sum(self.foretold.values()), len(self.foretold))
            and sorted(self.dropped) == sorted(self.gone)
            and self.protected_by == self.protectors
            and self.untouched
            and not self.unaccounted
        )


def report_of(session: SparkSession, location: str, directory: Path) -> Report:
    """Read a table into a report."""
    with ReportWriter(session, directory, "iceberg", location) as writer:
        write(location, argparse.Namespace(), writer)
    return Report(directory)


def judge(session: SparkSession, directory: Path, seed: int) -> Judged:
    """Make a table, foretell what some drops free, let Iceberg drop, and return both."""
    random = Random(seed)
    version = random.choice([1, 2, 2, 3, 3])
    started = time.monotonic()
    table = _made(session, directory, random, version, is_sql=seed % 6 == 0)
    is_by_age = isinstance(table, RandomTable) and random.random() < 0.5
    if isinstance(table, RandomTable) and is_by_age and table.snapshot_ids():
        table.age(time.time_ns() // 1_000_000)
    played = time.monotonic()
    before = table.files()
    report = report_of(session, str(table.directory), directory / "report")
    untouched = table.files() == before
    reported = time.monotonic()
    answers = questions(report)[0]
    current, known = table.current(), table.snapshot_ids()
    ids = [one for one in known if one != current]
    if is_by_age:
        dropped = [int(ref.id) for ref in answers.bucket.refs if ref.status == EXPIRABLE]
    else:
        dropped = random.sample(ids, random.randint(0, len(ids)))
    freed = answers.what_if([str(one) for one in dropped])
    protectors = [name for name, one in table.references().items() if one in dropped and not is_by_age]
    for name in protectors:
        table.remove(name)
    if isinstance(table, RandomTable) and is_by_age:
        table.expire_old()
    elif dropped:
        table.expire(dropped)
    after = table.files()
    vanished = {path: size for path, size in before.items() if path not in after}
    foretold = _foretold(report, answers, set(dropped))
    lost = _lost(session, table, directory / "later") if vanished.keys() - foretold.keys() else []
    left = set(table.snapshot_ids())
    late = _late(table, foretold.keys() - vanished.keys()) if isinstance(table, RandomTable) else set()
    return Judged(
        seed,
        version,
        type(table).__name__ + (" by age" if is_by_age else ""),
        table.done,
        table.refused,
        len(known),
        dropped,
        [one for one in known if one not in left],
        foretold,
        {path: size for path, size in vanished.items() if path not in lost},
        lost,
        {path: size for path, size in foretold.items() if path in late},
        freed.freed_bytes,
        freed.freed_versions,
        sorted(freed.protected_by),
        sorted(protectors),
        _unaccounted(report, answers, before),
        untouched,
        list(freed.notes),
        [f"{one.kind} {one.path}" for one in report.findings()],
        [round(played - started, 2), round(reported - played, 2), round(time.monotonic() - reported, 2)],
    )


def _lost(session: SparkSession, table: RandomTable | SqlTable, directory: Path) -> list[str]:
    """Return the files with deletion vectors that the table names after the expiry and does not have any more."""
    findings = report_of(session, str(table.directory), directory).findings()
    return [one.id for one in findings if one.kind == "missing-file" and one.id.endswith(".puffin")]


def _late(table: RandomTable, files: Set[str]) -> set[str]:
    """Return those of some files that a further snapshot and the expiry of all others let go."""
    if not files:
        return set()
    table.append()
    table.expire_all()
    return set(files) - table.files().keys()


def _made(
    session: SparkSession, directory: Path, random: Random, version: int, *, is_sql: bool
) -> RandomTable | SqlTable:
    if is_sql:
        add_catalog(session, directory.parent / "warehouse")
        by_sql = SqlTable(session, directory.parent / "warehouse", random, version)
        by_sql.play(random.randint(4, 9))
        return by_sql
    table = RandomTable(session, directory / random.choice(NAMES), random, version)
    table.play(random.randint(8, 30))
    return table


def _foretold(report: Report, answers: BucketQuestions, dropped: set[int]) -> dict[str, int]:
    """Return what is held by dropped snapshots alone, read from the things one by one."""
    places = {place for place, ref in enumerate(answers.bucket.refs) if ref.id and int(ref.id) in dropped}
    things = report.things(answers.bucket.name, pc.scalar(True))
    return {
        plain_path(one.id): one.bytes
        for one in things
        if one.runs and all(set(range(first, last + 1)) <= places for first, last in one.runs)
    }


def _unaccounted(report: Report, answers: BucketQuestions, files: dict[str, int]) -> list[str]:
    things = report.things(answers.bucket.name, pc.scalar(True))
    named = {plain_path(one.id): one.bytes for one in things}
    orphans = {one.id: one.bytes for one in report.findings() if one.kind == "orphaned-file"}
    there = {path: size for path, size in files.items() if not path.endswith("/version-hint.text")}
    both = [path for path in named if path in orphans]
    return both + [str(one) for one in (named | orphans).items() ^ there.items()]


def main() -> None:
    """Judge some tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    module = "iceberg-spark-runtime-4.0_2.13"
    with tempfile.TemporaryDirectory(prefix="deepclean-iceberg-") as directory, session_with(module) as session:
        for seed in range(options.seed, options.seed + options.tables):
            place = Path(directory) / str(seed)
            place.mkdir()
            found = judge(session, place, seed)
            print(json.dumps({**asdict(found), "is_right": found.is_right}), flush=True)


if __name__ == "__main__":
    main()
