"""Writes the report of a source: things as a DataFrame, summed by their holders.

A source opens a ``ReportWriter``, registers its buckets, adds things (columns of ``services.lens.report.THING_SCHEMA``)
and findings. When the context ends without an error, the cells are summed and the report gets its name.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema

from services.domain.addresses import without_credentials
from services.lens.relation import LensBucket, LensFinding
from services.lens.report import (
    CELLS,
    FINDING_SCHEMA,
    FINDINGS,
    FORMAT,
    HEAD,
    HEAD_FILE,
    THING_SCHEMA,
    THINGS,
    ReportHead,
    check_free,
)

MOST_NOTES = 50
"""Most notes of one bucket: a chain of a thousand snapshots may have lost all of its directories."""
THING_COLUMNS, _FINDING_COLUMNS = from_arrow_schema(THING_SCHEMA), from_arrow_schema(FINDING_SCHEMA)


class ReportWriter:
    """A report in the making, in a directory beside the final one."""

    def __init__(self, session: SparkSession, directory: Path, source: str, location: str) -> None:
        """Begin a report.

        Raises:
            ReportError: there is something at the place of the report already, or it cannot be created.
        """
        check_free(directory)
        self.session = session
        self._directory = directory
        self._unfinished = directory.with_name(f".{directory.name}.unfinished")
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._unfinished.mkdir(parents=True)
        self._source, self._location = source, without_credentials(location)
        self._buckets: list[LensBucket] = []
        self._notes: list[str] = []
        self._findings: list[LensFinding] = []
        self._add_empty()

    def add_bucket(self, bucket: LensBucket) -> None:
        """Register a bucket and its references."""
        notes, remarks, not_looked_for = map(_first, (bucket.notes, bucket.remarks, bucket.not_looked_for))
        self._buckets.append(replace(bucket, notes=notes, remarks=remarks, not_looked_for=not_looked_for))

    def note(self, sentence: str) -> None:
        """Say what is missing or not certain in the whole report."""
        self._notes.append(sentence)

    def add_things(self, things: DataFrame) -> None:
        """Append things; the columns are those of ``THING_COLUMNS``, in any order."""
        things.select(*THING_SCHEMA.names).write.mode("append").parquet(str(self._unfinished / THINGS))

    def things(self) -> DataFrame:
        """Return the things that were added so far."""
        return self.session.read.schema(THING_COLUMNS).parquet(str(self._unfinished / THINGS))

    def add_findings(self, findings: Iterable[LensFinding]) -> None:
        """Append findings."""
        self._findings += findings

    def _add_empty(self) -> None:
        self.add_things(self.session.createDataFrame([], THING_COLUMNS))

    def _finish(self) -> None:
        cells = (
            self.things()
            .groupBy("bucket", "runs")
            .agg(
                functions.sum("bytes").alias("bytes"),
                functions.sum("replicated_bytes").alias("replicated_bytes"),
                functions.count("*").alias("versions"),
            )
        )
        cells.coalesce(1).write.parquet(str(self._unfinished / CELLS))
        rows = [tuple(getattr(one, name) for name in LensFinding.__slots__) for one in self._findings]
        findings = self.session.createDataFrame(rows, _FINDING_COLUMNS)
        findings.coalesce(1).write.parquet(str(self._unfinished / FINDINGS))
        head = ReportHead(
            format=FORMAT,
            source=self._source,
            location=self._location,
            made_at_ms=time.time_ns() // 1_000_000,
            program=f"deepclean {version('deepclean')}",
            notes=_first(self._notes),
            buckets=tuple(self._buckets),
        )
        (self._unfinished / HEAD_FILE).write_bytes(HEAD.dump_json(head, indent=2))
        if self._directory.exists():
            self._directory.rmdir()  # it is empty
        self._unfinished.rename(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()
        else:
            shutil.rmtree(self._unfinished, ignore_errors=True)


def _first(notes: Sequence[str]) -> tuple[str, ...]:
    more = (f"There are {len(notes) - MOST_NOTES:,} more notes.",) if len(notes) > MOST_NOTES else ()
    return (*notes[:MOST_NOTES], *more)
