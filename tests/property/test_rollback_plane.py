"""Workloads with rollbacks, played by the whole plane in memory and by the brute-force model: line by line the same."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.client import workload
from services.client.namespace_model import NamespaceModel, OperationRefusedError
from services.client.replay import Replay
from services.plane.in_memory import InMemoryPlane
from services.plane.in_memory_client import InMemoryClient
from services.snapshots.settings import SnapshotsSettings

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
        "rollback": {"snapshot": random.choice([*snapshots, "none"])},
        "delete_snapshot": {"snapshot": random.choice([*snapshots, "none"])},
    }
    return {"op": kind, **place, **fields[kind]} if kind in fields else {"op": kind}


def _workload(seed: int) -> list[dict[str, Any]]:
    random = Random(seed)
    place = {"volume": "vol", "bucket": "b"}
    operations: list[dict[str, Any]] = [
        {"op": "create_volume", "volume": "vol"},
        {"op": "create_bucket", **place, "layout": random.choice(("FSO", "OBS"))},
    ]
    snapshots: list[str] = []
    for number in range(len(operations), random.randint(10, 60)):
        operations.append(_operation(random, place, number, snapshots))
        if random.random() < 0.05:
            operations += [{"op": "settle"}, {"op": "observe", "label": ""}]
    return [*operations, {"op": "settle"}, {"op": "observe", "label": "end"}]


def _of_model(operations: list[tuple[int, workload.Operation]]) -> list[Any]:
    model, lines = NamespaceModel(), []
    for number, operation in operations:
        try:
            model.apply(number, operation)
        except OperationRefusedError as refusal:
            lines.append({"op": number, "error": refusal.code})
        if isinstance(operation, workload.Observe):
            lines.append(json.loads(json.dumps(model.observe(number, operation.label))))
    return lines


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_plane_answers_as_the_model(seed: int) -> None:
    operations = [
        (number, workload.parse_line(json.dumps(operation), number)) for number, operation in enumerate(_workload(seed))
    ]
    page = Random(seed).choice((1, 3, 10, 2_000))
    plane = InMemoryPlane(snapshots_settings=SnapshotsSettings(max_rollback_page_entries=page))
    lines = list(Replay(InMemoryClient(plane)).run(operations))
    assert [json.loads(json.dumps(line)) for line in lines] == _of_model(operations)
