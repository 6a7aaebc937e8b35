"""What clients do in one chaos run: drawn lines of the workload format, and where the collector has to stand still.

Two volumes of two shards, a tree and a flat bucket. Puts, overwrites, deletes one by one and in bulk, renames, trees,
snapshots with tags, consumers and expiry, rollbacks. Beside them *episodes*, which mean something only as a whole: a
key that is deleted and brought back, a bucket that is emptied, deleted and made again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from services.workloads import workload

Place = dict[str, str]
Line = dict[str, Any]
_NAMES = ("a", "b", "c", "d")
_KNOWN_PATH_SHARE = 0.6
"""Of all operations: on a path that was put before, which may still be there."""
_SETTLE_SHARE = 0.008
_SIZES = (0, 5, 4_000, 70_000)
_OPERATION_WEIGHTS = {
    "put_key": 50,
    "delete_key": 10,
    "delete_keys": 4,
    "rename_key": 7,
    "rename_dir": 5,
    "mkdir": 3,
    "delete_dir": 7,
    "create_snapshot": 8,
    "delete_snapshot": 5,
    "rollback": 1,
    "tag": 2,
    "untag": 1,
    "consumer": 2,
    "expire": 2,
    "undelete episode": 3,
    "remade bucket episode": 1,
}
SECONDS_BETWEEN_OPERATIONS = 10
"""By the account of the snapshots: what expires must not depend on when a run is played."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """From before one operation until before another nothing of a bucket may be claimed: the workload relies on it."""

    first: int
    last: int
    volume: str
    bucket: str


@dataclass(slots=True)
class DrawnWorkload:
    """The operations of a run, by number, and the standstills within them."""

    operations: list[tuple[int, workload.Operation]] = field(default_factory=list)
    standstills: list[Standstill] = field(default_factory=list)


def draw_workload(random: Random, seed: int) -> DrawnWorkload:
    """The workload of a seed, on volumes that are called after it."""
    return _Drawing(random, seed).drawn()


class _Drawing:
    """One workload while it is drawn."""

    def __init__(self, random: Random, seed: int) -> None:
        self._random = random
        self._places: list[Place] = [{"volume": f"chaos-{seed}-{letter}", "bucket": "bucket"} for letter in "ab"]
        self._lines: list[Line] = []
        self._standstills: list[Standstill] = []
        self._paths: list[str] = []
        self._snapshots: dict[str, list[str]] = {place["volume"]: [] for place in self._places}

    def drawn(self) -> DrawnWorkload:
        self._draw()
        parsed = [(number, workload.parse_line(json.dumps(line), number)) for number, line in enumerate(self._lines)]
        return DrawnWorkload(parsed, self._standstills)

    def _draw(self) -> None:
        random = self._random
        for place, layout in zip(self._places, random.sample(["FSO", "OBS"], 2), strict=True):
            self._lines.append({"op": "create_volume", "volume": place["volume"]})
            self._add("create_bucket", place, layout=layout)
        for _ in range(random.randint(40, 120)):
            self._draw_operation(random.choice(self._places))
            if random.random() < _SETTLE_SHARE:
                self._settle(f"after {len(self._lines)}")
        for place in self._places:
            snapshots = self._snapshots[place["volume"]]
            for snapshot in random.sample(snapshots, len(snapshots) // 2):
                self._add("delete_snapshot", place, snapshot=snapshot)
        self._settle("end")

    def _settle(self, label: str) -> None:
        self._lines += [{"op": "settle"}, {"op": "observe", "label": label}]

    def _add(self, kind: str, place: Place, **fields: Any) -> None:
        self._lines.append({"op": kind, **place, **fields})

    def _draw_operation(self, place: Place) -> None:
        kind = self._random.choices(list(_OPERATION_WEIGHTS), list(_OPERATION_WEIGHTS.values()))[0]
        match kind:
            case "undelete episode":
                self._undelete(place)
            case "remade bucket episode":
                self._remake_bucket(place)
            case "put_key":
                self._put(place, self._known_or_new_path())
            case "create_snapshot":
                self._create(place)
            case "expire" | "tag" | "untag" | "consumer" | "delete_snapshot" | "rollback":
                self._add(kind, place, **self._snapshot_fields(kind, self._snapshots[place["volume"]]))
            case _:
                self._add(kind, place, **self._path_fields(kind))

    def _path_fields(self, kind: str) -> Line:
        random, path = self._random, self._known_or_new_path()
        if kind in ("rename_dir", "delete_dir"):
            path = path.rpartition("/")[0] or path
        fields: dict[str, Line] = {
            "delete_key": {"key": path},
            "delete_keys": {"keys": [self._known_or_new_path() for _ in range(random.randint(1, 6))]},
            "rename_key": {"from": path, "to": _path(random)},
            "rename_dir": {"from": path, "to": _path(random)},
            "mkdir": {"dir": path},
            "delete_dir": {"dir": path},
        }
        return fields[kind]

    def _snapshot_fields(self, kind: str, snapshots: list[str]) -> Line:
        random, now_s = self._random, len(self._lines) * SECONDS_BETWEEN_OPERATIONS
        one = random.choice([*snapshots, "none"])
        least = random.randint(1, 3)
        fields: dict[str, Line] = {
            "delete_snapshot": {"snapshot": one},
            "rollback": {"snapshot": random.choice([*snapshots[-2:], "none"])},
            "tag": {"snapshot": one, "tag": random.choice(("tag-one", "tag-two"))},
            "untag": {"snapshot": one, "tag": random.choice(("tag-one", "tag-two"))},
            "consumer": {"consumer": random.choice(("reader", "writer")), "next": random.choice([one, one, None])},
            "expire": {
                "num_retained_min": least,
                "num_retained_max": random.choice((None, least, least + 3)),
                "time_retained_s": random.choice((0, 100, now_s)),
                "expire_limit": random.choice((1, 3, 50)),
                "now_s": now_s,
            },
        }
        return fields[kind]

    def _known_or_new_path(self) -> str:
        if self._paths and self._random.random() < _KNOWN_PATH_SHARE:
            return self._random.choice(self._paths)
        return _path(self._random)

    def _put(self, place: Place, path: str) -> None:
        self._paths.append(path)
        size = self._random.choice(_SIZES)
        self._add("put_key", place, key=path, size=size, tag=f"t{len(self._lines)}")

    def _create(self, place: Place) -> None:
        number = len(self._lines)
        self._snapshots[place["volume"]].append(f"snap{number}")
        self._add("create_snapshot", place, snapshot=f"snap{number}", at_s=number * SECONDS_BETWEEN_OPERATIONS)

    def _undelete(self, place: Place) -> None:
        """A key that dies and is brought back before anything may claim it; or is it held, or its place taken?"""
        random, number = self._random, len(self._lines)
        path = f"undo{number}" + random.choice(("", "/x"))
        self._put(place, path)
        if random.random() < 0.3:
            self._create(place)
        first = len(self._lines)
        if random.random() < 0.5:
            self._add("delete_key", place, key=path)
        else:
            self._add("delete_keys", place, keys=[path, f"{path}-never-put"])
        if random.random() < 0.3:
            self._create(place)
        for _ in range(random.randint(0, 2)):
            self._put(random.choice(self._places), random.choice((path, _path(random))))
        self._add("undelete_key", place, key=path)
        self._standstills.append(Standstill(first, len(self._lines), place["volume"], place["bucket"]))
        self._put(place, _path(random))  # somebody has to be behind the end of the standstill

    def _remake_bucket(self, place: Place) -> None:
        """A bucket whose name comes again: what is left of the first one has to go, and nothing of the second."""
        random = self._random
        again = {"volume": place["volume"], "bucket": f"again{len(self._lines)}"}
        layouts = random.choice((("FSO", "OBS"), ("OBS", "FSO"), ("FSO", "FSO")))
        self._add("create_bucket", again, layout=layouts[0])
        keys = [f"key{one}" for one in range(random.randint(1, 4))]
        for key in keys:
            self._add("put_key", again, key=key, size=random.choice(_SIZES), tag=f"t{len(self._lines)}")
        if random.random() < 0.2:
            self._add("delete_bucket", again)  # refused: it is not empty
        self._add("delete_keys", again, keys=keys)
        self._add("delete_bucket", again)
        self._add("create_bucket", again, layout=layouts[1])
        for key in random.sample(keys, random.randint(1, len(keys))):
            self._add("put_key", again, key=key, size=random.choice(_SIZES), tag=f"t{len(self._lines)}")
        if random.random() < 0.3:
            self._add("delete_key", again, key=keys[0])


def _path(random: Random) -> str:
    return "/".join(random.choice(_NAMES) for _ in range(random.randint(1, 4)))
