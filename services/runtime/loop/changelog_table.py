"""The row that holds a database's position in its changelog, and the writer that applies units to the database."""

from __future__ import annotations

from schemas import formats
from schemas.records import ChangelogRow, OutboxRow
from schemas.stored_rows import row_codec
from services.runtime.loop.changelog_units import Base, Unit
from services.runtime.loop.outbox import OUTBOX, row_key
from services.storage.store import BEYOND, Store
from services.storage.tables import TableDefinition, TablesReader

CHANGELOG = TableDefinition("changelog", ChangelogRow)
CHANGELOG_KEY = b"changelog"
WRITTEN_AT_ONCE_BYTES = 8 * 1024 * 1024


def base_of(row: ChangelogRow | None) -> Base:
    """Return the place from which a database has to read; the topic's beginning for a database without a row."""
    return Base(row.base_offset, row.base_number, row.base_start) if row else Base()


class ChangelogWriter:
    """Applies units to a database: several in one write, each of them whole."""

    def __init__(self, store: Store, topic_id: str) -> None:
        self._store = store
        self._topic_id = topic_id
        self._batch: dict[str, dict[bytes, bytes | None]] = {}
        self._size_bytes = 0
        self._last: Unit | None = None
        self.count = 0

    @property
    def number(self) -> int:
        """Number of the newest unit; 0 before the first."""
        return self._last.number if self._last else 0

    def add(self, unit: Unit) -> None:
        """Add the next unit; write those before it if they are large enough."""
        if self._size_bytes >= WRITTEN_AT_ONCE_BYTES:
            self.finish(base_of(TablesReader(self._store).table(CHANGELOG).get(CHANGELOG_KEY)))
        for change in unit.rows:
            self._batch.setdefault(change.table, {})[change.key] = None if change.is_removed else change.value
            self._size_bytes += len(change.key) + len(change.value)
            if change.table == formats.FAMILY:
                formats.learn_row(change.key, change.value)
        self._last = unit
        self.count += 1

    def finish(self, base: Base) -> None:
        """Write the units that are not written yet; the next start reads from ``base`` on.

        The messages of the last unit replace the rows of the outbox.
        """
        if self._last is None:
            return
        last = self._last
        outbox: dict[bytes, bytes | None] = {key: None for key, _ in self._store.scan(OUTBOX.name, b"", BEYOND)}
        if last.messages:
            outbox[row_key(1)] = row_codec(OutboxRow).encode(OutboxRow(tuple(last.messages)))
        row = ChangelogRow(last.number, last.digest, self._topic_id, base.offset, base.number, base.start)
        self._store.write({**self._batch, OUTBOX.name: outbox, CHANGELOG.name: {CHANGELOG_KEY: encoded_row(row)}})
        self._batch, self._size_bytes = {}, 0


def encoded_row(row: ChangelogRow) -> bytes:
    """Return the table's only row as it is stored."""
    return row_codec(ChangelogRow).encode(row)
