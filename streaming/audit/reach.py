"""Which directories of a bucket can be reached from its root, in all of its states at once.

A state is a bit: what is true in a set of states is one number. Two bits beside the states tell the rows of the active
namespace apart that its root does not reach: those below a deleted directory that waits for expansion, and the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ACTIVE, UNEXPANDED, PRESENT = 1, 2, 4
"""Reached in the active namespace; below a directory that waits for its expansion; has a row there at all."""
FIRST_SNAPSHOT = 3
"""The place of the oldest live snapshot's bit."""
EVERYWHERE = ~(UNEXPANDED | PRESENT)
"""The root's reach."""


def state_bit(state: int) -> int:
    """The bit of a state: 0 is the active namespace, then the live snapshots, oldest first."""
    return ACTIVE if state == 0 else 1 << (FIRST_SNAPSHOT + state - 1)


def snapshots_of(mask: int) -> int:
    """The snapshots among the bits of a mask, the oldest one's lowest."""
    return mask >> FIRST_SNAPSHOT


@dataclass(frozen=True, slots=True)
class DirectoryFact:
    """A directory with one parent and name, in the states in which it is there so."""

    bucket_id: int
    object_id: int
    parent_id: int
    name: str
    mask: int


def reach_of(bucket_id: int, directories: Iterable[DirectoryFact], waiting: Iterable[int]) -> dict[int, int]:
    """For each directory the states that reach it; ``waiting`` are deleted directories that are not expanded.

    A directory has one parent in each state, so what flows down from the roots settles: every bit is set once.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for fact in directories:
        # What has a row in the active namespace may also be below a directory that waits for its expansion.
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
    """The path of a row in the states of a mask; ``…/name`` when its directories cannot be followed to the root."""
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
