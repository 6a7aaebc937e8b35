"""The ways of chaos runs, with a server that says everything again in a broker's place."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from services.plane.machine.ports import HOST, free_ports
from tests.chaos.links import Link, Links
from tests.chaos.schedule import CutKind
from tests.waiting import eventually

SILENT_SECONDS = 0.3
ANSWER_SECONDS = 20.0
CUTS, COMERS = 20, 10
pytestmark = pytest.mark.timeout(60)


class Echo:
    """Sends back what it receives, and remembers it."""

    def __init__(self) -> None:
        self.server = socket.create_server((HOST, 0))
        self.port = int(self.server.getsockname()[1])
        self.received: list[bytes] = []
        self._changed = threading.Condition()

    def stop(self) -> None:
        with suppress(OSError):  # it is stopped
            self.server.shutdown(socket.SHUT_RDWR)
            self.server.close()

    def run(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            while said := _received(client):
                with self._changed:
                    self.received.append(said)
                    self._changed.notify_all()
                client.sendall(said)

    def await_received(self, said: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: said in self.received, ANSWER_SECONDS)


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(100)
    except OSError:
        return b""


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    thread = threading.Thread(target=echo.run)
    thread.start()
    yield echo
    echo.stop()
    thread.join()


@pytest.fixture
def links(echo: Echo) -> Iterator[Links]:
    with Links([{"metadata": Link(free_ports(1)[0], echo.port)}]) as links:
        yield links


def connect(links: Links, closing: ExitStack) -> socket.socket:
    """A connection; there is a moment until somebody listens again."""
    found: list[socket.socket] = []

    def is_connected() -> bool:
        with suppress(ConnectionRefusedError):
            found.append(closing.enter_context(socket.create_connection(address(links), ANSWER_SECONDS)))
        return bool(found)

    eventually(is_connected)
    return found[0]


def address(links: Links) -> tuple[str, int]:
    host, port = links.address("metadata").split(":")
    return host, int(port)


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENT_SECONDS)
    try:
        return client.recv(100) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(ANSWER_SECONDS)


def has_ended(client: socket.socket) -> bool:
    return _received(client) == b""


def test_what_is_refused_comes_back_when_it_is_mended(links: Links) -> None:
    with ExitStack() as closing:
        client = connect(links, closing)
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        with links.cut("metadata", CutKind.REFUSED):
            assert has_ended(client)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address(links), ANSWER_SECONDS)
        client = connect(links, closing)
        client.sendall(b"two")
        assert client.recv(100) == b"two"


def test_what_is_stalled_goes_on(links: Links, echo: Echo) -> None:
    with ExitStack() as closing:
        client = connect(links, closing)
        with links.cut("metadata", CutKind.STALLED):
            client.sendall(b"late")
            assert is_silent(client)
            assert b"late" not in echo.received
        assert client.recv(100) == b"late"


def test_what_is_deaf_is_heard_and_never_answered(links: Links, echo: Echo) -> None:
    with ExitStack() as closing:
        client = connect(links, closing)
        with links.cut("metadata", CutKind.DEAF):
            client.sendall(b"heard")
            echo.await_received(b"heard")
            assert is_silent(client)
        assert has_ended(client)


def test_while_the_broker_is_away_nobody_is_let_in(links: Links, echo: Echo) -> None:
    """A client that is let in and shown out at once comes again without a pause."""
    with ExitStack() as closing:
        client = connect(links, closing)
        client.sendall(b"here")
        assert client.recv(100) == b"here"
        echo.stop()
        client.shutdown(socket.SHUT_WR)
        eventually(lambda: is_refused(links))
        with socket.create_server((HOST, echo.port)):
            eventually(lambda: not is_refused(links))


def is_refused(links: Links) -> bool:
    try:
        socket.create_connection(address(links), ANSWER_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_who_comes_while_the_door_is_shut_leaves_no_socket_behind(links: Links) -> None:
    """A socket that nobody closes is a warning later on, in whatever test is running by then."""
    gc.collect()  # what earlier tests have left is theirs
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(CUTS):
            comers = [threading.Thread(target=comes, args=(links,)) for _ in range(COMERS)]
            for comer in comers:
                comer.start()
            with links.cut("metadata", CutKind.REFUSED):
                for comer in comers:
                    comer.join()
            eventually(lambda: not is_refused(links))
        gc.collect()
    assert not left


def comes(links: Links) -> None:
    """A client, whatever becomes of it."""
    with suppress(OSError):
        socket.create_connection(address(links), ANSWER_SECONDS).close()
