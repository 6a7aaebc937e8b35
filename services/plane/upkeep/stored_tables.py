"""The tables of this project's databases as a person reads them, from the files of a running or stopped plane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from schemas.codec import DecodeError
from schemas.stored_rows import row_codec
from services.plane.upkeep.readable_rows import field_paths, key_bytes, key_text, readable
from services.plane.upkeep.readable_tables import (
    UNREADABLE,
    KeyRange,
    ReadableRow,
    TableReadError,
    TableSummary,
    nearest,
)
from services.storage.rocks_files import FilesView
from services.storage.store import BEYOND, prefix_end
from services.storage.tables import TableDefinition

COUNTED_ROWS = 10_000
"""Most rows that the summary of a table counts; of a larger table it has an estimate."""


class StoredTables:
    """The tables of one service's database, or of a snapshot checkpoint."""

    def __init__(
        self, view: FilesView, definitions: Sequence[TableDefinition[Any]], key_formats: Mapping[str, str]
    ) -> None:
        self.reader = view
        self._definitions = {table.name: table for table in definitions if table.name in view.families}
        self._key_formats = key_formats

    def names(self) -> Sequence[str]:
        """Return the names of the tables."""
        return list(self._definitions)

    def summary(self, table: str) -> TableSummary:
        """Describe a table."""
        definition = self._definition(table)
        rows = sum(1 for _ in islice(self.reader.scan(table, b"", BEYOND), COUNTED_ROWS))
        is_exact = rows < COUNTED_ROWS
        return TableSummary(
            table,
            definition.record.__name__,
            self._key_formats[table],
            rows if is_exact else max(rows, self.reader.estimated_rows(table)),
            is_exact,
            self.reader.size_bytes(table),
        )

    def fields(self, table: str) -> Sequence[str]:
        """Return the paths of the fields that a row may have."""
        return list(field_paths(self._definition(table).record))

    def count(self, table: str, keys: KeyRange) -> int:
        """Count the rows of a range."""
        return sum(1 for _ in self.reader.scan(self._definition(table).name, *_bounds(keys)))

    def get(self, table: str, key: str) -> ReadableRow:
        """Return a row."""
        raw_key = _key(key)
        stored = self.reader.get(self._definition(table).name, raw_key)
        if stored is None:
            raise TableReadError(
                f"{table} has no key {key}: list its keys (deepclean tables scan {table} --keys-only --prefix …)"
            )
        return self._row(table, raw_key, stored)

    def scan(self, table: str, keys: KeyRange) -> Iterator[ReadableRow]:
        """Yield the rows of a range in the order of their keys."""
        rows = self.reader.scan(self._definition(table).name, *_bounds(keys))
        return (self._row(table, key, stored) for key, stored in rows)

    def _row(self, table: str, key: bytes, stored: bytes) -> ReadableRow:
        return ReadableRow(key_text(key), stored[0] if stored else 0, len(stored), partial(self._value, table, stored))

    def _value(self, table: str, stored: bytes) -> Mapping[str, Any]:
        """Return a row's fields. Rows of other tables are inside of messages of the outbox."""
        definition = self._definitions.get(table)
        if definition is None:
            return {UNREADABLE: f"{table} is no table of this database"}
        try:
            return readable(row_codec(definition.record).decode(stored), self._value)
        except DecodeError as error:
            return {UNREADABLE: str(error)}

    def _definition(self, table: str) -> TableDefinition[Any]:
        found = self._definitions.get(table)
        if found is None:
            raise TableReadError(f"{self.reader.path} has no table {table}: {nearest(table, self._definitions)}")
        return found


def _key(text: str) -> bytes:
    try:
        return key_bytes(text)
    except ValueError as error:
        raise TableReadError(f"{text} is no key: after 0x give two hex digits for each byte") from error


def _bounds(keys: KeyRange) -> tuple[bytes, bytes]:
    prefix, start, end = _key(keys.prefix), _key(keys.start), _key(keys.end) or BEYOND
    cut = prefix.rstrip(b"\xff")
    return max(prefix, start), min(prefix_end(cut), end) if cut else end
