"""What the job reads from Spark's report of a batch, which has the form of a report that Spark 4 has written."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry

from schemas.topics import DELETED_ENTRIES
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from streaming.reclaiming.metrics import ReclaimMetrics
from streaming.reclaiming.query_progress import BatchProgress, ProgressListener, progress_of
from streaming.reclaiming.written_ends import WrittenEnds

REPORT: dict[str, Any] = json.loads(
    """{
    "id": "5c7b7c2e-8f0f-4d6e-9b63-0d6c26b2f1de",
    "runId": "0f0c4be5-3f8c-4bd9-8a3c-9a0c0a7f1c55",
    "name": "reclaim",
    "timestamp": "2026-11-29T06:30:00.120Z",
    "batchId": 7,
    "batchDuration": 214,
    "numInputRows": 5,
    "inputRowsPerSecond": 12.5,
    "processedRowsPerSecond": 23.4,
    "durationMs": {"addBatch": 171, "commitOffsets": 12, "getBatch": 1, "latestOffset": 3, "queryPlanning": 8,
                   "triggerExecution": 214, "walCommit": 17},
    "stateOperators": [],
    "sources": [{
        "description": "KafkaV2[Subscribe[gc.deleted-entries]]",
        "startOffset": {"gc.deleted-entries": {"1": 0, "0": 40}},
        "endOffset": {"gc.deleted-entries": {"1": 2, "0": 43}},
        "latestOffset": {"gc.deleted-entries": {"1": 9, "0": 43}},
        "numInputRows": 5,
        "metrics": {"avgOffsetsBehindLatest": "3.5", "maxOffsetsBehindLatest": "7", "minOffsetsBehindLatest": "0"}
    }],
    "sink": {"description": "ForeachBatchSink", "numOutputRows": -1}
    }"""
)


def test_a_report_says_how_far_the_job_is() -> None:
    assert progress_of(REPORT) == BatchProgress(durations_ms=REPORT["durationMs"], messages=5, ends={0: 43, 1: 2})


def test_a_repeated_batch_has_no_metrics_of_its_source() -> None:
    """Spark asks for the latest offsets before a new batch only, and leaves out what is empty."""
    source = {name: value for name, value in REPORT["sources"][0].items() if name != "metrics"}
    repeated = {**REPORT, "sources": [{**source, "latestOffset": None}]}
    assert progress_of(repeated) == progress_of(REPORT)


class _Event:
    """An event of Java, as far as the listener asks it."""

    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report

    def progress(self) -> _Event:
        return self

    def json(self) -> str:
        return json.dumps(self._report)


def test_only_reports_of_its_own_query_are_passed_on() -> None:
    found = list[BatchProgress]()
    listener = ProgressListener("reclaim", found.append)
    nameless = {name: value for name, value in REPORT.items() if name != "name"}
    for report in (REPORT, {**REPORT, "name": "another"}, {**REPORT, "name": None}, nameless):
        listener.onQueryProgress(_Event(report))
    assert found == [progress_of(REPORT)]


def test_a_report_is_in_the_metrics() -> None:
    registry = CollectorRegistry()
    metrics = ReclaimMetrics(registry)

    def values() -> list[float | None]:
        return [
            registry.get_sample_value("deepclean_streaming_messages_behind"),
            registry.get_sample_value("deepclean_streaming_needed_offset", {"shard": "0"}),
            registry.get_sample_value("deepclean_streaming_needed_offset", {"shard": "1"}),
            registry.get_sample_value("deepclean_streaming_query_seconds_total", {"step": "addBatch"}),
            registry.get_sample_value("deepclean_streaming_query_messages_total"),
            registry.get_sample_value("deepclean_streaming_query_batches_total"),
        ]

    metrics.query_progressed(progress_of(REPORT))
    assert values() == [0, 43, 2, 0.171, 5, 1]
    metrics.query_progressed(BatchProgress({}, messages=2, ends={0: 45, 1: 2}))
    assert values() == [0, 45, 2, 0.171, 7, 2]


def test_messages_are_behind_also_while_spark_ends_no_batch() -> None:
    registry, log = CollectorRegistry(), MemoryLog(VirtualClock())
    metrics = ReclaimMetrics(registry)
    ends = WrittenEnds(log, lambda: 2, metrics.written_until)

    def behind() -> float | None:
        ends.look()
        return registry.get_sample_value("deepclean_streaming_messages_behind")

    metrics.finished_until({0: 1})
    for shard, value in ((0, b"finished"), (0, b"waits"), (1, b"waits"), (1, b"waits, too")):
        log.append(DELETED_ENTRIES.name, shard, value)
    assert behind() == 2, "in the shard with the most"
    log.append(DELETED_ENTRIES.name, 1, b"written while Spark hangs")
    assert behind() == 3
    metrics.finished_until({0: 2, 1: 3})
    assert registry.get_sample_value("deepclean_streaming_messages_behind") == 0
    metrics.finished_until({0: 2, 1: 5})
    assert registry.get_sample_value("deepclean_streaming_messages_behind") == 0, "the batch is newer than the look"


def test_what_was_trimmed_does_not_wait() -> None:
    registry, log = CollectorRegistry(), MemoryLog(VirtualClock())
    metrics = ReclaimMetrics(registry)
    for _ in range(5):
        log.append(DELETED_ENTRIES.name, 0, b"judged by a job whose checkpoint is lost")
    log.trim(DELETED_ENTRIES.name, 0, 4)
    WrittenEnds(log, lambda: 1, metrics.written_until).look()
    assert registry.get_sample_value("deepclean_streaming_messages_behind") == 1
