"""Deleted entries of a batch, sent to the judges at its end with many rows in one message."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.records import Barrier, DeletedEntries, DeletedKind, RowNames
from schemas.topics import DELETED_ENTRIES
from services.domain.row_columns import NO_ROWS
from services.metadata.state.batch_sums import PresentTxn, undo_notes
from services.runtime.loop.service import Work

MAX_ROWS_PER_MESSAGE = 1_000
"""Maximum rows of a message, some 30 kB. The job that reads them limits its batches by the number of messages."""

Entry = tuple[int, int, int, int, int]
"""bucketId, objectID, birth, death, and snapshots_before_death."""

_NO_TXN = 0
_Page = tuple[DeletedKind, int, int, int, int]
"""Garbage table, sweep, its page, txn, number of the message in the page; all but the table are 0 for a deletion."""


class SentEntries:
    """The entries of a batch, separated by its barriers."""

    def __init__(self, present: PresentTxn) -> None:
        self._present = present
        self._notes: list[tuple[int, _Page | Barrier, Sequence[Entry]]] = []
        """txn, page and entries of each addition. A barrier has no entries and the txn 0."""

    def clear(self) -> None:
        """Discard the entries of an aborted batch."""
        self._notes.clear()

    def undo_message(self) -> None:
        """Roll back the entries of the present message, which was not applied."""
        undo_notes(self._notes, self._present.txn)

    def add(
        self, kind: DeletedKind, entries: Sequence[Entry], sweep_id: int = 0, sweep_page: int = 0, sweep_part: int = 0
    ) -> None:
        """Add entries of the present message. Each part of a sweep's page becomes a message of its own."""
        txn = self._present.txn
        self._notes.append((txn, (kind, sweep_id, sweep_page, txn if sweep_id else 0, sweep_part), entries))

    def add_barrier(self, barrier: Barrier) -> None:
        """Add a barrier: all entries added before are sent before it."""
        self._notes.append((_NO_TXN, barrier, ()))

    def send(self, work: Work, chain_version: int) -> None:
        """Send all entries. A judge must have at least this chain version."""
        pages: dict[_Page, list[Entry]] = {}
        for _, page, entries in self._notes:
            if isinstance(page, Barrier):
                _send_pages(work, pages, chain_version)
                work.send(DELETED_ENTRIES, DeletedEntries(chain_version, NO_ROWS, (), barrier=page))
            else:
                pages.setdefault(page, []).extend(entries)
        _send_pages(work, pages, chain_version)
        self.clear()


def _send_pages(work: Work, pages: dict[_Page, list[Entry]], chain_version: int) -> None:
    """Send the entries between two barriers."""
    for (kind, sweep_id, sweep_page, txn, part), entries in pages.items():
        for start in range(0, len(entries), MAX_ROWS_PER_MESSAGE):
            *names, befores = zip(*entries[start : start + MAX_ROWS_PER_MESSAGE], strict=True)
            rows = RowNames(kind, *names)
            message = DeletedEntries(chain_version, rows, befores, sweep_id, sweep_page, None, txn, part)
            work.send(DELETED_ENTRIES, message)
    pages.clear()
