"""Random workloads that write keys in steps, with renames, deletions, snapshots and rollbacks in between."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

from services.workloads import workload
from services.workloads.judge.model_bucket import OperationRefusedError
from services.workloads.judge.namespace_model import NamespaceModel

_SIZES = (0, 1, 100, 4_096, 4_097, 9_000)
_GROWTH = (0, 0, 10, 500, 4_000, 4_096, 9_000)
_FLAT_PATHS = ("a", "b", "a/b", "c/1")
_TREE_PATHS = ("a", "b", "d/a", "d/b", "d/e/a", "e/a")
_DIRECTORIES = ("d", "d/e", "e", "a")
_WEIGHTS = {
    "put_key": 10,
    "delete_key": 7,
    "rename_key": 6,
    "rename_dir": 4,
    "delete_dir": 4,
    "mkdir": 2,
    "create_snapshot": 9,
    "delete_snapshot": 4,
    "rollback": 3,
    "open_key": 14,
    "hsync": 20,
    "commit_key": 8,
    "abandon": 3,
    "expire_open_keys": 2,
    "mpu_initiate": 5,
    "mpu_part": 14,
    "mpu_complete": 8,
    "mpu_abort": 1,
    "expire_uploads": 1,
    "settle": 3,
}


class _Author:
    """Writes one workload. The model says which handles are still held, and how long their keys are."""

    def __init__(self, seed: int, volume: str) -> None:
        self._random = Random(seed)
        self._place = {"volume": volume, "bucket": "b"}
        self._is_tree = self._random.random() < 0.6
        self._model = NamespaceModel()
        self._sizes: dict[str, int] = {}
        self._snapshots: list[str] = []
        self._uploads: list[str] = []
        self._tags: list[str] = ["none"]
        self.operations: list[tuple[int, workload.Operation]] = []

    def write(self) -> None:
        """Write all of it."""
        self._add({"op": "create_volume", "volume": self._place["volume"]})
        self._add({"op": "create_bucket", **self._place, "layout": "FSO" if self._is_tree else "OBS"})
        for _ in range(self._random.randint(10, 70)):
            self._write_one()
            if self._random.random() < 0.07:
                self._observe()
        self._observe()
        for _ in range(2):
            left = list(self._model.snapshots(self._place["volume"], "b"))
            for name in left[:: self._random.choice((1, 2))]:
                self._add({"op": "delete_snapshot", **self._place, "snapshot": name})
            self._observe()

    def _observe(self) -> None:
        self._add({"op": "settle"})
        self._add({"op": "observe", "label": ""})

    def _add(self, line: dict[str, Any]) -> None:
        number = len(self.operations)
        operation = workload.parse_line(json.dumps(line), number)
        self.operations.append((number, operation))
        with suppress(OperationRefusedError):
            self._model.apply(number, operation)

    def _write_one(self) -> None:
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if kind in ("expire_open_keys", "expire_uploads", "settle"):
            self._add({"op": kind})
        elif kind in ("hsync", "commit_key", "abandon"):
            self._write_on(kind)
        elif kind.startswith("mpu_"):
            self._write_upload(kind)
        elif kind in ("create_snapshot", "delete_snapshot", "rollback"):
            self._change_snapshots(kind)
        else:
            self._change_namespace(kind)

    def _path(self) -> str:
        return self._random.choice(_TREE_PATHS if self._is_tree else _FLAT_PATHS)

    def _tag(self) -> str:
        self._tags.append(f"p{len(self.operations)}")
        return self._tags[-1]

    def _write_on(self, kind: str) -> None:
        handles = self._model.steps.living_handles()
        if not handles:
            return
        handle = self._random.choice(handles)
        line: dict[str, Any] = {"op": kind, **self._place, "handle": handle}
        if kind != "abandon":
            self._sizes[handle] += self._random.choice(_GROWTH)
            line["size"] = self._sizes[handle]
        self._add(line)

    def _write_upload(self, kind: str) -> None:
        random, number = self._random, len(self.operations)
        if kind == "mpu_initiate":
            self._add({"op": kind, **self._place, "key": self._path(), "upload": f"u{number}"})
            if f"u{number}" in self._model.steps.part_numbers():
                self._uploads.append(f"u{number}")
            return
        if not self._uploads:
            return
        line: dict[str, Any] = {"op": kind, **self._place, "upload": random.choice(self._uploads[-3:])}
        if kind == "mpu_part":
            part = random.choice((1, 1, 2, 2, 3, 9, 10_001) if random.random() < 0.1 else (1, 2, 3))
            line |= {"part": part, "size": random.choice(_SIZES), "tag": self._tag()}
        elif kind == "mpu_complete":
            parts = self._model.steps.part_numbers().get(line["upload"], [])
            parts = random.choice((parts, parts, parts[1:], parts[:1], [*parts, 20], [3, 1]))
            line |= {"parts": parts, "tag": self._tag()}
        self._add(line)

    def _change_snapshots(self, kind: str) -> None:
        if kind == "create_snapshot":
            self._snapshots.append(f"s{len(self.operations)}")
            name = self._snapshots[-1]
        else:
            name = self._random.choice(self._snapshots[-3:] or ["none"])
        self._add({"op": kind, **self._place, "snapshot": name})

    def _change_namespace(self, kind: str) -> None:
        random, number = self._random, len(self.operations)
        fields: dict[str, dict[str, Any]] = {
            "put_key": {"key": self._path(), "size": random.choice(_SIZES), "tag": f"p{number}", **self._condition()},
            "delete_key": {"key": self._path()},
            "rename_key": {"from": self._path(), "to": self._path()},
            "rename_dir": {"from": random.choice(_DIRECTORIES), "to": random.choice(_DIRECTORIES)},
            "delete_dir": {"dir": random.choice(_DIRECTORIES)},
            "mkdir": {"dir": random.choice(_DIRECTORIES)},
            "open_key": {
                "key": self._path(),
                "size": random.choice(_SIZES),
                "tag": f"p{number}",
                "handle": f"h{number}",
            },
        }
        if kind in ("put_key", "open_key"):
            self._tag()
            self._sizes[f"h{number}"] = fields["open_key"]["size"]
        self._add({"op": kind, **self._place, **fields[kind]})

    def _condition(self) -> dict[str, Any]:
        if self._random.random() < 0.6:
            return {}
        if self._random.random() < 0.5:
            return {"if_absent": True}
        return {"if_generation": self._random.choice(self._tags[-5:])}


def random_workload(seed: int, volume: str) -> list[tuple[int, workload.Operation]]:
    """Return a workload on one bucket."""
    author = _Author(seed, volume)
    author.write()
    return author.operations
