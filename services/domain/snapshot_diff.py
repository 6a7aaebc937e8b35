"""Differences between two states of a bucket: created, deleted, renamed and modified keys and directories.

Objects are identified by their objectID, which neither a rename nor an overwrite changes. So deleting a key and
creating it again makes two entries, an overwrite is a modification, and an object that moved away and back has no
entry. Only objects that can be reached from the bucket's root count.

A renamed directory is one entry that includes its contents. An object that moved out of it or into it has an entry of
its own, even when its whole path is the same in both states (``a/f`` stays ``a/f`` while ``a`` becomes ``b`` and
another ``a`` is created: the file was moved out of the renamed directory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter


class DiffKind(StrEnum):
    """The kind of a difference, in the order in which a diff lists them (Ozone's)."""

    DELETED = "-"
    RENAMED = "R"
    CREATED = "+"
    MODIFIED = "M"


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """One difference."""

    kind: DiffKind
    path: str
    """Path on the older side for DELETED, on the newer side for all other kinds."""
    old_path: str = ""
    """Path on the older side for RENAMED, otherwise empty."""


@dataclass(frozen=True, slots=True)
class NamespaceObject:
    """A key or directory from one row of the namespace."""

    object_id: int
    parent_id: int
    """objectID of its directory, or of the root if it has no directory, as in a flat bucket."""
    name: str
    is_directory: bool
    version: tuple[int, int]
    """Changes exactly when its contents or attributes change: a key's birth and size, since a key that is synced while
    it is written keeps its birth and grows. For a directory it is constant so far."""


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """An object that can be reached from the root, with its path."""

    row: NamespaceObject
    path: str


DirectoryOf = Callable[[int], NamespaceObject | None]
"""Returns a directory of this state by its objectID, or None."""


class Paths:
    """Paths in one state of a bucket. Each directory's path is computed once."""

    def __init__(self, root_id: int, directory_of: DirectoryOf) -> None:
        self._directory_of = directory_of
        self._paths: dict[int, str | None] = {root_id: ""}

    def of(self, found: NamespaceObject) -> str | None:
        """Return the path of an object, or None if it cannot be reached from the root."""
        base = self._of_directory(found.parent_id)
        return None if base is None else base + found.name

    def _of_directory(self, directory_id: int) -> str | None:
        """Return the path with a trailing slash, empty for the root. Climb no further than to a known directory."""
        climbed: dict[int, NamespaceObject] = {}
        above = directory_id
        while above not in self._paths and above not in climbed:
            directory = self._directory_of(above)
            if directory is None:
                self._paths[above] = None
                break
            climbed[above] = directory
            above = directory.parent_id
        base = self._paths.get(above)  # None for a circle, which does not lead to the root
        for climbed_id, directory in reversed(climbed.items()):
            base = None if base is None else f"{base}{directory.name}/"
            self._paths[climbed_id] = base
        return self._paths[directory_id]


def place(objects: Iterable[NamespaceObject], paths: Paths) -> Iterator[PlacedObject]:
    """Yield the objects that can be reached from the root, with their paths."""
    for found in objects:
        path = paths.of(found)
        if path is not None:
            yield PlacedObject(found, path)


def reachable(objects: Iterable[NamespaceObject], root_id: int) -> Iterator[PlacedObject]:
    """Return the reachable ones of all objects of one state."""
    rows = list(objects)
    directories = {row.object_id: row for row in rows if row.is_directory}
    return place(rows, Paths(root_id, directories.get))


def difference(before: Iterable[PlacedObject], after: Iterable[PlacedObject]) -> list[DiffEntry]:
    """Return the differences from one state to another: ``-``, ``R``, ``+``, ``M``, by path within each kind.

    Objects that are the same in both states have no entry and may be left out on both sides.
    """
    old = {one.row.object_id: one for one in before}
    new = {one.row.object_id: one for one in after}
    deleted = [DiffEntry(DiffKind.DELETED, one.path) for object_id, one in old.items() if object_id not in new]
    created = [DiffEntry(DiffKind.CREATED, one.path) for object_id, one in new.items() if object_id not in old]
    both = [(one, new[object_id]) for object_id, one in old.items() if object_id in new]
    renamed = [DiffEntry(DiffKind.RENAMED, now.path, was.path) for was, now in both if _is_moved(was.row, now.row)]
    modified = [DiffEntry(DiffKind.MODIFIED, now.path) for was, now in both if was.row.version != now.row.version]
    return [
        *sorted(deleted, key=attrgetter("path")),
        *sorted(renamed, key=attrgetter("old_path", "path")),
        *sorted(created, key=attrgetter("path")),
        *sorted(modified, key=attrgetter("path")),
    ]


def _is_moved(was: NamespaceObject, now: NamespaceObject) -> bool:
    return (was.parent_id, was.name) != (now.parent_id, now.name)
