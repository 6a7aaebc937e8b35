"""Tables of records over a store, and the unit of work that changes them together.

*Encoded* is a row's Avro body by the newest schema. The version that a stored row begins with
(``schemas.stored_rows``) is neither seen nor given by those who use a table.

A unit of work reads through what it has not written yet. Its changes reach the store as one batch; a message that
fails half way is undone alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from schemas.codec import codec
from schemas.stored_rows import row_codec
from services.storage.empty_stretches import EmptyStretches
from services.storage.store import BEYOND, Reader, Store

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableDefinition(Generic[V]):
    """One column family: its persistent name, the record that it holds, how it is tuned."""

    name: str
    record: type[V]
    is_cached: bool = False
    """Keep decoded rows in memory: for tables of which the same rows are read again and again."""
    is_absence_cached: bool = True
    """Whether a key without a row is kept in memory too: not where most keys that are asked for are new."""
    remembers_empty_stretches: bool = False
    """Whether scans of units of work jump over stretches of removed rows: for tables whose ranges are scanned until
    they are empty."""
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
        """The row of a key, or None."""
        raw = self._reader.get(self._name, key)
        return None if raw is None else self._rows.decode(raw)

    def get_encoded(self, key: bytes) -> bytes | None:
        """The encoded row of a key, or None."""
        raw = self._reader.get(self._name, key)
        return None if raw is None else self._rows.body(raw)

    def scan_encoded(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``, with encoded rows."""
        body = self._rows.body
        for key, raw in self._reader.scan(self._name, start, end):
            yield key, body(raw)

    def scan(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, V]]:
        """Every row with start <= key < end, in the order of the keys."""
        decode = self._rows.decode
        for key, raw in self._reader.scan(self._name, start, end):
            yield key, decode(raw)


class TablesReader:
    """Committed rows of all tables of a store, a snapshot or a checkpoint."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def table(self, definition: TableDefinition[V]) -> TableReader[V]:
        """One table."""
        return TableReader(definition, self.reader)

    def looking_up_once(self) -> TablesReader:
        """The same rows, each looked up once: for a question that comes back to the same few rows of a view."""
        return TablesReader(_LookedUpOnce(self.reader))


class _LookedUpOnce:
    """Keeps every row that was looked up, or that there is none: only for few look-ups in a view that stands still."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rows: dict[tuple[str, bytes], bytes | None] = {}

    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        place = family, key
        if place not in self._rows:
            self._rows[place] = self._reader.get(family, key)
        return self._rows[place]

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every row with start <= key < end, in the order of the keys' bytes."""
        return self._reader.scan(family, start, end)

    def close(self) -> None:
        """Let go of the view."""
        self._reader.close()


_ABSENT: Any = object()


_Change = tuple[dict[bytes, Any], bytes, Any]
"""Pending rows, a key, and what it was in the unit of work before a message changed it."""


class CachedRows:
    """Decoded committed rows of one table, or that a key has none: at most one and a half times ``max_rows``.

    They are in two halves. When the younger one is full, the older one is let go of as a whole, and what was asked for
    since has moved over: so what is used stays, and what is let go of at once is bounded. A unit of work may ask for
    more; what is too much goes when it is written.
    """

    __slots__ = ("_max_rows", "_old", "_young")

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: bytes, default: Any) -> Any:
        """The row of a key, None when it has none; ``default`` when that is not known here."""
        found = self._young.get(key, _ABSENT)
        if found is not _ABSENT:
            return found
        found = self._old.get(key, _ABSENT)
        if found is _ABSENT:
            return default
        self._young[key] = found
        return found

    def keep(self, key: bytes, row: Any) -> None:
        """A key was looked up."""
        self._young[key] = row

    def written(self, rows: Mapping[bytes, Any]) -> None:
        """Rows were written. Only here are others let go of."""
        self._young.update(rows)
        if 2 * len(self._young) >= self._max_rows:
            self._old, self._young = self._young, {}
            for key in list(islice(self._old, max(0, len(self._old) - self._max_rows))):
                del self._old[key]


@dataclass(slots=True)
class RowsRead:
    """How many rows the scans of a unit of work have looked at so far."""

    count: int = 0


