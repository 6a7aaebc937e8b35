"""Tables of records over a store, and the unit of work that changes them together.

An *encoded* row is its Avro body in the newest schema. A stored row begins with a version (``schemas.stored_rows``),
which callers of a table neither see nor pass.

A unit of work reads its own pending changes. It writes them to the store as one batch; the changes of a message that
fails are undone alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import Any, Generic, TypeVar

from schemas.codec import codec
from schemas.stored_rows import row_codec
from services.storage.empty_stretches import EmptyStretches
from services.storage.store import BEYOND, Reader, Store

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableDefinition(Generic[V]):
    """One column family: its persistent name, its record type and its tuning."""

    name: str
    record: type[V]
    is_cached: bool = False
    """Whether decoded rows are kept in memory: for tables whose rows are read repeatedly."""
    most_cached_rows: int = 50_000
    """How many: fewer for tables of large rows."""
    is_absence_cached: bool = True
    """Whether the absence of a row is kept in memory, too: not for tables where most keys looked up are new."""
    remembers_empty_stretches: bool = False
    """Whether scans of units of work skip stretches of removed rows: for tables whose ranges are scanned until
    they are empty."""
    is_packed: bool = False
    """Whether the rows are compressed more, and found with more effort: for tables whose rows stay for long, and are
    read in the order of their keys, if at all."""
    prefix_separators: int = 0
    """Length of the prefix that point reads hash, as the number of `/` that it spans; 0 for none."""

    def __hash__(self) -> int:
        return hash(self.name)


class TableReader(Generic[V]):
    """Committed rows of one table."""

    def __init__(self, definition: TableDefinition[V], reader: Reader) -> None:
        self._name = definition.name
        self._rows = row_codec(definition.record)
        self._reader = reader

    def get(self, key: bytes) -> V | None:
        """Return the row of a key, or None."""
        raw = self._reader.get(self._name, key)
        return None if raw is None else self._rows.decode(raw)

    def get_encoded(self, key: bytes) -> bytes | None:
        """Return the encoded row of a key, or None."""
        raw = self._reader.get(self._name, key)
        return None if raw is None else self._rows.body(raw)

    def scan_encoded(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``, but yield encoded rows."""
        body = self._rows.body
        for key, raw in self._reader.scan(self._name, start, end):
            yield key, body(raw)

    def scan(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, V]]:
        """Yield every row with start <= key < end, in the order of the keys."""
        decode = self._rows.decode
        for key, raw in self._reader.scan(self._name, start, end):
            yield key, decode(raw)


