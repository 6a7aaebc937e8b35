"""What the job reads from Spark's report of a batch, which has the form of a report that Spark 4 has written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streaming.reclaiming.query_progress import BatchProgress, progress_of

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
    assert progress_of(REPORT) == BatchProgress(
        durations_ms=REPORT["durationMs"], messages=5, ends={0: 43, 1: 2}, messages_behind=7
    )


@pytest.mark.parametrize("metrics", [{}, {"maxOffsetsBehindLatest": "0"}])
def test_a_report_without_a_backlog_says_none(metrics: dict[str, str]) -> None:
    source = {**REPORT["sources"][0], "metrics": metrics}
    assert progress_of({**REPORT, "sources": [source]}).messages_behind == 0
