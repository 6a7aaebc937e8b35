"""Writes reports of the lens without Spark, and recounts their figures over sets of holders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.domain.run_space import RunCells, Runs, merged
from services.domain.space_matrix import SpaceCell
from services.lens.relation import LensBucket, LensFinding, Ref, RefKind
from services.lens.report import (
    CELL_SCHEMA,
    CELLS,
    FINDING_SCHEMA,
    FINDINGS,
    FORMAT,
    HEAD,
    HEAD_FILE,
    THING_SCHEMA,
    THINGS,
    Report,
    ReportHead,
    Thing,
)

ACTIVE = Ref("active", "active", RefKind.ACTIVE, is_droppable=False)


def chain(*names: str, bucket: str = "vol/bucket", notes: Sequence[str] = ()) -> LensBucket:
    """A bucket with these snapshots, a minute apart, and the active namespace."""
    refs = (Ref(name, f"id-{name}", time_ms=60_000 * place) for place, name in enumerate(names))
    return LensBucket(bucket, (*refs, ACTIVE), tuple(notes))


def held_at(*places: int) -> Runs:
    """The runs of a set of places."""
    return merged((place, place) for place in places)


def thing(path: str, size_bytes: int, *places: int, bucket: str = "vol/bucket", copies: int = 3) -> Thing:
    """A thing, and the places of all that hold it."""
    return Thing(bucket, path, f"id-of-{path}", "key", size_bytes, copies * size_bytes, held_at(*places))


def places_of(runs: Runs) -> frozenset[int]:
    """The holders, one by one."""
    return frozenset(place for first, last in runs for place in range(first, last + 1))


def columns_of(cells: Mapping[Runs, SpaceCell]) -> RunCells:
    """The cells as columns."""
    runs = [run for one in cells for run in one]
    return RunCells(
        run_ends=[0, *accumulate(map(len, cells))],
        firsts=[first for first, _ in runs],
        lasts=[last for _, last in runs],
        bytes=[cell.bytes for cell in cells.values()],
        replicated_bytes=[cell.replicated_bytes for cell in cells.values()],
        versions=[cell.versions for cell in cells.values()],
    )


def freed_by(things: Iterable[Thing], dropped: Collection[int]) -> tuple[int, int, int]:
    """Bytes, replicated bytes and number of the things that somebody holds, and nobody beside the dropped ones."""
    freed = [one for one in things if places_of(one.runs) and places_of(one.runs) <= set(dropped)]
    return sum(one.bytes for one in freed), sum(one.replicated_bytes for one in freed), len(freed)


def write_report(
    directory: Path,
    buckets: Sequence[LensBucket],
    things: Sequence[Thing] = (),
    findings: Sequence[LensFinding] = (),
    *,
    notes: Sequence[str] = (),
    source: str = "git",
    format_number: int = FORMAT,
) -> Path:
    """Write a report with these things; its cells are their sums."""
    sums: dict[tuple[str, Runs], list[int]] = {}
    for one in things:
        cell = sums.setdefault((one.bucket, one.runs), [0, 0, 0])
        for index, amount in enumerate((one.bytes, one.replicated_bytes, 1)):
            cell[index] += amount
    _write(directory / THINGS, THING_SCHEMA, [_FIELDS(one) for one in things])
    _write(directory / CELLS, CELL_SCHEMA, [(bucket, runs, *cell) for (bucket, runs), cell in sums.items()])
    _write(directory / FINDINGS, FINDING_SCHEMA, [astuple(one) for one in findings])
    head = ReportHead(
        format_number, source, "/some/where", 1_700_000_000_000, "deepclean 9", tuple(notes), tuple(buckets)
    )
    (directory / HEAD_FILE).write_bytes(HEAD.dump_json(head))
    return directory


_FIELDS = attrgetter(*THING_SCHEMA.names)


def _write(folder: Path, schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> None:
    folder.mkdir(parents=True)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [
        _runs_column(column) if field.name == "runs" else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    pq.write_table(pa.table(arrays, schema=schema), folder / "part.parquet")


def _runs_column(column: Sequence[Runs]) -> pa.Array:
    ends = [0, *accumulate(map(len, column))]
    firsts, lasts = (pa.array([run[end] for runs in column for run in runs], pa.int32()) for end in (0, 1))
    runs = pa.StructArray.from_arrays([firsts, lasts], ["first", "last"])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), runs)


def cells_of(report: Report, bucket: str) -> dict[Runs, SpaceCell]:
    """Return the things of a bucket, summed by their holders."""
    columns = report.columns(bucket)
    return dict(columns.items([True] * len(columns.bytes)))
