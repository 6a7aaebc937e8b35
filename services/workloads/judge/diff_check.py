"""Check a diff against the listings of its two states: expanded to keys, it must equal the listings' difference."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from services.domain.snapshot_diff import DiffEntry, DiffKind

Listing = Mapping[str, Hashable]
"""The path of each key with a value that identifies its content."""


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """A diff as paths, without renames, like the output of ``git diff --no-renames --name-status``."""

    deleted: frozenset[str]
    added: frozenset[str]
    modified: frozenset[str]


def flattened(entries: Iterable[DiffEntry], before: Listing, after: Listing) -> ChangedKeys:
    """Return a diff expanded to keys: a renamed directory becomes the keys below its old and its new path.

    Entries compare objects, listings compare contents. A key that was overwritten with the same content, or deleted
    and put again, has an entry in the diff but is left out here.
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
    """Return the difference of two listings."""
    both = before.keys() & after.keys()
    modified = frozenset(path for path in both if before[path] != after[path])
    return ChangedKeys(frozenset(before.keys() - after.keys()), frozenset(after.keys() - before.keys()), modified)
