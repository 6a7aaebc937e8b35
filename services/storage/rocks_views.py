"""Views of a RocksDB database: the live one or a checkpoint, and one that stands still. Errors in our own words.

Two things that rocksdict does not do, each held by a contract test: an iterator does not keep its upper bound alive
(when that is freed, rows are left out silently), and the iterators of its Snapshot do not look at the snapshot.
So a cursor holds on to its bounds, and a view that stands still scans with iterators of its own. Gets of a Snapshot do
look at it, and with filters: an iterator would seek in every file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from weakref import WeakSet

from rocksdict import DbClosedError, Rdict, RdictIter

from schemas import formats
from services.storage.rocks_options import scan_options, total_order
from services.storage.store import BEYOND, GapFound, StoreError

Row = tuple[bytes, bytes]
FIRST_ROWS, MOST_ROWS = 8, 512
SLOW_GAP_SECONDS = 0.001
"""Some thousand removed rows: RocksDB steps over a million in 0.2 to 0.6 seconds."""
_NOT_FOUND = "key not found"
"""What rocksdict's Snapshot says of a key that is not there: it has no error of its own for that, and no get."""

_KNOWN_ERRORS = (
    (("No space left on device", "Disk quota exceeded"), "its disk is full: free some space there and start again"),
    (("Read-only file system",), "its disk is read-only: mount it for writing and start again"),
    (("lock hold by", "While lock file", "No locks available"), "another process has it open: stop that one first"),
    (("Permission denied", "Operation not permitted"), "it may not be used: change its owner or mode and start again"),
    (("Too many open files",), "the process has too many files open: raise its limit (ulimit -n) and start again"),
    (("Corruption",), "it is damaged: restore a copy of it, or start on an empty directory to build it from the log"),
)


def store_error(path: Path, doing: str, error: Exception) -> StoreError:
    """One sentence about what went wrong and what to do."""
    text = str(error)
    if isinstance(error, DbClosedError):
        return _closed(path)
    for patterns, remedy in _KNOWN_ERRORS:
        if any(pattern in text for pattern in patterns):
            return StoreError(f"{path} cannot be {doing}, {remedy} ({text})")
    return StoreError(f"{path} cannot be {doing}: see what its disk or RocksDB's LOG file says, start again ({text})")


def check_format(view: RocksView) -> None:
    """Check that this program can read a database, and learn the schemas of its rows.

    Raises:
        StoreError: a newer program has written it, or one before release 0.2.0.
    """
    try:
        formats.check_rows(view.scan(formats.FAMILY, b"", BEYOND), str(view.path))
    except formats.FormatError as error:
        raise StoreError(str(error)) from error


def _closed(path: Path) -> StoreError:
    return StoreError(f"{path} cannot be read, this view of it was closed: open another one")


class Cursor:
    """An iterator over a range that its view can take away, since an open one keeps the database open."""

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
        """The next rows, at most so many; fewer mean that the range ends here."""
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
                iterator.status()  # a broken block also ends an iterator: it must not look like the end
                break
            rows.append((iterator.key(), iterator.value()))
            iterator.next()
        return rows

    def close(self) -> None:
        """Let go of the database."""
        self._iterator = None


class ReportingCursor(Cursor):
    """A cursor that reports each stretch of keys without rows that took long to get past."""

    __slots__ = ("_after", "_found", "_gaps", "_seconds")

    def __init__(self, path: Path, family: Rdict, start: bytes, end: bytes, found: GapFound) -> None:
        began = perf_counter()
        super().__init__(path, family, start, end)
        self._seconds = perf_counter() - began
        """How long the iterator took to get where it is."""
        self._after = start
        """No row is between this key and the one where the iterator is."""
        self._found = found
        self._gaps: list[tuple[bytes, bytes]] = []

    def next_rows(self, limit: int) -> list[Row]:
        """As of every cursor."""
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
    """Committed rows as a database or a checkpoint has them: gets see the newest, a scan those of its beginning."""

    def __init__(self, path: Path, families: Mapping[str, Rdict]) -> None:
        self.path = path
        self._families: dict[str, Rdict] | None = dict(families)
        self._cursors: WeakSet[Cursor] = WeakSet()

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        families = self._families
        if families is None:  # never "not found": that would be an answer
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
        """Every row with start <= key < end, in the order of the keys' bytes."""
        rows = self._rows_of(family)
        if rows is None or start >= end:
            return iter(())
        return self._rows_from(Cursor(self.path, rows, start, end))

    def _rows_from(self, cursor: Cursor) -> Iterator[Row]:
        self._cursors.add(cursor)
        return self._all_rows(cursor)

    def _all_rows(self, cursor: Cursor) -> Iterator[Row]:
        """Few rows at first, since many readers want one; then more at a time."""
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
        if families is None:  # never "not found": that would be an answer
            raise _closed(self.path)
        return families.get(family)

    def close(self) -> None:
        """Let go of the view; scans that are not at their end fail from now on."""
        self._families = None
        for cursor in list(self._cursors):
            cursor.close()


class PinnedView:
    """Committed rows of one moment, whatever is written meanwhile: an iterator and a snapshot of each family, made at
    once, while nothing is written.

    Its iterators have no upper bound of their own, since each serves many scans: a scan seeks to where it was
    before each chunk, and stops by comparing keys.
    """

    def __init__(self, path: Path, families: Mapping[str, Rdict]) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._options = total_order()
        try:
            self._iterators: dict[str, RdictIter] | None = {
                name: rows.iter(self._options) for name, rows in families.items()
            }
            self._snapshots = {name: rows.snapshot() for name, rows in families.items()}
        except Exception as error:
            raise store_error(path, "read", error) from error

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
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
        """Every row with start <= key < end, in the order of the keys' bytes."""
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
        """Let go of the view."""
        with self._lock:
            self._iterators = None
            self._snapshots.clear()
