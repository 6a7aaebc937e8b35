"""The chains of snapshots, linked by ids: one over the whole shard, and one for each path.

The links define the order, not the creation times. An empty id means that there is no such neighbour, as in the rows
of snapshotInfoTable. Looking up a snapshot that is not in the chain is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

NO_SNAPSHOT = ""
"""The id in place of a missing neighbour."""
_MAX_NAMED = 5


class NoSuchSnapshotError(LookupError):
    """The chain has no such snapshot: it was never added, or it was deleted."""


class ChainLinkError(ValueError):
    """A snapshot cannot be added after the ids that it names; the chain is unchanged. Read the latest ids and retry."""


class ChainCorruptedError(ValueError):
    """The rows do not form one chain: nothing may be added or deleted until an operator repairs the previous ids."""


class LinkedRow(Protocol):
    """The links in a row of snapshotInfoTable."""

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot."""

    @property
    def global_previous_snapshot_id(self) -> str:
        """Id of the snapshot before it in the shard."""

    @property
    def snapshot_path(self) -> str:
        """Volume and bucket."""

    @property
    def path_previous_snapshot_id(self) -> str:
        """Id of the snapshot before it on its path."""


@dataclass(slots=True)
class _Neighbours:
    previous: str
    next: str = NO_SNAPSHOT


@dataclass(slots=True)
class _Chain:
    """One doubly linked chain."""

    name: str
    neighbours: dict[str, _Neighbours] = field(default_factory=dict)
    oldest: str = NO_SNAPSHOT
    latest: str = NO_SNAPSHOT

    def check_can_add(self, snapshot_id: str, previous: str) -> None:
        if not snapshot_id:
            raise ChainLinkError("a snapshot without an id cannot be added")
        if snapshot_id in self.neighbours:
            raise ChainLinkError(f"snapshot {snapshot_id} is in the {self.name} already")
        if not previous and self.neighbours:
            raise ChainLinkError(
                f"snapshot {snapshot_id} names none before it, but the {self.name} begins with {self.oldest}"
            )
        if previous and previous not in self.neighbours:
            raise ChainLinkError(f"snapshot {snapshot_id} names {previous} before it, which is not in the {self.name}")
        if previous and self.neighbours[previous].next:
            raise ChainLinkError(
                f"snapshot {snapshot_id} names {previous} before it in the {self.name}, which is already followed by "
                f"{self.neighbours[previous].next}"
            )

    def add(self, snapshot_id: str, previous: str) -> None:
        self.neighbours[snapshot_id] = _Neighbours(previous)
        if previous:
            self.neighbours[previous].next = snapshot_id
        else:
            self.oldest = snapshot_id
        self.latest = snapshot_id

    def delete(self, snapshot_id: str) -> None:
        removed = self.neighbours.pop(snapshot_id)
        if removed.previous:
            self.neighbours[removed.previous].next = removed.next
        else:
            self.oldest = removed.next
        if removed.next:
            self.neighbours[removed.next].previous = removed.previous
        else:
            self.latest = removed.previous

    def of(self, snapshot_id: str) -> _Neighbours:
        found = self.neighbours.get(snapshot_id)
        if found is None:
            raise NoSuchSnapshotError(f"snapshot {snapshot_id} is not in the {self.name}")
        return found

    def oldest_first(self) -> Iterator[str]:
        current = self.oldest
        while current:
            yield current
            current = self.of(current).next

    def latest_first(self) -> Iterator[str]:
        current = self.latest
        while current:
            yield current
            current = self.of(current).previous


