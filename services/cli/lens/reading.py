"""Opens the report that a question is answered from: an earlier one, or one that a Spark job makes now."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from services.cli.progress import rate_text, shown_progress
from services.domain.words import counted
from services.lens.iceberg.location import find_table
from services.lens.paimon.metadata import no_table
from services.lens.report import Report, check_free
from services.plane.machine.spark_jobs import run_spark_job
from services.workloads.git_command import GitRepository

MODULE = "streaming.lens"


class Source(StrEnum):
    """What LOCATION is."""

    OZONE = "ozone"
    ICEBERG = "iceberg"
    PAIMON = "paimon"
    GIT = "git"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read, and how."""

    source: Source
    location: str
    bucket: str
    kept_report: Path | None
    """Where the report stays; None: nowhere."""
    master: str
    heap: str


@contextmanager
def report_of(reading: Reading) -> Iterator[Report]:
    """Yield the report, which exists as long as this lasts.

    Raises:
        ReportError: there is no such report, or no place for it.
        OzoneLocationError, IcebergError, PaimonError, GitError: there is nothing of the kind at the location.
        SparkJobError: the source cannot be read.
    """
    if reading.source is Source.REPORT:
        yield Report(Path(reading.location))
        return
    _check(reading)
    with tempfile.TemporaryDirectory(prefix="deepclean-lens-") as scratch:
        directory = reading.kept_report or Path(scratch) / "report"
        _make(reading, directory, Path(scratch))
        yield Report(directory)


def _check(reading: Reading) -> None:
    """Refuse at once what the job would refuse only after Spark has started. Stores elsewhere are left to the job."""
    if reading.kept_report:
        check_free(reading.kept_report)
    location = reading.location
    match reading.source:
        case Source.OZONE:
            # Questions on a report need neither RocksDB nor HTTP.
            from services.lens.ozone.location import check_location  # noqa: PLC0415

            check_location(location)
        case Source.GIT:
            GitRepository(Path(location)).check_history()
        case _ if "://" in location:
            pass
        case Source.ICEBERG:
            find_table(location)
        case Source.PAIMON if not any(Path(location).glob("schema/schema-*")):
            raise no_table(location)


def _make(reading: Reading, directory: Path, scratch: Path) -> None:
    started = time.monotonic()
    with shown_progress(f"reading {reading.source}") as progress:
        percent, rows = 0, 0

        def on_line(line: Mapping[str, Any]) -> None:
            nonlocal percent, rows
            percent, rows = int(line.get("progress", percent)), int(line.get("rows", rows))
            progress(percent, "reading", f", {counted(rows, 'row')}, {rate_text(rows, started)}" if rows else "")

        progress(0, "starting Spark")
        bucket = ["--bucket", reading.bucket] if reading.bucket else []
        run_spark_job(
            MODULE,
            [reading.source, reading.location, "--report", str(directory.absolute()), *bucket],
            on_line,
            scratch=scratch,
            java_directory=scratch,
            heap=reading.heap,
            master=reading.master,
        )
