"""Turns the way of a deletion into a trace of OpenTelemetry, and sends traces to a collector by OTLP over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from services.domain.errors import DeepcleanError
from services.tracing.steps import Station
from services.tracing.trace_ids import span_id, trace_id
from services.tracing.ways import Way

SPANS_AT_ONCE = 512
"""Least number of spans of a request to the collector, but for the last; as in OpenTelemetry's own batches."""
TRACES_PATH = "/v1/traces"
"""Path below a collector's endpoint, by the specification of OTLP."""
_ERRORS = (Station.REFUSED, Station.BLOCKS_FAILED)
_SCOPE = InstrumentationScope("deepclean.tracing")


def spans_of(shard: int, way: Way) -> list[ReadableSpan]:
    """Return the spans of a way: one for the whole, and in it one for each step, from the step before to this one.

    A span belongs to the process that has published the message, so it contains the time for which its input waited.
    What was given up and goes on later is a second whole in the same trace.
    """
    trace = trace_id(shard, way.version)
    first, last = way.steps[0], way.steps[-1]
    named = next((step for step in way.steps if step.station is not Station.REQUESTED), first)
    whole = _context(trace, f"whole from {named.topic} {named.offset}")
    names = {f"deepclean.{name}": value for name, value in way.version._asdict().items() if name != "kind"}
    of_whole = {"deepclean.shard": shard, "deepclean.kind": way.version.kind.value, **names}
    of_whole["deepclean.state"] = way.state
    spans = [_span("deletion", whole, None, "plane", (first.time_ms, last.time_ms), of_whole)]
    for step, wait_ms in way.waits():
        context = _context(trace, f"{step.station.name} {step.topic} {step.offset}")
        attributes = {
            "messaging.system": "kafka",
            "messaging.destination.name": step.topic,
            "messaging.destination.partition.id": str(shard),
            "messaging.kafka.offset": step.offset,
            **{f"deepclean.{name}": value for name, value in step.facts},
        }
        times_ms, is_error = (step.time_ms - wait_ms, step.time_ms), step.station in _ERRORS
        spans.append(
            _span(step.station.says, context, whole, step.station.process, times_ms, attributes, is_error=is_error)
        )
    return spans


class CollectorError(DeepcleanError):
    """The collector has not taken spans; some may have arrived, and may arrive again."""


class Collector:
    """Where traces are sent."""

    def __init__(self, endpoint: str) -> None:
        """``endpoint`` is that of the collector, such as ``http://127.0.0.1:4318``."""
        self._exporter = OTLPSpanExporter(endpoint.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH)
        self._waiting: list[ReadableSpan] = []
        self.sent = 0
        """Number of deletions that the collector has taken."""

    def send(self, spans: Sequence[ReadableSpan]) -> None:
        """Send spans, together with others; ``flush`` sends the last ones.

        Raises:
            CollectorError: the next call or ``flush`` tries again.
        """
        self._waiting += spans
        if len(self._waiting) >= SPANS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Send what waits; raise as ``send`` does."""
        if self._waiting and self._exporter.export(self._waiting) is not SpanExportResult.SUCCESS:
            raise CollectorError(
                "the collector has not taken the traces: see that it runs, and that --endpoint is its address for OTLP "
                "over HTTP"
            )
        self.sent += sum(span.parent is None for span in self._waiting)
        self._waiting.clear()

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def _context(trace: int, name: str) -> SpanContext:
    return SpanContext(trace, span_id(trace, name), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _span(
    name: str,
    context: SpanContext,
    parent: SpanContext | None,
    process: str,
    times_ms: tuple[int, int],
    attributes: Mapping[str, Any],
    *,
    is_error: bool = False,
) -> ReadableSpan:
    start_ms, end_ms = times_ms
    return ReadableSpan(
        name,
        context=context,
        parent=parent,
        resource=Resource({"service.namespace": "deepclean", "service.name": f"deepclean.{process}"}),
        attributes=attributes,
        kind=SpanKind.CONSUMER if parent else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR if is_error else StatusCode.UNSET),
        start_time=start_ms * 1_000_000,
        end_time=end_ms * 1_000_000,
        instrumentation_scope=_SCOPE,
    )
