"""The HTTP server of a process: it is there when start returns, and says what hinders it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from services.runtime.http.metrics import NO_ROUTE, REQUESTS_METRIC
from services.runtime.http.server import HttpServer, ServerError, http_app

TOKEN = "secret"  # noqa: S105


def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def test_metrics_health_readiness_and_added_routes_are_served() -> None:
    registry = CollectorRegistry()
    Counter("deepclean_tests_total", "Tests.", registry=registry).inc(3)
    Counter("deepclean_others_total", "Others.", registry=registry).inc()
    reasons = ["shard 0: it is starting"]
    server = HttpServer(http_app(registry, list, lambda: reasons, [Route("/hello", hello)], token=""), "127.0.0.1", 0)
    server.start()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/hello").text == "hello"
        assert "deepclean_tests_total 3.0" in client.get("/metrics").text
        assert "deepclean_others_total 1.0" in client.get("/metrics").text
        one = client.get("/metrics", params={"name[]": "deepclean_tests_total"}).text
        assert [line for line in one.splitlines() if not line.startswith("#")] == ["deepclean_tests_total 3.0"]
        healthy, unready = client.get("/healthz"), client.get("/readyz")
        assert (healthy.status_code, healthy.json()) == (200, {"ok": True, "reasons": []})
        assert (unready.status_code, unready.json()) == (503, {"ok": False, "reasons": reasons})
        reasons.clear()
        assert client.get("/readyz").status_code == 200
    server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", trust_env=False)


def test_requests_are_measured_by_route_and_status() -> None:
    """A path that no route answers makes no label of its own; a refusal for want of a token counts, too."""
    registry = CollectorRegistry()

    def fails(_: Request) -> PlainTextResponse:
        raise RuntimeError("a defect")

    app = http_app(registry, list, list, [Route("/hello/{name}", hello), Route("/fails", fails)], token=TOKEN)
    client = TestClient(app, raise_server_exceptions=False)
    for path in ("/hello/ann", "/hello/bob", "/fails", "/nowhere", "/else"):
        client.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
    client.get("/hello/ann")

    def count(route: str, status: int) -> float | None:
        labels = {"route": route, "status": str(status)}
        return registry.get_sample_value(f"{REQUESTS_METRIC}_count", labels)

    assert (count("/hello/{name}", 200), count("/fails", 500)) == (2, 1)
    assert (count(NO_ROUTE, 404), count(NO_ROUTE, 401)) == (2, 1)


def connections_of(port: int) -> list[bool]:
    """Of each connection to a server in this process whether it sends small answers at once."""
    at_once = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile, or it only listens
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(link.name))) as one:
                if one.family == socket.AF_INET and one.getsockname()[1] == port and one.getpeername():
                    at_once.append(bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
    return at_once


def test_an_answer_does_not_wait_for_an_acknowledgement() -> None:
    server = HttpServer(http_app(CollectorRegistry(), list, list, [Route("/hello", hello)], token=""), "127.0.0.1", 0)
    server.start()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/hello").text == "hello"
        assert connections_of(server.port) == [True]
    server.stop()


def test_a_port_in_use_is_one_sentence() -> None:
    app = http_app(CollectorRegistry(), list, list, token="")
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    with pytest.raises(ServerError, match=f"port {server.port} on 127.0.0.1 is in use: .*--http-port"):
        HttpServer(app, "127.0.0.1", server.port)
    server.stop()
    again = HttpServer(app, "127.0.0.1", server.port)
    again.start()
    again.stop()


def test_a_host_that_is_not_ours_is_one_sentence() -> None:
    with pytest.raises(ServerError, match="--http-host"):
        HttpServer(http_app(CollectorRegistry(), list, list, token=""), "203.0.113.7", 0)


def test_a_server_that_never_started_stops() -> None:
    HttpServer(http_app(CollectorRegistry(), list, list, token=""), "127.0.0.1", 0).stop()
