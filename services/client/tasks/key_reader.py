"""A key's bytes as a file: reads go to the datanodes that have the blocks, at any offset."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

from schemas.records import BlockRun
from services.client.plane import BlockStore
from services.client.tasks.key_bytes import read_range


class KeyReader(io.RawIOBase):
    """A version of a key, opened for reading. Not safe to use from several threads."""

    def __init__(self, store: BlockStore, runs: Sequence[BlockRun], size_bytes: int) -> None:
        super().__init__()
        self._store = store
        self._runs = runs
        self.size_bytes = size_bytes
        self._offset = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the offset of the next read; one behind the end reads nothing."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self.size_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"the offset {base + offset} is before the beginning of the key")
        self._offset = base + offset
        return self._offset

    def tell(self) -> int:
        """Return the offset of the next read."""
        return self._offset

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes: ``size`` of them, or all that are left, fewer only at the end of the key."""
        left = max(0, self.size_bytes - self._offset)
        wanted = left if size is None or size < 0 else min(size, left)
        found = b"".join(read_range(self._store, self._runs, self._offset, wanted))
        self._offset += len(found)
        return found

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer with the next bytes; return their number, 0 at the end."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)
