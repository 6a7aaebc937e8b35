"""The files of blocks on one disk: one file a block, which is whole when it has its name.

<disk>/chunks/<container>/<localID>.block            a block
<disk>/chunks/<container>/<localID>.<writer>.tmp     a block that is being written, by one writer
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from schemas.block_checksums import checksums_of_parts
from schemas.block_store import MAX_CHUNK_BYTES

BLOCK = ".block"
UNFINISHED = ".tmp"
COPYING, HEALING = "copy", "heal"
OWN_WRITERS = frozenset((COPYING, HEALING))
"""The datanode's own writers. Those of clients have hexadecimal digits for names."""


class BlockFiles:
    """The files of all blocks of one disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begun: dict[int, dict[int, set[str]]] = {}
        """By container and block who writes it at present. The start removes what is older."""

    def _folder(self, storage: int) -> Path:
        return self._directory / f"{storage:016x}"

    def _block(self, storage: int, local_id: int) -> Path:
        return self._folder(storage) / f"{local_id}{BLOCK}"

    def _unfinished(self, storage: int, local_id: int, writer: str) -> Path:
        return self._folder(storage) / f"{local_id}.{writer}{UNFINISHED}"

    def create(self, storage: int) -> None:
        """Make the folder of a container."""
        self._folder(storage).mkdir(parents=True, exist_ok=True)
        _sync_folder(self._directory)

    def remove(self, storage: int) -> None:
        """Remove all files of a container."""
        if self._folder(storage).exists():
            shutil.rmtree(self._folder(storage))
        self._begun.pop(storage, None)

    def write(self, storage: int, local_id: int, writer: str, offset_bytes: int, data: bytes) -> None:
        """Write a chunk of an unfinished block."""
        self._begun.setdefault(storage, {}).setdefault(local_id, set()).add(writer)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if not offset_bytes else 0)
        handle = os.open(self._unfinished(storage, local_id, writer), flags, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(handle, data[written:], offset_bytes + written)
        finally:
            os.close(handle)

    def checksums(self, storage: int, local_id: int, writer: str | None = None) -> tuple[int, list[int]]:
        """Return the bytes of a block, or of an unfinished one, and the checksums of its pieces."""
        path = self._block(storage, local_id) if writer is None else self._unfinished(storage, local_id, writer)
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            return size_bytes, list(checksums_of_parts(_parts(file.fileno())))

    def finish(self, storage: int, local_id: int, writer: str) -> None:
        """Make an unfinished block the block, durably."""
        path = self._unfinished(storage, local_id, writer)
        handle = os.open(path, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        path.replace(self._block(storage, local_id))
        self._ended(storage, local_id, writer)
        _sync_folder(self._folder(storage))

    def discard(self, storage: int, local_id: int, writer: str) -> None:
        """Remove an unfinished block."""
        self._unfinished(storage, local_id, writer).unlink(missing_ok=True)
        self._ended(storage, local_id, writer)

    def discard_begun(self, storage: int, local_ids: Collection[int] | None = None) -> None:
        """Remove the blocks that clients have begun to write: all, or those with some ids. Copies in progress stay."""
        begun = self._begun.get(storage, {})
        for local_id in list(begun if local_ids is None else begun.keys() & local_ids):
            for writer in begun[local_id] - OWN_WRITERS:
                self.discard(storage, local_id, writer)

    def _ended(self, storage: int, local_id: int, writer: str) -> None:
        begun = self._begun.get(storage, {})
        writers = begun.get(local_id, set())
        writers.discard(writer)
        if not writers:
            begun.pop(local_id, None)
        if not begun:
            self._begun.pop(storage, None)

    def read(self, storage: int, local_id: int, offset_bytes: int, length_bytes: int) -> bytes:
        """Return bytes of a block. Raise FileNotFoundError if it is missing."""
        handle = os.open(self._block(storage, local_id), os.O_RDONLY)
        try:
            return os.pread(handle, length_bytes, offset_bytes)
        finally:
            os.close(handle)

    def delete(self, storage: int, local_id: int) -> None:
        """Remove the file of a block, if there is one."""
        self._block(storage, local_id).unlink(missing_ok=True)

    def found(self) -> Iterator[tuple[int, str, Path]]:
        """Yield container, name and path of every file."""
        for folder in sorted(self._directory.iterdir()):
            for path in sorted(folder.iterdir()):
                yield int(folder.name, 16), path.name, path


def _parts(handle: int) -> Iterator[bytes]:
    offset = 0
    while data := os.pread(handle, MAX_CHUNK_BYTES, offset):
        offset += len(data)
        yield data


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
