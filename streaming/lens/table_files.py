"""What both table formats need: a table's name, its files as columns, findings and notes on many files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, Row, functions

from services.domain.run_space import Runs
from services.domain.words import counted
from services.lens.relation import LensFinding, Ref

MOST_RUNS = 3
"""Most runs that a note names."""
MOST_FINDINGS = 10_000
"""Most findings of one kind; the others are summed in one more."""


ORPHANS_NOT_LOOKED_FOR = "Orphans were not looked for: what could not be read may name the files."


@dataclass(slots=True)
class TableNotes:
    """What a report says of a table beside its figures."""

    losses: list[str] = field(default_factory=list)
    """What could not be read, and may name files: without it nobody knows which files are orphans."""
    notes: list[str] = field(default_factory=list)
    """What else makes figures uncertain."""
    remarks: list[str] = field(default_factory=list)
    """What explains figures."""
    not_looked_for: list[str] = field(default_factory=list)
    """Which findings were not looked for, and why."""

    def marking(self) -> tuple[str, ...]:
        """Return the notes of the bucket that mark its figures."""
        return (*self.losses, *self.notes)


def table_name(location: str) -> str:
    """Return the name of a table: that of its directory, and of its database where a directory is called so."""
    path = PurePosixPath(location)
    database = path.parent.name
    return f"{database.removesuffix('.db')}.{path.name}" if database.endswith(".db") else path.name


def names_of_runs(refs: Sequence[Ref], runs: Runs) -> str:
    """Return which references are in some runs, as a part of a sentence."""
    names = [
        refs[first].name if first == last else f"{refs[first].name} to {refs[last].name}"
        for first, last in runs[:MOST_RUNS]
    ]
    return ", ".join([*names, *(["others"] if len(runs) > MOST_RUNS else [])])


def listing_of(files: Mapping[str, fs.FileInfo]) -> pa.Table:
    """Return files by their paths as columns ``path``, ``found_bytes`` and ``changed_ms``."""
    infos = files.values()
    return pa.table(
        {
            "path": pa.array(files.keys(), pa.string()),
            "found_bytes": pa.array((info.size for info in infos), pa.int64()),
            "changed_ms": pa.array(((info.mtime_ns or 0) // 1_000_000 for info in infos), pa.int64()),
        }
    )


def file_findings(
    kind: str, bucket: str, files: DataFrame, sentence_of: Callable[[Row], str], shown_path: Callable[[str], str] = str
) -> Iterator[LensFinding]:
    """Yield a finding for each of the largest files, and one for all others. Columns: ``path``, ``size``."""
    rows = files.orderBy(functions.desc("size"), "path").limit(MOST_FINDINGS + 1).collect()
    for row in rows[:MOST_FINDINGS]:
        size_bytes = row["size"] or 0
        yield LensFinding(kind, bucket, shown_path(row.path), row.path, size_bytes, size_bytes, sentence_of(row))
    if len(rows) > MOST_FINDINGS:
        count, size_bytes = sums(files)
        rest_bytes = size_bytes - sum(row["size"] or 0 for row in rows[:MOST_FINDINGS])
        sentence = (
            f"Not listed: {counted(count - MOST_FINDINGS, 'more file')} of this kind, none larger than the listed ones."
        )
        yield LensFinding(kind, bucket, "", "", rest_bytes, rest_bytes, sentence)


def missing_notes(files: DataFrame, shown_path: Callable[[str], str] = str) -> list[str]:
    """Return a note on files that the metadata names and the directory has not. Columns: ``path``, ``size``."""
    largest = files.orderBy(functions.desc("size"), "path").first()
    if largest is None:
        return []
    count, size_bytes = sums(files)
    path = shown_path(largest.path)
    what = f"{path} and {counted(count - 1, 'more file')} are" if count > 1 else f"{path} is"
    by_metadata = f"{size_bytes:,} bytes by the metadata"
    return [f"{what} missing: {by_metadata}, which count as 0, since no expiry frees them. The rest is right."]


def sums(files: DataFrame) -> tuple[int, int]:
    """Return the number of files and the sum of their column ``size``."""
    (row,) = files.agg(functions.count("*"), functions.sum("size")).collect()
    return row[0], row[1] or 0
