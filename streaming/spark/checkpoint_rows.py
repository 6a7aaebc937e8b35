"""Rows of a snapshot's checkpoint, read where it lies: a RocksDB directory whose files never change.

Whoever asks for the job holds the checkpoint open meanwhile, so that it is not removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rocksdict import AccessType, Options, Rdict, ReadOptions

from schemas.formats import FAMILY as FORMAT_FAMILY
from schemas.formats import check_rows

INTERPOLATED_BYTES = 8
OWN_FILES = ("LOG", "LOCK", "rocksdict-config")
"""What is written beside the database's own files by whoever opens it."""
Row = tuple[bytes, bytes]


class CheckpointRows:
    """Some families of one checkpoint, opened for reading."""

    def __init__(self, directory: str, families: Sequence[str]) -> None:
        # rocksdict writes a file of its own when it opens a directory, and several tasks open this one at a time.
        self._mirror = tempfile.TemporaryDirectory(prefix="deepclean-diff-")
        for file in Path(directory).iterdir():
            if not file.name.startswith(OWN_FILES):
                Path(self._mirror.name, file.name).symlink_to(file.absolute())
        options = Options(raw_mode=True)
        there = set(Rdict.list_cf(self._mirror.name, options))
        wanted = {name: Options(raw_mode=True) for name in (*families, FORMAT_FAMILY) if name in there}
        self._database = Rdict(self._mirror.name, options, wanted, AccessType.read_only(False))
        self._families = {name: self._database.get_column_family(name) for name in wanted}
        check_rows(self.scan(FORMAT_FAMILY, b"", b"\xff"), directory)

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Every row with start <= key < end, in the order of the keys' bytes."""
        rows = self._families.get(family)
        if rows is None or start >= end:
            return
        options = ReadOptions()
        options.set_total_order_seek(True)
        options.set_readahead_size(2 << 20)
        options.set_iterate_upper_bound(end)
        iterator = rows.iter(options)
        iterator.seek(start)
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        iterator.status()  # a broken block also ends an iterator: it must not look like the end
        del iterator, options, end  # RocksDB reads the upper bound from this very object until here

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        """Keys that cut a range into about so many parts: where files begin, and points between first and last key."""
        rows = self._families.get(family)
        if rows is None:
            return set()
        iterator = rows.iter(ReadOptions())
        iterator.seek(start)
        if not iterator.valid() or iterator.key() >= end:
            return set()
        first = iterator.key()
        iterator.seek_for_prev(end)
        last = iterator.key()
        files: list[dict[str, Any]] = self._database.live_files()
        begins = {bytes(file["start_key"]) for file in files if file.get("column_family_name", family) == family}
        return {key for key in begins if start < key < end} | set(_between(first, last, parts))

    def close(self) -> None:
        """Let go of the directory."""
        for rows in self._families.values():
            rows.close()
        self._database.close()
        self._mirror.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _between(first: bytes, last: bytes, parts: int) -> Iterator[bytes]:
    """Points at equal distances between two keys, by the bytes in which they begin to differ."""
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    low, high = (
        int.from_bytes(key[common : common + INTERPOLATED_BYTES].ljust(INTERPOLATED_BYTES, b"\0"))
        for key in (first, last)
    )
    for part in range(1, parts):
        yield first[:common] + (low + (high - low) * part // parts).to_bytes(INTERPOLATED_BYTES)


def ranges(boundaries: set[bytes], start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    """The parts of a range, none left out and none twice."""
    cuts = [start, *sorted(key for key in boundaries if start < key < end), end]
    return list(pairwise(cuts))