@dataclass(slots=True)
class RowCache:
    """Decoded committed rows of the cached tables, and where others are empty. Lives as long as the store is open."""

    max_rows: int = 50_000
    _of_tables: dict[str, CachedRows] = field(default_factory=dict)
    _empty: dict[str, EmptyStretches] = field(default_factory=dict)

    def of(self, table: str) -> CachedRows:
        """The rows of one table."""
        rows = self._of_tables.get(table)
        if rows is None:
            rows = self._of_tables[table] = CachedRows(self.max_rows)
        return rows

    def empty_stretches_of(self, table: str) -> EmptyStretches:
        """Where one table is empty."""
        return self._empty.setdefault(table, EmptyStretches())


class _KeysInOrder:
    """The keys of some pending rows in order, so that a scan looks at those of its range alone.

    A large unit of work scans after every few rows that it changes. New keys make a sorted run of their own; runs are
    merged when they are as long as each other, so there are few, and a key is moved a few times only.
    """

    def __init__(self, pending: dict[bytes, Any]) -> None:
        self._pending = pending
        self._runs: list[list[bytes]] = []
        self._count = 0

    def between(self, start: bytes, end: bytes) -> list[bytes]:
        """Every key with start <= key < end, in order."""
        self._add_new()
        found: list[bytes] = []
        for run in self._runs:
            first = bisect_left(run, start)
            found += run[first : bisect_left(run, end, first)]
        found.sort()
        return found

    def _add_new(self) -> None:
        """A dict keeps its keys in the order in which they came: the new ones are its last."""
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
        """Some keys are gone again."""
        self._runs.clear()
        self._count = 0


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Rows that are read ahead, of which some may be on their way."""

    keys: Iterator[bytes]
    """Of those that were not taken yet."""
    parts: Iterator[list[bytes | None]]

    def add_part(self, rows: dict[bytes, bytes | None]) -> bool:
        """Put the next part to others, when it is there; whether there was one."""
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
        pending: dict[bytes, V | bytes | None],
        journal: list[_Change],
        cache: CachedRows | None,
        empty: EmptyStretches | None,
        rows_read: RowsRead,
    ) -> None:
        self._name = definition.name
        self._is_absence_cached = definition.is_absence_cached
        self._codec = codec(definition.record)
        self._rows = row_codec(definition.record)
        self._reader = reader
        self._pending = pending
        self._journal = journal
        self._cache = cache
        self._empty = empty
        self._rows_read = rows_read
        self._keys = _KeysInOrder(pending)
        self._read_ahead: dict[bytes, bytes | None] = {}
        self._ahead: list[_Ahead] = []

    def get(self, key: bytes) -> V | None:
        """The row of a key as this unit of work has left it, or None."""
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
        """The encoded row of a key, or None: for a row that is passed on as it is, or asked for once. Keeps nothing."""
        value = self._pending.get(key, _ABSENT)
        if value is _ABSENT:
            stored = self._read_ahead.get(key, _ABSENT)
            if stored is _ABSENT:
                stored = self._read(key)
            return None if stored is None else self._rows.body(stored)
        return value if value is None or isinstance(value, bytes) else self._codec.encode(value)

    def read_ahead(self, keys: list[bytes]) -> None:
        """Read committed rows together that ``get_encoded`` is about to ask for, in the order in which it will.

        Nobody else writes them while a unit of work is under way, and what it has changed itself is looked at first.
        The last ones may be on their way yet when the first are asked for.
        """
        ahead = _Ahead(iter(keys), self._reader.get_in_parts(self._name, keys))
        ahead.add_part(self._read_ahead)
        self._ahead.append(ahead)

    def _read(self, key: bytes) -> bytes | None:
        """A row that is not among those that were read ahead and are there by now."""
        while self._ahead:
            if not self._ahead[0].add_part(self._read_ahead):
                del self._ahead[0]
            elif key in self._read_ahead:
                return self._read_ahead[key]
        return self._reader.get(self._name, key)

    def decode(self, encoded: bytes) -> V:
        """The record of an encoded row."""
        return self._codec.decode(encoded)

    def put(self, key: bytes, value: V) -> None:
        """Set the row of a key."""
        self._journal.append((self._pending, key, self._pending.get(key, _ABSENT)))
        self._pending[key] = value

    def put_encoded(self, key: bytes, value: bytes) -> None:
        """Set the row of a key that is encoded already. Not for cached tables."""
        if self._cache is not None:
            raise TypeError(f"{self._name} keeps decoded rows in memory: put the row itself")
        self._journal.append((self._pending, key, self._pending.get(key, _ABSENT)))
        self._pending[key] = value

    def put_at_the_end(self, rows: Mapping[bytes, bytes]) -> None:
        """Set many encoded rows after the last message: none of them can be taken back. Not for cached tables."""
        self._pending.update(rows)

    def delete(self, key: bytes) -> None:
        """Remove the row of a key; nothing happens when there is none."""
        self._journal.append((self._pending, key, self._pending.get(key, _ABSENT)))
        self._pending[key] = None

    def scan(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, V]]:
        """Every row with start <= key < end as this unit of work has left it when the scan began."""
        for key, value in self._scan(start, end):
            yield key, self._codec.decode(value) if isinstance(value, bytes) else value

    def scan_encoded(self, start: bytes = b"", end: bytes = BEYOND) -> Iterator[tuple[bytes, bytes]]:
        """As ``scan``, with encoded rows."""
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

    def changes_undone(self) -> None:
        """What a message has changed was taken back."""
        self._keys.start_over()

    def changed_keys(self) -> Collection[bytes]:
        """Keys of the rows that this unit of work has set or removed so far."""
        return self._pending.keys()

    def has_any(self, start: bytes, end: bytes) -> bool:
        """Whether there is a row with start <= key < end."""
        return next(self.scan(start, end), None) is not None


class UnitOfWork:
    """Changes to the tables of one store that are written together."""

    def __init__(self, store: Store, cache: RowCache) -> None:
        self._store = store
        self._cache = cache
        self._tables: dict[str, Table[Any]] = {}
        self._definitions: dict[str, TableDefinition[Any]] = {}
        self._pending: dict[str, dict[bytes, Any]] = {}
        self._journal: list[_Change] = []
        self._changes = 0
        self._rows_read = RowsRead()

    def table(self, definition: TableDefinition[V]) -> Table[V]:
        """One table, as this unit of work has left it."""
        table = self._tables.get(definition.name)
        if table is None:
            pending = self._pending[definition.name] = {}
            cache = self._cache.of(definition.name) if definition.is_cached else None
            empty = self._cache.empty_stretches_of(definition.name) if definition.remembers_empty_stretches else None
            table = Table(definition, self._store, pending, self._journal, cache, empty, self._rows_read)
            self._tables[definition.name] = table
            self._definitions[definition.name] = definition
        return table

    def begin_message(self) -> None:
        """Whatever follows belongs to the next message."""
        self._changes += len(self._journal)
        self._journal.clear()

    def undo_message(self) -> None:
        """Take back what the present message has changed."""
        for rows, key, before in reversed(self._journal):
            if before is _ABSENT:
                del rows[key]
            else:
                rows[key] = before
        self._journal.clear()
        for table in self._tables.values():
            table.changes_undone()

    def set_by_message(self, definition: TableDefinition[Any]) -> list[bytes]:
        """Keys of one table whose rows the present message has set and not removed, in the order of the keys."""
        pending = self._pending.get(definition.name)
        return sorted({key for rows, key, _ in self._journal if rows is pending and rows[key] is not None})

    def changes(self) -> int:
        """How many changes its messages have made, each time that they have changed a row."""
        return self._changes + len(self._journal)

    def rows(self) -> int:
        """How many rows its messages have changed or scanned, each time: what bounds how long it takes."""
        return self.changes() + self._rows_read.count

    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return any(self._pending.values())

    def encoded(self) -> dict[str, dict[bytes, bytes | None]]:
        """All changes as they would be written: per table what each key becomes."""
        batch: dict[str, dict[bytes, bytes | None]] = {}
        for name, rows in self._pending.items():
            if rows:
                stored = row_codec(self._definitions[name].record)
                batch[name] = {
                    key: row if row is None else stored.stored(row) if type(row) is bytes else stored.encode(row)
                    for key, row in rows.items()
                }
        return batch

    def write(self) -> None:
        """Write all changes as one batch, durable when this returns."""
        self._store.write(self.encoded())
        for name, rows in self._pending.items():
            if self._definitions[name].is_cached:
                self._cache.of(name).written(rows)
            if self._definitions[name].remembers_empty_stretches:
                self._cache.empty_stretches_of(name).written(rows)
