"""The runs of blocks of a live version behind its first one, and what becomes of them when the version dies.

Most versions have one run of blocks, which is in their own row. A version has more if its blocks were allocated by
several commands: it was synced while it was written, appended to, or joined from the parts of an upload. Each further
run is a row of keyPartTable with a birth of its own, the txn at which the run became visible.

A block belongs to one run, and a run to one version. When the version dies, each run becomes a garbage row of its own
from its own birth until the common death. So a snapshot that has seen the beginning of a growing key holds the blocks
that it has seen and no others, and no judge needs to know that runs belong together (docs/decisions/0041).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from schemas.codec import codec
from schemas.records import BlockRun, KeyPartRow, KeyRow, KeyStart
from services.domain.errors import InvariantError
from services.domain.table_keys import key_part_key, key_parts_prefix
from services.metadata.state.tables import KEY_PART_TABLE
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import Tables, TablesReader

_KEY_START = codec(KeyStart)
Ids = tuple[int, int]
"""objectIDs of a volume and a bucket."""


def parts_of(tables: Work | TablesReader, ids: Ids, key: KeyRow) -> list[KeyPartRow]:
    """Return the further runs of a version, in the order of the content."""
    if not key.is_composed:
        return []
    prefix = key_parts_prefix(*ids, key.object_id)
    return [row for _, row in tables.table(KEY_PART_TABLE).scan(prefix, prefix_end(prefix))]


def further_runs(work: Work, ids: Ids, row: bytes) -> int:
    """Return the number of further runs of an encoded version: rows that its death adds to deletedTable."""
    if not is_composed(row):
        return 0
    prefix = key_parts_prefix(*ids, _KEY_START.decode_head(row).object_id)
    return sum(1 for _ in work.table(KEY_PART_TABLE).scan_encoded(prefix, prefix_end(prefix)))


def is_composed(row: bytes) -> bool:
    """Return ``KeyRow.is_composed`` of an encoded row: its last byte."""
    return row[-1] == 1


def part_at(work: Work, ids: Ids, object_id: int, position: int) -> KeyPartRow:
    """Return a further run of a live key by its position."""
    row = work.table(KEY_PART_TABLE).get(key_part_key(*ids, object_id, position))
    if row is None:
        raise InvariantError(f"run {position} of the key {object_id} is missing; report it with the log")
    return row


def run_at(tables: Tables, ids: Ids, key: KeyRow, position: int) -> BlockRun | None:
    """Return a run of blocks of a live version by its position, 0 for the first; None if it has none there."""
    if not position:
        return key.blocks
    part = tables.table(KEY_PART_TABLE).get(key_part_key(*ids, key.object_id, position))
    return part.blocks if part else None


def put_parts(work: Work, ids: Ids, object_id: int, parts: Sequence[KeyPartRow], first_position: int = 1) -> None:
    """Write further runs of a live key, from a position on."""
    table = work.table(KEY_PART_TABLE)
    for position, part in enumerate(parts, start=first_position):
        table.put(key_part_key(*ids, object_id, position), part)


def pop_parts(work: Work, ids: Ids, key: KeyRow) -> list[KeyPartRow]:
    """Remove the further runs of a version from keyPartTable, and return them."""
    if not key.is_composed:
        return []
    table, prefix = work.table(KEY_PART_TABLE), key_parts_prefix(*ids, key.object_id)
    found = list(table.scan(prefix, prefix_end(prefix)))
    for key_of_part, _ in found:
        table.delete(key_of_part)
    return [row for _, row in found]


def stored_bytes(key: KeyRow, parts: Sequence[KeyPartRow]) -> int:
    """Return the bytes of all blocks of a version. A version that was rolled back may end before its blocks do."""
    return sum(run.size_bytes for run in runs_of(key, parts))


def runs_of(key: KeyRow, parts: Sequence[KeyPartRow]) -> Iterator[BlockRun]:
    """Yield all runs of blocks of a version."""
    if key.blocks is not None:
        yield key.blocks
    for part in parts:
        yield part.blocks


def row_of_first_run(key: KeyRow) -> KeyRow:
    """Return the row with which the first run of a composed version dies."""
    return replace(key, size_bytes=key.blocks.size_bytes if key.blocks else 0, is_composed=False)


def row_of_part(key: KeyRow, part: KeyPartRow) -> KeyRow:
    """Return the row with which a further run of a version dies."""
    return replace(
        key,
        object_id=part.object_id,
        birth=part.birth,
        size_bytes=part.blocks.size_bytes,
        blocks=part.blocks,
        rename_txn=0,
        is_composed=False,
    )
