"""Reads one range of several databases side by side, and finds the rows that they share without hashing or decoding."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress, count
from operator import itemgetter, ne
from typing import Protocol

from streaming.rocksdb.checkpoint_rows import CHUNK_ROWS, Row

_key = itemgetter(0)
_STEP = 256
"""Most rows that are compared at once."""


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


Copies = Sequence[tuple[int, Rows]]
"""Open databases, each with a bit."""
Marked = tuple[list[Row], list[int]]
"""Rows, and for each the bits of the databases that have it."""


def distinct_rows(copies: Copies, family: str, start: bytes, end: bytes) -> Iterator[Marked]:
    """Yield each distinct row (key and value) of a range once, some thousand at a time, with the bits of its databases.

    The lists follow one another in the order of the keys. Within a list the rows are in order for each set of bits.
    """
    sources = [(bit, rows.chunks(family, start, end)) for bit, rows in copies]
    waiting: list[list[Row]] = [[] for _ in sources]
    while True:
        for place, (_, chunks) in enumerate(sources):
            waiting[place] = waiting[place] or next(chunks, [])
        last = min((rows[-1][0] for rows in waiting if rows), default=None)
        if last is None:
            return
        found: list[Marked] = []
        for place, (bit, _) in enumerate(sources):
            rows = waiting[place]
            cut = len(rows) if not rows or rows[-1][0] <= last else bisect_right(rows, last, key=_key)
            rest = rows[:cut]
            waiting[place] = rows[cut:]
            for known, masks in found:
                rest = _mark(known, masks, rest, bit)
            if rest:
                found.append((rest, [bit] * len(rest)))
        yield [row for rows, _ in found for row in rows], [mask for _, masks in found for mask in masks]


def _mark(known: list[Row], masks: list[int], rows: list[Row], bit: int) -> list[Row]:
    """Set a bit in the masks of the known rows that are among others; return the others that are not known.

    Both are in the order of their keys. Rows that are the same are found without a step of Python for each.
    """
    unknown: list[Row] = []
    at = other = 0
    while at < len(known) and other < len(rows):
        ahead, ahead_there = known[at : at + _STEP], rows[other : other + _STEP]
        same = next(compress(count(), map(ne, ahead, ahead_there)), min(len(ahead), len(ahead_there)))
        if same:
            masks[at : at + same] = [mask | bit for mask in masks[at : at + same]]
            at, other = at + same, other + same
            continue
        key, key_there = ahead[0][0], ahead_there[0][0]
        if key < key_there:
            at = bisect_left(known, key_there, at, key=_key)
        else:
            behind = other + 1 if key == key_there else bisect_left(rows, key, other, key=_key)
            unknown += rows[other:behind]
            at, other = at + (key == key_there), behind
    return unknown + rows[other:]
