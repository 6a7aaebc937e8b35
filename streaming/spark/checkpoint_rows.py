"""Reads rows of a snapshot checkpoint in place: a RocksDB directory whose files never change.

The process that starts the job keeps the snapshot checkpoint from being removed while the job runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from rocksdict import AccessType, Options, Rdict, ReadOptions

from schemas.formats import FAMILY as FORMAT_FAMILY
from schemas.formats import check_rows

INTERPOLATED_BYTES = 8
OWN_FILES = ("LOG", "LOCK", "rocksdict-config")
"""Names (or their beginnings) of files that every process writes when it opens the database."""
Row = tuple[bytes, bytes]


class ReadOnlyRows:
    """Some column families of a RocksDB directory, opened read-only and through links: nothing is written beside it."""

    def __init__(
        self,
        directory: str,
        families: Sequence[str],
        options_of: Callable[[], Options] | None = None,
        scratch: str | None = None,
    ) -> None:
        # rocksdict writes a file when it opens a directory, and several tasks open this one at the same time.
        self._mirror = tempfile.TemporaryDirectory(prefix="deepclean-rows-", dir=scratch)
        for file in Path(directory).iterdir():
            if not file.name.startswith(OWN_FILES):
                Path(self._mirror.name, file.name).symlink_to(file.absolute())
        options_of = options_of or _options
        self.all_families = frozenset(Rdict.list_cf(self._mirror.name, options_of()))
        wanted = {name: options_of() for name in families if name in self.all_families}
        self._database = Rdict(self._mirror.name, options_of(), wanted, AccessType.read_only(False))
        self._families = {name: self._database.get_column_family(name) for name in wanted}

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the values of some keys, in their order; None for those that are missing."""
        rows = self._families.get(family)
        wanted: Any = keys
        found: Any = [None] * len(keys) if rows is None else rows.get(wanted)
        return list(found)

    def estimated_rows(self, family: str) -> int:
        """Return about how many rows a family has."""
        rows = self._families.get(family)
        return 0 if rows is None else rows.property_int_value("rocksdb.estimate-num-keys") or 0

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Yield every row with start <= key < end, in the order of the keys' bytes."""
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
        iterator.status()  # raises for a broken block, which also ends the iteration: it must not look like the end
        del iterator, options, end  # RocksDB reads the upper bound from the memory of ``end`` until here

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        """Return keys that cut a range into about ``parts`` parts: first keys of files, and evenly spaced points."""
        ends = self._ends(family, start, end)
        if ends is None:
            return set()
        first, last = ends
        files: list[dict[str, Any]] = self._database.live_files()
        begins = {bytes(file["start_key"]) for file in files if file.get("column_family_name", family) == family}
        return {key for key in begins if start < key < end} | set(_between(first, last, parts))

    def _ends(self, family: str, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        rows = self._families.get(family)
        if rows is None:
            return None
        iterator = rows.iter(ReadOptions())
        iterator.seek(start)
        if not iterator.valid() or iterator.key() >= end:
            return None
        first = iterator.key()
        iterator.seek_for_prev(end)
        return first, iterator.key()

    def close(self) -> None:
        """Close the database and remove the links."""
        for rows in self._families.values():
            rows.close()
        self._database.close()
        self._mirror.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CheckpointRows(ReadOnlyRows):
    """Some column families of one snapshot checkpoint of a plane."""

    def __init__(self, directory: str, families: Sequence[str]) -> None:
        super().__init__(directory, (*families, FORMAT_FAMILY))
        check_rows(self.scan(FORMAT_FAMILY, b"", b"\xff"), directory)


def _options() -> Options:
    return Options(raw_mode=True)


def _between(first: bytes, last: bytes, parts: int) -> Iterator[bytes]:
    """Yield points at equal distances between two keys, computed from the bytes after their common prefix."""
    common = 0
    while common < min(len(first), len(last)) and first[common] == last[common]:
        common += 1
    low, high = (
        int.from_bytes(key[common : common + INTERPOLATED_BYTES].ljust(INTERPOLATED_BYTES, b"\0"))
        for key in (first, last)
    )
    digits = [key[common : common + INTERPOLATED_BYTES] for key in (first, last)]
    if all(map(bytes.isdigit, digits)) and len(set(map(len, digits))) == 1:  # numbers are written with ten of the bytes
        low, high = map(int, digits)
        for part in range(1, parts):
            yield first[:common] + b"%0*d" % (len(digits[0]), low + (high - low) * part // parts)
        return
    for part in range(1, parts):
        yield first[:common] + (low + (high - low) * part // parts).to_bytes(INTERPOLATED_BYTES)


def ranges(boundaries: set[bytes], start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    """Return the parts of a range between the boundaries. They cover the range and do not overlap."""
    cuts = [start, *sorted(key for key in boundaries if start < key < end), end]
    return list(pairwise(cuts))
