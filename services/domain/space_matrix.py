"""The space matrix of a bucket: bytes, versions and rows by their first and last holder.

A version that lived from birth until death is held by the live snapshots s with birth <= s < death: a run of the
chain, named by its two ends. (0, 0) means that no snapshot holds it. The cells alone give the bytes that only a given
set of snapshots holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import TypeVar

from schemas.records import SpaceCellValue
from services.domain.reclaimability import Txn

Holders = tuple[Txn, Txn]
Counts = tuple[int, int, int, int, int, int]
"""Bytes, versions, rows of deletedTable, deletedDirectoryTable and snapshotRenamedTable, and bytes of redundancy."""
H = TypeVar("H")
NOBODY: Holders = (0, 0)


class SpaceError(ValueError):
    """A cell would fall below zero, or names a snapshot that is not live: rows and matrix disagree."""


@dataclass(frozen=True, slots=True)
class SpaceCell:
    """The bytes, versions and rows that one run of snapshots holds."""

    bytes: int
    versions: int
    key_rows: int
    directory_rows: int
    rename_rows: int
    redundancy_bytes: int = 0
    """Bytes that the blocks take beyond one copy of them."""

    def __add__(self, other: SpaceCell) -> SpaceCell:
        return SpaceCell(
            self.bytes + other.bytes,
            self.versions + other.versions,
            self.key_rows + other.key_rows,
            self.directory_rows + other.directory_rows,
            self.rename_rows + other.rename_rows,
            self.redundancy_bytes + other.redundancy_bytes,
        )

    def __sub__(self, other: SpaceCell) -> SpaceCell:
        left = SpaceCell(
            self.bytes - other.bytes,
            self.versions - other.versions,
            self.key_rows - other.key_rows,
            self.directory_rows - other.directory_rows,
            self.rename_rows - other.rename_rows,
            self.redundancy_bytes - other.redundancy_bytes,
        )
        if min(cell_counts(left)) < 0:
            raise SpaceError(f"{other} cannot be subtracted from {self}: compare the bucket's rows with its matrix")
        return left

    @property
    def is_empty(self) -> bool:
        """Whether all counts are 0."""
        return not any(cell_counts(self))

    @property
    def replicated_bytes(self) -> int:
        """Bytes that the blocks take on disks, with all copies and parity."""
        return self.bytes + self.redundancy_bytes

    @property
    def rows(self) -> int:
        """Rows of all three garbage tables."""
        return self.key_rows + self.directory_rows + self.rename_rows


EMPTY = SpaceCell(0, 0, 0, 0, 0)
cell_counts: Callable[[SpaceCell | SpaceCellValue], Counts] = attrgetter(*SpaceCell.__slots__)
"""Returns the fields of a cell, also of a stored one."""


def holders(birth: Txn, death: Txn, live: Sequence[Txn]) -> Holders:
    """Return the first and last live snapshot that holds a version; (0, 0) if there is none."""
    first, beyond = bisect_left(live, birth), bisect_left(live, death)
    return (live[first], live[beyond - 1]) if first < beyond else NOBODY


def merged_into_after_drop(
    touched: Iterable[Holders], dropped: Txn, live_before: Sequence[Txn]
) -> dict[Holders, Holders]:
    """Return the run into which each run that begins or ends with a dropped snapshot is merged.

    Raises:
        SpaceError: the snapshot is not live, or a run names one that is not.
    """
    place = bisect_left(live_before, dropped)
    if place == len(live_before) or live_before[place] != dropped:
        raise SpaceError(f"the snapshot at {dropped} is not live: compare the bucket's list with its matrix")
    previous = live_before[place - 1] if place else 0
    next_one = live_before[place + 1] if place + 1 < len(live_before) else 0
    targets: dict[Holders, Holders] = {}
    for first, last in touched:
        merged_into = NOBODY
        if first != last:
            merged_into = (next_one if first == dropped else first, previous if last == dropped else last)
            if not 0 < merged_into[0] <= merged_into[1]:
                raise SpaceError(f"no live snapshots from {first} to {last}: compare the bucket's list with its matrix")
        targets[first, last] = merged_into  # no two runs are merged into the same one
    return targets


def merged_after_drop(
    cells: Mapping[Holders, SpaceCell], dropped: Txn, live_before: Sequence[Txn]
) -> dict[Holders, SpaceCell]:
    """Return the cells that change when a snapshot is dropped, with their new values; an emptied one is ``EMPTY``.

    ``cells`` needs only the cells that begin or end with the snapshot, and the cells into which they are merged.

    Raises:
        SpaceError: the snapshot is not live, or a cell names one that is not.
    """
    touched = [holder for holder, cell in cells.items() if dropped in holder and not cell.is_empty]
    changed: dict[Holders, SpaceCell] = {}
    for holder, merged_into in merged_into_after_drop(touched, dropped, live_before).items():
        changed[holder] = EMPTY
        changed[merged_into] = cells.get(merged_into, EMPTY) + cells[holder]
    return changed


def freed_by_dropping(cells: Mapping[Holders, SpaceCell], dropped: Collection[Txn], live: Sequence[Txn]) -> SpaceCell:
    """Return the sum that dropping a set of snapshots would free: the cells whose runs lie within the set.

    Versions that no snapshot holds are not counted; snapshots of the set that are not live are ignored. Versions
    without bytes have no blocks, no row and no cell.

    Raises:
        SpaceError: a cell names a snapshot that is not live.
    """
    dropped_set = set(dropped)
    place = {snapshot: index for index, snapshot in enumerate(live)}
    kept_before = [0, *accumulate(snapshot not in dropped_set for snapshot in live)]
    freed: list[SpaceCell] = []
    for (first, last), cell in cells.items():
        if (first, last) == NOBODY or cell.is_empty:
            continue
        if first not in place or last not in place:
            raise SpaceError(f"no live snapshots from {first} to {last}: compare the bucket's list with its matrix")
        if kept_before[place[last] + 1] == kept_before[place[first]]:
            freed.append(cell)
    return total(freed)


def total(cells: Iterable[SpaceCell]) -> SpaceCell:
    """Return the sum of many cells, column by column: half a million of them take a tenth of a second."""
    columns = [cell_counts(cell) for cell in cells]
    return SpaceCell(*map(sum, zip(*columns, strict=True))) if columns else EMPTY


def by_replicated_bytes(cells: Mapping[H, SpaceCell]) -> Mapping[H, SpaceCell]:
    """Return a matrix whose bytes are those that the blocks take on disks; the same one if there is no redundancy."""
    if not any(cell.redundancy_bytes for cell in cells.values()):
        return cells
    return {holder: replace(cell, bytes=cell.replicated_bytes) for holder, cell in cells.items()}


def runs_of(dropped: Collection[Txn], live: Sequence[Txn]) -> list[Holders]:
    """Return a set of live snapshots as maximal runs of neighbours, each by its first and last; oldest first.

    A set frees the sum of what its runs free: each cell lies within one run, or a remaining snapshot holds it.
    """
    dropped_set = set(dropped)
    runs: list[Holders] = []
    is_open = False
    for snapshot in live:
        if snapshot not in dropped_set:
            is_open = False
        elif is_open:
            runs[-1] = (runs[-1][0], snapshot)
        else:
            runs.append((snapshot, snapshot))
            is_open = True
    return runs


def after_dropping(
    cells: Mapping[Holders, SpaceCell], dropped: Collection[Txn], live: Sequence[Txn]
) -> tuple[dict[Holders, SpaceCell], list[Txn]]:
    """Return the matrix and the live snapshots after the drop of a whole set, computed in one pass.

    Raises:
        SpaceError: a cell names a snapshot that is not live.
    """
    dropped_set = set(dropped)
    kept = [snapshot for snapshot in live if snapshot not in dropped_set]
    known = set(live)
    merged: dict[Holders, list[SpaceCell]] = {}
    for (first, last), cell in cells.items():
        if (first, last) != NOBODY and (first not in known or last not in known):
            raise SpaceError(f"no live snapshots from {first} to {last}: compare the bucket's list with its matrix")
        if not cell.is_empty:
            merged_into = NOBODY if (first, last) == NOBODY else holders(first, last + 1, kept)
            merged.setdefault(merged_into, []).append(cell)
    return {merged_into: total(found) for merged_into, found in merged.items()}, kept
