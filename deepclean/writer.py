"""Many puts and deletes in one bucket: in order, with a bounded number of keys that are not answered yet.

Puts that follow each other share commands, and so do deletes. When as many keys are unanswered as may be, a put or
delete waits for the answer to the oldest command: so a writer is never further ahead of the plane than that, whatever
its source delivers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import index
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from deepclean.bulk_errors import BulkWriteError, KeyFailure
from deepclean.calls import Calls
from schemas.feature_level import level_of
from schemas.records import DeleteKeys, KeysDeleted, KeysPut, MetadataReply, PutKey, PutKeys
from services.client.errors import NotDeliveredError, PlaneError, UnreachableError
from services.domain.errors import DeepcleanError
from services.domain.table_keys import MAX_KEYS_PER_COMMAND

MAX_IN_FLIGHT = MOST_IN_FLIGHT = 20_000
"""Keys of a writer that are unanswered, at most: by default, and at all. The low layer keeps answers that nobody has
fetched yet up to a limit, and each key may be a command of its own."""
PUTS_PER_COMMAND = 500
"""Keys that a command puts, at most: of more no key is written faster, and each waits longer."""
PUT_BYTES_PER_COMMAND = 256 * 1024
"""Bytes of the keys and tags of a command from which on no further key joins them."""
COMMANDS_IN_FLIGHT = 4
"""Commands over which the keys that may be unanswered are spread, at least, so that the plane need not wait."""
MAX_FAILURES = 1_000
"""Failures after which a writer without ``on_failure`` ends: most likely they have one cause."""
BLOCK_SIZE_BYTES = 256 * 1024 * 1024
"""Size of a full block by default, in bytes."""


class Put(NamedTuple):
    """A key to put."""

    key: str
    size_bytes: int
    tag: str
    block_size_bytes: int


Write = Put | str
"""A put, or the path of a key to delete."""
Command = PutKey | PutKeys | DeleteKeys
_LARGEST = 2**63 - 1


def put_of(key: str, size_bytes: int, tag: str, block_size_bytes: int) -> Put:
    """Return a key to put. Raise ValueError or TypeError if no message can have it: it would fail a whole command."""
    if max(index(size_bytes), index(block_size_bytes)) > _LARGEST or min(size_bytes, block_size_bytes) < -_LARGEST:
        raise ValueError(f"{key}: sizes have at most 63 bits")
    return Put(checked_text(key), size_bytes, checked_text(tag), block_size_bytes)


def checked_text(text: str) -> str:
    """Return a text that UTF-8 has; raise UnicodeEncodeError for another one, TypeError for what is no text."""
    str.encode(text)
    return text


class BulkWriter:
    """Writes keys of one bucket. Use it in a ``with`` block, whose end waits for all answers.

    Commands are applied in the order of the calls. A key that is refused does not stop the others: the end of the block
    raises ``BulkWriteError`` with all failures, or each is passed to ``on_failure``. Refused keys then raise nothing.
    If the plane does not answer, or there is no such volume, that error itself is raised after all keys were passed on.

    A writer ends early at 1,000 failures without ``on_failure``, or when the plane does not answer. Each key that was
    passed to it is then written, or reported as a failure, also if it was not sent. An error of the block itself is
    raised at once: the writer then does not report which earlier keys were written. Not safe to use from several
    threads: give each a writer of its own.
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
        self._sent: deque[tuple[int, Command]] = deque()
        """Number and command of what is not answered, oldest first."""
        self._unanswered = 0
        """Keys of these commands."""
        self._unsent: deque[Command] = deque()
        """Commands that wait for room, first to be sent first."""
        self._puts: list[Put] = []
        """Keys of the command of puts behind them, which further ones may join; there are no deletes then."""
        self._puts_bytes = 0
        self._known_puts_per_command: int | None = None
        self._deletes: list[str] = []
        """Keys of the command of deletes behind them, which further ones may join; there are no puts then."""
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

    @property
    def _puts_per_command(self) -> int:
        """Keys that may share a command: one as long as metadata does not say that it takes such commands."""
        if self._known_puts_per_command is None:
            try:
                level = self._plane.metadata(self._shard).state().feature_level
            except DeepcleanError:
                return 1
            is_known = level >= level_of(PutKeys)
            self._known_puts_per_command = self._keys_per_command(PUTS_PER_COMMAND) if is_known else 1
        return self._known_puts_per_command

    @cached_property
    def _deletes_per_command(self) -> int:
        return self._keys_per_command(MAX_KEYS_PER_COMMAND)

    def _keys_per_command(self, most: int) -> int:
        return max(1, min(most, self._max_in_flight // COMMANDS_IN_FLIGHT))

    def put(self, key: str, *, size_bytes: int, tag: str = "", block_size_bytes: int = BLOCK_SIZE_BYTES) -> None:
        """Commit a key without bytes, new or over an older version; ``Bucket.put`` writes one with bytes.

        Raises:
            BulkWriteError: too many keys have failed, there is no such volume, or the plane does not answer.
        """
        self._write((put_of(key, size_bytes, tag, block_size_bytes),))

    def delete(self, key: str) -> None:
        """Delete a key with all of its versions.

        Raises:
            BulkWriteError: as ``put``.
        """
        self._write((checked_text(key),))

    def flush(self) -> None:
        """Send what is not sent yet, and wait for all answers.

        Raises:
            BulkWriteError: keys have failed, and there is no ``on_failure``.
        """
        self._close_puts()
        self._close_deletes()
        self._send()
        while self._sent:
            self._collect()
        self._raise_failures()

    def _write(self, writes: Iterable[Write]) -> None:
        """Take all of these writes, then send them. So each is told of if the writer ends at one of them."""
        for write in writes:
            if isinstance(write, Put):
                self._add_put(write)
                continue
            self._close_puts()
            self._deletes.append(write)
            if len(self._deletes) == self._deletes_per_command:
                self._close_deletes()
        self._send()

    def _add_put(self, put: Put) -> None:
        self._close_deletes()
        if self._puts and self._puts[0].block_size_bytes != put.block_size_bytes:
            self._close_puts()
        self._puts.append(put)
        self._puts_bytes += len(put.key) + len(put.tag)
        if self._puts_bytes >= PUT_BYTES_PER_COMMAND or len(self._puts) >= self._puts_per_command:
            self._close_puts()

    def _close_puts(self) -> None:
        """Make a command of the puts that were gathered: what follows is sent behind them."""
        puts, self._puts, self._puts_bytes = self._puts, [], 0
        if len(puts) == 1:
            self._unsent.append(PutKey(*self._names, *puts[0]))
        elif puts:
            keys, sizes_bytes, tags, (block_size_bytes, *_) = zip(*puts, strict=True)
            self._unsent.append(PutKeys(*self._names, keys, sizes_bytes, tags if any(tags) else (), block_size_bytes))

    def _close_deletes(self) -> None:
        """Make a command of the deletes that were gathered: what follows is sent behind them."""
        if self._deletes:
            self._unsent.append(DeleteKeys(*self._names, tuple(self._deletes)))
            self._deletes = []

    def _send(self) -> None:
        """Send the commands that wait, each when there is room for it."""
        while self._unsent:
            while self._sent and self._unanswered + len(_keys_of(self._unsent[0])) > self._max_in_flight:
                self._collect()
            command = self._unsent.popleft()
            try:
                number = self._plane.submit(self._shard, command)
            except DeepcleanError as error:
                self._fail(command, error)
                self._end(error)
            self._sent.append((number, command))
            self._unanswered += len(_keys_of(command))

    def _next_sent(self) -> tuple[int, Command]:
        number, command = self._sent.popleft()
        self._unanswered -= len(_keys_of(command))
        return number, command

    def _collect(self) -> None:
        """Wait for the oldest answer, and count it."""
        number, command = self._next_sent()
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
            number, command = self._next_sent()
            try:
                reply = self._plane.answer(self._shard, number)
            except DeepcleanError as failed:
                self._fail(command, failed)
                while self._sent:
                    self._fail(self._next_sent()[1], failed)
            else:
                self._answered(command, reply)
        self._close_puts()
        self._close_deletes()
        while self._unsent:
            not_sent = NotDeliveredError("it was not sent, because the writer ended before", may_be_applied=False)
            self._fail(self._unsent.popleft(), not_sent)
        self._raise_failures()
        raise error

    def _answered(self, command: Command, reply: MetadataReply) -> None:
        if reply.error:
            self._fail(command, PlaneError(reply.error, reply.message))
            return
        self.txn = max(self.txn, reply.txn)
        if isinstance(command, PutKey):
            self.put_count += 1
            return
        put = reply.committed.keys_put if reply.committed else None
        deleted = reply.committed.keys if reply.committed else None
        if isinstance(command, PutKeys) and put is not None:
            self._all_put(command, put)
        elif isinstance(command, DeleteKeys) and deleted is not None:
            self._all_deleted(command, deleted)
        else:
            self._fail(command, UnreachableError("metadata of another version has answered: it named no keys"))

    def _all_put(self, command: PutKeys, done: KeysPut) -> None:
        self.put_count += done.put
        for position, code in zip(done.refused, done.errors, strict=True):
            error = PlaneError(code, "metadata has refused this key; others of its command may have been put")
            self._note(KeyFailure(command.keys[position], False, error))

    def _all_deleted(self, command: DeleteKeys, done: KeysDeleted) -> None:
        self.deleted_count += done.deleted
        for position in done.not_found:
            self._left(command.keys[position], "KEY_NOT_FOUND", "there is no key")
        for position in done.not_empty:
            self._left(command.keys[position], "DIRECTORY_NOT_EMPTY", "entries are left in the directory")

    def _left(self, key: str, code: str, reason: str) -> None:
        self._note(KeyFailure(key, True, PlaneError(code, f"{reason} {key}")))

    def _fail(self, command: Command, error: DeepcleanError) -> None:
        for key in _keys_of(command):
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


def _keys_of(command: Command) -> Sequence[str]:
    return (command.key,) if isinstance(command, PutKey) else command.keys
