"""Lets Iceberg expire snapshots of random tables, and compares what goes with what the lens foretold.

``python -m tests.table_formats.iceberg_judge --tables 12 --seed 7`` prints one JSON object a table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from random import Random

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from services.lens.iceberg.location import plain_path
from services.lens.questions import questions
from services.lens.report import Report
from streaming.lens.iceberg.source import write
from streaming.lens.writer import ReportWriter
from tests.table_formats.iceberg_table import RandomTable
from tests.table_formats.session import session_with

NAMES = ("table", "a table", "t+1", "t%20", "täble", "t[1]{2}")


def report_of(session: SparkSession, location: str, directory: Path) -> Report:
    """Read a table into a report."""
    with ReportWriter(session, directory, "iceberg", location) as writer:
        write(location, argparse.Namespace(), writer)
    return Report(directory)


def judge(session: SparkSession, directory: Path, seed: int) -> dict[str, object]:
    """Make a table, foretell what some drops free, let Iceberg drop, and return both."""
    random = Random(seed)
    table = RandomTable(session, directory / random.choice(NAMES), random, random.choice([1, 2, 2, 3, 3]))
    started = time.monotonic()
    table.play(random.randint(8, 30))
    played = time.monotonic()
    before = table.files()
    report = report_of(session, str(table.directory), directory / "report")
    reported = time.monotonic()
    untouched = table.files() == before
    answers = questions(report)[0]
    ids = [one for one in table.snapshot_ids() if one != table.current()]
    drops = random.sample(ids, random.randint(0, len(ids)))
    freed = answers.what_if([str(one) for one in drops])
    places = {place for place, ref in enumerate(answers.bucket.refs) if ref.id and int(ref.id) in drops}
    things = report.things(answers.bucket.name, pc.field("bucket") == answers.bucket.name)
    foretold = {
        plain_path(one.id): one.bytes
        for one in things
        if one.runs and all(set(range(first, last + 1)) <= places for first, last in one.runs)
    }
    protectors = [name for name, one in table.references().items() if one in drops]
    for name in protectors:
        table.remove(name)
    if drops:
        table.expire(drops)
    after = table.files()
    vanished = {path: size for path, size in before.items() if path not in after}
    return {
        "seed": seed,
        "format": table.format_version,
        "refused": table.refused,
        "done": table.done,
        "snapshots": len(ids) + 1,
        "drops": len(drops),
        "untouched": untouched,
        "foretold": foretold,
        "vanished": vanished,
        "protected_by": [sorted(freed.protected_by), sorted(protectors)],
        "freed_bytes": freed.freed_bytes,
        "freed_versions": freed.freed_versions,
        "notes": list(freed.notes),
        "findings": [f"{one.kind} {one.path}" for one in report.findings()],
        "seconds": [round(played - started, 2), round(reported - played, 2), round(time.monotonic() - reported, 2)],
    }


def main() -> None:
    """Judge some tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deepclean-iceberg-") as directory, session_with("iceberg-spark-runtime-4.0_2.13") as session:
        for seed in range(options.seed, options.seed + options.tables):
            place = Path(directory) / str(seed)
            place.mkdir()
            print(json.dumps(judge(session, place, seed)), flush=True)


if __name__ == "__main__":
    main()
