"""HTTP: any request to metadata, snapshots and mock_scm of a plane in memory.

An input is a request without its headers: ``METHOD path?query``, a line break, and the body. In it ``{snapshot}``
stands for the id of the snapshot, ``{job}`` for that of the diff that was made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Coroutine, Iterator
from typing import Any
from urllib.parse import quote, unquote, urlencode

from prometheus_client import CollectorRegistry
from starlette import concurrency
from starlette.applications import Starlette
from starlette.routing import Route

from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, DeleteKey, PutKey
from services.client.plane import NamespaceCommand
from services.metadata.diffs import api as diff_api
from services.metadata.reads import http_api as metadata_api
from services.metadata.settings import MetadataSettings
from services.mock_scm import http_api as scm_api
from services.mock_scm.settings import MockScmSwitches
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.runtime.http import reads
from services.runtime.http.server import http_app
from services.snapshots.reads import http_api as snapshots_api
from tests.fuzz.target import PromiseError, Target, replaced

ANSWERED = frozenset({200, 307, 400, 404, 405, 409, 410})
"""307 leads to the path without a slash at its end."""
MOST_ERROR_BYTES = 40_000
VISIBLE = range(0x21, 0x7F)
"""Bytes that a server lets pass in the first line of a request."""
PARAMETERS = (
    *("volume", "bucket", "path", "snapshot_id", "prefix", "start_after", "limit", "after", "name", "with_deleted"),
    *("now_ms", "local_id", "start", "job_id", "number", "since_ms", "service", "from_snapshot_id", "error", "topic"),
    *("to_snapshot_id", "with_resolved", "wait_seconds", "audit_id", "kind"),
    *("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit", "consumer_expiration_ms"),
)
BODIES = (
    b"[]",
    b'{"snapshot_ids":["{snapshot}"],"free_bytes":10}',
    b'{"snapshot_ids":["\\ud800"]}',
    b'{"free_bytes":99999999999999999999999}',
    b'[{"container_id":1,"first_local_id":65536,"block_count":1,"block_size_bytes":10,"size_bytes":10}]',
    b'{"delay_ms":1,"fail_share":0.5,"failing_buckets":[1],"is_failing":true,"answers_twice":false}',
)
USUAL = {"volume": "vol1", "bucket": "tree", "path": "dir/k", "snapshot_id": "{snapshot}", "limit": "2"}


async def _at_once(function: Any, *arguments: Any, **named: Any) -> Any:
    """In the place of a thread: one thread plays everything."""
    return function(*arguments, **named)


def _in_one_thread() -> list[tuple[Any, str, Any]]:
    """All that has to be replaced for it, wherever it was imported."""
    name = "run_in_threadpool"
    modules = [module for module in list(sys.modules.values()) if getattr(module, name, None) is _THREADS]
    return [(module, name, _at_once) for module in modules]


_THREADS = concurrency.run_in_threadpool


class Harness:
    """A plane that has done a little, and the application that answers for it."""

    def __init__(self) -> None:
        plane = InMemoryPlane()
        client = InMemoryClient(plane)
        commands: list[NamespaceCommand] = [
            CreateVolume("vol1", "owner"),
            CreateBucket("vol1", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED),
            CreateBucket("vol1", "flat", BucketLayout.OBJECT_STORE),
            PutKey("vol1", "tree", "dir/k", 10),
            PutKey("vol1", "flat", "k", 10),
        ]
        for command in commands:
            assert not client.answer(0, client.submit(0, command)).error
        plane.log.append("scm.commands", 0, b"no command")
        assert not client.request(0, CreateSnapshot("vol1", "tree", "snap1")).error
        assert not client.answer(0, client.submit(0, DeleteKey("vol1", "tree", "dir/k"))).error
        stores = {name: {0: plane.processes[name, 0].store} for name in ("metadata", "snapshots", "mock_scm")}
        jobs = diff_api.DiffJobsOfShards(MetadataSettings(diff_threads=0))
        snapshot_id = client.snapshots(0).snapshot("vol1", "tree", "snap1").snapshot_id
        self._once = [*_in_one_thread(), (reads, "AFTER_SECONDS", 0.0), (reads, "AFTER_POLL_SECONDS", 0.0)]
        with replaced(*self._once):  # a route decides when it is made what runs in a thread
            self.routes: list[Route] = [
                *metadata_api.routes(stores["metadata"]),
                *diff_api.diff_routes(stores["metadata"], jobs),
                *snapshots_api.routes(stores["snapshots"]),
                *scm_api.routes(stores["mock_scm"], MockScmSwitches()),
            ]
            registry = CollectorRegistry()
            self._app: Starlette = http_app(registry, lambda: (), lambda: (), self.routes, token="")
        job = jobs.of(0, stores["metadata"][0]).ask("vol1", "tree", snapshot_id, "")
        self._ids = {b"{snapshot}": snapshot_id.encode(), b"{job}": job.job_id.encode()}

    def ask(self, method: str, target: bytes, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        for name, value in self._ids.items():
            target, body = target.replace(name, value), body.replace(name, value)
        path, _, query = target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(b"host", b"plane")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        said: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            said.append(message)

        with replaced(*self._once):
            _run(self._app(scope, receive, send))  # type: ignore[arg-type]  # messages are dictionaries
        return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what never waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise PromiseError("the application waits for something else than the request")


class _Requests:
    """Plays requests, each on a harness that none before has changed."""

    def __init__(self) -> None:
        self._harness = Harness()

    def play(self, data: bytes) -> bool:
        """Ask, and look at the answer.

        Raises:
            PromiseError: it has a status that no document names, or a refusal without a code.
        """
        line, _, body = data.partition(b"\n")
        method, separator, target = line.partition(b" ")
        if not (separator and method.isalpha() and method.isupper() and target.startswith(b"/")):
            return False
        if not all(byte in VISIBLE for byte in target):
            return False
        status, answer = self._harness.ask(method.decode(), target, body)
        if method in (b"POST", b"PUT", b"DELETE") and status == 200:
            self._harness = Harness()
        if status not in ANSWERED:
            raise PromiseError(f"{status}: {answer[:300]!r}")
        if status >= 400:
            _check_refusal(method, status, answer)
        return status not in (404, 405)


def _check_refusal(method: bytes, status: int, answer: bytes) -> None:
    if status not in (404, 405) and method != b"HEAD" and not json.loads(answer)["code"]:
        raise PromiseError(f"{status} without a code: {answer[:300]!r}")
    if len(answer) >= MOST_ERROR_BYTES:
        raise PromiseError(f"a refusal of {len(answer)} bytes")


def seeds() -> Iterator[bytes]:
    """Each route as it is usually asked, with each body that any route takes, and with every parameter."""
    every = dict.fromkeys(PARAMETERS, "1") | USUAL | {"job_id": "{job}", "name": "snap1", "service": "metadata"}
    for route in Harness().routes:
        path = route.path.replace("{shard}", "0").replace("{name}", "copy")
        for method in sorted(route.methods or ()):
            for parameters in ({}, USUAL, every):
                query = urlencode(parameters, safe="{}/")
                for body in BODIES if method in ("POST", "PUT") else (b"",):
                    yield f"{method} {path}?{query}\n".encode() + body


def words() -> Iterator[bytes]:
    """Paths, parameters, and values that mean something or are near the end of a range."""
    yield from {route.path.replace("{shard}", "0").encode() for route in Harness().routes}
    yield from (f"&{name}=".encode() for name in PARAMETERS)
    yield from (b"GET /", b"POST /", b"PUT /", b"DELETE /", b"HEAD /", b"{snapshot}", b"{job}", b"true", b"false")
    texts = ("vol1", "tree", "flat", "dir/k", "snap1", "0:1", "nan", "1e400", str(2**63 - 1), str(2**63), "9" * 30)
    for text in (*texts, "²", "٣", "\0", "\ud800", "..", "metadata", "gc.space", "DecodeError"):
        yield quote(text.encode("utf-8", "surrogatepass"), safe="/").encode()
    yield from (b'"snapshot_ids":', b'"free_bytes":', b'"protected_snapshot_ids":', b'"leaving_snapshot_ids":')


TARGET = Target("http_requests", lambda: _Requests().play, seeds, words, most_bytes=2_048)
