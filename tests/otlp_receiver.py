"""A collector's end of OTLP over HTTP, which decodes what it gets by OpenTelemetry's own definitions."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(slots=True)
class Receiver:
    """What has arrived: each span with the name of its service."""

    url: str = ""
    spans: list[tuple[str, Any]] = field(default_factory=list)
    status: int = 200
    """What it answers."""
    refused: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: bytes) -> int:
        """Take one request; return its status."""
        if self.status != 200:
            self.refused.set()
            return self.status
        if path != "/v1/traces":
            return 404
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {one.key: one.value.string_value for one in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self.spans += [(names["service.name"], span) for span in of_scope.spans]
        return 200


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listen on a free port of loopback."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self.send_response(received.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
