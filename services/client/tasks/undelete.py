"""Undelete by path: find the deleted row of a path and send the command that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.answers import ListedDeletion
from schemas.records import DeletedKind, Undelete
from schemas.space_answers import ExplainedDirectory, ExplainedVersion, PathExplanation, VersionStage
from services.client.errors import PlaneError, UnreachableError
from services.client.plane import Plane
from services.client.tasks.space_view import BucketView, is_held_by
from services.client.wire.paging import all_rows, deleted_position

_WITH_ROWS = (VersionStage.HELD, VersionStage.PENDING)
Bucket = tuple[str, str]
_Died = tuple[int, bool, DeletedKind, int, int]
"""Death, whether it is the whole key or directory, kind, objectID and birth."""


@dataclass(frozen=True, slots=True)
class Returned:
    """An object that was undeleted."""

    path: str
    object_id: int
    txn: int
    is_itself: bool
    """Whether it kept its objectID. If False, it is a new object with the same blocks."""


@dataclass(frozen=True, slots=True)
class NotReturned:
    """An object that was not undeleted, and the reason."""

    path: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Undeleted:
    """The result of an undelete request."""

    returned: tuple[Returned, ...]
    refused: tuple[NotReturned, ...]


def undelete_path(plane: Plane, shard: int, bucket: Bucket, path: str, target: str, death: int = 0) -> Undeleted:
    """Undelete the version or directory that died last at a path, or at the txn ``death``.

    A directory returns with all entries below it, a key with the noncurrent versions that died with it.

    Raises:
        PlaneError: metadata refused the command; TOO_LATE if the path has no deleted row.
    """
    found = plane.space(shard).explain_path(*bucket, path)
    chosen = _died_last(found, death)
    if chosen is None:
        raise PlaneError(
            "TOO_LATE",
            f"no deletion of {path} can be undone: undelete the deleted directory above it, if there is one (deepclean "
            f"deleted list), or copy the path from a snapshot that has it (deepclean restore)",
        )
    died, _, kind, object_id, birth = chosen
    outcome = _carry_out(plane, shard, Undelete(*bucket, target, kind, object_id, birth, died))
    if isinstance(outcome, NotReturned):
        raise PlaneError(outcome.code, outcome.message)
    commands = [
        Undelete(*bucket, target, kind, version.object_id, version.birth, died)
        for version in found.versions
        if version.death == died and version.version_of == object_id and version.stage in _WITH_ROWS
    ]
    return _all_of([outcome, *(_carry_out(plane, shard, command) for command in commands if outcome.is_itself)])


def _died_last(found: PathExplanation, death: int) -> _Died | None:
    """Return what died last at a path, or at the txn ``death``; a key before its noncurrent versions."""
    rows = [
        (version.death, not version.version_of, DeletedKind.KEY, version.object_id, version.birth)
        for version in found.versions
        if version.death and version.stage in _WITH_ROWS
    ]
    rows += [
        (one.death, True, DeletedKind.DIRECTORY, one.object_id, one.birth) for one in found.directories if one.death
    ]
    return max((row for row in rows if death in (0, row[0])), default=None)


def snapshot_to_copy_from(plane: Plane, shard: int, bucket: Bucket, path: str, death: int = 0) -> str:
    """Return the newest snapshot that shows, at its path, what an undelete would bring back; empty if nobody can say.

    It may be held under another name: then a copy has another source.
    """
    try:
        found = plane.space(shard).explain_path(*bucket, path)
        if (chosen := _died_last(found, death)) is None:
            return ""
        died, _, _, object_id, birth = chosen
        held: list[ExplainedVersion | ExplainedDirectory] = [*found.versions, *found.directories]
        dead = [one for one in held if (one.object_id, one.birth, one.death) == (object_id, birth, died)]
        snapshots = BucketView(plane, shard, *bucket).snapshots().active
        holders = [info for info in snapshots if any(is_held_by(info, one) for one in dead)]
        if not holders:
            return ""
        shown = plane.metadata(shard).stat(*bucket, path, snapshot_id=holders[-1].snapshot_id)
    except (PlaneError, UnreachableError):  # whoever asks has a refusal to tell, which matters more
        return ""
    return holders[-1].name if shown.object_id == object_id else ""


def undelete_files(plane: Plane, shard: int, bucket: Bucket, path: str, target: str, death: int = 0) -> Undeleted:
    """Undelete the deleted files below a directory one by one, each path's newest death, or only those of ``death``.

    A file returns with the noncurrent versions that died with it. A refused file is reported and does not stop the
    others. Missing parent directories are created.
    """
    newest, versions = dict[str, ListedDeletion](), dict[tuple[str, int], list[ListedDeletion]]()
    reads = plane.metadata(shard)
    for entry in all_rows(
        lambda after, page_rows: reads.deleted(*bucket, start_after=after, limit=page_rows), deleted_position
    ):
        is_meant = entry.kind is DeletedKind.KEY and death in (0, entry.death)
        if is_meant and entry.path.startswith(f"{path}/"):
            if entry.version_of:
                versions.setdefault((entry.path, entry.death), []).append(entry)
            else:
                newest[entry.path] = entry  # the listing has the oldest death first
    outcomes = list[Returned | NotReturned]()
    for found, entry in sorted(newest.items()):
        with_it = [one for one in versions.get((found, entry.death), ()) if one.version_of == entry.object_id]
        for one in (entry, *with_it):
            command = Undelete(*bucket, target + found[len(path) :], one.kind, one.object_id, one.birth, one.death)
            outcomes.append(_carry_out(plane, shard, command))
    return _all_of(outcomes)


def _all_of(outcomes: Sequence[Returned | NotReturned]) -> Undeleted:
    return Undeleted(
        tuple(one for one in outcomes if isinstance(one, Returned)),
        tuple(one for one in outcomes if isinstance(one, NotReturned)),
    )


def _carry_out(plane: Plane, shard: int, command: Undelete) -> Returned | NotReturned:
    reply = plane.answer(shard, plane.submit(shard, command))
    if reply.error or reply.committed is None:
        return NotReturned(command.path, reply.error, reply.message)
    object_id = reply.committed.object_id
    return Returned(command.path, object_id, reply.txn, object_id == command.object_id)
