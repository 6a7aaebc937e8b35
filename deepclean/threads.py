"""What the asynchronous objects run on: a bounded number of threads, each of which makes one call at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from deepclean.connection import Connection
from deepclean.writer import BLOCK_SIZE_BYTES, BulkWriter, Write, checked_text, put_of
from services.domain.errors import DeepcleanError

THREADS = 16
"""Calls of one client that run at a time by default; further ones wait for a thread."""
ROWS_PER_CALL = 1_000
"""Rows that an asynchronous iterator fetches in one call: a page of a listing."""
WRITES_PER_CALL = 500
"""Puts and deletes that an asynchronous writer passes on in one call."""

P = ParamSpec("P")
R = TypeVar("R")


class Threads:
    """Runs calls in threads. One client has one, and all its objects share it."""

    def __init__(self, count: int = THREADS) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="deepclean")

    async def run(self, call: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Return the result of a call, or raise its error. A cancelled call goes on in its thread, to its end."""
        return await asyncio.wrap_future(self.start(call, *arguments, **named))

    def start(self, call: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> Future[R]:
        """Have a call made by a thread, behind those that wait for one."""
        return self._executor.submit(call, *arguments, **named)

    async def iterate(self, call: Callable[P, Iterator[R]], *arguments: P.args, **named: P.kwargs) -> AsyncIterator[R]:
        """Yield the rows of an iterator, which is advanced by a page at a time."""
        rows = await self.run(call, *arguments, **named)
        while page := await self.run(lambda: list(islice(rows, ROWS_PER_CALL))):
            for row in page:
                yield row

    async def close(self) -> None:
        """Wait for the calls that run, and end the threads. Other tasks of the loop go on meanwhile: a cancelled call
        may run for a minute more.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    def leave(self) -> None:
        """Have the threads end behind the calls that were started, without waiting for it."""
        self._executor.shutdown(wait=False)


class AsyncClient:
    """The connection of an asynchronous client, which exists within its ``async with`` block."""

    def __init__(self, connect: Callable[[], Connection], threads: int = THREADS) -> None:
        self._connect = connect
        self._thread_count = threads
        self._opened: tuple[Threads, Connection] | None = None

    @property
    def _threads(self) -> Threads:
        return self._open()[0]

    @property
    def _sync(self) -> Connection:
        return self._open()[1]

    def _open(self) -> tuple[Threads, Connection]:
        if self._opened is None:
            raise RuntimeError("the client is not connected: use it in an 'async with' block")
        return self._opened

    @property
    def connection(self) -> Connection:
        """The synchronous client below, which may be used from other threads."""
        return self._sync

    async def __aenter__(self) -> Self:
        threads = Threads(self._thread_count)
        connecting = threads.start(self._connect)
        try:
            self._opened = threads, await asyncio.wrap_future(connecting)
        except asyncio.CancelledError:  # the thread goes on, and its connection would be left open
            threads.start(_close_late, connecting)
            threads.leave()
            raise
        except BaseException:
            await threads.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        threads, connection = self._open()
        self._opened = None
        try:
            await threads.run(connection.close)
        finally:
            await threads.close()


def _close_late(connecting: Future[Connection]) -> None:
    """Close a connection that nobody waits for any more, if it comes to be."""
    with contextlib.suppress(CancelledError, DeepcleanError):
        connecting.result().close()


class AsyncBulkWriter:
    """Writes keys of one bucket, as ``BulkWriter`` does, in an ``async with`` block. One task may use it.

    Puts and deletes are passed to a thread some hundreds at a time, so a failure may be raised by a later call than
    its own, at the latest by the end of the block.
    """

    def __init__(self, threads: Threads, sync: BulkWriter) -> None:
        self._threads = threads
        self._sync = sync
        self._waiting: list[Write] = []

    @property
    def put_count(self) -> int:
        """Keys that were put, as far as the answers have arrived."""
        return self._sync.put_count

    @property
    def deleted_count(self) -> int:
        """Keys that were deleted, as far as the answers have arrived."""
        return self._sync.deleted_count

    @property
    def txn(self) -> int:
        """The newest txn among the answers."""
        return self._sync.txn

    async def put(self, key: str, *, size_bytes: int, tag: str = "", block_size_bytes: int = BLOCK_SIZE_BYTES) -> None:
        """Commit a key without bytes, as ``BulkWriter.put``."""
        await self._add(put_of(key, size_bytes, tag, block_size_bytes))

    async def delete(self, key: str) -> None:
        """Delete a key with all of its versions."""
        await self._add(checked_text(key))

    async def flush(self) -> None:
        """Send what is not sent yet, and wait for all answers, as ``BulkWriter.flush``."""
        await self._pass_on()
        await self._threads.run(self._sync.flush)

    async def _add(self, write: Write) -> None:
        self._waiting.append(write)
        if len(self._waiting) >= WRITES_PER_CALL:
            await self._pass_on()

    async def _pass_on(self) -> None:
        writes, self._waiting = self._waiting, []
        await self._threads.run(self._sync._write, writes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.flush()
