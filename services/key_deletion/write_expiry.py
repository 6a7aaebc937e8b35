"""Asks metadata, page by page, to close open keys without recent commands and to end old uploads.

One page is in progress at a time, and a pass through all tables begins when the one before it has ended: however many
rows there are, no more than one message of an expiry waits between other work. A page is asked for again if no answer
comes within an interval; then the second answer is ignored, as every repeated one is.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.feature_level import level_of
from schemas.records import ExpireWrites, MetadataCommand, WriteExpiryRow, WritesExpired
from schemas.topics import METADATA_COMMANDS
from services.domain.errors import InvalidMessageError
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import FEATURE_LEVEL_HEARD, WRITE_EXPIRY_TABLE
from services.runtime.loop.service import Work
from services.runtime.parts.counts import count, set_count
from services.storage.tables import Tables

TABLES = ("open_key", "open_key", "upload")
"""What the tables of an expiry hold, in the order of ``ExpireWrites.table``."""
_KEY = b"#EXPIRY"
_NO_TABLE = -1
_BEGINNING = WriteExpiryRow(0, _NO_TABLE, b"")


class WriteExpiry:
    """The expiry of one shard."""

    def __init__(self, settings: KeyDeletionSettings, metrics: KeyDeletionMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._level = 0
        self._row = _BEGINNING

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables."""
        self._level = count(FEATURE_LEVEL_HEARD, tables)
        self._row = tables.table(WRITE_EXPIRY_TABLE).get(_KEY) or _BEGINNING

    def heard(self, feature_level: int, work: Work) -> None:
        """Note the shard's feature level: at a lower one there are neither open keys nor uploads."""
        if feature_level > self._level:
            self._level = feature_level
            set_count(FEATURE_LEVEL_HEARD, feature_level, work)

    def tick(self, now_ms: int, work: Work) -> None:
        """Begin a pass that is due, or ask again for a page without an answer."""
        next_ms = now_ms + self._settings.write_expiry_interval_ms
        if self._row.due_ms > next_ms:  # by a clock that was set back since
            self._put(replace(self._row, due_ms=next_ms), work)
        row = self._row
        if self._level >= level_of(ExpireWrites) and now_ms >= row.due_ms:
            self._ask(WriteExpiryRow(next_ms, max(row.table, 0), row.start_key), work)

    def page_done(self, answer: WritesExpired, work: Work) -> None:
        """Ask for the next page, of the same table or the next one, unless the answer is that of an earlier page.

        Raises:
            InvalidMessageError: there is no such table.
        """
        if not 0 <= answer.table < len(TABLES):
            raise InvalidMessageError(f"table {answer.table} has neither open keys nor uploads")
        self._metrics.writes_expired.labels(TABLES[answer.table]).inc(answer.expired)
        row = self._row
        if (answer.table, answer.start_key) != (row.table, row.start_key):
            return
        if answer.next_key:
            self._ask(replace(row, start_key=answer.next_key), work)
        elif answer.table + 1 < len(TABLES):
            self._ask(replace(row, table=answer.table + 1, start_key=b""), work)
        else:
            self._put(replace(row, table=_NO_TABLE, start_key=b""), work)

    def _ask(self, row: WriteExpiryRow, work: Work) -> None:
        self._put(row, work)
        settings = self._settings
        body = ExpireWrites(
            row.table,
            row.start_key,
            settings.max_expiry_page_rows,
            settings.open_key_expiry_ms,
            settings.upload_expiry_ms,
        )
        command = MetadataCommand(work.shard, "", 0, body, sender="key_deletion", wants_reply=False)
        work.send(METADATA_COMMANDS, command)

    def _put(self, row: WriteExpiryRow, work: Work) -> None:
        self._row = row
        work.table(WRITE_EXPIRY_TABLE).put(_KEY, row)
