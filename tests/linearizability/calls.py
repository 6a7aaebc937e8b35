"""How a client carries out a call: which messages it sends and what it reads, one step after the other.

A step is a command to metadata, a request to snapshots, or a read. Who drives the steps decides what may happen
between them: in a simulated run anything, on a real plane what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import astuple, dataclass
from random import Random
from typing import Any

from schemas import records
from schemas.answers import ListedDeletion
from schemas.records import DeletedKind, KeyRow
from services.client.errors import PlaneError
from services.client.plane import NamespaceCommand, Plane, SnapshotRequest
from services.client.tasks.snapshot_ids import live_snapshot_id
from tests.linearizability.history import (
    Call,
    CreateSnapshot,
    Delete,
    DeleteSnapshot,
    DeleteTree,
    Keys,
    ListKeys,
    ListSnapshot,
    Outcome,
    Put,
    Rename,
    RenameTree,
    Stat,
    Undelete,
    Write,
)

MAX_KEYS = 1_000
BLOCK_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class Look:
    """Read something, at one moment."""

    ask: Callable[[Plane], Any]


Step = NamespaceCommand | SnapshotRequest | Look
Steps = Generator[Step, Any, Outcome]


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket."""

    shard: int
    volume: str
    bucket: str

    @property
    def names(self) -> tuple[str, str]:
        """Volume and bucket."""
        return self.volume, self.bucket


def steps_of(call: Call, place: Place, deletion: ListedDeletion | None = None) -> Steps:
    """Carry a call out; a PlaneError that is thrown in at a step is the answer."""
    try:
        return (yield from _carried_out(call, place, deletion))
    except PlaneError as error:
        return Outcome(error.code)


def _carried_out(call: Call, place: Place, deletion: ListedDeletion | None) -> Steps:
    if isinstance(call, Stat):
        row = yield Look(lambda plane: plane.metadata(place.shard).stat(*place.names, call.path))
        if not isinstance(row, KeyRow):
            return Outcome("KEY_NOT_FOUND")
        return Outcome(seen=frozenset({(call.path, row.tag)}))
    if isinstance(call, ListKeys):
        return Outcome(seen=(yield _listing(place, "")))
    if isinstance(call, ListSnapshot):
        snapshot_id = yield Look(lambda plane: live_snapshot_id(plane, place.shard, *place.names, call.name))
        return Outcome(seen=(yield _listing(place, snapshot_id)))
    reply = yield _message(call, place, deletion)
    return Outcome(reply.error)


def _message(call: Write, place: Place, deletion: ListedDeletion | None) -> NamespaceCommand | SnapshotRequest:
    if isinstance(call, Put):
        return records.PutKey(*place.names, call.path, 1_000, call.tag, BLOCK_BYTES)
    if isinstance(call, Undelete):
        assert deletion is not None, "what is brought back was looked for first"
        named = deletion
        return records.Undelete(*place.names, call.path, named.kind, named.object_id, named.birth, named.death)
    return _MESSAGES[type(call)](*place.names, *astuple(call))


_MESSAGES: Mapping[type[Any], Callable[..., NamespaceCommand | SnapshotRequest]] = {
    Delete: records.DeleteKey,
    DeleteTree: records.DeleteDirectory,
    Rename: records.RenameKey,
    RenameTree: records.RenameDirectory,
    CreateSnapshot: records.CreateSnapshot,
    DeleteSnapshot: records.DeleteSnapshot,
}


def _listing(place: Place, snapshot_id: str) -> Look:
    def ask(plane: Plane) -> Keys:
        found = plane.metadata(place.shard).entries(*place.names, snapshot_id=snapshot_id, limit=MAX_KEYS)
        return frozenset((entry.path, entry.tag) for entry in found if not entry.is_directory)

    return Look(ask)


_WEIGHTS: Mapping[type[Any], int] = {
    Put: 10,
    Delete: 5,
    Rename: 4,
    Stat: 3,
    ListKeys: 4,
    CreateSnapshot: 4,
    DeleteSnapshot: 2,
    ListSnapshot: 7,
    Undelete: 4,
    DeleteTree: 2,
    RenameTree: 2,
}
_OF_TREES = (DeleteTree, RenameTree)
_OF_SNAPSHOTS = (CreateSnapshot, DeleteSnapshot, ListSnapshot)


@dataclass(slots=True)
class Chooser:
    """What one client does next: few paths and few snapshots, so that clients meet."""

    client: int
    place: Place
    random: Random
    is_tree: bool
    _puts: int = 0

    def next_call(self, plane: Plane) -> tuple[Call, ListedDeletion | None]:
        """A call, with what it brings back if it does; may look for that first."""
        weights = {kind: weight for kind, weight in _WEIGHTS.items() if self.is_tree or kind not in _OF_TREES}
        kind = self.random.choices(list(weights), list(weights.values()))[0]
        if kind is Undelete:
            return self._undelete(plane)
        return kind(*self._arguments(kind)), None

    def _arguments(self, kind: type[Any]) -> list[str]:
        if kind in _OF_TREES:
            return self.random.sample(("d", "e"), 1 if kind is DeleteTree else 2)
        if kind in _OF_SNAPSHOTS:
            return [f"snap-{self.random.randrange(3)}"]
        if kind is Put:
            self._puts += 1
            return [self._path(), f"{self.client}-{self._puts}"]
        return self.random.sample(self._paths, {ListKeys: 0, Rename: 2}.get(kind, 1))

    def _path(self) -> str:
        return self.random.choice(self._paths)

    @property
    def _paths(self) -> tuple[str, ...]:
        return ("a", "b", "d/a", "d/b", "e/a") if self.is_tree else ("a", "b", "c")

    def _undelete(self, plane: Plane) -> tuple[Call, ListedDeletion | None]:
        found = plane.metadata(self.place.shard).deleted(*self.place.names)
        keys = [one for one in found if one.kind is DeletedKind.KEY]
        if not keys:
            return ListKeys(), None
        chosen = self.random.choice(keys[-4:])
        return Undelete(self._path(), chosen.tag), chosen
