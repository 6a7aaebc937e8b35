"""One bucket of the brute-force model: nested dicts, with a full copy for every snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from schemas.records import BucketLayout
from services.domain.errors import DeepcleanError
from services.workloads.workload import NO_LIMIT

Block = tuple[int, int]
"""A block: the number of the operation that has begun to write, and the place among the blocks of this operation."""
_DIRECTORY_IDS = count(1)


class OperationRefusedError(DeepcleanError):
    """The plane must refuse this operation with ``code``, and change nothing."""

    def __init__(self, code: str, subject: str) -> None:
        super().__init__(f"{code}: {subject}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Version:
    """The version that one put made, or that a client has written in steps, as it was at one moment.

    ``number`` is the number of the operation that put, opened or joined it, ``key`` is its path then.
    """

    number: int
    volume: str
    bucket: str
    key: str
    tag: str
    size_bytes: int
    own_blocks: tuple[Block, ...] | None = None
    """The blocks of a version that was written in steps; None: that of a put, which is one."""
    incarnation: int = 0
    """Number of the undelete that has made another object of it; 0 if none has."""
    generation: int = field(default=0, compare=False)
    """Number of the operation that has written, synced, renamed or undeleted it last."""
    older: tuple[Version, ...] = field(default=(), compare=False)
    """The noncurrent versions of its key, oldest first."""
    is_versioned: bool = field(default=False, compare=False)
    """Whether its bucket kept versions when it was written."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks, in the order of the content, without those of older versions."""
        if self.own_blocks is not None:
            return self.own_blocks
        return ((self.number, 0),) if self.size_bytes else ()


@dataclass(frozen=True, slots=True)
class View:
    """The keys and directories of the active namespace or of one snapshot."""

    keys: Mapping[str, Version]
    directories: tuple[str, ...]
    directory_ids: tuple[int, ...] = ()
    """Of each directory its id, so that a rollback brings back the same ones."""

    @property
    def referenced_bytes(self) -> int:
        """The bytes of all versions that the view lists."""
        return sum(version.size_bytes for version in self.versions())

    def versions(self) -> Iterator[Version]:
        """Yield all versions of all keys."""
        for version in self.keys.values():
            yield from (*version.older, version)


@dataclass(slots=True)
class Directory:
    """A directory and what is in it. Whatever becomes of it, its id stays the same."""

    children: dict[str, Version | Directory] = field(default_factory=dict)
    id: int = field(default_factory=_DIRECTORY_IDS.__next__, compare=False)


@dataclass(frozen=True, slots=True)
class Creation:
    """The creation of a snapshot: the operation's number, and the creation time that the operation gave, if any."""

    number: int
    at_ms: int | None
    referenced_bytes: int = 0
    """Bytes of the blocks that the snapshot shows, as they were then. A block may have more than its key, which a
    rollback has shortened."""


@dataclass(frozen=True, slots=True)
class Death:
    """A version that was deleted or overwritten by an operation on its own path."""

    number: int
    version: Version
    is_overwritten: bool


@dataclass(slots=True)
class Existing:
    """What a quota counts: live, held by a snapshot, or deleted and not freed."""

    blocks: frozenset[Block] = frozenset()
    names: frozenset[Hashable] = frozenset()

    def __or__(self, other: Existing) -> Existing:
        return Existing(self.blocks | other.blocks, self.names | other.names)


