"""A replay's answers about space: exact without a settle in the workload, and refused with a code."""

from __future__ import annotations

import json
from typing import Any

from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import parse_line

PLACE = {"volume": "v", "bucket": "b"}
START = [
    {"op": "create_volume", "volume": "v"},
    {"op": "create_bucket", **PLACE, "layout": "FSO"},
    {"op": "put_key", **PLACE, "key": "d/e/x", "size": 1_000, "tag": "p1"},
    {"op": "put_key", **PLACE, "key": "d/y", "size": 0, "tag": "p2"},
    {"op": "create_snapshot", **PLACE, "snapshot": "s1"},
]


def answers(*operations: dict[str, Any]) -> list[dict[str, Any]]:
    replay = Replay(InMemoryClient(InMemoryPlane()))
    lines = [json.dumps(operation) for operation in (*START, *operations)]
    return list(replay.run((number, parse_line(line, number)) for number, line in enumerate(lines)))


def test_a_directory_that_was_deleted_a_moment_ago_is_expanded_first() -> None:
    assert answers(
        {"op": "delete_dir", **PLACE, "dir": "d"},
        {"op": "what_if", **PLACE, "snapshots": ["s1"]},
    ) == [{"op": 6, "freed_bytes": 1_000, "freed_versions": 1}]
    assert answers(
        {"op": "delete_dir", **PLACE, "dir": "d"},
        {"op": "plan", **PLACE, "free_bytes": 1},
        {"op": "explain", **PLACE, "path": "d/e/x"},
        {"op": "explain", **PLACE, "snapshot": "s1"},
    ) == [
        {"op": 6, "snapshots": ["s1"], "freed_bytes": 1_000},
        {"op": 7, "held_by": ["s1"], "bytes": 1_000},
        {"op": 8, "held_by": ["s1"], "bytes": 1_000},
    ]


def test_every_question_has_a_line_of_its_own() -> None:
    assert answers(
        {"op": "put_key", **PLACE, "key": "d/e/x", "size": 20, "tag": "p3"},
        {"op": "create_snapshot", **PLACE, "snapshot": "s2"},
        {"op": "what_if", **PLACE, "snapshots": []},
        {"op": "what_if", **PLACE, "snapshots": ["s2", "s1"]},
        {"op": "plan", **PLACE, "free_bytes": 0},
        {"op": "plan", **PLACE, "free_bytes": 5_000},
        {"op": "explain", **PLACE, "path": "d/e/x"},
        {"op": "explain", **PLACE, "path": "d/y"},
        {"op": "explain", **PLACE, "path": "nothing"},
        {"op": "explain", **PLACE, "snapshot": "s2"},
    ) == [
        {"op": 7, "freed_bytes": 0, "freed_versions": 0},
        {"op": 8, "freed_bytes": 1_000, "freed_versions": 1},
        {"op": 9, "snapshots": [], "freed_bytes": 0},
        {"op": 10, "snapshots": ["s1"], "freed_bytes": 1_000},
        {"op": 11, "held_by": ["s1", "s2"], "bytes": 1_020},
        {"op": 12, "held_by": ["s1", "s2"], "bytes": 0},
        {"op": 13, "held_by": [], "bytes": 0},
        {"op": 14, "held_by": ["s2"], "bytes": 20},
    ]


def test_what_is_not_there_is_refused() -> None:
    assert answers(
        {"op": "what_if", **PLACE, "snapshots": ["s1", "s9"]},
        {"op": "explain", **PLACE, "snapshot": "s9"},
        {"op": "plan", "volume": "v", "bucket": "none", "free_bytes": 1},
        {"op": "explain", "volume": "none", "bucket": "b", "path": "x"},
        {"op": "delete_snapshot", **PLACE, "snapshot": "s1"},
        {"op": "what_if", **PLACE, "snapshots": ["s1"]},
    ) == [
        {"op": 5, "error": "FILE_NOT_FOUND"},
        {"op": 6, "error": "FILE_NOT_FOUND"},
        {"op": 7, "error": "BUCKET_NOT_FOUND"},
        {"op": 8, "error": "VOLUME_NOT_FOUND"},
        {"op": 10, "error": "FILE_NOT_FOUND"},
    ]


def test_a_plan_leaves_alone_what_a_tag_or_a_consumer_keeps() -> None:
    second: list[dict[str, Any]] = [
        {"op": "put_key", **PLACE, "key": "d/e/x", "size": 20, "tag": "p3"},
        {"op": "create_snapshot", **PLACE, "snapshot": "s2"},
        {"op": "delete_dir", **PLACE, "dir": "d"},
        {"op": "create_snapshot", **PLACE, "snapshot": "s3"},
        {"op": "settle"},
    ]
    asked: dict[str, Any] = {"op": "plan", **PLACE, "free_bytes": 10}
    assert answers(
        *second,
        asked,
        {"op": "tag", **PLACE, "snapshot": "s1", "tag": "audit"},
        asked,
        {"op": "consumer", **PLACE, "consumer": "reader", "next": "s2"},
        asked,
        {"op": "untag", **PLACE, "snapshot": "s1", "tag": "audit"},
        asked,
    ) == [
        {"op": 10, "snapshots": ["s1"], "freed_bytes": 1_000},
        {"op": 12, "snapshots": ["s2"], "freed_bytes": 20},
        {"op": 14, "snapshots": [], "freed_bytes": 0},
        {"op": 16, "snapshots": ["s1"], "freed_bytes": 1_000},
    ]
