"""The HTTP server of a service process: metrics, health, and the reads of the service."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import cast

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.http_token import OPEN_PATHS, UNAUTHORIZED, is_authorized
from services.domain.errors import DeepcleanError
from services.runtime.http.metrics import HttpMetrics, Measured
from services.runtime.http.openapi import document
from services.runtime.http.owned_gauges import OwnedGauges

START_SECONDS = 10.0
STOP_SECONDS = 5.0

Reasons = Callable[[], Sequence[str]]
"""Returns the reasons why a check fails; none when it succeeds."""


class ServerError(DeepcleanError):
    """The server cannot use its address; the message names the reason and the remedy."""


def http_app(
    registry: CollectorRegistry,
    why_unhealthy: Reasons,
    why_unready: Reasons,
    routes: Sequence[BaseRoute] = (),
    *,
    token: str,
    owned_shards: Callable[[], Collection[int]] | None = None,
) -> Starlette:
    """Return the application of one process. Requests must carry the token, but for health; "" requires none.

    ``owned_shards``: where hosts share the shards, those that this process owns.

    ``/healthz`` fails when a loop is stuck: restart the process. ``/readyz`` fails while the process is behind or lacks
    something: wait, or read the reasons, which a request without the token does not get. ``/metrics?name[]=…`` has the
    named metrics alone. ``/openapi.json`` describes the reads.
    """

    def metrics(request: Request) -> Response:
        # As in every exporter of prometheus_client: ?name[]=… collects these metrics alone.
        names = request.query_params.getlist("name[]")
        asked = registry.restricted_registry(names) if names else registry
        shown = asked if owned_shards is None else OwnedGauges(asked, owned_shards)
        return Response(generate_latest(cast(CollectorRegistry, shown)), media_type=CONTENT_TYPE_LATEST)

    def openapi(_: Request) -> Response:
        return JSONResponse(document(routes))

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/openapi.json", openapi),
            Route("/healthz", _health(why_unhealthy, token)),
            Route("/readyz", _health(why_unready, token)),
            *routes,
        ],
        middleware=[
            Middleware(Measured, metrics=HttpMetrics(registry, sorted(_paths(routes)))),
            *([Middleware(_TokenGate, token=token)] if token else ()),
        ],
    )


def _paths(routes: Sequence[BaseRoute]) -> set[str]:
    return {route.path for route in routes if isinstance(route, Route)}


class _TokenGate:
    """Answers 401, before the request is routed, unless it carries the token or asks for health."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or scope["path"] in OPEN_PATHS
        if is_open or is_authorized(self._token, Headers(scope=scope).get("authorization", "")):
            await self._app(scope, receive, send)
            return
        body = {"code": "UNAUTHORIZED", "message": UNAUTHORIZED}
        await JSONResponse(body, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def _health(reasons: Reasons, token: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        found = list(reasons())
        details = {"reasons": found} if is_authorized(token, request.headers.get("authorization", "")) else {}
        return JSONResponse({"ok": not found, **details}, status_code=503 if found else 200)

    return answer


class _Server(uvicorn.Server):
    """A server that sets an event once it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()


class HttpServer:
    """Serves an application in a thread of its own, from ``start`` until ``stop``."""

    def __init__(self, app: Starlette, host: str, port: int, *, option_prefix: str = "--http-") -> None:
        """``option_prefix`` is the beginning of the options that set host and port, for messages."""
        self._host = host
        self._socket = _bound(host, port, option_prefix)
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app, log_level="warning", log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    @property
    def url(self) -> str:
        """Return the URL of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        except Exception:
            logging.getLogger(__name__).exception("the HTTP server ended")

    def start(self) -> None:
        """Start to serve; return once requests are answered. Raise ServerError after ``START_SECONDS``."""
        self._thread.start()
        if not self._server.is_serving.wait(START_SECONDS):
            raise ServerError(f"the server does not answer on {self.url} after {START_SECONDS:g} seconds: start again")

    def stop(self) -> None:
        """Finish the requests in progress, and stop."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._socket.close()


def _bound(host: str, port: int, option_prefix: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small answers at once only on a socket that names its protocol: on others every answer but the first
    # of a connection waits 40 ms for the reader's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ServerError(
                f"port {port} on {host} is in use: stop the program that holds it, or set another {option_prefix}port"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ServerError(
                f"port {port} may not be used by this user: set an {option_prefix}port above 1023"
            ) from error
        raise ServerError(
            f"{host}:{port} cannot be served on ({error.strerror or error}): set another {option_prefix}host or "
            f"{option_prefix}port"
        ) from error
    return listening
