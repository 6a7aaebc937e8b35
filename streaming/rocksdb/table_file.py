"""Reads the entries of a single table file of RocksDB (SST), those included that delete a key.

RocksDB itself reads files only as parts of a database, and shows no deletions. For the content of many states of one
database this is too little: nearly all of their files are the same, and what a file deletes is seen in some states only
(``streaming.rocksdb.shared_files``).

A file is a sequence of blocks of sorted entries, then blocks that describe them: an index in two levels or in one, and
properties. Each block has a checksum, which is checked. Files are read as RocksDB 6 to 10 write them by default; a file
of any other kind is refused with ``UnknownTableFileError``, so that its reader can let RocksDB read it instead.

Source: https://github.com/facebook/rocksdb/wiki/Rocksdb-BlockBasedTable-Format, and files that RocksDB 10 has written.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import xxhash

from services.domain.errors import DeepcleanError

Entry = tuple[bytes, int, bytes, int]
"""Key; the complement of its number, so that of the entries of one key the newest comes first; value; a mask, the same
for all entries of a file. The lowest byte of the number is the kind, the rest rises with time."""
MOST_PARTS = 64
"""Most parts of a file's index that are kept, some fifty blocks of entries each."""
VALUE, DELETED = 1, frozenset((0, 7))
"""Kinds of entries: a value; a deletion, of all earlier entries or of a single one."""

_FOOTER = struct.Struct("<B40sIQ")
_FOOTER_6 = struct.Struct("<4sIII")
_MAGIC = 0x88E241B785F4CFF7
_EXTENDED = b">\0z\0"
_XXH3 = 4
_LAST_BYTE = 0x6B9083D9
_TRAILER_BYTES, _NUMBER_BYTES = 5, 8
_LOW = 0xFFFFFFFF
_CODECS = {4: "lz4_raw", 7: "zstd"}
_IN_PARTS, _WHOLE_INDEX = b"\2\0\0\0", b"\0\0\0\0"
_WANTED = {
    "rocksdb.comparator": b"leveldb.BytewiseComparator",
    "rocksdb.merge.operands": b"\0",
    "rocksdb.num.range-deletions": b"\0",
    "rocksdb.index.value.is.delta.encoded": b"\1",
}
"""Properties of files that can be read: an index entry is encoded by its difference from the one before, and nothing
but single keys is deleted."""
_GLOBAL_NUMBER = "rocksdb.external_sst_file.global_seqno"


class UnknownTableFileError(DeepcleanError):
    """A table file has a form that this module does not read; RocksDB may well."""


class BrokenTableFileError(DeepcleanError):
    """A table file is damaged."""


class _Block(NamedTuple):
    offset: int
    size: int


Index = list[tuple[bytes, _Block]]
"""Blocks in their order, each with a key that is at least its last one, and at most the first one of the next block."""


class TableFile:
    """One table file. It is opened for each read, since a job may have thousands of them."""

    def __init__(self, path: Path) -> None:
        """Read what describes the entries.

        Raises:
            UnknownTableFileError: the file is to be read by RocksDB.
            BrokenTableFileError: a checksum is wrong.
        """
        self.path = path
        self._base_checksum = 0
        described = self._described()
        properties = {key.decode(): value for key, value in _pairs(self._read(described["rocksdb.properties"]))}
        for name, wanted in _WANTED.items():
            if properties.get(name) != wanted:
                raise UnknownTableFileError(f"{path}: {name} is {properties.get(name)!r}, not {wanted!r}")
        if _GLOBAL_NUMBER in properties:
            raise UnknownTableFileError(f"{path} was ingested: its entries have their number elsewhere")
        self.family = properties["rocksdb.column.family.name"].decode()
        has_user_keys = properties.get("rocksdb.index.key.is.user.key") == b"\1"
        self._cut_bytes = 0 if has_user_keys else _NUMBER_BYTES
        kind = properties.get("rocksdb.block.based.table.index.type")
        if kind not in (_IN_PARTS, _WHOLE_INDEX):
            raise UnknownTableFileError(f"{path} has an index of kind {kind!r}")
        self._top = self._index(described["rocksdb.index"])
        self._is_in_parts = kind == _IN_PARTS
        self._parts: dict[_Block, Index] = {}
        self._kept: tuple[_Block, list[Entry]] | None = None

    def blocks(self, start: bytes, end: bytes) -> Index:
        """Return the blocks that may have entries with start <= key < end, each with a key that none of its exceeds."""
        found = _within(self._top, start, end)
        if not self._is_in_parts:
            return found
        return _within([one for _, part in found for one in self._part(part)], start, end)

    def _part(self, block: _Block) -> Index:
        """Return a part of the index. Who looks up single keys comes back to few of them."""
        if block not in self._parts:
            if len(self._parts) >= MOST_PARTS:
                self._parts.clear()
            self._parts[block] = self._index(block)
        return self._parts[block]

    def entries(self, blocks: Index, start: bytes, end: bytes, mask: int) -> list[Entry]:
        """Return the entries with start <= key < end, in their order; ``blocks`` are those of a range around this one.

        The last block is kept: mostly the next range begins in it. So the mask of a file must always be the same.
        """
        wanted = [block for _, block in _within(blocks, start, end)]
        if not wanted:
            return []
        found: list[Entry] = []
        if self._kept is not None and self._kept[0] == wanted[0]:
            found += self._kept[1]
            del wanted[0]
        for block, content in zip(wanted, self._contents(wanted), strict=True):
            some = _entries(content, mask)
            found += some
            self._kept = block, some
        if found and start <= found[0][0] and found[-1][0] < end:
            return found
        return found[bisect_left(found, (start,)) : bisect_left(found, (end,))]

    def _described(self) -> dict[str, _Block]:
        """Return the blocks that the footer leads to, by name."""
        size_bytes = self.path.stat().st_size
        with self.path.open("rb") as file:
            file.seek(max(0, size_bytes - _FOOTER.size))
            footer = file.read()
        if len(footer) < _FOOTER.size:
            raise BrokenTableFileError(f"{self.path} is too short for a table file")
        checksum, body, version, magic = _FOOTER.unpack(footer)
        if magic != _MAGIC or checksum != _XXH3 or not 4 <= version <= 6:
            raise UnknownTableFileError(
                f"{self.path}: format {version}, checksum of kind {checksum}, magic number {magic:x}"
            )
        if version == 6:
            extended, _, self._base_checksum, length = _FOOTER_6.unpack_from(body)
            if extended != _EXTENDED:
                raise UnknownTableFileError(f"{self.path} has another footer of format 6")
            first = _Block(size_bytes - _FOOTER.size - _TRAILER_BYTES - length, length)
        else:
            first = _handle(body)
        return {key.decode(): _handle(value) for key, value in _pairs(self._read(first))}

    def _index(self, block: _Block) -> Index:
        cut = self._cut_bytes
        return [(key[:-cut] if cut else key, found) for key, found in _handles(self._read(block))]

    def _read(self, block: _Block) -> bytes:
        return next(self._contents([block]))

    def _contents(self, blocks: list[_Block]) -> Iterator[bytes]:
        """Yield the contents of some blocks that follow one another, read at once."""
        if not blocks:
            return
        begin, last = blocks[0].offset, blocks[-1]
        with self.path.open("rb", buffering=0) as file:
            file.seek(begin)
            read = file.read(last.offset + last.size + _TRAILER_BYTES - begin)
        for block in blocks:
            place = block.offset - begin
            yield self._unpacked(block, read[place : place + block.size + _TRAILER_BYTES])

    def _unpacked(self, block: _Block, read: bytes) -> bytes:
        if len(read) != block.size + _TRAILER_BYTES:
            raise BrokenTableFileError(f"{self.path} ends within the block at {block.offset}")
        body, kind = read[: block.size], read[block.size]
        checksum = (xxhash.xxh3_64_intdigest(body) ^ kind * _LAST_BYTE) & _LOW
        if self._base_checksum:
            checksum += self._base_checksum ^ ((block.offset & _LOW) + (block.offset >> 32) & _LOW)
        if checksum & _LOW != int.from_bytes(read[block.size + 1 :], "little"):
            raise BrokenTableFileError(f"{self.path}: the checksum of the block at {block.offset} is wrong")
        if kind == 0:
            return body
        if kind not in _CODECS:
            raise UnknownTableFileError(f"{self.path}: a block is compressed by method {kind}")
        length, at = _number(body, 0)
        return bytes(pa.decompress(memoryview(body)[at:], length, _CODECS[kind], asbytes=True))


