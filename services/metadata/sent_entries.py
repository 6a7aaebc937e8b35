"""What a batch has put into the garbage tables, told to the judges at its end: many rows to a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.records import Barrier, DeletedEntries, DeletedKind, RowNames
from schemas.topics import DELETED_ENTRIES
from services.domain.row_columns import NO_ROWS
from services.runtime.service import Work

MAX_ROWS_PER_MESSAGE = 1_000
"""Some 30 kB: what the job that reads it takes in at once is bounded by a number of messages."""

Entry = tuple[int, int, int, int, int]
"""bucketId, objectID, birth, death, and how many snapshots the bucket had ever had at the death."""

_Page = tuple[DeletedKind, int, int]
"""Garbage table, sweep and its page; 0 and 0 for a deletion itself."""


class SentEntries:
    """The entries of a batch, in stretches between its barriers."""

    def __init__(self) -> None:
        self._message: list[tuple[_Page, Sequence[Entry]]] = []
        self._batch: list[Barrier | dict[_Page, list[Entry]]] = [{}]

    def clear(self) -> None:
        """Forget: the batch was thrown away."""
        self._message.clear()
        self._batch = [{}]

    def undo_message(self) -> None:
        """The present message was not applied."""
        self._message.clear()

    def add(self, kind: DeletedKind, entries: Sequence[Entry], sweep_id: int = 0, sweep_page: int = 0) -> None:
        """The present message has something judged."""
        self._message.append(((kind, sweep_id, sweep_page), entries))

    def keep_message(self) -> None:
        """The present message was applied."""
        if not self._message:
            return
        stretch = self._batch[-1]
        if isinstance(stretch, Barrier):
            self._batch.append(stretch := {})
        for page, entries in self._message:
            stretch.setdefault(page, []).extend(entries)
        self._message.clear()

    def add_barrier(self, barrier: Barrier) -> None:
        """Whatever was kept before goes out before this barrier."""
        self._batch.append(barrier)

    def send(self, work: Work, chain_version: int) -> None:
        """Tell the judges; none may know less of the chain than this shard does now."""
        for stretch in self._batch:
            if isinstance(stretch, Barrier):
                work.send(DELETED_ENTRIES, DeletedEntries(chain_version, NO_ROWS, (), barrier=stretch))
                continue
            for page, entries in stretch.items():
                for message in _messages(page, entries, chain_version):
                    work.send(DELETED_ENTRIES, message)
        self.clear()


def _messages(page: _Page, entries: list[Entry], chain_version: int) -> Iterator[DeletedEntries]:
    kind, sweep_id, sweep_page = page
    for start in range(0, len(entries), MAX_ROWS_PER_MESSAGE):
        *names, befores = zip(*entries[start : start + MAX_ROWS_PER_MESSAGE], strict=True)
        yield DeletedEntries(chain_version, RowNames(kind, *names), befores, sweep_id, sweep_page)
