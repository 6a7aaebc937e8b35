"""Views of a RocksDB database: of the live database, of a checkpoint, and of one moment (pinned). RocksDB's errors
become StoreError.

Two limitations of rocksdict, each shown by a contract test: an iterator does not keep its upper bound alive (once that
is freed, rows are left out silently), and the iterators of a Snapshot read the live database. So a cursor keeps its
bounds, and a pinned view scans with iterators of its own. Gets of a Snapshot do read the snapshot. They use filters,
where an iterator would seek in every file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from weakref import WeakSet

from rocksdict import DbClosedError, Rdict, RdictIter

from schemas import formats
from services.storage.rocks_options import scan_options, total_order
from services.storage.store import GapFound, StoreError

Row = tuple[bytes, bytes]
FIRST_ROWS, MOST_ROWS = 8, 512
SLOW_GAP_SECONDS = 0.001
"""The time for some thousand removed rows: RocksDB steps over a million in 0.2 to 0.6 seconds."""
_NOT_FOUND = "key not found"
"""Error text of rocksdict's Snapshot for a missing key: it has no error class for that, and no ``get``."""

_KNOWN_ERRORS = (
    (("No space left on device", "Disk quota exceeded"), "its disk is full: free some space there and start again"),
    (("Read-only file system",), "its disk is read-only: mount it for writing and start again"),
    (("lock hold by", "While lock file", "No locks available"), "another process has it open: stop that one first"),
    (("Permission denied", "Operation not permitted"), "it may not be used: change its owner or mode and start again"),
    (("Too many open files",), "the process has too many files open: raise its limit (ulimit -n) and start again"),
    (("Corruption",), "it is damaged: restore a copy of it, or start on an empty directory to build it from the log"),
)


def store_error(path: Path, doing: str, error: Exception) -> StoreError:
    """Return an error whose text names the cause and the remedy."""
    text = str(error)
    if isinstance(error, DbClosedError):
        return _closed(path)
    for patterns, remedy in _KNOWN_ERRORS:
        if any(pattern in text for pattern in patterns):
            return StoreError(f"{path} cannot be {doing}, {remedy} ({text})")
    return StoreError(f"{path} cannot be {doing}: see what its disk or RocksDB's LOG file says, start again ({text})")


@contextmanager
def explaining(path: Path, doing: str) -> Iterator[None]:
    """Raise the errors of RocksDB and of the disk as ``store_error`` returns them. Too slow for the read of one row."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise store_error(path, doing, error) from error


def check_format(rows: Iterable[tuple[bytes, bytes]], path: Path) -> None:
    """Check by its ``formatTable`` that this program can read a database, and load the schemas of its rows.

    Raises:
        StoreError: a newer program has written it, or one before release 0.2.0.
    """
    try:
        formats.check_rows(rows, str(path))
    except formats.FormatError as error:
        raise StoreError(str(error)) from error


def _closed(path: Path) -> StoreError:
    return StoreError(f"{path} cannot be read, this view of it was closed: open another one")


class Cursor:
    """An iterator over a range. Its view can close it, since an open iterator keeps the database open."""

    __slots__ = ("__weakref__", "_bounds", "_iterator", "_path")

    def __init__(self, path: Path, family: Rdict, start: bytes, end: bytes) -> None:
        self._path = path
        options = scan_options(end)
        self._bounds = (options, end)  # RocksDB reads the upper bound from this very object
        try:
            iterator = family.iter(options)
            iterator.seek(start)
        except Exception as error:
            raise store_error(path, "read", error) from error
        self._iterator: RdictIter | None = iterator

    def next_rows(self, limit: int) -> list[Row]:
        """Return the next rows, at most ``limit``; fewer mean the end of the range."""
        iterator = self._iterator
        if iterator is None:
            raise _closed(self._path)
        try:
            return self._read(iterator, limit)
        except Exception as error:
            raise store_error(self._path, "read", error) from error

    def _read(self, iterator: RdictIter, limit: int) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit:
            if not iterator.valid():
                iterator.status()  # raises for a broken block, which also ends an iterator
                break
            rows.append((iterator.key(), iterator.value()))
            iterator.next()
        return rows

    def close(self) -> None:
        """Close the iterator."""
        self._iterator = None


class ReportingCursor(Cursor):
    """A cursor that reports each key range without rows that was slow to step over."""

    __slots__ = ("_after", "_found", "_gaps", "_seconds")

    def __init__(self, path: Path, family: Rdict, start: bytes, end: bytes, found: GapFound) -> None:
        began = perf_counter()
        super().__init__(path, family, start, end)
        self._seconds = perf_counter() - began
        """The time that the iterator's last move took."""
        self._after = start
        """No row is between this key and the one where the iterator is."""
        self._found = found
        self._gaps: list[tuple[bytes, bytes]] = []

    def next_rows(self, limit: int) -> list[Row]:
        """As ``Cursor.next_rows``; report the slow gaps in front of these rows."""
        rows = super().next_rows(limit)
        for gap in self._gaps:
            self._found(*gap)
        self._gaps.clear()
        return rows

    def _read(self, iterator: RdictIter, limit: int) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit:
            is_row = iterator.valid()
            if not is_row:
                iterator.status()
            key = iterator.key() if is_row else self._bounds[1]
            if self._seconds > SLOW_GAP_SECONDS:
                self._gaps.append((self._after, key))
            if not is_row:
                break
            rows.append((key, iterator.value()))
            self._after = key + b"\0"
            began = perf_counter()
            iterator.next()
            self._seconds = perf_counter() - began
        return rows