class SnapshotChain:
    """The chain over the shard and the chains of its paths, which change together."""

    def __init__(self) -> None:
        self._global = _Chain("global chain")
        self._paths: dict[str, _Chain] = {}
        self._path_of: dict[str, str] = {}

    @classmethod
    def load(cls, rows: Iterable[LinkedRow]) -> SnapshotChain:
        """Build the chains from rows in any order.

        Raises:
            ChainCorruptedError: the rows do not form one chain over the shard and one for each path.
        """
        by_id: dict[str, LinkedRow] = {}
        for row in rows:
            if row.snapshot_id in by_id:
                raise ChainCorruptedError(
                    f"two rows have the id {row.snapshot_id}: find out which one is wrong, and remove it"
                )
            by_id[row.snapshot_id] = row
        _check_links("global chain", {row.snapshot_id: row.global_previous_snapshot_id for row in by_id.values()})
        paths: dict[str, dict[str, str]] = {}
        for row in by_id.values():
            paths.setdefault(row.snapshot_path, {})[row.snapshot_id] = row.path_previous_snapshot_id
        for path, previous_ids in paths.items():
            _check_links(_path_chain_name(path), previous_ids)
        return cls._linked(by_id)

    @classmethod
    def _linked(cls, by_id: Mapping[str, LinkedRow]) -> SnapshotChain:
        following = {row.global_previous_snapshot_id: row for row in by_id.values()}
        chain = cls()
        row = following.get(NO_SNAPSHOT)
        while row is not None:
            try:
                chain.add(
                    row.snapshot_id, row.global_previous_snapshot_id, row.snapshot_path, row.path_previous_snapshot_id
                )
            except ChainLinkError as error:
                raise ChainCorruptedError(
                    f"the global chain and the {_path_chain_name(row.snapshot_path)} have different orders ({error}): "
                    f"set the previous ids of both to one order"
                ) from error
            row = following.get(row.snapshot_id)
        return chain

    def add(self, snapshot_id: str, global_previous: str, path: str, path_previous: str) -> None:
        """Add a snapshot after the latest of both chains. Both previous ids are checked before either chain changes.

        Raises:
            ChainLinkError: the snapshot exists already, or a previous id is not the latest one.
        """
        path_chain = self._paths.get(path) or _Chain(_path_chain_name(path))
        self._global.check_can_add(snapshot_id, global_previous)
        path_chain.check_can_add(snapshot_id, path_previous)
        self._global.add(snapshot_id, global_previous)
        path_chain.add(snapshot_id, path_previous)
        self._paths[path] = path_chain
        self._path_of[snapshot_id] = path

    def delete(self, snapshot_id: str) -> bool:
        """Remove a snapshot and link its neighbours. Return whether it was in the chain."""
        path = self._path_of.pop(snapshot_id, None)
        if path is None:
            return False
        self._global.delete(snapshot_id)
        self._paths[path].delete(snapshot_id)
        if not self._paths[path].latest:
            del self._paths[path]
        return True

    @property
    def latest_global(self) -> str:
        """Id of the newest snapshot of the shard, or an empty string."""
        return self._global.latest

    @property
    def oldest_global(self) -> str:
        """Id of the oldest snapshot of the shard, or an empty string."""
        return self._global.oldest

    def latest(self, path: str) -> str:
        """Return the id of the newest snapshot of a path, or an empty string."""
        return self._paths[path].latest if path in self._paths else NO_SNAPSHOT

    def oldest(self, path: str) -> str:
        """Return the id of the oldest snapshot of a path, or an empty string."""
        return self._paths[path].oldest if path in self._paths else NO_SNAPSHOT

    def previous_global(self, snapshot_id: str) -> str:
        """Return the id before a snapshot in the shard, empty for the first. Raise NoSuchSnapshotError."""
        return self._global.of(snapshot_id).previous

    def next_global(self, snapshot_id: str) -> str:
        """Return the id after a snapshot in the shard, empty for the latest. Raise NoSuchSnapshotError."""
        return self._global.of(snapshot_id).next

    def previous_in_path(self, snapshot_id: str) -> str:
        """Return the id before a snapshot on its path, empty for the first. Raise NoSuchSnapshotError."""
        return self._paths[self.path_of(snapshot_id)].of(snapshot_id).previous

    def next_in_path(self, snapshot_id: str) -> str:
        """Return the id after a snapshot on its path, empty for the latest. Raise NoSuchSnapshotError."""
        return self._paths[self.path_of(snapshot_id)].of(snapshot_id).next

    def path_of(self, snapshot_id: str) -> str:
        """Return the path of a snapshot. Raise NoSuchSnapshotError."""
        path = self._path_of.get(snapshot_id)
        if path is None:
            raise NoSuchSnapshotError(f"snapshot {snapshot_id} is not in the {self._global.name}")
        return path

    def paths(self) -> list[str]:
        """Return every path that has a snapshot, sorted."""
        return sorted(self._paths)

    def of_path(self, path: str, *, latest_first: bool = False) -> Iterator[str]:
        """Return the ids of a path's snapshots, oldest first unless ``latest_first``."""
        chain = self._paths.get(path) or _Chain(_path_chain_name(path))
        return chain.latest_first() if latest_first else chain.oldest_first()

    def __iter__(self) -> Iterator[str]:
        return self._global.oldest_first()

    def __reversed__(self) -> Iterator[str]:
        return self._global.latest_first()

    def __len__(self) -> int:
        return len(self._path_of)

    def __contains__(self, snapshot_id: str) -> bool:
        return snapshot_id in self._path_of


def _path_chain_name(path: str) -> str:
    return f"chain of path {path}"


def _check_links(name: str, previous_ids: Mapping[str, str]) -> None:
    """Refuse previous ids that do not form exactly one chain."""
    following: dict[str, list[str]] = {}
    for snapshot_id, previous in previous_ids.items():
        if previous and previous not in previous_ids:
            raise ChainCorruptedError(
                f"gap in the {name}: {snapshot_id} names {previous} before it, which is missing; "
                f"set its previous id to the snapshot that comes before it now"
            )
        following.setdefault(previous, []).append(snapshot_id)
    if previous_ids and NO_SNAPSHOT not in following:
        raise ChainCorruptedError(
            f"circle in the {name}: each of its {len(previous_ids)} snapshots names one before it; "
            f"empty the previous id of the first"
        )
    for previous, snapshot_ids in following.items():
        if len(snapshot_ids) > 1:
            shown = f"{previous} before them" if previous else "none before them"
            raise ChainCorruptedError(
                f"fork in the {name}: {_named(snapshot_ids)} name {shown}; "
                f"leave one of them so, and set the previous ids of the others"
            )
    reached = set()
    current = NO_SNAPSHOT
    while current in following:
        current = following[current][0]
        reached.add(current)
    if len(reached) != len(previous_ids):
        cut_off = [snapshot_id for snapshot_id in previous_ids if snapshot_id not in reached]
        raise ChainCorruptedError(
            f"circle in the {name}: {_named(cut_off)} cannot be reached from its first snapshot; "
            f"set the previous id of the first of them to {current}"
        )


def _named(snapshot_ids: list[str]) -> str:
    more = len(snapshot_ids) - _MAX_NAMED
    return ", ".join(snapshot_ids[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
