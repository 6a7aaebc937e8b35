"""The order of a table's snapshots in which the holders of a file are few runs: the current snapshot of main is last.

A snapshot begins as a copy of its parent, so those that hold a file are mostly one connected part of the tree of
snapshots. The order is that tree's: a parent, what branches off from it, then the line that leads to main's current
snapshot. A part whose parent has expired is put by its age.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from services.lens.iceberg.metadata import Snapshot


def ancestry(snapshot_id: int | None, by_id: dict[int, Snapshot]) -> list[Snapshot]:
    """Return a snapshot and those that it descends from, the newest first, as far as they exist."""
    found: list[Snapshot] = []
    seen = set()
    while snapshot_id in by_id and snapshot_id not in seen:
        seen.add(snapshot_id)
        found.append(by_id[snapshot_id])
        snapshot_id = found[-1].parent_snapshot_id
    return found


def in_order(snapshots: Sequence[Snapshot], current: int | None) -> list[Snapshot]:
    """Return the snapshots, the current one last if it exists."""
    by_id = {one.snapshot_id: one for one in snapshots}
    line = {one.snapshot_id for one in ancestry(current, by_id)}
    children: dict[int | None, list[Snapshot]] = defaultdict(list)
    for one in sorted(snapshots, key=lambda one: (one.snapshot_id in line, one.sequence_number, one.timestamp_ms)):
        parent = one.parent_snapshot_id if one.parent_snapshot_id in by_id else None
        children[parent].append(one)
    found: list[Snapshot] = []
    waiting = children[None][::-1]
    while waiting:
        one = waiting.pop()
        if one.snapshot_id != current:
            found.append(one)
        waiting += children[one.snapshot_id][::-1]
    return [*found, by_id[current]] if current in by_id else found
