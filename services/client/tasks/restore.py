"""Restore a key or a tree from a snapshot: new versions with blocks of their own replace the current versions.

Versions with different lifetimes never share blocks, so a restored key is a new version of the same size and tag. Keys
that are not in the snapshot are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.records import KeyRow, MakeDirectory, PutKey
from services.client.plane import MetadataReads, NamespaceCommand, Plane, accepted
from services.client.wire.paging import all_rows

MAX_OUTSTANDING = 5_000


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    keys: int
    directories: int
    size_bytes: int


def restore(
    plane: Plane, shard: int, bucket: tuple[str, str], path: str, snapshot_id: str, target: str = ""
) -> Restored:
    """Copy a key, or a directory with all entries below it, out of a snapshot, to ``target`` if given.

    Raises:
        PlaneError: KEY_NOT_FOUND if the snapshot does not have the path; any other code if a command was refused. The
            effects of the commands before it remain.
    """
    commands = list(_commands(plane.metadata(shard), bucket, path, snapshot_id, target or path))
    for start in range(0, len(commands), MAX_OUTSTANDING):
        page = commands[start : start + MAX_OUTSTANDING]
        for number in [plane.submit(shard, command) for command in page]:
            accepted(plane.answer(shard, number))
    keys = [command for command in commands if isinstance(command, PutKey)]
    return Restored(len(keys), len(commands) - len(keys), sum(key.size_bytes for key in keys))


def _commands(
    reads: MetadataReads, bucket: tuple[str, str], path: str, snapshot_id: str, target: str
) -> Iterator[NamespaceCommand]:
    row = reads.stat(*bucket, path, snapshot_id=snapshot_id)
    if isinstance(row, KeyRow):
        if row.blocks is None:
            yield PutKey(*bucket, target, row.size_bytes, row.tag)
        else:
            yield PutKey(*bucket, target, row.size_bytes, row.tag, row.blocks.block_size_bytes)
        return
    yield MakeDirectory(*bucket, target)
    entries = all_rows(
        lambda after, rows: reads.entries(
            *bucket, snapshot_id=snapshot_id, prefix=f"{path}/", start_after=after, limit=rows
        ),
        lambda entry: entry.path,
    )
    for entry in entries:
        place = f"{target}/{entry.path.removeprefix(f'{path}/')}"
        if entry.is_directory:
            yield MakeDirectory(*bucket, place)
        else:
            yield PutKey(*bucket, place, entry.size_bytes, entry.tag)
