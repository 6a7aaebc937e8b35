"""Many puts and deletes in one bucket: in order, with a bounded number of commands that are not answered yet.

A put is one command; deletes that follow each other share commands of up to a thousand keys. When as many commands are
unanswered as may be, a put or delete waits for the answer to the oldest: so a writer is never further ahead of the
plane than that, whatever its source delivers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from types import TracebackType
from typing import NoReturn, Self

from deepclean.bulk_errors import BulkWriteError, KeyFailure
from deepclean.calls import Calls
from schemas.records import DeleteKeys, MetadataReply, PutKey
from services.client.errors import NotDeliveredError, PlaneError, UnreachableError
from services.domain.errors import DeepcleanError
from services.domain.table_keys import MAX_KEYS_PER_COMMAND

MAX_IN_FLIGHT = 5_000
"""Commands of a writer that are unanswered by default, at most."""
MOST_IN_FLIGHT = 20_000
"""Bound of ``max_in_flight``: the low layer keeps the answers that nobody has fetched yet, up to a limit."""
MAX_FAILURES = 1_000
"""Failures after which a writer without ``on_failure`` ends: most likely they have one cause."""
BLOCK_SIZE_BYTES = 256 * 1024 * 1024
"""Size of a full block by default, in bytes."""

Write = PutKey | str
"""A put, or the path of a key to delete."""


class BulkWriter:
    """Writes keys of one bucket. Use it in a ``with`` block, whose end waits for all answers.

    Commands are applied in the order of the calls. A key that is refused does not stop the others: the end of the block
    raises ``BulkWriteError`` with all failures, or each is passed to ``on_failure``, and nothing is raised.

    A writer ends early at 1,000 failures without ``on_failure``, or when the plane does not answer. Each key that was
    passed to it is then written, or told as a failure, also if it was not sent. An error of the block itself is raised
    at once: what of the keys before it is written is then not told. Not safe to use from several threads: give each a
    writer of its own.
    """

    def __init__(
        self,
        calls: Calls,
        volume: str,
        bucket: str,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        on_failure: Callable[[KeyFailure], None] | None = None,
    ) -> None:
        if not 1 <= max_in_flight <= MOST_IN_FLIGHT:
            raise ValueError(f"max_in_flight is {max_in_flight}: it is from 1 to {MOST_IN_FLIGHT:,}")
        self._calls = calls
        self._plane = calls.plane
        self._names = (volume, bucket)
        self._max_in_flight = max_in_flight
        self._on_failure = on_failure
        self._failures: list[KeyFailure] = []
        self._sent: deque[tuple[int, PutKey | DeleteKeys]] = deque()
        """Number and command of what is not answered, oldest first."""
        self._unsent: deque[PutKey | DeleteKeys] = deque()
        """Commands that wait for room, first to be sent first."""
        self._deletes: list[str] = []
        """Keys of the command of deletes behind them, which further ones may join."""
        self.put_count = 0
        """Keys that were put, as far as the answers have arrived."""
        self.deleted_count = 0
        """Keys that were deleted, as far as the answers have arrived."""
        self.txn = 0
        """The newest txn among the answers."""

    @cached_property
    def _shard(self) -> int:
        """The shard of the volume, looked up by the first command."""
        return self._calls.volumes.shard_of(self._names[0])

    def put(self, key: str, *, size_bytes: int, tag: str = "", block_size_bytes: int = BLOCK_SIZE_BYTES) -> None:
        """Commit a key without bytes, new or over an older version; ``Bucket.put`` writes one with bytes.

        Raises:
            BulkWriteError: too many keys have failed, there is no such volume, or the plane does not answer.
        """
        self._write((self._put_of(key, size_bytes=size_bytes, tag=tag, block_size_bytes=block_size_bytes),))

    def delete(self, key: str) -> None:
        """Delete a key with all of its versions.

        Raises:
            BulkWriteError: as ``put``.
        """
        self._write((key,))

    def flush(self) -> None:
        """Send what is not sent yet, and wait for all answers.

        Raises:
            BulkWriteError: keys have failed, and there is no ``on_failure``.
        """
        self._close_deletes()
        self._send()
        while self._sent:
            self._collect()
        self._raise_failures()

    def _put_of(self, key: str, *, size_bytes: int, tag: str, block_size_bytes: int) -> PutKey:
        return PutKey(*self._names, key, size_bytes, tag, block_size_bytes)

    def _write(self, writes: Iterable[Write]) -> None:
        """Take all of these writes, then send them. So each is told of if the writer ends at one of them."""
        for write in writes:
            if isinstance(write, PutKey):
                self._close_deletes()
                self._unsent.append(write)
                continue
            self._deletes.append(write)
            if len(self._deletes) == MAX_KEYS_PER_COMMAND:
                self._close_deletes()
        self._send()

    def _close_deletes(self) -> None:
        """Make a command of the deletes that were gathered: what follows is sent behind them."""
        if self._deletes:
            self._unsent.append(DeleteKeys(*self._names, tuple(self._deletes)))
            self._deletes = []

    def _send(self) -> None:
        """Send the commands that wait, each when there is room for it."""
        while self._unsent:
            while len(self._sent) >= self._max_in_flight:
                self._collect()
            command = self._unsent.popleft()
            try:
                number = self._plane.submit(self._shard, command)
            except DeepcleanError as error:
                self._fail(command, error)
                self._end(error)
            self._sent.append((number, command))

    def _collect(self) -> None:
        """Wait for the oldest answer, and count it."""
        number, command = self._sent.popleft()
        try:
            reply = self._plane.answer(self._shard, number)
        except DeepcleanError as error:
            self._fail(command, error)
            self._end(error)
        self._answered(command, reply)
        if len(self._failures) >= MAX_FAILURES:
            self._end(self._failures[-1].error)

    def _end(self, error: DeepcleanError) -> NoReturn:
        """End early, and account for every key: what is sent by its answer, what is not sent as a failure.

        The first answer that is missing is the last one that is waited for, since those of later commands would be
        missing, too.
        """
        while self._sent:
            number, command = self._sent.popleft()
            try:
                reply = self._plane.answer(self._shard, number)
            except DeepcleanError as failed:
                self._fail(command, failed)
                while self._sent:
                    self._fail(self._sent.popleft()[1], failed)
            else:
                self._answered(command, reply)
        self._close_deletes()
        while self._unsent:
            not_sent = NotDeliveredError("it was not sent, because the writer ended before", may_be_applied=False)
            self._fail(self._unsent.popleft(), not_sent)
        self._raise_failures()
        raise error

    def _answered(self, command: PutKey | DeleteKeys, reply: MetadataReply) -> None:
        if reply.error:
            self._fail(command, PlaneError(reply.error, reply.message))
            return
        self.txn = max(self.txn, reply.txn)
        if isinstance(command, PutKey):
            self.put_count += 1
            return
        done = reply.committed.keys if reply.committed else None
        if done is None:
            self._fail(command, UnreachableError("metadata of another version has answered: it named no keys"))
            return
        self.deleted_count += done.deleted
        for position in done.not_found:
            self._refused(command.keys[position], "KEY_NOT_FOUND", "there is no key")
        for position in done.not_empty:
            self._refused(command.keys[position], "DIRECTORY_NOT_EMPTY", "entries are left in the directory")

    def _refused(self, key: str, code: str, reason: str) -> None:
        self._note(KeyFailure(key, True, PlaneError(code, f"{reason} {key}")))

    def _fail(self, command: PutKey | DeleteKeys, error: DeepcleanError) -> None:
        for key in (command.key,) if isinstance(command, PutKey) else command.keys:
            self._note(KeyFailure(key, isinstance(command, DeleteKeys), error))

    def _note(self, failure: KeyFailure) -> None:
        if self._on_failure is None:
            self._failures.append(failure)
        else:
            self._on_failure(failure)

    def _raise_failures(self) -> None:
        if self._failures:
            failures, self._failures = self._failures, []
            raise BulkWriteError(failures, self.put_count + self.deleted_count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send the rest and wait for all answers; after an error of the block, send and wait for nothing more."""
        if kind is None:
            self.flush()
