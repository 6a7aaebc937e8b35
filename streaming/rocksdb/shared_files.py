"""Reads the rows of many states of one database from their table files, each file once, however many states share it.

A checkpoint of a database is links to its table files, and between two checkpoints only a few small files come and go.
So the states of a database are sets of files, and a row is in a state if the newest entry of its key in the files of
the state is its value: a deletion hides what is older only in states that have the file of the deletion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from heapq import merge
from itertools import chain, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Self

from services.domain.errors import InvariantError
from streaming.rocksdb.checkpoint_rows import Row
from streaming.rocksdb.side_by_side import Marked
from streaming.rocksdb.table_file import DELETED, VALUE, Entry, Index, TableFile, UnknownTableFileError

BLOCKS_AT_ONCE = 128
"""Blocks of entries that are brought into one order at once, some ten thousand entries."""
COST_OF_AN_ENTRY = 4
"""What an entry costs that is read here, compared with a row that RocksDB reads for one state (measured: 3 to 4)."""
FilesByFamily = Mapping[str, Sequence[tuple[int, str]]]
"""States as sets of table files: for each column family that may be read, its files, each with the bits of the states
that have it."""


class SharedFiles:
    """States that are read from their files."""

    def __init__(self, files: FilesByFamily) -> None:
        self._files = files
        self._wanted = -1
        """The bits of the states that are read."""
        self._opened: dict[str, list[TableFile]] = {}

    def only(self, mask: int) -> Self:
        """Return those of the states whose bits a mask has."""
        some = copy(self)
        some._wanted = self._wanted & mask
        return some

    def distinct_rows(self, family: str, start: bytes, end: bytes) -> Iterator[Marked]:
        """Yield each row of a range with the bits of the states that have it; the lists follow in the order of keys.

        Raises:
            BrokenTableFileError: a file is damaged.
            InvariantError: a file has entries of an unknown form, which its beginning did not have.
        """
        wanted = self._wanted
        try:
            files = ((file, file.blocks(start, end)) for file in self._opened_files(family) if file.mask & wanted)
            read = [one for one in files if one[1]]
            for low, high in pairwise(_cuts([blocks for _, blocks in read], start, end)):
                entries = sorted(chain.from_iterable(file.entries(blocks, low, high) for file, blocks in read))
                visible = _visible(entries, wanted)
                if visible[0]:
                    yield visible
        except UnknownTableFileError as error:
            raise InvariantError(f"a table file cannot be read apart: {error}; report it with the file") from error

    def _opened_files(self, family: str) -> list[TableFile]:
        if family not in self._opened:
            self._opened[family] = [TableFile(Path(path), mask) for mask, path in self._files[family]]
        return self._opened[family]


def _cuts(indexes: Sequence[Index], start: bytes, end: bytes) -> list[bytes]:
    """Return keys that cut a range into parts of about ``BLOCKS_AT_ONCE`` blocks, its ends included."""
    if sum(map(len, indexes)) <= BLOCKS_AT_ONCE:
        return [start, end]
    keys = [key for key in merge(*(map(itemgetter(0), index) for index in indexes)) if start < key < end]
    return [start, *dict.fromkeys(keys[BLOCKS_AT_ONCE::BLOCKS_AT_ONCE]), end]


def _visible(entries: Sequence[Entry], wanted: int) -> Marked:
    """Return the rows that entries in order leave visible in the wanted states, with these states."""
    rows: list[Row] = []
    masks: list[int] = []
    last, hidden, first = None, 0, 0
    for key, number, value, mask in entries:
        if key != last:
            last, hidden, first = key, 0, len(rows)
        seen = mask & wanted & ~hidden
        if not seen:
            continue
        hidden |= mask
        kind = ~number & 255
        if kind == VALUE:
            row = key, value
            if len(rows) > first and row in rows[first:]:  # in a merged file, too, there maybe with sequence number 0
                masks[rows.index(row, first)] |= seen
            else:
                rows.append(row)
                masks.append(seen)
        elif kind not in DELETED:
            raise UnknownTableFileError(f"the key {key!r} has an entry of kind {kind}")
    return rows, masks
