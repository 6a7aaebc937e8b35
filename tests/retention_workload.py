"""A workload about retention, and what any plane writes about it."""

from __future__ import annotations

import json
from typing import Any

from services.workloads.workload import Operation, parse_line

PLACE = {"volume": "retained", "bucket": "tree"}
OLD = {"num_retained_min": 1, "num_retained_max": None, "time_retained_s": 0, "expire_limit": 50, "now_s": 10_000}


def _put(tag: str, size: int) -> dict[str, Any]:
    return {"op": "put_key", **PLACE, "key": "k", "size": size, "tag": tag}


def _create(name: str, at_s: int) -> dict[str, Any]:
    return {"op": "create_snapshot", **PLACE, "snapshot": name, "at_s": at_s}


_STEPS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"op": "create_volume", "volume": "retained"}, None),
    ({"op": "create_bucket", **PLACE, "layout": "FSO"}, None),
    *(
        (step, None)
        for number in range(1, 7)
        for step in (_put(f"v{number}", number), _create(f"s{number}", 10 * number))
    ),
    ({"op": "delete_key", **PLACE, "key": "k"}, None),
    ({"op": "tag", **PLACE, "snapshot": "s2", "tag": "keep"}, None),
    ({"op": "tag", **PLACE, "snapshot": "s9", "tag": "other"}, {"error": "FILE_NOT_FOUND"}),
    ({"op": "delete_snapshot", **PLACE, "snapshot": "s2"}, {"error": "TAGGED_SNAPSHOT"}),
    ({"op": "consumer", **PLACE, "consumer": "reader", "next": "s4"}, None),
    ({"op": "expire", **PLACE, **OLD}, {"expired": ["s1", "s3"]}),
    ({"op": "consumer", **PLACE, "consumer": "reader", "next": None}, None),
    ({"op": "expire", **PLACE, **OLD, "num_retained_max": 3, "time_retained_s": 9_999}, {"expired": []}),
    ({"op": "expire", **PLACE, **OLD, "now_s": 55, "time_retained_s": 4}, {"expired": ["s4"]}),
    ({"op": "untag", **PLACE, "snapshot": "s2", "tag": "keep"}, None),
    ({"op": "expire", **PLACE, **OLD, "num_retained_min": 0}, {"error": "INVALID_REQUEST"}),
    ({"op": "expire", **PLACE, **OLD, "expire_limit": 1}, {"expired": ["s2"]}),
    (_create("s2", 70), None),
    ({"op": "settle"}, None),
]

OPERATIONS: list[tuple[int, Operation]] = [
    (number, parse_line(json.dumps(step), number)) for number, (step, _) in enumerate(_STEPS)
]
LINES = [{"op": number, **answer} for number, (_, answer) in enumerate(_STEPS) if answer is not None]
CHAIN = ["s5", "s6", "s2"]
HELD_BYTES = 5 + 6
