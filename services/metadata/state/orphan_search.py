"""The search of a shard for a row that owns one of some blocks, page by page between other commands.

Rows move meanwhile: a version that is renamed, deleted, claimed or undeleted may move from the part that is not yet
searched to the part that is. So every command that is applied during a search is checked, too: if it set a row that
owns one of the blocks, the search ends. The search reaches every row that no command moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from schemas.codec import codec
from schemas.records import (
    BlockRun,
    ClaimedRow,
    KeyHead,
    KeyPartRow,
    OpenKeyRow,
    OrphanSearchRow,
    PartRow,
    RequeueOrphans,
)
from services.metadata.state.tables import (
    DELETED_TABLE,
    FILE_TABLE,
    KEY_PART_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    OPEN_FILE_TABLE,
    OPEN_KEY_TABLE,
    ORPHAN_SEARCH_KEY,
    ORPHAN_SEARCH_TABLE,
    PART_TABLE,
    RECLAIM_TABLE,
)
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition

MAX_ROWS_READ = 10_000
"""Maximum versions that one command reads."""
IDLE_MS = 60_000
"""Log time after which another search may replace one that no command has continued."""
_KEY_HEAD = codec(KeyHead)
_CLAIMED_ROW = codec(ClaimedRow)
_BEYOND = b"\xff"
"""Behind all keys: those of parts of uploads begin with the upload's id."""
_KEY_PART_ROW = codec(KeyPartRow)
_OPEN_KEY_ROW = codec(OpenKeyRow)
_PART_ROW = codec(PartRow)
Wanted = Sequence[range]
"""Ids of blocks: a range for each run."""


def _of_head(row: bytes) -> Sequence[BlockRun]:
    blocks = _KEY_HEAD.decode_head(row).blocks
    return (blocks,) if blocks else ()


def _of_claimed(row: bytes) -> Sequence[BlockRun]:
    blocks = _CLAIMED_ROW.decode(row).version.key.blocks
    return (blocks,) if blocks else ()


def _of_open_key(row: bytes) -> Sequence[BlockRun]:
    return [run.blocks for run in _OPEN_KEY_ROW.decode(row).runs]


_BLOCKS_OF: Mapping[TableDefinition[Any], Callable[[bytes], Sequence[BlockRun]]] = {
    KEY_TABLE: _of_head,
    FILE_TABLE: _of_head,
    DELETED_TABLE: _of_head,
    RECLAIM_TABLE: _of_claimed,
    KEY_PART_TABLE: lambda row: (_KEY_PART_ROW.decode(row).blocks,),
    OPEN_KEY_TABLE: _of_open_key,
    OPEN_FILE_TABLE: _of_open_key,
    PART_TABLE: lambda row: [run.blocks for run in _PART_ROW.decode(row).runs],
    KEY_VERSION_TABLE: _of_head,
}
"""The tables whose rows can have blocks, in the order of the search, and how the blocks are read from an encoded row.
New ones are added at the end: a search that is in progress knows its table by the number."""
_PLACES: tuple[TableDefinition[Any], ...] = tuple(_BLOCKS_OF)


class OrphanSearch:
    """The search of a shard that is in progress, if any, cached between commands."""

    def __init__(self) -> None:
        self.is_known = False
        """Whether ``row`` is what the table has."""
        self.row: OrphanSearchRow | None = None
        self._wanted: Wanted = ()

    def clear(self) -> None:
        """Discard the cached row: a command that changed it was undone."""
        self.is_known = False

    def of(self, work: Work) -> OrphanSearchRow | None:
        """Return the progress of the search; None if there is none."""
        if not self.is_known:
            self._keep(work.table(ORPHAN_SEARCH_TABLE).get(ORPHAN_SEARCH_KEY))
        return self.row

    def _keep(self, row: OrphanSearchRow | None) -> None:
        self.is_known, self.row = True, row
        self._wanted = () if row is None else _wanted(row.command)

    def save(self, work: Work, row: OrphanSearchRow) -> None:
        """Store the progress of a new or continued search."""
        work.table(ORPHAN_SEARCH_TABLE).put(ORPHAN_SEARCH_KEY, row)
        self._keep(row)

    def end(self, work: Work) -> None:
        """End the search."""
        if self.of(work) is not None:
            work.table(ORPHAN_SEARCH_TABLE).delete(ORPHAN_SEARCH_KEY)
            self._keep(None)

    def look_at_message(self, work: Work) -> None:
        """Note the owner if the present message, which was applied, set a row that owns one of the blocks."""
        row = self.of(work)
        if row is None or row.owner:
            return
        for definition in _PLACES:
            table = work.table(definition)
            for key in work.set_by_message(definition):
                if (encoded := table.get_encoded(key)) is not None and _owns(definition, encoded, self._wanted):
                    self.save(work, replace(row, owner=f"{definition.name}{key.decode()}"))
                    return

    def forget_idle(self, work: Work, log_time_ms: int) -> None:
        """End an idle search."""
        row = self.of(work)
        if row is not None and is_idle(row, log_time_ms):
            self.end(work)


def is_idle(row: OrphanSearchRow, log_time_ms: int) -> bool:
    """Return whether no command has continued a search for ``IDLE_MS``, so that another one may replace it."""
    return log_time_ms - row.log_time_ms >= IDLE_MS


def is_through(row: OrphanSearchRow) -> bool:
    """Return whether a search has read all tables."""
    return row.table == len(_PLACES)


def _ids(runs: Iterable[BlockRun]) -> Wanted:
    return [range(run.first_local_id, run.first_local_id + run.block_count) for run in runs]


def _wanted(command: RequeueOrphans) -> Wanted:
    """Return the ids of the blocks. One allocation may be divided among a version, garbage rows, and an open key."""
    return _ids(command.blocks)


def _owns(table: TableDefinition[Any], row: bytes, wanted: Wanted) -> bool:
    owned = _ids(_BLOCKS_OF[table](row))
    return any(one.start < other.stop and other.start < one.stop for one in owned for other in wanted)


def looked_on(work: Work, page: OrphanSearchRow) -> OrphanSearchRow:
    """Return the progress after the next rows, up to an owner, a limit, or the end of the shard."""
    wanted, rows, start = _wanted(page.command), page.rows, page.next_key
    most = min(page.rows + MAX_ROWS_READ, page.command.max_rows)
    for number in range(page.table, len(_PLACES)):
        for key, row in work.table(_PLACES[number]).scan_encoded(start, _BEYOND):
            if rows >= most:
                is_over = rows >= page.command.max_rows
                return replace(page, table=number, next_key=key, rows=rows + is_over)
            rows += 1
            if _owns(_PLACES[number], row, wanted):
                return replace(page, rows=rows, owner=f"{_PLACES[number].name}{key.decode()}")
        start = b""
    return replace(page, table=len(_PLACES), next_key=b"", rows=rows)
