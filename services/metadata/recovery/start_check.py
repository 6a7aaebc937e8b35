"""The check of the log at metadata's start: has the log lost commands whose results were published?

After applying the commands that are old enough, the database must have reached every txn and chain version that
metadata has published. If it has not, the log has lost its newest commands, and the next commands would get numbers
that are in use: metadata stops instead. A database that had applied the lost commands notices the loss by its position.
A database that was restored or rebuilt, or that is empty, notices it only here.

Timestamps define which commands are old enough: a command was appended before its results were published. So commands
that were appended later than the newest of these results come after the check, even if they have the offsets of the
lost ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.topics import METADATA_COMMANDS
from services.domain.errors import InvariantError
from services.log.port import Log, LogAround, LogRecord, Source
from services.log.published import CLOCK_SLACK_MS
from services.log.reads import end_of_records, records_between
from services.metadata.reads.queries import shard_state
from services.metadata.recovery.sent_numbers import Highest, highest_of, sent_numbers
from services.runtime.loop.positions import POSITIONS
from services.storage.store import Store
from services.storage.tables import TablesReader

LOOKED_AT_RECORDS = 2_000
"""Records of each topic to read at a start: the messages of one unit of work. Larger units require a setting."""
_FOREVER_MS = 1 << 62


class LostCommandsError(InvariantError):
    """The log has lost its newest commands, and this database was built without them."""

    def __init__(self, shard: int, offset: int, known: Highest, sent: Highest) -> None:
        self.known = known
        self.sent = sent
        super().__init__(
            f"shard {shard}: before offset {offset} of {METADATA_COMMANDS.name} metadata reaches txn {known.txn} and "
            f"chain version {known.chain_version}, but has published txn {sent.txn} and chain version "
            f"{sent.chain_version} before: the broker has lost the newest commands, and their numbers would be used "
            f"twice, or another process of metadata runs this shard: end that one if there is one; else restore the "
            f"log or a later backup, or continue without the lost commands (deepclean accept-lost-tail {shard})"
        )


@dataclass(frozen=True, slots=True)
class _Demand:
    """Numbers that the database must have reached after the commands before an offset and not newer than a time."""

    log_time_ms: int
    known: Highest
    offset: int

    def comes_before(self, record: LogRecord) -> bool:
        return record.offset >= self.offset or record.timestamp_ms > self.log_time_ms


class StartCheckedLog(LogAround):
    """The log of one shard, which returns no newer command before the check."""

    def __init__(self, log: Log, shard: int, store: Store, *, looked_at_records: int = LOOKED_AT_RECORDS) -> None:
        super().__init__(log)
        self._shard = shard
        self._store = store
        self._looked_at_records = looked_at_records
        self._demands: deque[_Demand] | None = None
        self._sent = Highest()

    def must_defer(self) -> bool:
        """Return whether output must be deferred: the database has not yet reached all published numbers."""
        return self._demands is None or bool(self._demands)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Return a source that makes the check before it returns newer commands."""
        source = self._log.open_source(topics, partition, next_offsets)
        return _StartSource(self, source) if self.must_defer() else source

    def handed_out(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the next records that may be applied before the next check. All earlier ones must be applied.

        Raises:
            LostCommandsError: higher numbers were published than this database has reached.
            RetryableError: the topics could not be read.
        """
        demands = self._what_is_demanded()
        while demands:
            first = demands[0]
            beyond = next((at for at, record in enumerate(records) if first.comes_before(record)), len(records))
            if beyond or (self._position() < first.offset and not records):
                return records[:beyond]
            self._look(demands)
        return records

    def _what_is_demanded(self) -> deque[_Demand]:
        if self._demands is None:
            sent = sent_numbers(self._log, self._shard, self._looked_at_records)
            self._sent = sent.highest
            # Asked for behind the numbers: a former owner may have gone on until this one had started.
            end = end_of_records(self._log, METADATA_COMMANDS.name, self._shard)
            demands = [
                _Demand(sent.txn_ms + CLOCK_SLACK_MS, Highest(txn=sent.highest.txn), end),
                _Demand(sent.chain_version_ms + CLOCK_SLACK_MS, replace(sent.highest, txn=0), end),
            ]
            self._demands = deque(sorted(demands, key=lambda demand: demand.log_time_ms))
        return self._demands

    def _look(self, demands: deque[_Demand]) -> None:
        """Check the oldest demand, after all commands before it are applied."""
        first = demands.popleft()
        known = highest_of(shard_state(TablesReader(self._store)))
        if known.and_of(first.known) == known:
            return
        demands.appendleft(first)
        older = self._last_older(first)
        if older is None:
            raise LostCommandsError(self._shard, self._position(), known, self._sent)
        demands[0] = _Demand(_FOREVER_MS, first.known, older + 1)

    def _last_older(self, demand: _Demand) -> int | None:
        """Return the offset of the last old command behind newer ones, if a clock went back; else None."""
        found, offset = None, self._position()
        if offset >= demand.offset:
            return None
        for record in records_between(self._log, METADATA_COMMANDS.name, self._shard, offset, demand.offset):
            if record.timestamp_ms <= demand.log_time_ms < _FOREVER_MS:
                found = record.offset
        return found

    def _position(self) -> int:
        row = TablesReader(self._store).table(POSITIONS).get(METADATA_COMMANDS.name.encode())
        return row.next_offset if row else 0


class SourceAround:
    """A source that wraps another one, and keeps records that may not be applied yet; subclasses poll."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: list[LogRecord] = []

    def end(self, topic: str) -> int | None:
        """As ``Source.end``."""
        return self._source.end(topic)

    def positions(self) -> dict[str, int]:
        """As ``Source.positions``: before the records that are kept."""
        kept = {record.topic: record.offset for record in reversed(self._kept)}
        return self._source.positions() | kept

    def lag(self) -> dict[str, int]:
        """Return the number of unread messages of each topic."""
        return self._source.lag()

    def close(self) -> None:
        """Stop reading."""
        self._source.close()


class _StartSource(SourceAround):
    """Makes the check before it returns records beyond the bound."""

    def __init__(self, log: StartCheckedLog, source: Source) -> None:
        super().__init__(source)
        self._log = log

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Return the next messages. Those returned before must be applied.

        Raises:
            LostCommandsError: the log has lost its newest commands.
        """
        if not self._log.must_defer() and not self._kept:
            return self._source.poll(max_records, timeout_seconds)
        self._log.handed_out(())
        self._kept = self._kept or self._source.poll(max_records, timeout_seconds)
        read = list(self._log.handed_out(self._kept[:max_records]) if self._kept else ())
        self._kept = self._kept[len(read) :]
        return read
