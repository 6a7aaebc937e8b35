"""The metrics of the reclaim job, and the HTTP server that serves them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from schemas.build_info import report_build
from schemas.histograms import observe_many
from schemas.http_token import OPEN_PATHS, UNAUTHORIZED, is_authorized
from streaming.reclaiming.outcome import BatchOutcome
from streaming.reclaiming.position import first_needed
from streaming.reclaiming.query_progress import BatchProgress
from streaming.reclaiming.rule import HELD, RECLAIMABLE
from streaming.reclaiming.waiting import Waiting
from streaming.reclaiming.written_ends import Written

QUERY_STEPS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
"""The parts of a batch that Spark times, by its own names; addBatch is all that this job does."""
_BATCH_SECONDS = (0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60)
VERDICT_SECONDS = (0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0)
"""Bucket bounds. One of them is the objective of the alerts: see deploy/prometheus/rules.yml."""


class ReclaimMetrics:
    """Metrics of one run of the job."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        report_build(registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._judged = counter(
            "deepclean_streaming_entries_judged_total", "Deleted entries judged, by verdict.", ["verdict"]
        )
        self._entries = counter("deepclean_streaming_input_entries_total", "Entries read from gc.deleted-entries.")
        self._dead_letters = counter(
            "deepclean_streaming_dead_letters_total", "Entries that could not be read or judged."
        )
        self._barriers = counter("deepclean_streaming_barriers_total", "Barriers passed on.")
        self._seconds = Histogram(
            "deepclean_streaming_batch_seconds", "Time that a batch took.", buckets=_BATCH_SECONDS, registry=registry
        )
        self._verdict_seconds = Histogram(
            "deepclean_streaming_verdict_seconds",
            "For each judged entry, the time from the writing of its message to gc.deleted-entries until its verdict, "
            "or its dead letter, was published. Messages that are judged together count as old as the oldest of them.",
            buckets=VERDICT_SECONDS,
            registry=registry,
        )
        self._last_batch = gauge("deepclean_streaming_last_batch_timestamp_seconds", "When the last batch ended.")
        self._chain_version = gauge("deepclean_streaming_chain_version", "Version of the chain view.", ["shard"])
        self._chain_broken = gauge(
            "deepclean_streaming_chain_broken",
            "1 while a shard's snapshot chain cannot be followed, so that nothing of the shard is judged.",
            ["shard"],
        )
        self._passed_over = gauge(
            "deepclean_streaming_passed_over_messages",
            "Messages of a shard that were passed over and are judged once its chain is complete.",
            ["shard"],
        )
        self._premature = gauge(
            "deepclean_streaming_premature_messages",
            "Messages whose chain version is above that of Spark's chain view; they wait until the view reaches it.",
        )
        self._needed = gauge(
            "deepclean_streaming_needed_offset",
            "Offset in gc.deleted-entries of the first message that the job may still read; deepclean trim-log removes "
            "only those before it.",
            ["shard"],
        )
        self._ends: Mapping[int, int] = {}
        self._written: Written = {}
        self._first_waiting: Mapping[int, int] = {}
        self._behind = gauge(
            "deepclean_streaming_messages_behind",
            "Messages behind the last finished batch, in the shard with the most. A message has up to 1,000 rows.",
        )
        self._query_seconds = counter(
            "deepclean_streaming_query_seconds_total",
            "Time that Spark's query has taken, by the step that Spark names.",
            ["step"],
        )
        self._query_messages = counter("deepclean_streaming_query_messages_total", "Messages that Spark's query read.")
        self._query_batches = counter("deepclean_streaming_query_batches_total", "Batches that Spark's query finished.")
        for step in QUERY_STEPS:
            self._query_seconds.labels(step)
        for verdict in (RECLAIMABLE, HELD):  # a verdict that was never reached is exported as 0, not absent
            self._judged.labels(verdict)

    def batch_judged(self, outcome: BatchOutcome, seconds: float) -> None:
        """Record a finished batch."""
        self.caught_up(outcome)
        self._seconds.observe(seconds)
        self._last_batch.set(time.time())

    def caught_up(self, outcome: BatchOutcome) -> None:
        """Add the counts of an outcome, of a batch or of messages that waited, which was published just now."""
        self._judged.labels(RECLAIMABLE).inc(outcome.reclaimable)
        self._judged.labels(HELD).inc(outcome.held)
        self._entries.inc(outcome.entries)
        self._dead_letters.inc(outcome.dead_letters)
        self._barriers.inc(len(outcome.barriers))
        now_ms = time.time() * 1_000
        for some in outcome.published:  # the broker's clock may be ahead of this one
            observe_many(self._verdict_seconds, max(0.0, now_ms - some.oldest_ms) / 1_000, some.count)

    def query_progressed(self, progress: BatchProgress) -> None:
        """Add what Spark has reported of a finished batch."""
        for step in QUERY_STEPS:
            self._query_seconds.labels(step).inc(progress.durations_ms.get(step, 0) / 1_000)
        self._query_messages.inc(progress.messages)
        self._query_batches.inc()
        self.finished_until(progress.ends)

    def chain_followed(self, versions: Sequence[int], broken: Collection[int]) -> None:
        """Report the versions of the views, in the order of the shards, and the shards whose chain is broken."""
        for shard, version in enumerate(versions):
            self._chain_version.labels(str(shard)).set(version)
            self._chain_broken.labels(str(shard)).set(shard in broken)

    def waiting(self, waiting: Waiting, shards: int) -> None:
        """Report the messages that wait: of shards below ``shards``, and of further shards named in ``waiting``.

        The value of a shard is replaced and never removed: a scrape in between reads the old or the new value.
        """
        for shard in {*range(shards), *waiting.passed_over}:
            stretch = waiting.passed_over.get(shard)
            self._passed_over.labels(str(shard)).set(stretch.beyond - stretch.first if stretch else 0)
        self._premature.set(len(waiting.premature))
        self._first_waiting = waiting.first_offsets()
        self._report_needed()

    def finished_until(self, ends: Mapping[int, int]) -> None:
        """Report the offset behind the last finished batch, by shard; messages before it may wait still."""
        self._ends = ends
        self._report_needed()
        self._report_behind()

    def written_until(self, written: Written) -> None:
        """Report the messages behind the last finished batch, of what the topic has now."""
        self._written = written
        self._report_behind()

    def _report_behind(self) -> None:
        done = self._ends  # it may be newer than what is known of the topic
        behind = (end - max(first, done.get(shard, 0)) for shard, (first, end) in self._written.items())
        self._behind.set(max([0, *behind]))

    def _report_needed(self) -> None:
        for shard, offset in first_needed(self._ends, self._first_waiting).items():
            self._needed.labels(str(shard)).set(offset)


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name is wsgiref's
        """Log nothing: scrapes are too frequent."""


class MetricsServer:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` on a port, in threads."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int, token: str) -> None:
        self._token = token
        self.is_alive: Callable[[], bool] = lambda: True
        self.is_ready: Callable[[], bool] = lambda: False
        self._metrics = make_wsgi_app(registry)
        self._server = make_server(address, port, self._answer, ThreadingWSGIServer, _SilentHandler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def _answer(self, environment: dict[str, Any], start_response: Any) -> Any:
        path = environment["PATH_INFO"]
        if path not in OPEN_PATHS and not is_authorized(self._token, environment.get("HTTP_AUTHORIZATION", "")):
            start_response("401 Unauthorized", [("Content-Type", "text/plain"), ("WWW-Authenticate", "Bearer")])
            return [UNAUTHORIZED.encode()]
        match path:
            case "/metrics":
                return self._metrics(environment, start_response)
            case "/healthz":
                is_good = self.is_alive()
            case "/readyz":
                is_good = self.is_ready()
            case _:
                start_response("404 Not Found", [("Content-Type", "text/plain")])
                return [b"look at /metrics, /healthz or /readyz\n"]
        start_response("200 OK" if is_good else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"yes\n" if is_good else b"no\n"]

    def close(self) -> None:
        """Stop the server and wait for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
