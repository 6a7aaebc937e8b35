"""The chains of snapshots, linked by ids: one over the whole shard, and one for each path.

The links define the order, not the creation times. An empty id means that there is no such neighbour, as in the rows
of snapshotInfoTable. Looking up a snapshot that is not in the chain is a KeyError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.records import SnapshotInfo

NO_SNAPSHOT = ""
"""The id in place of a missing neighbour."""
_MAX_NAMED = 5


class ChainLinkError(ValueError):
    """A snapshot cannot be added after the ids that it names; the chain is unchanged. Read the latest ids and retry."""


class ChainCorruptedError(ValueError):
    """The rows do not form one chain: nothing may be added or deleted until an operator repairs the previous ids."""


class _Chain:
    """One doubly linked chain. It is a circle: ``NO_SNAPSHOT`` follows the latest and precedes the oldest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.next = {NO_SNAPSHOT: NO_SNAPSHOT}
        self.previous = {NO_SNAPSHOT: NO_SNAPSHOT}

    @property
    def latest(self) -> str:
        return self.previous[NO_SNAPSHOT]

    def check_can_add(self, snapshot_id: str, previous: str) -> None:
        if not snapshot_id:
            raise ChainLinkError("a snapshot without an id cannot be added")
        if snapshot_id in self.next:
            raise ChainLinkError(f"snapshot {snapshot_id} is in the {self.name} already")
        if previous not in self.next:
            raise ChainLinkError(f"snapshot {snapshot_id} names {previous} before it, which is not in the {self.name}")
        following = self.next[previous]
        if following and not previous:
            raise ChainLinkError(
                f"snapshot {snapshot_id} names none before it, but the {self.name} begins with {following}"
            )
        if following:
            raise ChainLinkError(
                f"snapshot {snapshot_id} names {previous} before it in the {self.name}, which is already followed by "
                f"{following}"
            )

    def add(self, snapshot_id: str) -> None:
        self._link(self.latest, snapshot_id)
        self._link(snapshot_id, NO_SNAPSHOT)

    def delete(self, snapshot_id: str) -> None:
        self._link(self.previous.pop(snapshot_id), self.next.pop(snapshot_id))

    def _link(self, previous: str, following: str) -> None:
        self.next[previous], self.previous[following] = following, previous


class SnapshotChain:
    """The chain over the shard and the chains of its paths, which change together."""

    def __init__(self) -> None:
        self._global = _Chain("global chain")
        self._paths: dict[str, _Chain] = {}
        self._path_of: dict[str, str] = {}

    @classmethod
    def load(cls, rows: Iterable[SnapshotInfo]) -> SnapshotChain:
        """Build the chains from rows in any order.

        Raises:
            ChainCorruptedError: the rows do not form one chain over the shard and one for each path.
        """
        global_links: dict[str, str] = {}
        path_links: dict[str, dict[str, str]] = {}
        following: dict[str, SnapshotInfo] = {}
        for row in rows:
            if row.snapshot_id in global_links:
                raise ChainCorruptedError(
                    f"two rows have the id {row.snapshot_id}: find out which one is wrong, and remove it"
                )
            global_links[row.snapshot_id] = row.global_previous_snapshot_id
            path_links.setdefault(row.snapshot_path, {})[row.snapshot_id] = row.path_previous_snapshot_id
            following[row.global_previous_snapshot_id] = row
        _check_links("global chain", global_links)
        for path, links in path_links.items():
            _check_links(_path_chain_name(path), links)
        chain = cls()
        while next_row := following.get(chain.latest_global):
            try:
                chain.add(next_row)
            except ChainLinkError as error:
                raise ChainCorruptedError(
                    f"the global chain and the {_path_chain_name(next_row.snapshot_path)} have different orders "
                    f"({error}): set the previous ids of both to one order"
                ) from error
        return chain

    def add(self, row: SnapshotInfo) -> None:
        """Add a snapshot after the latest of both chains. Both previous ids are checked before either chain changes.

        Raises:
            ChainLinkError: the snapshot exists already, or a previous id is not the latest one.
        """
        path_chain = self._paths.get(row.snapshot_path) or _Chain(_path_chain_name(row.snapshot_path))
        self._global.check_can_add(row.snapshot_id, row.global_previous_snapshot_id)
        path_chain.check_can_add(row.snapshot_id, row.path_previous_snapshot_id)
        self._global.add(row.snapshot_id)
        path_chain.add(row.snapshot_id)
        self._paths[row.snapshot_path] = path_chain
        self._path_of[row.snapshot_id] = row.snapshot_path

    def delete(self, snapshot_id: str) -> None:
        """Remove a snapshot and link its neighbours."""
        path = self._path_of.pop(snapshot_id)
        self._global.delete(snapshot_id)
        self._paths[path].delete(snapshot_id)
        if not self._paths[path].latest:
            del self._paths[path]

    @property
    def latest_global(self) -> str:
        """Id of the newest snapshot of the shard, or an empty string."""
        return self._global.latest

    def latest(self, path: str) -> str:
        """Return the id of the newest snapshot of a path, or an empty string."""
        return self._paths[path].latest if path in self._paths else NO_SNAPSHOT

    def next_global(self, snapshot_id: str) -> str:
        """Return the id after a snapshot in the shard, empty for the latest; for an empty id that of the oldest."""
        return self._global.next[snapshot_id]

    def next_in_path(self, snapshot_id: str) -> str:
        """Return the id after a snapshot on its path, empty for the latest."""
        return self._paths[self._path_of[snapshot_id]].next[snapshot_id]


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
