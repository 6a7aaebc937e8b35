"""Holds a diff against the listings of its two states: spelled out key by key, it says what differs between them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from services.domain.snapshot_diff import DiffEntry, DiffKind

Listing = Mapping[str, Hashable]
"""Path → anything that tells contents apart, of keys."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """A diff as paths, without renames: what ``git diff --no-renames --name-status`` says."""

    deleted: frozenset[str]
    added: frozenset[str]
    modified: frozenset[str]


def flattened(entries: Iterable[DiffEntry], before: Listing, after: Listing) -> ChangedKeys:
    """A diff spelled out: a renamed directory stands for what was in it before and what is in it afterwards.

    Listings tell contents, entries tell objects: what was overwritten with what it held before, or deleted and put
    again, has an entry and is no difference here.
    """
    removed: set[str] = set()
    come: set[str] = set()
    touched: set[str] = set()
    for entry in entries:
        if entry.kind in (DiffKind.DELETED, DiffKind.RENAMED):
            removed |= _at_or_below(entry.old_path or entry.path, before)
        if entry.kind in (DiffKind.CREATED, DiffKind.RENAMED):
            come |= _at_or_below(entry.path, after)
        if entry.kind is DiffKind.MODIFIED:
            touched.add(entry.path)
    both = (removed | come | touched) & before.keys() & after.keys()
    modified = frozenset(path for path in both if before[path] != after[path])
    return ChangedKeys(frozenset(removed - after.keys()), frozenset(come - before.keys()), modified)


def _at_or_below(path: str, listing: Listing) -> set[str]:
    if path in listing:
        return {path}
    return {key for key in listing if key.startswith(f"{path}/")}


def listed_difference(before: Listing, after: Listing) -> ChangedKeys:
    """What differs between two listings."""
    both = before.keys() & after.keys()
    modified = frozenset(path for path in both if before[path] != after[path])
    return ChangedKeys(frozenset(before.keys() - after.keys()), frozenset(after.keys() - before.keys()), modified)
