"""Runs the page of the plane of a home until it is told to stop."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from services.page.app import page_app
from services.page.door import HomeDoor, HomeSight
from services.page.guard import Rights
from services.page.watcher import Watcher
from services.plane.stack.secrets import http_token
from services.runtime.http.server import HttpServer

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page that is served."""

    url: str
    acts_token: str = ""

    @property
    def address(self) -> str:
        """Return the address to open: with the token of acts behind ``#``, which no browser sends to a server."""
        return f"{self.url}/#act={self.acts_token}" if self.acts_token else f"{self.url}/"


@dataclass(slots=True)
class HomeToken:
    """The HTTP token of a home's plane at the moment. One that was needed once stays needed while no plane runs."""

    home: Path
    _last: str = field(default="", init=False)

    def __call__(self) -> str:
        """Return the token; empty for an open plane.

        Raises:
            CredentialsError: the file with the token cannot be used.
        """
        self._last = http_token(self.home) or self._last
        return self._last


@contextmanager
def serving_page(home: Path, port: int, *, may_act: bool = False) -> Iterator[ServedPage]:
    """Serve the page of a home's plane on loopback within the block.

    Raises:
        ServerError: the port cannot be used.
    """
    acts_token = secrets.token_urlsafe(24) if may_act else ""
    door = HomeDoor(home)
    sight = HomeSight(home)
    watcher = Watcher(door.plane, sight)
    app = page_app(door, watcher, Rights(HomeToken(home), acts_token))
    server = HttpServer(app, HOST, port, option_prefix="--")
    try:
        server.start()
        watcher.start()
        yield ServedPage(server.url, acts_token)
    finally:
        watcher.stop()
        server.stop()
        sight.close()
        door.close()
