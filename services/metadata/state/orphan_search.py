"""The search of a shard for a version that owns one of some blocks, page by page between other commands.

Rows move meanwhile: a version that is renamed, deleted, claimed or undeleted may move from the part that is not yet
searched to the part that is. So every command that is applied during a search is checked, too: if it set a row that
owns one of the blocks, the search ends. The search reaches every row that no command moves.
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
"""Maximum versions that one command reads."""
IDLE_MS = 60_000
"""Log time after which another search may replace one that no command has continued."""
_KEY_HEAD = codec(KeyHead)
_CLAIMED_ROW = codec(ClaimedRow)
_FIRST, _BEYOND = b"/", b"0"
_PLACES: tuple[TableDefinition[Any], ...] = (KEY_TABLE, FILE_TABLE, DELETED_TABLE, RECLAIM_TABLE)
"""The tables whose versions can have blocks, in the order of the search."""


class OrphanSearch:
    """The search of a shard that is in progress, if any, cached between commands."""

    def __init__(self) -> None:
        self._is_known = False
        self._row: OrphanSearchRow | None = None
        self._txns: frozenset[int] = frozenset()

    def clear(self) -> None:
        """Discard the cached row: a command that changed it was undone."""
        self._is_known = False

    def of(self, work: Work) -> OrphanSearchRow | None:
        """Return the progress of the search; None if there is none."""
        if not self._is_known:
            self._keep(work.table(ORPHAN_SEARCH_TABLE).get(ORPHAN_SEARCH_KEY))
        return self._row

    def _keep(self, row: OrphanSearchRow | None) -> None:
        self._is_known, self._row = True, row
        self._txns = frozenset() if row is None else _wanted(row.command)

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
                if (encoded := table.get_encoded(key)) is not None and _owns(definition, encoded, self._txns):
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


def _wanted(command: RequeueOrphans) -> frozenset[int]:
    """Return the txns that wrote the blocks. One txn writes the blocks of one version only."""
    return frozenset(local_id_txn(run.first_local_id) for run in command.blocks)


def _owns(table: TableDefinition[Any], row: bytes, txns: frozenset[int]) -> bool:
    owned = (_CLAIMED_ROW.decode(row).version.key if table is RECLAIM_TABLE else _KEY_HEAD.decode_head(row)).blocks
    return owned is not None and local_id_txn(owned.first_local_id) in txns


def looked_on(work: Work, page: OrphanSearchRow) -> OrphanSearchRow:
    """Return the progress after the next rows, up to an owner, a limit, or the end of the shard."""
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
