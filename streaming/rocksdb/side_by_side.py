"""Reads one range of several databases side by side, and finds the rows that they share without hashing or decoding.

Each database is compared with the one before it in the list alone. If they are states of one database in the order of
their times, a row that stays the same is in databases that follow one another, and most rows do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, count
from operator import itemgetter, ne
from typing import Protocol

from streaming.rocksdb.checkpoint_rows import CHUNK_ROWS, CheckpointFile, Row

_key = itemgetter(0)
_STEP = 128
"""Most rows that are compared at once."""
ROWS_AT_ONCE = 256
"""About how many rows of each database are in memory: few enough for the processor's cache."""


class Rows(Protocol):
    """Rows of one database."""

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Yield every row with start <= key < end, in the order of the keys' bytes."""
        ...

    def chunks(self, family: str, start: bytes, end: bytes, most: int = CHUNK_ROWS) -> Iterator[list[Row]]:
        """Yield the rows of ``scan`` in lists of at most ``most`` rows."""
        ...

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        """Return keys that cut a range into about ``parts`` parts."""
        ...

    def table_files(self) -> list[CheckpointFile] | None:
        """Return the table files that have all rows; None if there are no such files."""
        ...


Copies = Sequence[tuple[int, Rows]]
"""Open databases, each with a bit."""
Marked = tuple[list[Row], list[int]]
"""Rows, and for each the bits of databases that have it."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Databases that are read side by side."""

    copies: Copies

    def only(self, mask: int) -> SideBySide:
        """Return the databases whose bits a mask has."""
        return SideBySide([one for one in self.copies if one[0] & mask])

    def distinct_rows(self, family: str, start: bytes, end: bytes) -> Iterator[Marked]:
        """Yield each row of a range with the bits of the databases that have it, as ``distinct_rows`` does."""
        return distinct_rows(self.copies, family, start, end)


def distinct_rows(copies: Copies, family: str, start: bytes, end: bytes) -> Iterator[Marked]:
    """Yield each row (key and value) of a range once for each stretch of databases that have it, with their bits.

    The lists have some thousand rows, and follow one another in the order of the keys. Within a list the rows are in
    any order.
    """
    found: Marked = [], []
    compared = _Compared([bit for bit, _ in copies], found)
    for parts in _side_by_side([rows.chunks(family, start, end, ROWS_AT_ONCE) for _, rows in copies]):
        for place, rows in enumerate(parts):
            compared.add(place, rows)
        compared.add(len(parts), [])
        if len(found[0]) >= CHUNK_ROWS:
            yield found[0][:], found[1][:]
            found[0].clear()
            found[1].clear()
    if found[0]:
        yield found


def _side_by_side(sources: Sequence[Iterator[list[Row]]]) -> Iterator[list[list[Row]]]:
    """Yield the rows of all sources from key to key."""
    waiting: list[list[Row]] = [[] for _ in sources]
    while True:
        for place, chunks in enumerate(sources):
            if len(waiting[place]) < ROWS_AT_ONCE:  # one that was nearly empty would end the part for all
                waiting[place] += next(chunks, [])
        last = min((rows[-1][0] for rows in waiting if rows), default=None)
        if last is None:
            return
        cuts = [bisect_right(rows, last, key=_key) for rows in waiting]
        yield [rows[:cut] for rows, cut in zip(waiting, cuts, strict=True)]
        waiting = [rows[cut:] for rows, cut in zip(waiting, cuts, strict=True)]


class _Compared:
    """Compares the rows of one database with those of the one before it, and notes those that end there."""

    def __init__(self, bits: Sequence[int], found: Marked) -> None:
        self._below = [0, *accumulate(bits)]
        self._rows, self._masks = found
        self._before: list[Row] = []
        self._since: list[int] = []
        """For each row of the last database the first one of those that have it."""

    def add(self, place: int, rows: list[Row]) -> None:
        """Compare the rows of the next database; without rows, all end."""
        before, since = self._before, self._since
        at = other = 0
        kept: list[int] = []
        while at < len(before) and other < len(rows):
            same = _same(before, at, rows, other)
            kept += since[at : at + same]
            at, other = at + same, other + same
            if at == len(before) or other == len(rows):
                break
            key, key_there = before[at][0], rows[other][0]
            behind = at + (key == key_there) if key >= key_there else bisect_left(before, key_there, at, key=_key)
            self._end(at, behind, place)
            at = behind
            if key_there <= key:
                behind = other + 1 if key == key_there else bisect_left(rows, key, other, key=_key)
                kept += [place] * (behind - other)
                other = behind
        self._end(at, len(before), place)
        self._before, self._since = rows, kept + [place] * (len(rows) - other)

    def _end(self, at: int, behind: int, place: int) -> None:
        self._rows += self._before[at:behind]
        below = self._below
        self._masks += [below[place] - below[since] for since in self._since[at:behind]]


def _same(rows: list[Row], at: int, others: list[Row], other: int) -> int:
    """Return how many rows are the same from there on, found without a step of Python for each."""
    same = 0
    while True:
        ahead, ahead_there = rows[at + same : at + same + _STEP], others[other + same : other + same + _STEP]
        least = min(len(ahead), len(ahead_there))
        found = next(compress(count(), map(ne, ahead, ahead_there)), least)
        same += found
        if found < least or least < _STEP:
            return same
