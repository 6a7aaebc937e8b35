"""What differs between two states of a bucket: created, deleted, renamed and modified keys and directories.

Objects are known by their objectID, which neither a rename nor an overwrite changes. So deleting and creating again
is two entries, an overwrite is a modification, and an object that moved away and came back is none. Only what can be
reached from the bucket's root counts, and each path is that of the state that it is told about.

A renamed directory is one entry: what is in it comes along. What left it, or came into it, is an entry of its own,
even when its whole path reads the same in both states (``a/f`` stays ``a/f`` while ``a`` becomes ``b`` and another
``a`` is made: the directory took everything with it but that).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class DiffKind(StrEnum):
    """What happened to an object, in the order in which a diff lists it (Ozone's)."""

    DELETED = "-"
    RENAMED = "R"
    CREATED = "+"
    MODIFIED = "M"


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """One difference."""

    kind: DiffKind
    path: str
    """Of what was deleted as the older side has it, of everything else as the newer side has it."""
    old_path: str = ""
    """Of what was renamed: its path on the older side."""


@dataclass(frozen=True, slots=True)
class NamespaceObject:
    """A key or directory as one row of the namespace has it."""

    object_id: int
    parent_id: int
    """objectID of the directory that it is in; that of the root for what has no directory, as in a flat bucket."""
    name: str
    is_directory: bool
    version: int
    """Differs exactly if its content or its own attributes do: a key's birth; nothing of a directory changes so far."""


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """An object that can be reached from the root, with its path."""

    row: NamespaceObject
    path: str


DirectoryOf = Callable[[int], NamespaceObject | None]
"""Finds a directory by its objectID; None when there is none in this state."""


class Paths:
    """Paths in one state of a bucket; each directory's is worked out once."""

    def __init__(self, root_id: int, directory_of: DirectoryOf) -> None:
        self._directory_of = directory_of
        self._paths: dict[int, str | None] = {root_id: ""}

    def of(self, found: NamespaceObject) -> str | None:
        """The path of an object; None when it cannot be reached from the root."""
        base = self._of_directory(found.parent_id)
        return None if base is None else base + found.name

    def _of_directory(self, directory_id: int) -> str | None:
        """The path with a slash behind it, empty for the root. Climbs no further than a directory that is known."""
        climbed: dict[int, NamespaceObject] = {}
        above = directory_id
        while above not in self._paths and above not in climbed:
            directory = self._directory_of(above)
            if directory is None:
                self._paths[above] = None
                break
            climbed[above] = directory
            above = directory.parent_id
        base = self._paths.get(above)  # nothing for a circle, which no root is above of
        for climbed_id, directory in reversed(climbed.items()):
            base = None if base is None else f"{base}{directory.name}/"
            self._paths[climbed_id] = base
        return self._paths[directory_id]


def place(objects: Iterable[NamespaceObject], paths: Paths) -> Iterator[PlacedObject]:
    """Those objects that can be reached, with their paths."""
    for found in objects:
        path = paths.of(found)
        if path is not None:
            yield PlacedObject(found, path)


def reachable(objects: Iterable[NamespaceObject], root_id: int) -> Iterator[PlacedObject]:
    """What can be reached of all objects of one state."""
    rows = list(objects)
    directories = {row.object_id: row for row in rows if row.is_directory}
    return place(rows, Paths(root_id, directories.get))


def difference(before: Iterable[PlacedObject], after: Iterable[PlacedObject]) -> list[DiffEntry]:
    """How one state becomes another: ``-``, ``R``, ``+``, ``M``, by path within each kind.

    Objects that are the same in both states may be left out on both sides: they are in no entry.
    """
    old = {one.row.object_id: one for one in before}
    new = {one.row.object_id: one for one in after}
    deleted = [DiffEntry(DiffKind.DELETED, one.path) for object_id, one in old.items() if object_id not in new]
    created = [DiffEntry(DiffKind.CREATED, one.path) for object_id, one in new.items() if object_id not in old]
    both = [(one, new[object_id]) for object_id, one in old.items() if object_id in new]
    renamed = [DiffEntry(DiffKind.RENAMED, now.path, was.path) for was, now in both if _is_moved(was.row, now.row)]
    modified = [DiffEntry(DiffKind.MODIFIED, now.path) for was, now in both if was.row.version != now.row.version]
    return [
        *sorted(deleted, key=_path),
        *sorted(renamed, key=_paths),
        *sorted(created, key=_path),
        *sorted(modified, key=_path),
    ]


def _is_moved(was: NamespaceObject, now: NamespaceObject) -> bool:
    return (was.parent_id, was.name) != (now.parent_id, now.name)


def _path(entry: DiffEntry) -> str:
    return entry.path


def _paths(entry: DiffEntry) -> tuple[str, str]:
    return entry.old_path, entry.path
