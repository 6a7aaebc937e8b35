"""Metrics of the HTTP server: how many requests each route has answered, with which status, and how fast."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS_METRIC = "deepclean_http_request_seconds"
NO_ROUTE = "none"
"""The route of a request that no route answers, so that strangers cannot make labels."""
_ERRORS = ("500", "503")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class HttpMetrics:
    """The collectors of one server."""

    def __init__(self, registry: CollectorRegistry, routes: Iterable[str] = ()) -> None:
        """``routes``: those of which errors are counted from 0, so that the first ones show in a rate."""
        self._requests = Histogram(
            REQUESTS_METRIC,
            "Time from the arrival of a request until its answer was sent, by route and status.",
            ("route", "status"),
            buckets=_BOUNDS,
            registry=registry,
        )
        for route in routes:
            for status in _ERRORS:
                self._requests.labels(route, status)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).observe(seconds)


class Measured:
    """Measures each request. Outside of all others, so that refusals and errors count, too."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when its answer is sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = 500, time.perf_counter()  # an answer that is not begun is an error of the server

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            self._metrics.answered(route, status, time.perf_counter() - started)
