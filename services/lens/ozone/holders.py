"""Which snapshots hold a version of a key: a search that asks few of them for a row.

A version enters the namespace once and leaves it once, and the log has one order. So its holders are one run of the
bucket's snapshots, which ends with the active namespace, or with the last snapshot before the version left. The search
finds the first of them, from the newest place backwards. It needs a look-up only where transactions leave a doubt:

- A row was last written by the transaction ``update_id``. Where it is found, all older snapshots that have seen that
  transaction have the very same row.
- A snapshot that had not seen the transaction that created the object does not have it.

The steps double until a snapshot does not have the version; then the interval is halved. So the number of look-ups
grows with the logarithm of the number of snapshots, also if the row was written again before each of them.

A search is a generator: it yields the place at which it wants the object's row, and is sent that row, or None. Who
runs many searches can answer those of one database together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.lens.ozone.chain import SeenTransactions
from services.lens.ozone.key_rows import Block, birth_of, blocks_of, is_same_version

Row = Any
"""A decoded ``KeyInfo``."""


@dataclass(frozen=True, slots=True)
class OldestHolder:
    """Where a search ended."""

    place: int
    """The oldest place that holds the version; the place at which the search began if no older one does."""
    missed_place: int = -1
    missed: Row | None = None
    """The row of the same name in the snapshot before, if the search has looked there: it is another version."""


Search = Generator[int, Row | None, OldestHolder]


class Places:
    """The snapshots of a bucket that hold something, by place, and which of them have a database to look into."""

    def __init__(self, transactions: SeenTransactions, readable: Sequence[int], count: int) -> None:
        self.transactions = transactions
        self.readable = list(readable)
        self.active = count
        """The place of the active namespace, after all snapshots."""

    def is_oldest(self, known: int, object_id: int) -> bool:
        """Return whether transactions alone say that no place before ``known`` holds an object."""
        return bisect_left(self.readable, known) <= bisect_left(
            self.readable, self.transactions.first_possible(birth_of(object_id))
        )

    def oldest(self, known: int, object_id: int, is_held_by: Callable[[Row], bool]) -> Search:
        """Search the oldest holder of a version that is held from the place ``known`` on, or that left just before."""
        beyond = bisect_left(self.readable, known)
        low = bisect_left(self.readable, self.transactions.first_possible(birth_of(object_id))) - 1
        missed: Row | None = None
        step, is_galloping = 1, True
        while beyond - low > 1:
            middle = max(low + 1, beyond - step) if is_galloping else (low + beyond) // 2
            row = yield self.readable[middle]
            if row is not None and is_held_by(row):
                known = min(self.readable[middle], self.transactions.first_with(row.update_id))
                beyond = max(bisect_left(self.readable, known), low + 1)
                step *= 2
            else:
                low, missed, is_galloping = middle, row, False
        return OldestHolder(known, self.readable[low] if missed is not None else -1, missed)


@dataclass(frozen=True, slots=True)
class HeldBlocks:
    """Blocks of one row that have the same holders."""

    blocks: tuple[Block, ...]
    first: int
    """The oldest place that holds them; beyond ``last`` if nobody does."""
    last: int


def holders_of_live_row(places: Places, row: Row) -> Generator[int, Row | None, list[HeldBlocks]]:
    """Find the holders of the blocks of a row in the active namespace, block by block.

    A key that is written on (hsync), or a new version in a versioned bucket, keeps the earlier blocks: a snapshot then
    holds some of the row's blocks, always fewer the older it is.
    """
    remaining = tuple(blocks_of(row.versions))
    known = min(places.active, places.transactions.first_with(row.update_id))
    found = []
    rows: dict[int, Row | None] = {}
    while True:
        wanted = set(remaining)
        oldest = yield from _asked_once(places.oldest(known, row.object_id, partial(_has_all, row, wanted)), rows)
        kept = shared_blocks(row, oldest.missed, wanted)
        gone = tuple(block for block in remaining if block not in kept)
        found.append(HeldBlocks(gone, oldest.place, places.active))
        if not kept or oldest.missed is None:
            return found
        remaining = tuple(block for block in remaining if block in kept)
        known = min(oldest.missed_place, places.transactions.first_with(oldest.missed.update_id))


def _asked_once(search: Search, rows: dict[int, Row | None]) -> Search:
    """Answer what an earlier search has asked from its ``rows``: the searches for a row pass the same places."""
    try:
        place = next(search)
        while True:
            if place not in rows:
                rows[place] = yield place
            place = search.send(rows[place])
    except StopIteration as ended:
        found: OldestHolder = ended.value
        return found


def _has_all(row: Row, wanted: set[Block], other: Row) -> bool:
    return wanted <= shared_blocks(row, other, wanted)


def shared_blocks(row: Row, other: Row | None, among: Collection[Block]) -> set[Block]:
    """Return which of some blocks are also blocks of another row of the same object."""
    if other is None or other.object_id != row.object_id:
        return set()
    return blocks_of(other.versions).keys() & set(among)


@dataclass(frozen=True, slots=True)
class HeldGarbage:
    """The holders of a deleted version: all of its blocks go together."""

    first: int
    """The oldest place that holds it; beyond ``last`` if nobody does."""
    last: int
    lost: frozenset[Block] = frozenset()
    """Blocks that Ozone will free although the snapshot at ``lost_place`` reads them."""
    lost_place: int = -1


def holders_of_garbage(places: Places, info: Row, last: int) -> Generator[int, Row | None, HeldGarbage]:
    """Find the holders of a version that left the namespace after the snapshot at ``last``, -1 if there is none.

    The rule is Ozone's filter, not the blocks: it keeps or frees the whole row. Where it frees blocks that a snapshot
    reads, these are ``lost``.
    """
    if info.object_id == 0:
        return HeldGarbage(last + 1, last)
    oldest = yield from places.oldest(last + 1, info.object_id, lambda other: is_same_version(other, info))
    if oldest.place <= last:
        return HeldGarbage(oldest.place, last)
    lost = shared_blocks(info, oldest.missed, blocks_of(info.versions))
    return HeldGarbage(last + 1, last, frozenset(lost), oldest.missed_place if lost else -1)


@dataclass(frozen=True, slots=True)
class Names:
    """The keys under which an object stood in the stores of a chain."""

    key: bytes
    """Its key in the store where it was found."""
    renames: tuple[tuple[int, bytes], ...] = ()
    """For each store that has a row in ``snapshotRenamedTable`` for it: the store's number in the chain, and the key
    in the store before that one. Ascending, and none after the store where it was found."""

    def in_store(self, number: int) -> bytes:
        """Return the key in a store of the chain: that of the first rename after it."""
        for renamed_in, old_key in self.renames:
            if renamed_in > number:
                return old_key
        return self.key
