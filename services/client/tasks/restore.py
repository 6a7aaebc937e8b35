"""Restore a key or a tree from a snapshot: new versions with blocks of their own replace the current versions.

Versions with different lifetimes never share blocks, so a restored key is a new version of the same size and tag, and
where a plane keeps bytes, they are read and written again. Keys that are not in the snapshot are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.records import KeyRow, MakeDirectory, PutKey
from services.client.plane import MetadataReads, NamespaceCommand, Plane, accepted
from services.client.tasks.key_bytes import KeyPlace, keeps_bytes, put_bytes, runs_of_key
from services.client.tasks.key_reader import KeyReader
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
        PlaneError: KEY_NOT_FOUND if the snapshot does not have the path; NO_SUCH_BLOCK if the bytes of a key are on no
            datanode: they are lost, or it was put without bytes; any other code if a command was refused. The effects
            of the commands before it remain.
    """
    commands = list(_commands(plane.metadata(shard), bucket, path, snapshot_id, target or path))
    if keeps_bytes(plane, shard):
        _copy_bytes(plane, shard, snapshot_id, commands)
    else:
        _send(plane, shard, [command for _, command in commands])
    keys = [command for _, command in commands if isinstance(command, PutKey)]
    return Restored(len(keys), len(commands) - len(keys), sum(key.size_bytes for key in keys))


def _send(plane: Plane, shard: int, commands: Sequence[NamespaceCommand]) -> None:
    for start in range(0, len(commands), MAX_OUTSTANDING):
        page = commands[start : start + MAX_OUTSTANDING]
        for number in [plane.submit(shard, command) for command in page]:
            accepted(plane.answer(shard, number))


def _copy_bytes(plane: Plane, shard: int, snapshot_id: str, commands: Iterable[tuple[str, NamespaceCommand]]) -> None:
    """Carry out the commands, and write what each key has in the snapshot. An empty key has nothing."""
    store = plane.block_store(shard)
    for path, command in commands:
        if not isinstance(command, PutKey) or not command.size_bytes:
            _send(plane, shard, (command,))
            continue
        names = (command.volume, command.bucket)
        source = KeyReader(store, *runs_of_key(plane.metadata(shard), *names, path, snapshot_id=snapshot_id))
        place = KeyPlace(shard, *names, command.key)
        put_bytes(plane, place, source, block_size_bytes=command.block_size_bytes, tag=command.tag)


def _commands(
    reads: MetadataReads, bucket: tuple[str, str], path: str, snapshot_id: str, target: str
) -> Iterator[tuple[str, NamespaceCommand]]:
    """Yield the commands, each with the path that its entry has in the snapshot."""
    row = reads.stat(*bucket, path, snapshot_id=snapshot_id)
    if isinstance(row, KeyRow):
        if row.blocks is None:
            yield path, PutKey(*bucket, target, row.size_bytes, row.tag)
        else:
            yield path, PutKey(*bucket, target, row.size_bytes, row.tag, row.blocks.block_size_bytes)
        return
    yield path, MakeDirectory(*bucket, target)
    entries = all_rows(
        lambda after, rows: reads.entries(
            *bucket, snapshot_id=snapshot_id, prefix=f"{path}/", start_after=after, limit=rows
        ),
        lambda entry: entry.path,
    )
    for entry in entries:
        place = f"{target}/{entry.path.removeprefix(f'{path}/')}"
        if entry.is_directory:
            yield entry.path, MakeDirectory(*bucket, place)
        else:
            yield entry.path, PutKey(*bucket, place, entry.size_bytes, entry.tag)
