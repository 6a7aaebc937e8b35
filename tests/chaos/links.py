"""Ways between the processes of a plane and its brokers that can be broken and mended: a TCP proxy for each of both.

A client of Kafka goes where a broker says that it is found, so a proxy in front of its one address would be left at
once. Each broker therefore has a listener for each process, whose advertised address is that process's proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from services.plane.machine.ports import HOST
from tests.chaos.schedule import CutKind

READ_BYTES = 64 * 1024
LOOK_SECONDS = 0.05


class Link:
    """One proxy: passes bytes between whoever connects to ``port`` and ``broker_port``, unless it is cut.

    While the broker is away, or connections are refused, nobody listens: a client whose connection is accepted and then
    ended at once would connect again without a pause, thousands of times a second.

    All but ``port`` and ``broker_port`` belongs to the loop that it runs in.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self.broker_port = broker_port
        self._cut: CutKind | None = None
        self._mended = asyncio.Event()
        self._mended.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening: socket.socket | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._doorkeeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Listen whenever there is a way."""
        self._doorkeeper = asyncio.create_task(self._keep_door())

    async def close(self) -> None:
        """Listen no more, and end all connections."""
        if self._doorkeeper is not None:
            self._doorkeeper.cancel()
            await asyncio.gather(self._doorkeeper, return_exceptions=True)
        self._shut()

    async def _keep_door(self) -> None:
        while True:
            if self._cut is CutKind.REFUSED or not await self._is_broker_there():
                self._shut()
            elif self._listening is None:
                with contextlib.suppress(OSError):  # somebody else has the port for a moment
                    self._listen()
            await asyncio.sleep(LOOK_SECONDS)

    async def _is_broker_there(self) -> bool:
        if self._writers:
            return True  # a connection would end with it
        try:
            _, writer = await asyncio.open_connection(HOST, self.broker_port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    def _listen(self) -> None:
        """Let in by hand: a server of asyncio that closes drops whom it has just let in without closing the socket."""
        self._listening = socket.create_server((HOST, self.port))
        self._listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listening, self._let_in, self._listening)

    def _let_in(self, listening: socket.socket) -> None:
        try:
            client, _ = listening.accept()
        except OSError:  # it has gone again
            return
        client.setblocking(False)
        passing = asyncio.create_task(self._pass(client))
        self._passing.add(passing)
        passing.add_done_callback(self._passing.discard)
        passing.add_done_callback(lambda _: client.close())  # however it ended, and if it never began

    def _shut(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        self._end_connections()

    async def cut(self, kind: CutKind) -> None:
        """Break the way."""
        self._cut = kind
        self._mended.clear()
        if kind is CutKind.REFUSED:
            self._shut()

    async def mend(self) -> None:
        """Make it whole; after a time without answers nobody knows what has arrived, so connections are new ones."""
        if self._cut is CutKind.DEAF:
            self._end_connections()
        self._cut = None
        self._mended.set()

    def _end_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass(self, client: socket.socket) -> None:
        with contextlib.ExitStack() as leaving:
            reader, writer = await asyncio.open_connection(sock=client)
            leaving.callback(self._end, writer)
            self._writers.add(writer)
            try:
                broker_reader, broker_writer = await asyncio.open_connection(HOST, self.broker_port)
            except OSError:  # the broker is away
                self._shut()
                return
            leaving.callback(self._end, broker_writer)
            self._writers.add(broker_writer)
            await asyncio.gather(
                self._pump(reader, broker_writer, is_answer=False), self._pump(broker_reader, writer, is_answer=True)
            )

    def _end(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        self._writers.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while passed := await reader.read(READ_BYTES):
                if self._cut is CutKind.STALLED or (self._cut is CutKind.DEAF and is_answer):
                    await self._mended.wait()
                writer.write(passed)
                await writer.drain()
        writer.transport.abort()


class Links:
    """All proxies of a plane, in a thread of their own."""

    def __init__(self, links: Sequence[Mapping[str, Link]]) -> None:
        """For each broker, by the name of the process whose way it is."""
        self._brokers = [dict(one) for one in links]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")

    def __enter__(self) -> Links:
        self._thread.start()
        for link in self._all():
            self._run(link.open())
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._all():
            self._run(link.close())
        self._run(_end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def address(self, name: str) -> str:
        """Where a process finds the brokers."""
        return ",".join(f"{HOST}:{links[name].port}" for links in self._brokers)

    @contextlib.contextmanager
    def cut(self, name: str, kind: CutKind) -> Iterator[None]:
        """Break the ways of a process to all brokers meanwhile."""
        for links in self._brokers:
            self._run(links[name].cut(kind))
        try:
            yield
        finally:
            for links in self._brokers:
                self._run(links[name].mend())

    def _all(self) -> Iterator[Link]:
        for links in self._brokers:
            yield from links.values()

    def _run(self, doing: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(doing, self._loop).result()


async def _end_tasks() -> None:
    """Let what still pumps come to its end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
