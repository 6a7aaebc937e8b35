"""Retention in workloads: the documented cases played through a whole plane, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import parse_line
from tests.retention_workload import CHAIN, HELD_BYTES, LINES, OPERATIONS
from tests.unit.test_retention_rules import CASES, INFINITE, Case

PLACE = {"volume": "vol", "bucket": "b"}
START: list[dict[str, Any]] = [
    {"op": "create_volume", "volume": "vol"},
    {"op": "create_bucket", **PLACE, "layout": "FSO"},
]
OLD = {"num_retained_min": 1, "num_retained_max": None, "time_retained_s": 0, "expire_limit": 50, "now_s": 10_000}


def play(operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a plane in memory writes about a workload, in which a consumer's next snapshot is always there."""
    parsed = ((number, parse_line(json.dumps(operation), number)) for number, operation in enumerate(operations))
    return list(Replay(InMemoryClient(InMemoryPlane())).run(parsed))


def snapshot(name: str, at_s: float = 0) -> dict[str, Any]:
    return {"op": "create_snapshot", **PLACE, "snapshot": name, "at_s": at_s}


@pytest.mark.parametrize("case", [case for case in CASES if (case.consumer or 0) <= case.n], ids=lambda case: case.name)
def test_the_documented_cases_through_the_plane(case: Case) -> None:
    made = [snapshot(f"s{number}", number * 10) for number in range(1, case.n + 1)]
    deleted = [{"op": "delete_snapshot", **PLACE, "snapshot": f"s{number}"} for number in sorted(case.missing)]
    readers = [case.consumer] if case.consumer else []
    consumer = [{"op": "consumer", **PLACE, "consumer": "reader", "next": f"s{number}"} for number in readers]
    rules = {
        "num_retained_min": case.minimum,
        "num_retained_max": None if case.maximum == INFINITE else case.maximum,
        "time_retained_s": case.retained_s,
        "expire_limit": case.limit,
        "now_s": case.now_s,
    }
    operations = [
        *START,
        *made,
        *deleted,
        *consumer,
        {"op": "expire", **PLACE, **rules},
        {"op": "observe", "label": ""},
    ]
    expired, observed = play(operations)
    gone = [f"s{number}" for number in range(1, case.expires + 1) if number not in case.missing]
    there = [f"s{number}" for number in range(case.expires + 1, case.n + 1) if number not in case.missing]
    assert expired == {"op": len(operations) - 2, "expired": gone}
    assert observed["buckets"]["vol/b"]["chain"] == there


def test_tags_and_refusals() -> None:
    operations = [
        *START,
        snapshot("s1"),
        snapshot("s2"),
        snapshot("s3"),
        {"op": "tag", **PLACE, "snapshot": "s1", "tag": "keep"},
        {"op": "delete_snapshot", **PLACE, "snapshot": "s1"},
        {"op": "tag", **PLACE, "snapshot": "s9", "tag": "other"},
        {"op": "expire", **PLACE, **OLD},
        {"op": "untag", **PLACE, "snapshot": "s3", "tag": "keep"},
        {"op": "untag", **PLACE, "snapshot": "s1", "tag": "keep"},
        {"op": "expire", **PLACE, **OLD},
        {"op": "delete_snapshot", **PLACE, "snapshot": "s1"},
        {"op": "consumer", **PLACE, "consumer": "reader", "next": "s1"},
        {"op": "expire", **PLACE, **OLD, "num_retained_min": 0},
        snapshot("s1"),
    ]
    assert play(operations) == [
        {"op": 6, "error": "TAGGED_SNAPSHOT"},
        {"op": 7, "error": "FILE_NOT_FOUND"},
        {"op": 8, "expired": ["s2"]},
        {"op": 9, "error": "FILE_NOT_FOUND"},
        {"op": 11, "expired": ["s1"]},
        {"op": 12, "error": "FILE_NOT_FOUND"},
        {"op": 13, "error": "FILE_NOT_FOUND"},
        {"op": 14, "error": "INVALID_REQUEST"},
    ]


def test_a_consumer_moves_on_and_leaves() -> None:
    operations = [
        *START,
        *(snapshot(f"s{number}") for number in range(1, 5)),
        {"op": "consumer", **PLACE, "consumer": "reader", "next": "s2"},
        {"op": "expire", **PLACE, **OLD},
        {"op": "consumer", **PLACE, "consumer": "reader", "next": "s3"},
        {"op": "expire", **PLACE, **OLD},
        {"op": "consumer", **PLACE, "consumer": "reader", "next": None},
        {"op": "expire", **PLACE, **OLD},
    ]
    assert [line["expired"] for line in play(operations)] == [["s1"], ["s2"], ["s3"]]


def test_what_expired_gives_back_its_bytes() -> None:
    put = {"op": "put_key", **PLACE, "key": "k", "size": 10}
    operations = [
        *START,
        {**put, "tag": "v1"},
        snapshot("s1", 10),
        {**put, "tag": "v2"},
        snapshot("s2", 20),
        {**put, "tag": "v3"},
        {"op": "expire", **PLACE, **OLD},
        {"op": "settle"},
        {"op": "observe", "label": "after"},
    ]
    expired, observed = play(operations)
    assert expired["expired"] == ["s1"]
    assert observed["reclaimed"] == ["v1"]


def test_the_workload_that_the_real_plane_plays_too() -> None:
    client = InMemoryClient(InMemoryPlane(shards=2))
    assert list(Replay(client, first_shard=1).run(OPERATIONS)) == LINES
    place = ("retained", "tree")
    rows = client.snapshots(1).snapshots(*place)
    assert [row.name.removeprefix("snap-") for row in rows] == CHAIN
    assert client.metadata(1).space(*place).held_bytes == HELD_BYTES