class TablesReader:
    """Committed rows of all tables of a store, a snapshot or a checkpoint."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def table(self, definition: TableDefinition[V]) -> TableReader[V]:
        """Return a reader of one table."""
        return TableReader(definition, self.reader)

    def looking_up_once(self) -> TablesReader:
        """Return a reader that looks up each row once: for requests that read the same few rows repeatedly."""
        return TablesReader(_LookedUpOnce(self.reader))


class _LookedUpOnce:
    """A reader that keeps the result of every look-up: only for few look-ups in a view that does not change."""

    def __init__(self, reader: Reader) -> None:
        self.get, self.scan, self.close = cache(reader.get), reader.scan, reader.close


_ABSENT: Any = object()


_Change = tuple[dict[bytes, Any], bytes, Any]
"""Pending rows, a key, and its value in the unit of work before a message changed it."""


class CachedRows:
    """Decoded committed rows of one table, and keys known to have none: at most one and a half times ``max_rows``.

    The rows are in two halves. A row that is read moves to the younger half. When that is full, the older half is
    dropped as a whole: rows in use stay, and the number dropped at once is bounded. Rows are dropped only when a unit
    of work is written; until then the cache may exceed its limit.
    """

    __slots__ = ("_max_rows", "_old", "_young")

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: bytes, default: Any) -> Any:
        """Return the row of a key, None when it has none, ``default`` when the cache does not know the key."""
        found = self._young.get(key, _ABSENT)
        if found is not _ABSENT:
            return found
        found = self._old.get(key, _ABSENT)
        if found is _ABSENT:
            return default
        self._young[key] = found
        return found

    def keep(self, key: bytes, row: Any) -> None:
        """Record the row of a key, None if it has none."""
        self._young[key] = row

    def written(self, rows: Mapping[bytes, Any]) -> None:
        """Record written rows. Only this method drops others."""
        self._young.update(rows)
        if 2 * len(self._young) >= self._max_rows:
            self._old, self._young = self._young, {}
            for key in list(islice(self._old, max(0, len(self._old) - self._max_rows))):
                del self._old[key]


@dataclass(slots=True)
class RowsRead:
    """Number of rows that the scans of a unit of work have read so far."""

    count: int = 0


@dataclass(slots=True)
class RowCache:
    """Decoded rows of the cached tables, and empty stretches of others. It lives as long as the store is open."""

    _of_tables: dict[str, CachedRows] = field(default_factory=dict)
    _empty: dict[str, EmptyStretches] = field(default_factory=dict)

    def of(self, table: TableDefinition[Any]) -> CachedRows:
        """Return the cached rows of one table."""
        rows = self._of_tables.get(table.name)
        if rows is None:
            rows = self._of_tables[table.name] = CachedRows(table.most_cached_rows)
        return rows

    def empty_stretches_of(self, table: str) -> EmptyStretches:
        """Return the empty stretches of one table."""
        return self._empty.setdefault(table, EmptyStretches())


class _KeysInOrder:
    """The keys of pending rows in order, so that a scan reads only those in its range.

    A large unit of work scans after every few rows that it changes. New keys form a sorted run of their own; runs of
    similar length are merged, so there are few runs, and a key is moved only a few times.
    """

    def __init__(self, pending: dict[bytes, Any]) -> None:
        self._pending = pending
        self._runs: list[list[bytes]] = []
        self._count = 0

    def between(self, start: bytes, end: bytes) -> list[bytes]:
        """Return every key with start <= key < end, in order."""
        self._add_new()
        found: list[bytes] = []
        for run in self._runs:
            first = bisect_left(run, start)
            found += run[first : bisect_left(run, end, first)]
        found.sort()
        return found

    def _add_new(self) -> None:
        """Add the new keys. A dict keeps its keys in insertion order, so the new keys are its last."""
        new = len(self._pending) - self._count
        if not new:
            return
        run = sorted(islice(reversed(self._pending), new))
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run += self._runs.pop()
            run.sort()
        self._runs.append(run)
        self._count = len(self._pending)

    def start_over(self) -> None:
        """Forget all runs, since keys were removed from the pending rows."""
        self._runs.clear()
        self._count = 0


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Rows that are read ahead; the read of some may be in progress."""

    keys: Iterator[bytes]
    """Keys of the parts that were not added yet."""
    parts: Iterator[list[bytes | None]]

    def add_part(self, rows: dict[bytes, bytes | None]) -> bool:
        """Add the next part to ``rows``; return False when there is none left."""
        part = next(self.parts, None)
        if part is None:
            return False
        rows.update(zip(islice(self.keys, len(part)), part, strict=True))
        return True


