"""The order of a table's snapshots in which the holders of a file are few runs: the current snapshot of main is last.

A snapshot begins as a copy of its parent, so those that hold a file are mostly one connected part of the tree of
snapshots. The order is that tree's: a parent, what branches off from it, then the line that leads to main's current
snapshot. A part whose parent has expired is put by its age. So are snapshots that name each other as parents: only
damaged metadata has such.
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
    by_age = sorted(snapshots, key=lambda one: (one.snapshot_id in line, one.sequence_number, one.timestamp_ms))
    for one in by_age:
        parent = one.parent_snapshot_id if one.parent_snapshot_id in by_id else None
        children[parent].append(one)
    found: dict[int, Snapshot] = {}
    waiting = children[None][::-1]
    while waiting:
        one = waiting.pop()
        if one.snapshot_id in found:  # only damaged metadata has an id twice
            continue
        found[one.snapshot_id] = one
        waiting += children[one.snapshot_id][::-1]
    for one in by_age:
        found.setdefault(one.snapshot_id, one)
    last = found.pop(current, None) if current is not None else None
    return [*found.values(), last] if last else list(found.values())
