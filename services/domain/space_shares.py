"""The bytes that each live snapshot of a bucket references, and how many of them it shares with its neighbours.

A snapshot references versions that are still live and versions that have died since; the space matrix counts the
latter. Versions that a snapshot holds and the next one does not have died between the two, so they are in the cells
that end at the snapshot. The snapshot shares all other referenced versions with the next one. For the newest snapshot
the next one is the active namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.records import SnapshotListRow
from services.domain.reclaimability import Txn
from services.domain.space_matrix import EMPTY, NOBODY, Holders, SpaceCell, SpaceError, by_replicated_bytes


@dataclass(frozen=True, slots=True)
class Share:
    """The referenced bytes of one live snapshot and their sharers. Exact when no deleted directory is unexpanded."""

    snapshot: Txn
    referenced_bytes: int
    held_bytes: int
    """Referenced bytes that are not live any more: only snapshots hold them."""
    exclusive_bytes: int
    exclusive_versions: int
    """Versions that only this snapshot holds; ``exclusive_bytes`` are their bytes."""
    shared_with_previous_bytes: int
    """Bytes that the previous live snapshot references, too; 0 for the oldest."""
    shared_with_next_bytes: int
    """Bytes that the next live snapshot references, too; for the newest, bytes that are in the active namespace."""
    oldest_sharer: Txn
    newest_sharer: Txn
    """Every live snapshot from ``oldest_sharer`` to ``newest_sharer`` shares a version with this one, which is in the
range."""


def shares_of_rows(cells: Mapping[Holders, SpaceCell], rows: Sequence[SnapshotListRow]) -> list[tuple[Share, Share]]:
    """Return the share of every live snapshot, plain and with what the blocks take on disks; ``rows``: oldest first.

    Raises:
        SpaceError: as ``shares``.
    """
    referenced = {row.txn: row.referenced_bytes + row.grown_bytes for row in rows}
    redundancy = {row.txn: row.referenced_redundancy_bytes + row.grown_redundancy_bytes for row in rows}
    found = shares(cells, referenced)
    on_disks, replicated = by_replicated_bytes(cells), found
    if on_disks is not cells or any(redundancy.values()):
        replicated = shares(on_disks, {txn: one + redundancy[txn] for txn, one in referenced.items()})
    return list(zip(found, replicated, strict=True))


def shares(cells: Mapping[Holders, SpaceCell], referenced_bytes: Mapping[Txn, int]) -> list[Share]:
    """Return the share of every live snapshot. ``referenced_bytes`` has each of them, oldest first.

    Cost: one pass over the cells, and one over the snapshots.

    Raises:
        SpaceError: a cell names a snapshot that is not live.
    """
    live = list(referenced_bytes)
    count = len(live)
    place = {snapshot: index for index, snapshot in enumerate(live)}
    held_change, ending = [0] * (count + 1), [0] * count
    reach, origin = list(range(count)), list(range(count))
    for (first, last), cell in cells.items():
        if (first, last) == NOBODY or not cell.bytes:
            continue
        if first not in place or last not in place:
            raise SpaceError(f"no live snapshots from {first} to {last}: compare the bucket's list with its matrix")
        begin, end = place[first], place[last]
        held_change[begin] += cell.bytes
        held_change[end + 1] -= cell.bytes
        ending[end] += cell.bytes
        reach[begin] = max(reach[begin], end)
        origin[end] = min(origin[end], begin)
    oldest, newest = _first_within(reach), _last_within(origin)
    found: list[Share] = []
    held, first_with_live = 0, count
    for index, (snapshot, referenced) in enumerate(referenced_bytes.items()):
        held += held_change[index]
        if referenced > held:
            first_with_live = min(first_with_live, index)
        alone = cells.get((snapshot, snapshot), EMPTY)
        found.append(
            Share(
                snapshot=snapshot,
                referenced_bytes=referenced,
                held_bytes=held,
                exclusive_bytes=alone.bytes,
                exclusive_versions=alone.versions,
                shared_with_previous_bytes=found[-1].shared_with_next_bytes if found else 0,
                shared_with_next_bytes=referenced - ending[index],
                oldest_sharer=live[min(oldest[index], first_with_live)],
                newest_sharer=live[count - 1 if referenced > held else newest[index]],
            )
        )
    return found


def _first_within(reach: list[int]) -> list[int]:
    """Return for each place the first one whose run reaches it.

    A run that ends before one place ends before all later ones.
    """
    found, first = [], 0
    for place in range(len(reach)):
        while reach[first] < place:
            first += 1
        found.append(first)
    return found


def _last_within(origin: list[int]) -> list[int]:
    """Return for each place the last one whose run begins at or before it."""
    found, last = [], len(origin) - 1
    for place in reversed(range(len(origin))):
        while origin[last] > place:
            last -= 1
        found.append(last)
    return found[::-1]
