"""A small database beside the source's: directories by id, and the earlier keys of renamed objects.

Ozone keeps a directory under its parent's id and name, and each rename in the store in which it happened. The lens
asks for a directory by its own id, and for all renames of an object. Both are copied once, to a scratch directory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from rocksdict import BlockBasedOptions, Options, Rdict, WriteBatch

from services.lens.ozone.directories import DirectoryEntry
from streaming.rocksdb.checkpoint_rows import ReadOnlyRows

_KEY = struct.Struct(">cqq")
_DIRECTORY = struct.Struct(">qi")
_RENAME = struct.Struct(">iI")
_NOT_DELETED = -1
BATCH_ROWS = 20_000


class IndexWriter:
    """Fills the index. Rows of one object may be added in any order, except that the last directory row counts."""

    def __init__(self, directory: Path) -> None:
        self._rows = Rdict(str(directory), _options())
        self._batch = WriteBatch(raw_mode=True)
        self._renames: dict[bytes, bytes] = {}

    def add_directory(self, bucket_id: int, directory_id: int, entry: DirectoryEntry) -> None:
        """Add a directory, or replace what was added before."""
        deleted_in = _NOT_DELETED if entry.deleted_in is None else entry.deleted_in
        self._batch.put(
            _KEY.pack(b"d", bucket_id, directory_id), _DIRECTORY.pack(entry.parent_id, deleted_in) + entry.name
        )
        self._flush_if(BATCH_ROWS)

    def add_rename(self, bucket_id: int, object_id: int, store: int, old_key: bytes) -> None:
        """Add a row of ``snapshotRenamedTable``; the rows of one object come from the newest store to the oldest."""
        key = _KEY.pack(b"r", bucket_id, object_id)
        before = self._renames.get(key)
        if before is None:
            before = self._rows.get(key) or b""
        self._renames[key] = _RENAME.pack(store, len(old_key)) + old_key + before
        self._flush_if(BATCH_ROWS)

    def _flush_if(self, rows: int) -> None:
        if len(self._batch) + len(self._renames) < rows:
            return
        for key, value in self._renames.items():
            self._batch.put(key, value)
        self._renames.clear()
        self._rows.write(self._batch)
        self._batch = WriteBatch(raw_mode=True)

    def close(self) -> None:
        """Write what is left."""
        self._flush_if(0)
        self._rows.flush()
        self._rows.close()


class Index:
    """Reads the index."""

    def __init__(self, directory: Path, scratch: Path) -> None:
        self._rows = ReadOnlyRows(str(directory), ("default",), _options, str(scratch))

    def directory(self, bucket_id: int, directory_id: int) -> DirectoryEntry | None:
        """Return a directory by its id."""
        (found,) = self._rows.get("default", [_KEY.pack(b"d", bucket_id, directory_id)])
        if found is None:
            return None
        parent_id, deleted_in = _DIRECTORY.unpack_from(found)
        name = found[_DIRECTORY.size :]
        return DirectoryEntry(name, parent_id, None if deleted_in == _NOT_DELETED else deleted_in)

    def renames(self, bucket_id: int, object_id: int) -> tuple[tuple[int, bytes], ...]:
        """Return the stores in which an object was renamed, ascending, with its keys in the stores before them."""
        (found,) = self._rows.get("default", [_KEY.pack(b"r", bucket_id, object_id)])
        return () if found is None else tuple(_renames(found))

    def close(self) -> None:
        """Close the database."""
        self._rows.close()


def _options() -> Options:
    """Return options with a Bloom filter: most objects were never renamed."""
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    found = Options(raw_mode=True)
    found.set_block_based_table_factory(blocks)
    return found


def _renames(value: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(value):
        store, length = _RENAME.unpack_from(value, position)
        position += _RENAME.size
        yield store, value[position : position + length]
        position += length
