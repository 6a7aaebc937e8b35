"""A bucket as a sequential program: what each call may answer in a state, and which states it leads to."""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

from tests.linearizability.history import (
    Call,
    Capture,
    CreateSnapshot,
    Delete,
    DeleteSnapshot,
    DeleteTree,
    Keys,
    ListKeys,
    Name,
    Outcome,
    Put,
    Read,
    Rename,
    RenameTree,
    Stat,
    Undelete,
    Write,
)


class Bucket(NamedTuple):
    """One state."""

    keys: Keys = frozenset()
    dead: frozenset[str] = frozenset()
    """Tags of versions that were deleted or overwritten and have not come back."""
    snapshots: frozenset[tuple[str, Keys]] = frozenset()
    """Name and keys of each."""
    captured: frozenset[tuple[int, Keys]] = frozenset()
    """Snapshots without a name: the number of the call that creates each, and its keys."""

    def tag(self, path: str) -> str | None:
        """Of the key at a path; None when there is none."""
        return next((tag for one, tag in self.keys if one == path), None)

    def at(self, path: str) -> Keys:
        """The key at a path, or nothing."""
        return frozenset(key for key in self.keys if key[0] == path)

    def snapshot(self, name: str) -> Keys | None:
        """What a snapshot shows; None when there is none of that name."""
        return next((keys for one, keys in self.snapshots if one == name), None)

    def without(self, removed: Keys) -> Bucket:
        """After the deaths of some keys."""
        return self._replace(keys=self.keys - removed, dead=self.dead | {tag for _, tag in removed})

    def moved(self, source: str, target: str) -> Bucket:
        """After a directory has got another path."""
        moved = self.below(source)
        placed = {(target + path[len(source) :], tag) for path, tag in moved}
        return self._replace(keys=self.keys - moved | placed)

    def below(self, directory: str) -> Keys:
        """The keys below a directory."""
        return frozenset(key for key in self.keys if key[0].startswith(f"{directory}/"))


_NO_KEY = "KEY_NOT_FOUND"
_NO_SNAPSHOT = ("FILE_NOT_FOUND", "SNAPSHOT_EXPIRED")


def next_states(state: Bucket, call: Call, outcome: Outcome | None) -> list[Bucket]:
    """The states that a call may lead to; none when what it was answered cannot be in this state.

    Without an outcome nobody knows: it was carried out, refused, or never arrived. Errors that are not named here may
    come in any state (a bucket that is busy, a directory in the way, a name that another snapshot is about to get, a
    version that is claimed already); no error changes anything.
    """
    if isinstance(call, Read):
        assert outcome is not None, "a read that nobody has seen the answer of says nothing"
        return [state] if _is_seen(call, state, outcome) else []
    if outcome is None:
        return [state, *_done(call, state)]
    if not outcome.error:
        return _done(call, state)
    return [state] if _may_refuse(call, state, outcome.error) else []


def _is_seen(call: Read, state: Bucket, outcome: Outcome) -> bool:
    if isinstance(call, Stat):
        tag = state.tag(call.path)
        return outcome == (Outcome(_NO_KEY) if tag is None else Outcome(seen=frozenset({(call.path, tag)})))
    if isinstance(call, ListKeys):
        return outcome == Outcome(seen=state.keys)
    shown = state.snapshot(call.name)
    return outcome.error in _NO_SNAPSHOT if shown is None else outcome == Outcome(seen=shown)


def _may_refuse(call: Write, state: Bucket, error: str) -> bool:
    if error == _NO_KEY and isinstance(call, Delete | Rename):
        return state.tag(call.path if isinstance(call, Delete) else call.source) is None
    if error in _NO_SNAPSHOT and isinstance(call, DeleteSnapshot):
        return state.snapshot(call.name) is None
    return True


@singledispatch
def _done(call: Write, state: Bucket) -> list[Bucket]:
    """The states after a write that succeeded; none where it cannot have."""
    raise TypeError(f"{call} is no write: {state}")


@_done.register
def _put(call: Put, state: Bucket) -> list[Bucket]:
    after = state.without(state.at(call.path))
    return [after._replace(keys=after.keys | {(call.path, call.tag)})]


@_done.register
def _delete(call: Delete, state: Bucket) -> list[Bucket]:
    removed = state.at(call.path)
    return [state.without(removed)] if removed else []


@_done.register
def _delete_tree(call: DeleteTree, state: Bucket) -> list[Bucket]:
    return [state.without(state.below(call.path))]


@_done.register
def _rename(call: Rename, state: Bucket) -> list[Bucket]:
    moved = state.at(call.source)
    if not moved or state.at(call.target):
        return []
    return [state._replace(keys=state.keys - moved | {(call.target, tag) for _, tag in moved})]


@_done.register
def _rename_tree(call: RenameTree, state: Bucket) -> list[Bucket]:
    """As mv does: into a directory that is there. Keys do not tell of empty ones, so both may be."""
    inside = f"{call.target}/{call.source.rpartition('/')[2]}"
    return [state.moved(call.source, call.target), state.moved(call.source, inside)]


@_done.register
def _undelete(call: Undelete, state: Bucket) -> list[Bucket]:
    if call.tag not in state.dead or state.at(call.path):
        return []
    return [state._replace(keys=state.keys | {(call.path, call.tag)}, dead=state.dead - {call.tag})]


@_done.register
def _capture(call: Capture, state: Bucket) -> list[Bucket]:
    return [state._replace(captured=state.captured | {(call.number, state.keys)})]


@_done.register
def _name(call: Name, state: Bucket) -> list[Bucket]:
    shown = next((keys for number, keys in state.captured if number == call.number), None)
    if shown is None or state.snapshot(call.name) is not None:
        return []
    captured = state.captured - {(call.number, shown)}
    return [state._replace(snapshots=state.snapshots | {(call.name, shown)}, captured=captured)]


@_done.register
def _delete_snapshot(call: DeleteSnapshot, state: Bucket) -> list[Bucket]:
    shown = state.snapshot(call.name)
    return [] if shown is None else [state._replace(snapshots=state.snapshots - {(call.name, shown)})]


@_done.register
def _create_snapshot(call: CreateSnapshot, state: Bucket) -> list[Bucket]:
    """Never as a whole: its halves are looked at, unless it was refused."""
    raise TypeError(f"{call} was not taken in halves: {state}")