@dataclass(slots=True)
class Bucket:
    """A bucket, its snapshots, and what keeps them."""

    layout: BucketLayout
    root: Directory = field(default_factory=Directory)
    snapshots: dict[str, View] = field(default_factory=dict)  # in the order of the chain
    creations: dict[str, Creation] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # tag → the snapshot that it protects
    consumers: dict[str, int] = field(default_factory=dict)  # consumer → creation number of its next snapshot
    deaths: dict[str, list[Death]] = field(default_factory=dict)
    keeps_versions: bool | None = None
    """Whether overwritten versions are kept; False while this is suspended, None if it never was so."""
    rolled_back: int = -1
    """Number of the last rollback's operation; -1 before the first rollback."""
    disks: int = 1
    """Number of disks that have the length of each block."""
    quota_bytes: int = NO_LIMIT
    quota_namespace: int = NO_LIMIT
    uncollected: Existing = field(default_factory=Existing)
    """What was there at any time since the last settle, in a model that counts it."""

    @property
    def has_directories(self) -> bool:
        """Whether keys are files of a tree."""
        return self.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED

    def parts(self, path: str) -> list[str]:
        """Return the names along a path. A bucket without directories is a tree of one level."""
        parts = path.split("/") if self.has_directories else [path]
        if not all(parts):
            raise OperationRefusedError("INVALID_KEY_NAME", repr(path))
        return parts

    def find(self, parts: list[str]) -> Version | Directory | None:
        """Return what is at a path."""
        entry: Version | Directory | None = self.root
        for part in parts:
            if not isinstance(entry, Directory):
                return None
            entry = entry.children.get(part)
        return entry

    def require_directories(self, parts: list[str], code: str) -> None:
        """Refuse with ``code`` if a file is on the path of directories."""
        for depth in range(1, len(parts) + 1):
            if isinstance(self.find(parts[:depth]), Version):
                raise OperationRefusedError(code, "/".join(parts[:depth]))

    def make_directories(self, parts: list[str], code: str) -> Directory:
        """Create the missing directories of a path and return the last one; refuse with ``code`` if a file is on it."""
        self.require_directories(parts, code)  # first, because a refused operation must not change anything
        directory = self.root
        for part in parts:
            child = directory.children.setdefault(part, Directory())
            assert isinstance(child, Directory)  # noqa: S101 - checked above
            directory = child
        return directory

    def missing_directories(self, parts: list[str]) -> int:
        """Return how many directories of a path do not exist."""
        return sum(self.find(parts[:depth]) is None for depth in range(1, len(parts) + 1))

    def directory_above(self, parts: list[str]) -> Directory | None:
        """Return the directory of the last name of a path."""
        parent = self.find(parts[:-1])
        return parent if isinstance(parent, Directory) else None

    def view(self) -> View:
        """Return what is listed."""
        keys: dict[str, Version] = {}
        directories: list[tuple[str, int]] = []
        unread = [("", self.root)]
        while unread:
            prefix, directory = unread.pop()
            for name, entry in directory.children.items():
                if isinstance(entry, Version):
                    keys[prefix + name] = entry
                else:
                    directories.append((prefix + name, entry.id))
                    unread.append((f"{prefix}{name}/", entry))
        directories.sort()
        return View(keys, tuple([path for path, _ in directories]), tuple([one for _, one in directories]))

    def directory_with(self, id_: int) -> Directory | None:
        """Return the directory with an id, wherever it is; None when it was deleted."""
        unread = [self.root]
        while unread:
            directory = unread.pop()
            if directory.id == id_:
                return directory
            unread += [entry for entry in directory.children.values() if isinstance(entry, Directory)]
        return None

    def require_snapshot(self, name: str) -> View:
        """Return the view of a snapshot; refuse if there is none."""
        if name not in self.snapshots:
            raise OperationRefusedError("FILE_NOT_FOUND", name)
        return self.snapshots[name]

    def forget_snapshot(self, name: str) -> None:
        """Delete a snapshot, unless a tag protects it."""
        if name in self.tags.values():
            raise OperationRefusedError("TAGGED_SNAPSHOT", name)
        del self.snapshots[name], self.creations[name]

    def note_death(self, number: int, path: str, *, is_overwritten: bool) -> None:
        """Record the version at a path that this operation deletes or overwrites, unless the version has 0 bytes."""
        version = self.find(self.parts(path))
        if isinstance(version, Version) and version.size_bytes:
            died = replace(version, older=()) if is_overwritten else version
            self.deaths.setdefault(path, []).append(Death(number, died, is_overwritten))

    def replaced(self, number: int, path: str) -> tuple[Version, ...]:
        """Overwrite the version at a path. Return the noncurrent versions of the key that remain beside the new one."""
        live = self.find(self.parts(path))
        if not isinstance(live, Version):
            return ()
        if self.keeps_versions or (self.keeps_versions is False and live.is_versioned):
            return (*live.older, replace(live, older=()))
        self.note_death(number, path, is_overwritten=True)
        return live.older

    def roll_back(self, number: int, name: str) -> None:
        """Set the active namespace to a snapshot's view and delete the newer snapshots."""
        view = self.require_snapshot(name)
        newer = list(self.snapshots)[list(self.snapshots).index(name) + 1 :]
        if held := next((one for one in newer if one in self.tags.values()), None):
            raise OperationRefusedError("TAGGED_SNAPSHOT", held)
        self.rolled_back = number
        self.root = Directory(id=self.root.id)
        for path, id_ in zip(view.directories, view.directory_ids, strict=True):
            self.make_directories(self.parts(path), code="NOT_A_FILE").id = id_
        for path, version in view.keys.items():
            parts = self.parts(path)
            self.make_directories(parts[:-1], code="NOT_A_FILE").children[parts[-1]] = version
        for one in newer:
            self.forget_snapshot(one)