def _within(index: Index, start: bytes, end: bytes) -> Index:
    """Return the part of an index whose blocks may have entries with start <= key < end."""
    return index[bisect_left(index, (start,)) : bisect_left(index, (end,)) + 1]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the place behind it."""
    found = shift = 0
    while (byte := data[at]) > 127:
        found |= (byte & 127) << shift
        shift += 7
        at += 1
    return found | byte << shift, at + 1


def _handle(data: bytes) -> _Block:
    offset, at = _number(data, 0)
    return _Block(offset, _number(data, at)[0])


def _end_of_entries(content: bytes) -> int:
    """Return where the entries of a block end: behind them is the list of those that repeat nothing."""
    count = int.from_bytes(content[-4:], "little")
    if count >> 31:
        raise UnknownTableFileError("a block has an index by hashes")
    return len(content) - 4 - 4 * count


def _pairs(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block."""
    at, end, key = 0, _end_of_entries(content), b""
    while at < end:
        shared, more, length = content[at : at + 3]
        if (shared | more | length) < 128:
            at += 3
        else:
            shared, at = _number(content, at)
            more, at = _number(content, at)
            length, at = _number(content, at)
        key = key[:shared] + content[at : at + more]
        at += more
        yield key, content[at : at + length]
        at += length


def _entries(content: bytes, mask: int) -> list[Entry]:
    """Return the entries of a block: as ``_pairs``, in a loop of its own, where an audit spends much of its time."""
    found: list[Entry] = []
    append, number = found.append, int.from_bytes
    at, end, key = 0, _end_of_entries(content), b""
    while at < end:
        shared, more, length = content[at], content[at + 1], content[at + 2]
        if shared < 128 and more < 128 and length < 128:
            at += 3
        else:
            shared, at = _number(content, at)
            more, at = _number(content, at)
            length, at = _number(content, at)
        begin = at + more
        key = key[:shared] + content[at:begin]
        at = begin + length
        append((key[:-_NUMBER_BYTES], ~number(key[-_NUMBER_BYTES:], "little"), content[begin:at], mask))
    return found


def _handles(content: bytes) -> Iterator[tuple[bytes, _Block]]:
    """Yield the keys and blocks of a block of an index. A block that repeats a part of the key before it begins behind
    the block before it, and says by how much its size differs.
    """
    at, end, key, block = 0, _end_of_entries(content), b"", _Block(0, 0)
    while at < end:
        shared, at = _number(content, at)
        more, at = _number(content, at)
        key = key[:shared] + content[at : at + more]
        at += more
        if shared:
            differs, at = _number(content, at)
            size = block.size + ((differs >> 1) ^ -(differs & 1))
            block = _Block(block.offset + block.size + _TRAILER_BYTES, size)
        else:
            offset, at = _number(content, at)
            size, at = _number(content, at)
            block = _Block(offset, size)
        yield key, block
