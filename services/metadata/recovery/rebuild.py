"""Rebuilds one shard's metadata from its command log: on an empty database, or from the position of a restored one.

Which messages it sends. Messages are idempotent, so sending all of them again would do no harm. But nearly all were
acknowledged long ago, and judging a shard's whole history again costs hours. So it leaves out what the log is known to
hold (``services.log.published``): all but the last unit of work of the lost database.

When it sends them. At the end, after the database was compared, so that no result of a wrong log is published.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from schemas.topics import METADATA_COMMANDS
from services.domain.errors import OutdatedError, PositionError, RetryableError
from services.log.clock import SystemClock
from services.log.port import Log, LogAround, LogRecord, Source
from services.log.reads import end_of_records
from services.metadata.checkpoints.capture_drop import remove_unused_checkpoints
from services.metadata.recovery.start_check import SourceAround, StartCheckedLog
from services.metadata.service import MetadataService
from services.runtime.loop.runner import Runner
from services.runtime.process.settings import MOST_BATCH_MESSAGES
from services.storage.store import Store

POLL_SECONDS = 1.0
MOST_IDLE_STEPS = 60


class _BoundedLog(LogAround):
    """The command log up to a movable bound: no record beyond it is applied until the rebuild moves it."""

    end = 0
    """Offset before which reading stops."""

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> Source:
        """Read up to the bound."""
        return _BoundedSource(self, self._log.open_source(topics, partition, next_offsets))


class _BoundedSource(SourceAround):
    def __init__(self, log: _BoundedLog, source: Source) -> None:
        super().__init__(source)
        self._log = log

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Return the next records below the bound; keep those beyond it for later."""
        self._kept = self._kept or self._source.poll(max_records, timeout_seconds)
        read = [record for record in self._kept[:max_records] if record.offset < self._log.end]
        self._kept = self._kept[len(read) :]
        return read


class Rebuild:
    """One rebuild in progress. Call ``run_to``, once or several times, then ``check``, ``send`` and ``close``.

    Nothing is published before ``send``. Without ``send`` the service publishes the messages when it starts with the
    database.
    """

    def __init__(
        self,
        shard: int,
        store: Store,
        log: Log,
        *,
        published_below: int = 0,
        max_batch_messages: int = 2_000,
        is_checked: bool = True,
    ) -> None:
        """``published_below``: what commands below this offset cause is left out. ``is_checked``: see ``check``.

        Raises:
            PositionError: the log begins after the position of this database.
        """
        self._shard = shard
        self._whole_log = log
        self._start = StartCheckedLog(log, shard, store, looked_at_records=MOST_BATCH_MESSAGES)
        self._log = _BoundedLog(self._start if is_checked else log)
        self._pause = threading.Event()
        self._trouble = ""
        self._idle_steps = 0
        remove_unused_checkpoints(store)
        service = MetadataService()
        try:
            self._runner = Runner(
                service,
                shard,
                store,
                self._log,
                SystemClock(),
                max_batch_messages=max_batch_messages,
                after_write=partial(service.remove_unneeded, store),
                must_defer=lambda: True,
                is_fencing=False,
                published_below=published_below,
            )
        except OutdatedError as error:
            raise PositionError(f"{error}; then rebuild the rest from the log") from error

    @property
    def position(self) -> int:
        """Offset of the next command."""
        return self._runner.positions()[METADATA_COMMANDS.name]

    @property
    def end(self) -> int:
        """Present end of the log: the offset behind its last command."""
        return end_of_records(self._whole_log, METADATA_COMMANDS.name, self._shard)

    def step(self, offset: int) -> int:
        """Apply the next commands below an offset. Return the new position.

        Raises:
            LostCommandsError: the log has lost its newest commands; no command beyond them is applied.
            PositionError: the commands could not be read for ``MOST_IDLE_STEPS`` attempts.
        """
        self._log.end = offset
        before = self.position
        try:
            self._runner.step(POLL_SECONDS)
        except RetryableError as error:
            self._trouble = str(error)
            self._pause.wait(POLL_SECONDS)
        if self.position == before:
            self._idle_steps += 1
            if self._idle_steps > MOST_IDLE_STEPS:
                raise PositionError(
                    f"shard {self._shard}: the commands from offset {before} on cannot be read "
                    f"({self._trouble or 'no answer from the log'}): check that the broker runs, then resume (--go-on)"
                )
        else:
            self._idle_steps = 0
        return self.position

    def run_to(self, offset: int) -> None:
        """Apply every command below an offset."""
        while self.position < offset:
            self.step(offset)

    def check(self) -> None:
        """Compare the database, at the end of the log, with the published numbers. ``run_to`` does so when possible.

        Raises:
            LostCommandsError: higher numbers were published: the log has lost its newest commands.
        """
        self._start.handed_out(())

    def send(self) -> int:
        """Publish the messages that may not have been sent. Return their number.

        Raises:
            PositionError: the log did not accept them for ``MOST_IDLE_STEPS`` attempts.
        """
        for _ in range(MOST_IDLE_STEPS):
            try:
                return self._runner.send_deferred()
            except RetryableError as error:
                self._trouble = str(error)
                self._pause.wait(POLL_SECONDS)
        raise PositionError(
            f"shard {self._shard}: the log does not accept messages ({self._trouble}): check that the broker runs, "
            f"then resume (--go-on)"
        )

    def close(self) -> None:
        """Close the log. The caller closes the store."""
        self._runner.close()
