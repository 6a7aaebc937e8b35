"""Reads rows of a RocksDB directory in place whose files never change: a checkpoint, or a copy of a database.

The process that starts a job keeps what the job reads from being removed. Nothing is written beside the files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Self

from rocksdict import AccessType, Options, Rdict, ReadOptions

from schemas.formats import FAMILY as FORMAT_FAMILY
from schemas.formats import check_rows

INTERPOLATED_BYTES = 8
CHUNK_ROWS = 1_024
"""Most rows that a scan returns at once."""
OWN_FILES = ("LOG", "LOCK", "rocksdict-config")
"""Names (or their beginnings) of files that every process writes when it opens the database."""
WHOLE = (b"", b"\xff" * 32)
"""A range with every key: those of all tables are text, or begin with a number of 8 bytes."""
READ_AHEAD_BYTES = 256 * 1024
"""Each sorted run of each open directory has a buffer of this size."""
MAX_OPEN_FILES = 64
"""Files are opened when a scan gets to them: a task reads few of them, and may have many directories open."""
_MEMORY = Path("/dev/shm")  # noqa: S108  a directory with a random name is made in it
_LINKS = _MEMORY if os.access(_MEMORY, os.W_OK) else None
"""Where links to files are made. On a busy disk, removing them again took longer than opening the database."""
Row = tuple[bytes, bytes]
Range = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A table file of a checkpoint. All links to a file are equal, whatever their path."""

    device: int
    inode: int
    size_bytes: int
    path: str = field(compare=False)
    first_key: bytes = field(compare=False)
    last_key: bytes = field(compare=False)


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
        self._directory = Path(directory)
        self._mirror = tempfile.TemporaryDirectory(prefix="deepclean-rows-", dir=scratch or _LINKS)
        for file in self._directory.iterdir():
            if not file.name.startswith(OWN_FILES):
                Path(self._mirror.name, file.name).symlink_to(file.absolute())
        options_of = options_of or quick_options
        try:
            self.all_families = frozenset(Rdict.list_cf(self._mirror.name, options_of()))
            wanted = {name: options_of() for name in families if name in self.all_families}
            self._database = Rdict(self._mirror.name, options_of(), wanted, AccessType.read_only(False))
        except BaseException:
            self._mirror.cleanup()
            raise
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
        return chain.from_iterable(self.chunks(family, start, end))

    def chunks(self, family: str, start: bytes, end: bytes, most: int = CHUNK_ROWS) -> Iterator[list[Row]]:
        """Yield the rows of ``scan`` in lists of at most ``most`` rows."""
        rows = self._families.get(family)
        if rows is None or start >= end:
            return
        options: Any = ReadOptions()
        options.set_total_order_seek(True)
        options.set_readahead_size(READ_AHEAD_BYTES)
        # Each directory has a cache of its own, and a scan comes to a block once. rocksdict's types lack the argument.
        options.fill_cache(False)
        options.set_iterate_upper_bound(end)
        items: Any = rows.items(from_key=start, read_opt=options)
        last = start
        while chunk := list(islice(items, most)):
            last = chunk[-1][0]
            yield chunk
        # A broken block ends the iteration, too, and must not look like the end: an iterator that goes on there raises.
        iterator = rows.iter(options)
        iterator.seek(last)
        if iterator.valid():
            iterator.next()
        iterator.status()
        del iterator, items, options, end  # RocksDB reads the upper bound from the memory of ``end`` until here

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        """Return keys that cut a range into ``parts`` to twice as many parts: first keys of files, and evenly spaced
        points. The files are those of all families: RocksDB does not say whose a file is.
        """
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
        begins = sorted(key for key in {bytes(file["start_key"]) for file in files} if start < key < end)
        return {*begins[:: 1 + len(begins) // parts], *_between(first, last, parts)}

    def table_files(self) -> list[CheckpointFile] | None:
        """Return the table files of the opened column families; None if they do not have all rows.

        Rows that were not written to table files yet are in the write-ahead log. If a file is missing, RocksDB says so
        when it reads the rows.
        """
        if any(log.stat().st_size for log in self._directory.glob("*.log")):
            return None
        found = []
        for listed in self._database.live_files():
            path = self._directory / str(listed["name"]).lstrip("/")
            if not path.is_file():
                return None
            status = path.stat()
            keys = bytes(listed["start_key"]), bytes(listed["end_key"])
            found.append(CheckpointFile(status.st_dev, status.st_ino, status.st_size, str(path), *keys))
        return found

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
    """Some column families of one directory of a plane. With ``is_own`` off, of a directory of any program."""

    def __init__(self, directory: str, families: Sequence[str], is_own: bool = True) -> None:
        super().__init__(directory, (*families, FORMAT_FAMILY))
        if is_own:
            check_rows(self.scan(FORMAT_FAMILY, *WHOLE), directory)


def quick_options() -> Options:
    """Return options by which a database is opened quickly: its files neither opened nor looked at."""
    options = Options(raw_mode=True)
    options.set_max_open_files(MAX_OPEN_FILES)
    options.set_max_file_opening_threads(1)
    options.set_skip_stats_update_on_db_open(True)
    return options


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


def ranges(boundaries: set[bytes], start: bytes, end: bytes) -> list[Range]:
    """Return the parts of a range between the boundaries. They cover the range and do not overlap."""
    cuts = [start, *sorted(key for key in boundaries if start < key < end), end]
    return list(pairwise(cuts))
