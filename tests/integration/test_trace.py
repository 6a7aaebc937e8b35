"""deepclean trace on a real plane: each message of a deletion's way is found in Kafka, and the trace is sent."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.codec import codec
from schemas.records import BucketLayout, CreateBucket, CreateVolume, DeleteKey, PurgeKeys, PutKey, Settle
from services.cli.main import app
from services.client.plane import accepted
from services.log.kafka import KafkaLog
from services.log.reads import records_between
from services.plane.stack.stack import Stack
from tests.audit_at_scale import execute
from tests.otlp_receiver import receiver
from tests.unit.test_trace import WHOLE_WAY, stations

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(300)]
VOLUME, BUCKET = "traced", "keys"


def run(home: Path, *words: str) -> Any:
    result = CliRunner().invoke(app, ["--home", str(home), "trace", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_deletion_is_followed_through_kafka_and_spark(shared_stack: Stack) -> None:
    started = time.monotonic()
    with shared_stack.client() as plane:
        execute(
            plane,
            *(CreateVolume(VOLUME), CreateBucket(VOLUME, BUCKET, BucketLayout.OBJECT_STORE)),
            *(PutKey(VOLUME, BUCKET, "freed", 70), DeleteKey(VOLUME, BUCKET, "freed")),
        )
        accepted(plane.request(0, Settle("before the trace")))
        servers = plane.address.bootstrap_servers

    def since() -> list[str]:
        """From well before the test on: the command begins to count when it has started, which may take a while."""
        return ["--since", f"{time.monotonic() - started + 60:.0f}s"]

    (way,) = run(shared_stack.home, "show", f"{VOLUME}/{BUCKET}/freed", *since())
    assert stations(way) == WHOLE_WAY
    times = [step["time_ms"] for step in way["steps"]]
    assert times == sorted(times)
    assert sum(step["wait_ms"] for step in way["steps"]) == way["total_ms"]
    judged = next(step for step in way["steps"] if step["process"] == "streaming")
    (record,) = records_between(
        KafkaLog(servers, "deepclean.test"), judged["topic"], 0, judged["offset"], judged["offset"] + 1
    )
    assert way["object_id"] in codec(PurgeKeys).decode_message(record.value).rows.object_ids
    with receiver() as received:
        sent = run(shared_stack.home, "export", "--endpoint", received.url, *since(), "--shard", "0")
    spans = [(name, span) for name, span in received.spans if span.trace_id.hex() == way["trace_id"]]
    assert sorted(span.name for _, span in spans) == sorted(["deletion", *WHOLE_WAY])
    assert "deepclean.streaming" in {name for name, _ in spans}
    assert sent["deletions"] == sum(not span.parent_span_id for _, span in received.spans)
