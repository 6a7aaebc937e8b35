"""Rewrites a checkpoint: its rows alone, in order, in files of its own.

A checkpoint keeps whole files, and in them rows that were replaced before it was made, rows of other tables' owners,
and one entry for each level of merging. Rewriting copies the rows that are wanted through a view, so the copy answers
every read of them as the checkpoint does. It is a database of its own beside the checkpoints until it takes the
checkpoint's place (``Checkpoints.replace``); a crash before that leaves a directory that the next start removes.

Whether it pays is decided by what the checkpoint costs: its *share*, the bytes of each of its files that the database
does not have, divided by the number of checkpoints that have the file. Files that many checkpoints share cost each of
them little, and rewriting all would cost more than they do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Cache, Checkpoint, IngestExternalFileOptions, Rdict, SstFileWriter

from schemas.formats import FAMILY as FORMAT_FAMILY
from services.storage.rocks_checkpoints import TRIMMED, CheckpointView
from services.storage.rocks_options import TABLE_FILE_BYTES, RocksOptions
from services.storage.rocks_views import Row, explaining
from services.storage.store import BEYOND
from services.storage.tables import TableDefinition

Ranges = Mapping[str, tuple[bytes, bytes]]
"""Per family the keys that are kept: the first and the end (exclusive). Of other families all rows are kept."""
Pace = Callable[[int], bool]
"""Receives the number of rows that were copied since the last call; waits, and returns whether to go on."""
DEFRAGMENTED = "DEFRAGMENTED"
"""Marker in a checkpoint's directory: it was rewritten. A copy keeps it."""
ROWS_AT_ONCE = 1_000
EXPECTED_SHARE = 0.6
"""Assumed size of the rewritten files, as a share of the files that have wanted rows: 0.2 to 0.5 were measured."""
MOST_OF_GAIN = 4
"""A checkpoint is rewritten if that gives at least its share divided by this number."""


def expected_bytes(view: CheckpointView, kept: Ranges) -> float:
    """Return about how large the rewritten files will be: RocksDB tells the keys of each file, and not its family."""
    wanted: int = sum(
        file["size"]
        for file in view.live_files()
        if not kept or any(file["start_key"] < end and file["end_key"] >= start for start, end in kept.values())
    )
    return EXPECTED_SHARE * wanted


def is_worth_it(share: float, expected: float, least_gain_bytes: int) -> bool:
    """Return whether rewriting a checkpoint frees enough."""
    return share - expected >= max(least_gain_bytes, share / MOST_OF_GAIN)


def rewrite(
    view: CheckpointView,
    families: Iterable[TableDefinition[Any]],
    kept: Ranges,
    directory: Path,
    options: RocksOptions,
    pace: Pace,
) -> Path | None:
    """Copy the kept rows of a checkpoint; return the new one's directory within ``directory``, on disk as a whole.

    Return None if ``pace`` said to end. The caller removes ``directory``.
    """
    with explaining(directory, "made"):
        if directory.exists():
            shutil.rmtree(directory)
        (directory / "files").mkdir(parents=True)
        cache = Cache(options.block_cache_bytes)
        definitions: dict[str, TableDefinition[Any] | None] = {table.name: table for table in families}
        there = {name: definitions.get(name) for name in (*definitions, FORMAT_FAMILY)}
        packed = {name: options.packed_family(table, cache) for name, table in there.items()}
        database = Rdict(str(directory / "db"), options.database(), packed, AccessType.read_write())
        try:
            for name in there:
                start, end = kept.get(name, (b"", BEYOND))
                rows = view.scan(name, start, end)
                files = _write_files(rows, packed[name], directory / "files" / name, pace)
                if files is None:
                    return None
                if files:
                    ingesting = IngestExternalFileOptions()
                    ingesting.set_move_files(True)
                    family = database.get_column_family(name)
                    family.ingest_external_file(files, ingesting)
                    family.close()
            made = directory / "made"
            Checkpoint(database).create_checkpoint(str(made))  # its files and names are on disk when this returns
        finally:
            database.close()
        (made / TRIMMED).touch()
        (made / DEFRAGMENTED).touch()
        return made


def _write_files(rows: Iterator[Row], options: Any, prefix: Path, pace: Pace) -> list[str] | None:
    """Write rows to table files of limited size; return their paths, or None if ``pace`` said to end."""
    files: list[str] = []
    writer: SstFileWriter | None = None
    while part := list(islice(rows, ROWS_AT_ONCE)):
        if writer is None:
            files.append(f"{prefix}.{len(files)}.sst")
            writer = SstFileWriter(options)
            writer.open(files[-1])
        for key, value in part:
            writer[key] = value
        if writer.file_size() >= TABLE_FILE_BYTES:
            writer.finish()
            writer = None
        if not pace(len(part)):
            return None
    if writer is not None:
        writer.finish()
    return files