class RocksView:
    """Committed rows of a database or a checkpoint: gets see the newest rows, a scan those of the time it began."""

    def __init__(self, path: Path, families: Mapping[str, Rdict]) -> None:
        self.path = path
        self._families: dict[str, Rdict] | None = dict(families)
        self._cursors: WeakSet[Cursor] = WeakSet()

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        families = self._families
        if families is None:  # never None, which would mean that the key has no row
            raise _closed(self.path)
        rows = families.get(family)
        if rows is None:
            return None
        try:
            value: bytes | None = rows.get(key)
        except Exception as error:
            raise store_error(self.path, "read", error) from error
        return value

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Yield every row with start <= key < end, in the order of the keys' bytes."""
        rows = self._rows_of(family)
        if rows is None or start >= end:
            return iter(())
        return self._rows_from(Cursor(self.path, rows, start, end))

    def _rows_from(self, cursor: Cursor) -> Iterator[Row]:
        self._cursors.add(cursor)
        return self._all_rows(cursor)

    def _all_rows(self, cursor: Cursor) -> Iterator[Row]:
        """Read few rows at first, since many readers need one; then more at a time."""
        limit = FIRST_ROWS
        try:
            while rows := cursor.next_rows(limit):
                yield from rows
                if len(rows) < limit:
                    return
                limit = min(4 * limit, MOST_ROWS)
        finally:
            cursor.close()

    def _rows_of(self, family: str) -> Rdict | None:
        families = self._families
        if families is None:  # never None, which would mean that the key has no row
            raise _closed(self.path)
        return families.get(family)

    def close(self) -> None:
        """Close the view; unfinished scans fail from now on."""
        self._families = None
        for cursor in list(self._cursors):
            cursor.close()


class PinnedView:
    """Committed rows of one moment, unaffected by later writes. It has an iterator and a RocksDB snapshot of each
    family, all made while nothing is written.

    Its iterators have no upper bound of their own, since each serves many scans: a scan seeks to where it was
    before each chunk, and stops by comparing keys.
    """

    def __init__(self, path: Path, families: Mapping[str, Rdict]) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._options = total_order()
        with explaining(path, "read"):
            self._iterators: dict[str, RdictIter] | None = {
                name: rows.iter(self._options) for name, rows in families.items()
            }
            self._snapshots = {name: rows.snapshot() for name, rows in families.items()}

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        with self._lock:
            if self._iterators is None:
                raise _closed(self.path)
            snapshot = self._snapshots.get(family)
            if snapshot is None:
                return None
            try:
                value: bytes = snapshot[key]
            except Exception as error:
                if str(error) == _NOT_FOUND:
                    return None
                raise store_error(self.path, "read", error) from error
            return value

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Yield every row with start <= key < end, in the order of the keys' bytes."""
        limit = FIRST_ROWS
        while rows := self._read(family, start, end, limit):
            yield from rows
            if len(rows) < limit:
                return
            start = rows[-1][0] + b"\x00"
            limit = min(4 * limit, MOST_ROWS)

    def _read(self, family: str, start: bytes, end: bytes, limit: int) -> list[Row]:
        with self._lock:
            if self._iterators is None:
                raise _closed(self.path)
            iterator = self._iterators.get(family)
            rows: list[Row] = []
            if iterator is None:
                return rows
            try:
                iterator.seek(start)
                while len(rows) < limit:
                    if not iterator.valid():
                        iterator.status()
                        break
                    key = iterator.key()
                    if key >= end:
                        break
                    rows.append((key, iterator.value()))
                    iterator.next()
            except Exception as error:
                raise store_error(self.path, "read", error) from error
            return rows

    def close(self) -> None:
        """Close the view."""
        with self._lock:
            self._iterators = None
            self._snapshots.clear()
