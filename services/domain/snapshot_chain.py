"""The two chains of snapshots, linked by ids: one over the whole shard, and one for each path.

The order is that of the links, never that of creation times. An empty id means that there is no such neighbour, as in
the rows of snapshotInfoTable; asking about a snapshot that the chain has not got is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

NO_SNAPSHOT = ""
"""Stands where a neighbour would: there is none."""
_MAX_NAMED = 5


class NoSuchSnapshotError(LookupError):
    """The chain has no such snapshot: it was never added, or is deleted."""


class ChainLinkError(ValueError):
    """A snapshot cannot be added where it says; the chain is as it was. Ask for the latest ids, and add it there."""


class ChainCorruptedError(ValueError):
    """The rows do not make one chain: nothing may be added or deleted until a person has mended their previous ids."""


class LinkedRow(Protocol):
    """What a row of snapshotInfoTable says of its place."""

    @property
    def snapshot_id(self) -> str:
        """Id of the snapshot."""

    @property
    def global_previous_snapshot_id(self) -> str:
        """The one before it in the shard."""

    @property
    def snapshot_path(self) -> str:
        """Volume and bucket."""

    @property
    def path_previous_snapshot_id(self) -> str:
        """The one before it on its path."""


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
    """The chain over the shard, and those of its paths; neither is ever changed without the other."""

    def __init__(self) -> None:
        self._global = _Chain("global chain")
        self._paths: dict[str, _Chain] = {}
        self._path_of: dict[str, str] = {}

    @classmethod
    def load(cls, rows: Iterable[LinkedRow]) -> SnapshotChain:
        """Make the chains of rows that come in any order.

        Raises:
            ChainCorruptedError: they do not make one chain over the shard and one for each path.
        """
        by_id: dict[str, LinkedRow] = {}
        for row in rows:
            if row.snapshot_id in by_id:
                raise ChainCorruptedError(
                    f"two rows have the id {row.snapshot_id}: find out which one is left over, and remove it"
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
        """Add a snapshot behind the latest of both chains; both previous ids are checked before either is changed.

        Raises:
            ChainLinkError: it is there already, or a previous id is not that of the latest.
        """
        path_chain = self._paths.get(path) or _Chain(_path_chain_name(path))
        self._global.check_can_add(snapshot_id, global_previous)
        path_chain.check_can_add(snapshot_id, path_previous)
        self._global.add(snapshot_id, global_previous)
        path_chain.add(snapshot_id, path_previous)
        self._paths[path] = path_chain
        self._path_of[snapshot_id] = path

    def delete(self, snapshot_id: str) -> bool:
        """Take a snapshot out, and link its neighbours to one another; says whether it was there."""
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
        """The newest snapshot of the shard; empty when there is none."""
        return self._global.latest

    @property
    def oldest_global(self) -> str:
        """The first snapshot of the shard; empty when there is none."""
        return self._global.oldest

    def latest(self, path: str) -> str:
        """The newest snapshot of a path; empty when there is none."""
        return self._paths[path].latest if path in self._paths else NO_SNAPSHOT

    def oldest(self, path: str) -> str:
        """The first snapshot of a path; empty when there is none."""
        return self._paths[path].oldest if path in self._paths else NO_SNAPSHOT

    def previous_global(self, snapshot_id: str) -> str:
        """The one before a snapshot in the shard, empty for the first. Raises NoSuchSnapshotError."""
        return self._global.of(snapshot_id).previous

    def next_global(self, snapshot_id: str) -> str:
        """The one after a snapshot in the shard, empty for the latest. Raises NoSuchSnapshotError."""
        return self._global.of(snapshot_id).next

    def previous_in_path(self, snapshot_id: str) -> str:
        """The one before a snapshot on its path, empty for the first. Raises NoSuchSnapshotError."""
        return self._paths[self.path_of(snapshot_id)].of(snapshot_id).previous

    def next_in_path(self, snapshot_id: str) -> str:
        """The one after a snapshot on its path, empty for the latest. Raises NoSuchSnapshotError."""
        return self._paths[self.path_of(snapshot_id)].of(snapshot_id).next

    def path_of(self, snapshot_id: str) -> str:
        """The path of a snapshot. Raises NoSuchSnapshotError."""
        path = self._path_of.get(snapshot_id)
        if path is None:
            raise NoSuchSnapshotError(f"snapshot {snapshot_id} is not in the {self._global.name}")
        return path

    def paths(self) -> list[str]:
        """Every path that has a snapshot."""
        return sorted(self._paths)

    def of_path(self, path: str, *, latest_first: bool = False) -> Iterator[str]:
        """The snapshots of a path, oldest first unless told otherwise."""
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
    """Refuse previous ids that do not make exactly one chain."""
    following: dict[str, list[str]] = {}
    for snapshot_id, previous in previous_ids.items():
        if previous and previous not in previous_ids:
            raise ChainCorruptedError(
                f"gap in the {name}: {snapshot_id} names {previous} before it, which is not there; "
                f"set its previous id to the one that comes before it now"
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
