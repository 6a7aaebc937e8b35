"""Random workloads with rollbacks, and what the brute-force model says of them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from services.workloads import workload

_NAMES = ("a", "b", "c")


def _path(random: Random) -> str:
    return "/".join(random.choice(_NAMES) for _ in range(random.randint(1, 3)))


_WEIGHTS = {
    "put_key": 45,
    "delete_key": 10,
    "rename_key": 7,
    "rename_dir": 7,
    "delete_dir": 7,
    "create_snapshot": 10,
    "rollback": 8,
    "delete_snapshot": 3,
    "settle": 3,
}


def _operation(random: Random, place: dict[str, str], number: int, snapshots: list[str]) -> dict[str, Any]:
    kind = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    path = _path(random)
    if kind == "create_snapshot":
        snapshots.append(f"snap{number}")
    fields: dict[str, dict[str, Any]] = {
        "put_key": {"key": path, "size": random.choice((0, 5, 7)), "tag": f"t{number}"},
        "delete_key": {"key": path},
        "rename_key": {"from": path, "to": _path(random)},
        "rename_dir": {"from": path, "to": _path(random)},
        "delete_dir": {"dir": path},
        "create_snapshot": {"snapshot": f"snap{number}"},
        "rollback": {"snapshot": random.choice([*snapshots[-3:] * 3, "none"])},
        "delete_snapshot": {"snapshot": random.choice([*snapshots, "none"])},
    }
    return {"op": kind, **place, **fields[kind]} if kind in fields else {"op": kind}


def random_workload(seed: int, volume: str) -> list[tuple[int, workload.Operation]]:
    """Puts, deletes, renames, snapshots and rollbacks in one bucket; each waits for nothing but where it says so."""
    random = Random(seed)
    place = {"volume": volume, "bucket": "b"}
    operations: list[dict[str, Any]] = [
        {"op": "create_volume", "volume": volume},
        {"op": "create_bucket", **place, "layout": random.choice(("FSO", "OBS"))},
    ]
    snapshots: list[str] = []
    for number in range(len(operations), random.randint(10, 60)):
        operations.append(_operation(random, place, number, snapshots))
        if random.random() < 0.05:
            operations += [{"op": "settle"}, {"op": "observe", "label": ""}]
    operations += [{"op": "settle"}, {"op": "observe", "label": "end"}]
    lines = map(json.dumps, operations)
    return [(number, workload.parse_line(line, number)) for number, line in enumerate(lines)]
