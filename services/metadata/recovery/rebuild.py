"""Makes one shard's metadata again from its command log: on an empty database, or on a restored one from there on.

What it sends. Every message names what it is about, so that sending all of them again would do no harm; but nearly
all were acknowledged long ago, and judging a shard's whole past once more costs hours. The loop has a unit of work's
messages acknowledged before it writes the next, so of everything that the lost database had sent only its last unit
can be incomplete, and a unit takes in a bounded number of commands. So messages are left out up to that many txns
before the newest txn that is found at the end of a topic which metadata writes, and are sent from there on.

When it sends. At the end, once the database was compared: what comes of a wrong log is said to nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from schemas.codec import DecodeError, codec
from schemas.topics import BY_NAME, METADATA_COMMANDS, METADATA_PROGRESS, METADATA_REPLIES, SPACE, Topic
from services.domain.errors import PositionError, RetryableError
from services.log.clock import SystemClock
from services.log.port import Log
from services.metadata.after_write import remove_unneeded
from services.metadata.checkpoints.capture_drop import remove_unused_checkpoints
from services.metadata.recovery.bounded_log import BoundedLog
from services.metadata.recovery.start_check import StartCheckedLog
from services.metadata.service import MetadataService
from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.runtime.loop.runner import Runner
from services.runtime.loop.service import Message, Work
from services.runtime.process.settings import MOST_BATCH_MESSAGES
from services.storage.store import Store
from services.storage.tables import TableDefinition, TablesReader

POLL_SECONDS = 1.0
MOST_IDLE_STEPS = 60
SAYS_TXN: tuple[Topic, ...] = (METADATA_PROGRESS, METADATA_REPLIES, SPACE)
"""Topics whose records say at which txn they were sent."""


def _always() -> bool:
    return True


class ReplayedMetadata:
    """The metadata service, without the messages that the lost database is known to have sent."""

    name = MetadataService.name
    inputs = MetadataService.inputs
    tables: Sequence[TableDefinition[Any]] = MetadataService.tables

    def __init__(self, service: MetadataService, sent_txn: int) -> None:
        self._service = service
        self._sent_txn = sent_txn

    def restore(self, tables: TablesReader) -> None:
        """Make what is kept in memory anew."""
        self._service.restore(tables)

    def stands_alone(self, message: Message) -> bool:
        """Whether a message must be alone in its batch."""
        return self._service.stands_alone(message)

    def apply(self, message: Message, work: Work) -> None:
        """Apply one command."""
        self._service.apply(message, work)

    def tick(self, now_ms: int, work: Work) -> None:
        """Nothing is due by time."""
        self._service.tick(now_ms, work)

    def end_batch(self, work: Work) -> None:
        """Finish a unit of work; its messages go out only if they may not have been sent."""
        self._service.end_batch(work)
        state = work.table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
        if state is None or state.txn <= self._sent_txn:
            work.messages.clear()


class Rebuild:
    """One rebuild under way: ``run_to`` some offset, look at the database, go on; then ``check``, ``send``, ``close``.

    Until ``send`` nothing is published. What was not sent goes out when the service starts on the database.
    """

    def __init__(
        self,
        shard: int,
        store: Store,
        log: Log,
        *,
        sent_txn: int = 0,
        max_batch_messages: int = 2_000,
        is_checked: bool = True,
    ) -> None:
        """``sent_txn``: messages up to this txn are left out, see ``surely_sent_txn``. ``is_checked``: see ``check``.

        Raises:
            PositionError: the log does not reach back to where this database is.
        """
        self._shard = shard
        self._start = StartCheckedLog(log, shard, store, looked_at_records=MOST_BATCH_MESSAGES)
        self._log = BoundedLog(self._start if is_checked else log)
        self._pause = threading.Event()
        self._trouble = ""
        self._idle_steps = 0
        remove_unused_checkpoints(store)
        service = MetadataService()
        self._runner = Runner(
            ReplayedMetadata(service, sent_txn),
            shard,
            store,
            self._log,
            SystemClock(),
            max_batch_messages=max_batch_messages,
            after_write=partial(remove_unneeded, service, store),
            must_defer=_always,
        )
        try:
            self._check_beginning()
        except PositionError:
            self._runner.close()
            raise

    def _check_beginning(self) -> None:
        first = self._log.first_offset(METADATA_COMMANDS.name, self._shard)
        if first > self.position:
            raise PositionError(
                f"shard {self._shard}: {METADATA_COMMANDS.name} begins at offset {first} and this database needs it "
                f"from {self.position} on, since older commands were trimmed: put a backup in its place first "
                f"(deepclean restore-backup), the rest comes from the log"
            )

    @property
    def position(self) -> int:
        """Offset of the next command."""
        return self._runner.positions()[METADATA_COMMANDS.name]

    @property
    def end(self) -> int:
        """Where the log ends now."""
        return self._log.end_offset(METADATA_COMMANDS.name, self._shard)

    def step(self, offset: int) -> int:
        """Apply the next commands below an offset; says at which one it is.

        Raises:
            LostCommandsError: the log has lost its newest commands; nothing beyond them is applied.
            PositionError: the log did not give them for a long time.
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
                    f"shard {self._shard}: the commands from offset {before} on do not come "
                    f"({self._trouble or 'the log is silent'}): see that the broker runs, then go on (--go-on)"
                )
        else:
            self._idle_steps = 0
        return self.position

    def run_to(self, offset: int) -> None:
        """Apply every command below an offset."""
        while self.position < offset:
            self.step(offset)

    def check(self) -> None:
        """Compare the database, at the end of the log, with what others know; ``run_to`` does it as soon as it can.

        Raises:
            LostCommandsError: they know more: the log has lost its newest commands.
        """
        self._start.handed_out(())

    def send(self) -> int:
        """Publish what may not have been sent; says how many messages.

        Raises:
            PositionError: the log did not take them for a long time.
        """
        for _ in range(MOST_IDLE_STEPS):
            try:
                return self._runner.send_deferred()
            except RetryableError as error:
                self._trouble = str(error)
                self._pause.wait(POLL_SECONDS)
        raise PositionError(
            f"shard {self._shard}: the log does not take what is to be sent ({self._trouble}): see that the broker "
            f"runs, then go on (--go-on)"
        )

    def close(self) -> None:
        """Let go of the log; the store belongs to the caller."""
        self._runner.close()


def surely_sent_txn(log: Log, shard: int) -> int:
    """Up to which txn every message of the lost database was acknowledged; 0 when nobody can know."""
    newest = max((_txn_of_last(log, topic, shard) for topic in SAYS_TXN), default=0)
    return max(0, newest - MOST_BATCH_MESSAGES)


def _txn_of_last(log: Log, topic: Topic, shard: int) -> int:
    """The txn that the last record of a topic names; 0 when there is none, or it cannot be read."""
    end = log.end_offset(topic.name, shard)
    if end <= log.first_offset(topic.name, shard):
        return 0
    source = log.open_source([topic.name], shard, {topic.name: end - 1})
    try:
        for record in source.poll(1, 10 * POLL_SECONDS):
            decoded = codec(BY_NAME[topic.name].record).decode_message(record.value, record.fingerprint)
            return int(decoded.txn)
    except DecodeError:
        return 0
    finally:
        source.close()
    return 0
