"""Asks metadata, page by page, to close open keys without recent commands and to end old uploads.

Each answer says where the next page begins, so a restart interrupts nothing. A page that is asked for twice does
nothing the second time.
"""

from __future__ import annotations

from schemas.feature_level import level_of
from schemas.records import ExpireWrites, MetadataCommand, WritesExpired
from schemas.topics import METADATA_COMMANDS
from services.domain.errors import InvalidMessageError
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import FEATURE_LEVEL_HEARD, WRITE_EXPIRY_MS
from services.runtime.loop.service import Work
from services.runtime.parts.counts import count, set_count
from services.storage.tables import Tables

TABLES = ("open_key", "open_key", "upload")
"""What the tables of an expiry hold, in the order of ``ExpireWrites.table``."""


class WriteExpiry:
    """The expiry of one shard."""

    def __init__(self, settings: KeyDeletionSettings, metrics: KeyDeletionMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._level = self._due_ms = 0

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables."""
        self._level, self._due_ms = count(FEATURE_LEVEL_HEARD, tables), count(WRITE_EXPIRY_MS, tables)

    def heard(self, feature_level: int, work: Work) -> None:
        """Note the shard's feature level: at a lower one there are neither open keys nor uploads."""
        if feature_level > self._level:
            self._level = feature_level
            set_count(FEATURE_LEVEL_HEARD, feature_level, work)

    def tick(self, now_ms: int, work: Work) -> None:
        """Begin an expiry that is due."""
        if self._level >= level_of(ExpireWrites) and now_ms >= self._due_ms:
            self._due_ms = now_ms + self._settings.write_expiry_interval_ms
            set_count(WRITE_EXPIRY_MS, self._due_ms, work)
            self._ask(0, b"", work)

    def page_done(self, answer: WritesExpired, work: Work) -> None:
        """Ask for the next page, of the same table or the next one.

        Raises:
            InvalidMessageError: there is no such table.
        """
        if not 0 <= answer.table < len(TABLES):
            raise InvalidMessageError(f"table {answer.table} has neither open keys nor uploads")
        self._metrics.writes_expired.labels(TABLES[answer.table]).inc(answer.expired)
        if answer.next_key:
            self._ask(answer.table, answer.next_key, work)
        elif answer.table + 1 < len(TABLES):
            self._ask(answer.table + 1, b"", work)

    def _ask(self, table: int, start_key: bytes, work: Work) -> None:
        settings = self._settings
        body = ExpireWrites(
            table, start_key, settings.max_expiry_page_rows, settings.open_key_expiry_ms, settings.upload_expiry_ms
        )
        command = MetadataCommand(work.shard, "", 0, body, sender="key_deletion", wants_reply=False)
        work.send(METADATA_COMMANDS, command)
