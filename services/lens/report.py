"""A report of the lens: a directory with ``report.json`` and Parquet files, read without Spark.

``streaming.lens.writer`` writes it. ``things`` has one row a thing (``services.lens.relation``), ``cells`` the same
things summed by bucket and runs, ``findings`` what is wrong in the source. A report is complete if ``report.json`` is
there: it is written last, in a directory of another name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pydantic import TypeAdapter, ValidationError

from services.domain.errors import DeepcleanError
from services.domain.run_space import RunCells, Runs
from services.lens.relation import LensBucket, LensFinding

FORMAT = 1
HEAD_FILE = "report.json"
SOURCES_OF_TABLES = frozenset({"iceberg", "paimon"})
THINGS, CELLS, FINDINGS = "things", "cells", "findings"

RUNS = pa.list_(pa.struct([("first", pa.int32()), ("last", pa.int32())]))
"""The type of a column of runs."""
_SIZES = [("bytes", pa.int64()), ("replicated_bytes", pa.int64())]
THING_SCHEMA = pa.schema(
    [
        ("bucket", pa.string()),
        ("path", pa.string()),
        ("id", pa.string()),
        ("kind", pa.string()),
        *_SIZES,
        ("runs", RUNS),
    ]
)
CELL_SCHEMA = pa.schema([("bucket", pa.string()), ("runs", RUNS), *_SIZES, ("versions", pa.int64())])
FINDING_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("kind", "bucket", "path", "id")] + _SIZES + [("sentence", pa.string())]
)


class ReportError(DeepcleanError):
    """There is no report, or this program cannot read it; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ReportHead:
    """The content of ``report.json``."""

    format: int
    source: str
    """The source's name on the command line: ``ozone``, ``iceberg``, ``paimon``, ``git``."""
    location: str
    made_at_ms: int
    program: str
    notes: tuple[str, ...]
    buckets: tuple[LensBucket, ...]

    @property
    def noun(self) -> str:
        """What people call a bucket of this source."""
        return "table" if self.source in SOURCES_OF_TABLES else "bucket"


@dataclass(frozen=True, slots=True)
class FindingSum:
    """The findings of one kind in a bucket."""

    kind: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Thing:
    """A row of ``things``."""

    bucket: str
    path: str
    id: str
    kind: str
    bytes: int
    replicated_bytes: int
    runs: Runs


HEAD: TypeAdapter[ReportHead] = TypeAdapter(ReportHead)


def check_free(directory: Path) -> None:
    """Check that a report can be made in a directory.

    Raises:
        ReportError: something is there already, or it cannot be created.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ReportError(f"{directory} is no empty directory: remove it, or name another one for the report.")
    above = next(one for one in directory.absolute().parents if one.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ReportError(f"{directory} cannot be created in {above}: name a directory of yours for the report.")


class Report:
    """A report that was written before."""

    def __init__(self, directory: Path) -> None:
        """Open a report.

        Raises:
            ReportError: there is none, or a newer program has written it.
        """
        self.directory = directory
        try:
            content = (directory / HEAD_FILE).read_bytes()
            self.head = HEAD.validate_json(content)
        except FileNotFoundError:
            raise ReportError(f"{directory} has no complete report: make one with --report {directory}.") from None
        except ValidationError:
            raise ReportError(f"{directory / HEAD_FILE} cannot be read: make the report again.") from None
        if self.head.format > FORMAT:
            raise ReportError(
                f"{directory} was written by {self.head.program}, in a newer format: use that version, or make the "
                f"report again."
            )

    @cached_property
    def buckets(self) -> dict[str, LensBucket]:
        """The buckets by name."""
        return {bucket.name: bucket for bucket in self.head.buckets}

    def columns(self, bucket: str) -> RunCells:
        """Return the cells of a bucket as columns; only these are read."""
        return _columns(list(self._batches(CELLS, CELL_SCHEMA, pc.field("bucket") == bucket)))

    def columns_of_all(self, bucket: str) -> RunCells:
        """Return the same as ``columns``; the first call reads the cells of all buckets, and later ones nothing."""
        return self._columns_by_bucket.get(bucket, _columns([]))

    @cached_property
    def _columns_by_bucket(self) -> dict[str, RunCells]:
        table = pa.Table.from_batches(self._batches(CELLS, CELL_SCHEMA, None), CELL_SCHEMA).sort_by("bucket")
        found, start = {}, 0
        for row in pc.value_counts(table["bucket"]).to_pylist():
            found[row["values"]] = _columns(table.slice(start, row["counts"]).to_batches())
            start += row["counts"]
        return found

    def things(self, bucket: str, condition: pc.Expression) -> Iterator[Thing]:
        """Yield the things of a bucket that meet a condition on the columns of ``things``."""
        for row in self._rows(THINGS, THING_SCHEMA, (pc.field("bucket") == bucket) & condition):
            yield Thing(**{**row, "runs": _runs(row["runs"])})

    def findings(self, bucket: str = "") -> Iterator[LensFinding]:
        """Yield the findings of a bucket, or of all."""
        condition = pc.field("bucket") == bucket if bucket else None
        for row in self._rows(FINDINGS, FINDING_SCHEMA, condition):
            yield LensFinding(**row)

    def finding_sums(self) -> dict[str, list[FindingSum]]:
        """Return the sums of the findings by bucket, and by kind in their order."""
        table = pa.Table.from_batches(self._batches(FINDINGS, FINDING_SCHEMA, None), FINDING_SCHEMA)
        sums = table.group_by(["bucket", "kind"]).aggregate([("bytes", "count"), ("bytes", "sum")])
        found: dict[str, list[FindingSum]] = {}
        for row in sums.sort_by([("bucket", "ascending"), ("kind", "ascending")]).to_pylist():
            found.setdefault(row["bucket"], []).append(FindingSum(row["kind"], row["bytes_count"], row["bytes_sum"]))
        return found

    def _rows(self, part: str, schema: pa.Schema, condition: pc.Expression | None) -> Iterator[dict[str, Any]]:
        for batch in self._batches(part, schema, condition):
            yield from batch.to_pylist()

    def _batches(self, part: str, schema: pa.Schema, condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        folder = self.directory / part
        try:
            files = ds.dataset(folder, schema=schema, format="parquet", exclude_invalid_files=False)
            yield from files.to_batches(filter=condition)
        except FileNotFoundError:
            raise ReportError(f"{folder} is missing: make the report again.") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise ReportError(f"{folder} cannot be read ({error}): make the report again.") from error


def _runs(cells: list[dict[str, int]]) -> Runs:
    return tuple((run["first"], run["last"]) for run in cells)


def _columns(batches: list[pa.RecordBatch]) -> RunCells:
    runs, *sizes = (
        pa.concat_arrays([pa.array([], field.type), *(batch[field.name] for batch in batches)])
        for field in CELL_SCHEMA
        if field.name != "bucket"
    )
    firsts, lasts = runs.flatten().flatten()
    return RunCells(*map(_numbers, (runs.offsets, firsts, lasts, *sizes)))


def _numbers(column: pa.Array) -> memoryview:
    """Return a column of numbers without nulls as what it is in memory: a list of half a million takes a second."""
    width = column.type.byte_width
    whole = memoryview(column.buffers()[1] or b"")
    return whole[column.offset * width : (column.offset + len(column)) * width].cast("i" if width == 4 else "q")
