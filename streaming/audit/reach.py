"""Computes which directories of a bucket can be reached from its root, in all states of the bucket at once.

Each state is a bit, and a set of states is one number (a mask). Two further bits describe rows of the active namespace
that its root does not reach: rows below a deleted directory that waits for expansion, and all other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ACTIVE, UNEXPANDED, PRESENT = 1, 2, 4
"""ACTIVE: reached in the active namespace. UNEXPANDED: below a deleted directory that waits for expansion. PRESENT: has
a row in the active namespace, reached or not."""
FIRST_SNAPSHOT = 3
"""The number of the oldest live snapshot's bit."""
EVERYWHERE = ~(UNEXPANDED | PRESENT)
"""The mask of the root."""


def state_bit(state: int) -> int:
    """Return the bit of a state: state 0 is the active namespace, then the live snapshots, oldest first."""
    return ACTIVE if state == 0 else 1 << (FIRST_SNAPSHOT + state - 1)


def snapshots_of(mask: int) -> int:
    """Return the snapshots of a mask; the lowest bit is the oldest snapshot."""
    return mask >> FIRST_SNAPSHOT


@dataclass(frozen=True, slots=True)
class DirectoryFact:
    """A directory with one parent and name, and the mask of the states in which it has both."""

    bucket_id: int
    object_id: int
    parent_id: int
    name: str
    mask: int


def reach_of(bucket_id: int, directories: Iterable[DirectoryFact], waiting: Iterable[int]) -> dict[int, int]:
    """Return the mask of the states that reach each directory; ``waiting`` are deleted directories not yet expanded.

    A directory has one parent in each state. Therefore every bit is set at most once and the loop ends.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for fact in directories:
        # A row of the active namespace may be below a deleted directory that waits for expansion.
        mask = fact.mask | (UNEXPANDED if fact.mask & ACTIVE else 0)
        children.setdefault(fact.parent_id, []).append((fact.object_id, mask))
    reach = {bucket_id: EVERYWHERE} | dict.fromkeys(waiting, UNEXPANDED)
    fresh = list(reach.items())
    while fresh:
        parent_id, mask = fresh.pop()
        for child_id, there in children.get(parent_id, ()):
            added = mask & there & ~reach.get(child_id, 0)
            if added:
                reach[child_id] = reach.get(child_id, 0) | added
                fresh.append((child_id, added))
    return reach


def path_in(
    state_mask: int, bucket_id: int, parent_id: int, name: str, edges: Mapping[int, list[DirectoryFact]]
) -> str:
    """Return the path of a row in the states of a mask; ``…/name`` if its directories do not lead to the root."""
    parts = [name]
    seen = set()
    while parent_id != bucket_id:
        above = next((fact for fact in edges.get(parent_id, ()) if fact.mask & state_mask), None)
        if above is None or parent_id in seen:
            return "/".join(["…", *reversed(parts)])
        seen.add(parent_id)
        parts.append(above.name)
        parent_id = above.parent_id
    return "/".join(reversed(parts))