class Table(Generic[V]):
    """One table within a unit of work."""

    def __init__(
        self,
        definition: TableDefinition[V],
        reader: Store,
        cache: RowCache,
        journal: list[_Change],
        rows_read: RowsRead,
    ) -> None:
        self._name = name = definition.name
        self._is_absence_cached = definition.is_absence_cached
        self._codec = codec(definition.record)
        self._rows = row_codec(definition.record)
        self._mark = self._rows.mark
        self._reader = reader
        self._pending: dict[bytes, Any] = {}
        """A changed row, encoded or not; None for a removed one."""
        self._journal = journal
        self._cache = cache.of(definition) if definition.is_cached else None
        self._empty = cache.empty_stretches_of(name) if definition.remembers_empty_stretches else None
        self._rows_read = rows_read
        self._keys = _KeysInOrder(self._pending)
        self._read_ahead: dict[bytes, bytes | None] = {}
        self._ahead: list[_Ahead] = []

    def get(self, key: bytes) -> V | None:
        """Return the row of a key with the changes of this unit of work, or None."""
        pending: Any = self._pending.get(key, _ABSENT)
        if pending is not _ABSENT:
            changed: V | None = self._codec.decode(pending) if isinstance(pending, bytes) else pending
            return changed
        if self._cache is not None:
            cached: V | None = self._cache.get(key, _ABSENT)
            if cached is not _ABSENT:
                return cached
        raw = self._reader.get(self._name, key)
        value = None if raw is None else self._rows.decode(raw)
        if self._cache is not None and (value is not None or self._is_absence_cached):
            self._cache.keep(key, value)
        return value

    def get_encoded(self, key: bytes) -> bytes | None:
        """Return the encoded row of a key, or None. It is not cached: for rows that are passed on, or read once."""
        value = self._pending.get(key, _ABSENT)
        if value is _ABSENT:
            stored = self._read_ahead.get(key, _ABSENT)
            if stored is _ABSENT:
                stored = self._read(key)
            if stored is None:
                return None
            # As RowCodec.body does, without a call for a row of the newest version.
            return stored[1:] if stored[:1] == self._mark else self._rows.body(stored)
        return value if value is None or isinstance(value, bytes) else self._codec.encode(value)

    def read_ahead(self, keys: list[bytes]) -> None:
        """Read committed rows together, in the order of the ``get_encoded`` calls that follow.

        The rows stay valid: only this unit of work can change them, and ``get_encoded`` prefers its pending changes.
        The read of the last rows may still be in progress when the first are used.
        """
        ahead = _Ahead(iter(keys), self._reader.get_in_parts(self._name, keys))
        ahead.add_part(self._read_ahead)
        self._ahead.append(ahead)

    def _read(self, key: bytes) -> bytes | None:
        """Return the stored row of a key, from the parts still being read ahead or from the store."""
        while self._ahead:
            if not self._ahead[0].add_part(self._read_ahead):
                del self._ahead[0]
            elif key in self._read_ahead:
                return self._read_ahead[key]
        return self._reader.get(self._name, key)

    def decode(self, encoded: bytes) -> V:
        """Return the record of an encoded row."""
        return self._codec.decode(encoded)

    def put(self, key: bytes, value: V) -> None:
        """Set the row of a key."""
        self._journal.append((self._pending, key, self._pending.get(key, _ABSENT)))
        self._pending[key] = value

    def put_encoded(self, key: bytes, value: bytes) -> None:
        """Set the encoded row of a key. Raise TypeError for a cached table."""
        if self._cache is not None:
            raise TypeError(f"{self._name} keeps decoded rows in memory: put the row itself")
        self._journal.append((self._pending, key, self._pending.get(key, _ABSENT)))
        self._pending[key] = value

    def put_at_the_end(self, rows: Mapping[bytes, bytes]) -> None:
        """Set many encoded rows after the last message: they cannot be undone. Not for cached tables."""
        self._pending.update(rows)

    def delete(self, key: bytes) -> None:
        """Remove the row of a key; do nothing when there is none."""
        self._journal.append((self._pending, key, self._pending.get(key, _ABSENT)))
        self._pending[key] = None

    def scan(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, V]]:
        """Yield every row with start <= key < end, with the unit's changes from before the scan began."""
        for key, value in self._scan(start, end):
            yield key, self._codec.decode(value) if isinstance(value, bytes) else value

    def scan_encoded(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``, but yield encoded rows."""
        for key, value in self._scan(start, end):
            yield key, value if isinstance(value, bytes) else self._codec.encode(value)

    def _scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, V | bytes]]:
        waiting = self._keys.between(start, end)
        pending = {key: self._pending[key] for key in waiting}
        waiting.reverse()
        rows_read = self._rows_read
        rows_read.count += len(waiting)
        body = self._rows.body
        scan = self._reader.scan if self._empty is None else partial(self._empty.scan, self._reader)
        for key, raw in scan(self._name, start, end):
            rows_read.count += 1
            while waiting and waiting[-1] < key:
                added = waiting.pop()
                if (value := pending[added]) is not None:
                    yield added, value
            if key not in pending:
                yield key, body(raw)
        while waiting:
            added = waiting.pop()
            if (value := pending[added]) is not None:
                yield added, value

    def set_in(self, changes: Iterable[_Change]) -> list[bytes]:
        """Return the sorted keys of this table that some changes have set and none has removed since."""
        pending = self._pending
        return sorted({key for rows, key, _ in changes if rows is pending and pending[key] is not None})

    def encoded(self) -> dict[bytes, bytes | None]:
        """Return the stored row of each changed key, None for a removed row."""
        mark, encode = self._mark, self._rows.encode
        return {
            key: row if row is None else mark + row if type(row) is bytes else encode(row)
            for key, row in self._pending.items()
        }

    def written(self) -> None:
        """Record that the changes are in the store."""
        if self._cache is not None:
            self._cache.written(self._pending)
        if self._empty is not None:
            self._empty.written(self._pending)

    def changes_undone(self) -> None:
        """Record that the changes of a message were undone."""
        self._keys.start_over()

    def changed_keys(self) -> Collection[bytes]:
        """Return the keys of the rows that this unit of work has set or removed so far."""
        return self._pending.keys()

    def has_any(self, start: bytes, end: bytes) -> bool:
        """Return whether there is a row with start <= key < end."""
        return next(self.scan(start, end), None) is not None


class UnitOfWork:
    """Changes to the tables of one store that are written together."""

    def __init__(self, store: Store, cache: RowCache) -> None:
        self._store = store
        self._cache = cache
        self._tables: dict[str, Table[Any]] = {}
        self._journal: list[_Change] = []
        self._changes = 0
        self._rows_read = RowsRead()

    def table(self, definition: TableDefinition[V]) -> Table[V]:
        """Return one table, with the changes of this unit of work."""
        table = self._tables.get(definition.name)
        if table is None:
            table = Table(definition, self._store, self._cache, self._journal, self._rows_read)
            self._tables[definition.name] = table
        return table

    def begin_message(self) -> None:
        """Begin the next message: ``undo_message`` undoes the changes from here on."""
        self._changes += len(self._journal)
        self._journal.clear()

    def undo_message(self) -> None:
        """Undo the changes of the present message."""
        for rows, key, before in reversed(self._journal):
            if before is _ABSENT:
                del rows[key]
            else:
                rows[key] = before
        self._journal.clear()
        for table in self._tables.values():
            table.changes_undone()

    def set_by_message(self, definition: TableDefinition[Any]) -> list[bytes]:
        """Return the sorted keys of one table whose rows the present message has set and not removed."""
        return self.table(definition).set_in(self._journal)

    def rows(self) -> int:
        """Return the number of changes and scanned rows, which bounds the time that the unit takes.

        A row that is changed twice counts twice.
        """
        return self._changes + len(self._journal) + self._rows_read.count

    def is_changed(self) -> bool:
        """Return whether there is anything to write."""
        return any(table.changed_keys() for table in self._tables.values())

    def encoded(self) -> dict[str, dict[bytes, bytes | None]]:
        """Return all changes as ``write`` writes them: per table the stored row of each key, None for a removed row."""
        return {name: table.encoded() for name, table in self._tables.items() if table.changed_keys()}

    def write(self) -> None:
        """Write all changes as one batch; it is durable when this returns."""
        self._store.write(self.encoded())
        for table in self._tables.values():
            table.written()


Tables = UnitOfWork | TablesReader
"""Tables to read: with the changes of a unit of work, or their committed rows."""
