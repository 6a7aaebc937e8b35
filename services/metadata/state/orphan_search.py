"""The search of a shard for a version that owns one of some blocks: page by page, while the shard goes on.

Rows move meanwhile: a version that is renamed, dies, is claimed or comes back may get from where the search has yet to
look to where it has looked. So each command that is applied while a search goes on is looked at, too: a row that it has
set and that owns one of the blocks ends the search. A row that no command sets stays where it is, and the search comes
by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas.codec import codec
from schemas.records import ClaimedRow, KeyHead, OrphanSearchRow, RequeueOrphans
from services.domain.table_keys import local_id_txn
from services.metadata.state.tables import (
    DELETED_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    ORPHAN_SEARCH_KEY,
    ORPHAN_SEARCH_TABLE,
    RECLAIM_TABLE,
)
from services.runtime.loop.service import Work
from services.storage.tables import TableDefinition

MAX_ROWS_READ = 10_000
"""Versions that one command looks at."""
IDLE_MS = 60_000
"""Of log time, after which another search may take the place of one that nobody goes on with."""
_KEY_HEAD = codec(KeyHead)
_CLAIMED_ROW = codec(ClaimedRow)
_FIRST, _BEYOND = b"/", b"0"
_PLACES: tuple[TableDefinition[Any], ...] = (KEY_TABLE, FILE_TABLE, DELETED_TABLE, RECLAIM_TABLE)
"""Where a version can be that has blocks, in the order in which they are looked through."""


class OrphanSearch:
    """The search of a shard that is under way, if there is one: kept between commands."""

    def __init__(self) -> None:
        self._is_known = False
        self._row: OrphanSearchRow | None = None
        self._txns: frozenset[int] = frozenset()

    def clear(self) -> None:
        """Look it up again: what a command has said of it was undone."""
        self._is_known = False

    def of(self, work: Work) -> OrphanSearchRow | None:
        """How far it is."""
        if not self._is_known:
            self._keep(work.table(ORPHAN_SEARCH_TABLE).get(ORPHAN_SEARCH_KEY))
        return self._row

    def _keep(self, row: OrphanSearchRow | None) -> None:
        self._is_known, self._row = True, row
        self._txns = frozenset() if row is None else _wanted(row.command)

    def save(self, work: Work, row: OrphanSearchRow) -> None:
        """It goes on, or has begun."""
        work.table(ORPHAN_SEARCH_TABLE).put(ORPHAN_SEARCH_KEY, row)
        self._keep(row)

    def end(self, work: Work) -> None:
        """It is over."""
        if self.of(work) is not None:
            work.table(ORPHAN_SEARCH_TABLE).delete(ORPHAN_SEARCH_KEY)
            self._keep(None)

    def look_at_message(self, work: Work) -> None:
        """Note it when the present message, which was applied, has moved an owner of one of the blocks."""
        row = self.of(work)
        if row is None or row.owner:
            return
        for definition in _PLACES:
            table = work.table(definition)
            for key in work.set_by_message(definition):
                if (encoded := table.get_encoded(key)) is not None and _owns(definition, encoded, self._txns):
                    self.save(work, replace(row, owner=f"{definition.name}{key.decode()}"))
                    return

    def forget_idle(self, work: Work, log_time_ms: int) -> None:
        """End a search that nobody goes on with."""
        row = self.of(work)
        if row is not None and is_idle(row, log_time_ms):
            self.end(work)


def is_idle(row: OrphanSearchRow, log_time_ms: int) -> bool:
    """Whether nobody has gone on with a search for so long that another one may take its place."""
    return log_time_ms - row.log_time_ms >= IDLE_MS


def is_through(row: OrphanSearchRow) -> bool:
    """Whether a search has been everywhere."""
    return row.table == len(_PLACES)


def _wanted(command: RequeueOrphans) -> frozenset[int]:
    """A txn writes the blocks of one version: whatever it wrote besides would be this version's, too."""
    return frozenset(local_id_txn(run.first_local_id) for run in command.blocks)


def _owns(table: TableDefinition[Any], row: bytes, txns: frozenset[int]) -> bool:
    owned = (_CLAIMED_ROW.decode(row).version.key if table is RECLAIM_TABLE else _KEY_HEAD.decode_head(row)).blocks
    return owned is not None and local_id_txn(owned.first_local_id) in txns


def looked_on(work: Work, page: OrphanSearchRow) -> OrphanSearchRow:
    """The same after the next rows, up to an owner, the command's own limit, or the end of the shard."""
    txns, rows, start = _wanted(page.command), page.rows, page.next_key
    most = min(page.rows + MAX_ROWS_READ, page.command.max_rows)
    for number in range(page.table, len(_PLACES)):
        for key, row in work.table(_PLACES[number]).scan_encoded(max(start, _FIRST), _BEYOND):
            if rows >= most:
                is_over = rows >= page.command.max_rows
                return replace(page, table=number, next_key=key, rows=rows + is_over)
            rows += 1
            if _owns(_PLACES[number], row, txns):
                return replace(page, rows=rows, owner=f"{_PLACES[number].name}{key.decode()}")
        start = b""
    return replace(page, table=len(_PLACES), next_key=b"", rows=rows)
