"""Reads the entries of a single table file of RocksDB (SST), those included that delete a key.

RocksDB itself reads files only as parts of a database, and shows no deletions. For the content of many states of one
database this is too little: nearly all of their files are the same, and what a file deletes is seen in some states only
(``streaming.rocksdb.shared_files``).

A file is a sequence of blocks of sorted entries, then blocks that describe them: an index, mostly in two levels, and
properties. Each block has a checksum, which is checked. A file is read if it has the one form that RocksDB 9 and 10
write by default: format 6, checksums by XXH3, blocks that are plain or compressed by LZ4 or ZSTD. A file of any other
form is refused with ``UnknownTableFileError``, so that its reader can have RocksDB read it instead.

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
"""Key; the complement of its sequence number and kind, so that of the entries of one key the newest comes first; value;
the mask of the file. The lowest byte of what is complemented is the kind."""
VALUE, DELETED = 1, frozenset((0, 7))
"""Kinds of entries: a value; a deletion, of all earlier entries or of a single one."""
MOST_PARTITIONS = 64
"""Most partitions of a file's index that are kept, some fifty blocks of entries each."""

_FOOTER = struct.Struct("<B4sIII24xIQ")
"""Kind of checksum, a mark, the footer's own checksum, the base of the checksums of blocks, the size of the block that
names the others and is directly in front, the format, and a magic number."""
_CHECKSUM_PLACE = 5
_XXH3, _MARK, _FORMAT, _MAGIC = 4, b">\0z\0", 6, 0x88E241B785F4CFF7
_TRAILER_BYTES, _SEQUENCE_BYTES = 5, 8
_LAST_BYTE_FACTOR = 0x6B9083D9
_LOW = 0xFFFFFFFF
_CODECS = {4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
_PARTITIONED, _IN_ONE = b"\2\0\0\0", b"\0\0\0\0"
_PROPERTIES, _INDEX, _DICTIONARY = "rocksdb.properties", "rocksdb.index", "rocksdb.compression_dict"
_WANTED = {
    "rocksdb.comparator": {b"leveldb.BytewiseComparator"},
    "rocksdb.compression": {b"NoCompression", b"LZ4", b"LZ4HC", b"ZSTD"},
    "rocksdb.merge.operands": {b"\0"},
    "rocksdb.num.range-deletions": {b"\0"},
    "rocksdb.index.value.is.delta.encoded": {b"\1"},
    "rocksdb.block.based.table.index.type": {_PARTITIONED, _IN_ONE},
}
"""Properties of files that can be read: an index entry is encoded by its difference from the one before, and nothing
but single keys is deleted."""
_GLOBAL_SEQUENCE = "rocksdb.external_sst_file.global_seqno"


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
    """What describes the entries of a table file. The file itself is opened for each read: a job may have thousands."""

    def __init__(self, path: Path, mask: int = 0) -> None:
        """Read what describes the entries; ``mask`` is put into each of them.

        Raises:
            UnknownTableFileError: RocksDB has to read the file.
            BrokenTableFileError: a checksum is wrong.
        """
        self.path, self.mask = path, mask
        try:
            described = self._described()
            properties = {key.decode(): value for key, value in _pairs(self._read(described[_PROPERTIES]))}
            for name, wanted in _WANTED.items():
                if properties[name] not in wanted:
                    raise UnknownTableFileError(f"{path}: {name} is {properties[name]!r}")
            if _GLOBAL_SEQUENCE in properties or _DICTIONARY in described:
                raise UnknownTableFileError(f"{path} was ingested, or is compressed by a dictionary")
            self.family = properties["rocksdb.column.family.name"].decode()
            has_user_keys = properties["rocksdb.index.key.is.user.key"] == b"\1"
            self._cut_bytes = 0 if has_user_keys else _SEQUENCE_BYTES
            self._is_partitioned = properties["rocksdb.block.based.table.index.type"] == _PARTITIONED
            self._top_index = self._index(described[_INDEX])
        except (KeyError, IndexError, UnicodeDecodeError) as error:  # whole, by its checksums, but not understood
            raise UnknownTableFileError(f"{path}: {type(error).__name__} {error}") from error
        self._partitions: dict[_Block, Index] = {}
        self._last: tuple[_Block, list[Entry]] | None = None

    def check_entries(self) -> None:
        """Read the first block of entries, so that a form of entries that is not known is noticed now.

        Raises:
            UnknownTableFileError: RocksDB has to read the file.
            BrokenTableFileError: a checksum is wrong.
        """
        first = next(iter(self._top_index), None)
        if first is not None and self._is_partitioned:
            first = self._partition(first[1])[0]
        if first is not None:
            kinds = {~number & 255 for _, number, _, _ in _entries(self._read(first[1]), 0)}
            if kinds - {VALUE, *DELETED}:
                raise UnknownTableFileError(f"{self.path} has entries of the kinds {sorted(kinds)}")

    def blocks(self, start: bytes, end: bytes) -> Index:
        """Return the blocks that may have entries with start <= key < end."""
        found = _within(self._top_index, start, end)
        if not self._is_partitioned:
            return found
        return _within([one for _, partition in found for one in self._partition(partition)], start, end)

    def entries(self, blocks: Index, start: bytes, end: bytes) -> list[Entry]:
        """Return the entries with start <= key < end, in their order; ``blocks`` are those of a range around this one.

        The last block is kept: mostly the next range begins in it.
        """
        wanted = [block for _, block in _within(blocks, start, end)]
        if not wanted:
            return []
        found: list[Entry] = []
        if self._last is not None and self._last[0] == wanted[0]:
            found += self._last[1]
            del wanted[0]
        for block, content in zip(wanted, self._contents(wanted), strict=True):
            some = _entries(content, self.mask)
            found += some
            self._last = block, some
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
        checksum, mark, own_checksum, self._base_checksum, length, version, magic = _FOOTER.unpack(footer)
        if (checksum, mark, version, magic) != (_XXH3, _MARK, _FORMAT, _MAGIC):
            raise UnknownTableFileError(
                f"{self.path}: format {version}, checksum of kind {checksum}, magic number {magic:x}"
            )
        blanked = footer[:_CHECKSUM_PLACE] + bytes(4) + footer[_CHECKSUM_PLACE + 4 :]
        if self._checksum(blanked[:-1], blanked[-1], size_bytes - _FOOTER.size) != own_checksum:
            raise BrokenTableFileError(f"{self.path}: the checksum of the footer is wrong")
        names = _Block(size_bytes - _FOOTER.size - _TRAILER_BYTES - length, length)
        return {key.decode(): _handle(value) for key, value in _pairs(self._read(names))}

    def _index(self, block: _Block) -> Index:
        cut = self._cut_bytes
        return [(key[:-cut] if cut else key, found) for key, found in _handles(self._read(block))]

    def _partition(self, block: _Block) -> Index:
        """Return a partition of the index. Who looks up single keys comes back to few of them."""
        if block not in self._partitions:
            if len(self._partitions) >= MOST_PARTITIONS:
                self._partitions.clear()
            self._partitions[block] = self._index(block)
        return self._partitions[block]

    def _read(self, block: _Block) -> bytes:
        return next(self._contents([block]))

    def _contents(self, blocks: list[_Block]) -> Iterator[bytes]:
        """Yield the contents of some blocks that follow one another, read at once."""
        if not blocks:
            return
        begin, last = blocks[0].offset, blocks[-1]
        with self.path.open("rb") as file:
            file.seek(begin)
            read = file.read(last.offset + last.size + _TRAILER_BYTES - begin)
        for block in blocks:
            place = block.offset - begin
            yield self._unpacked(block, read[place : place + block.size + _TRAILER_BYTES])

    def _unpacked(self, block: _Block, read: bytes) -> bytes:
        if len(read) != block.size + _TRAILER_BYTES:
            raise BrokenTableFileError(f"{self.path} ends within the block at {block.offset}")
        body, method = read[: block.size], read[block.size]
        if self._checksum(body, method, block.offset) != int.from_bytes(read[block.size + 1 :], "little"):
            raise BrokenTableFileError(f"{self.path}: the checksum of the block at {block.offset} is wrong")
        if method == 0:
            return body
        if method not in _CODECS:
            raise UnknownTableFileError(f"{self.path}: a block is compressed by method {method}")
        length, at = _varint(body, 0)
        return bytes(pa.decompress(memoryview(body)[at:], length, _CODECS[method], asbytes=True))

    def _checksum(self, body: bytes, last_byte: int, offset: int) -> int:
        """Return the checksum of bytes at a place of the file, the last one given apart."""
        checksum = (xxhash.xxh3_64_intdigest(body) ^ last_byte * _LAST_BYTE_FACTOR) & _LOW
        if self._base_checksum:
            checksum += self._base_checksum ^ ((offset & _LOW) + (offset >> 32) & _LOW)
        return checksum & _LOW


def _within(index: Index, start: bytes, end: bytes) -> Index:
    """Return the part of an index whose blocks may have entries with start <= key < end."""
    return index[bisect_left(index, (start,)) : bisect_left(index, (end,)) + 1]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the place behind it."""
    found = shift = 0
    while (byte := data[at]) > 127:
        found |= (byte & 127) << shift
        shift += 7
        at += 1
    return found | byte << shift, at + 1


def _handle(data: bytes) -> _Block:
    offset, at = _varint(data, 0)
    return _Block(offset, _varint(data, at)[0])


def _end_of_entries(content: bytes) -> int:
    """Return where the entries of a block end: behind them is the list of those that repeat nothing of their key.

    The upper bits of the length of this list mark blocks of other forms.
    """
    count = int.from_bytes(content[-4:], "little")
    end = len(content) - 4 - 4 * count
    if count >> 28 or end < 0:
        raise UnknownTableFileError(f"the footer of a block is {count:x}")
    return end


def _check_end(at: int, end: int) -> None:
    if at != end:
        raise UnknownTableFileError(f"the entries of a block end at {at}, not at {end}")


def _pairs(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block."""
    at, end, key = 0, _end_of_entries(content), b""
    while at < end:
        shared, at = _varint(content, at)
        more, at = _varint(content, at)
        length, at = _varint(content, at)
        key = key[:shared] + content[at : at + more]
        at += more
        yield key, content[at : at + length]
        at += length
    _check_end(at, end)


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
            shared, at = _varint(content, at)
            more, at = _varint(content, at)
            length, at = _varint(content, at)
        begin = at + more
        key = key[:shared] + content[at:begin]
        at = begin + length
        append((key[:-_SEQUENCE_BYTES], ~number(key[-_SEQUENCE_BYTES:], "little"), content[begin:at], mask))
    _check_end(at, end)
    return found


def _handles(content: bytes) -> Iterator[tuple[bytes, _Block]]:
    """Yield the keys and blocks of a block of an index. A block that repeats a part of the key before it begins behind
    the block before it, and says by how much its size differs.
    """
    at, end, key, block = 0, _end_of_entries(content), b"", _Block(0, 0)
    while at < end:
        shared, at = _varint(content, at)
        more, at = _varint(content, at)
        key = key[:shared] + content[at : at + more]
        at += more
        if shared:
            differs, at = _varint(content, at)
            size = block.size + ((differs >> 1) ^ -(differs & 1))
            block = _Block(block.offset + block.size + _TRAILER_BYTES, size)
        else:
            offset, at = _varint(content, at)
            size, at = _varint(content, at)
            block = _Block(offset, size)
        yield key, block
    _check_end(at, end)
