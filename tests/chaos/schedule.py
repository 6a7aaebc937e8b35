"""What one chaos run does, all of it drawn from a seed: a workload, and the faults that strike while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from schemas.records import BreakerLimits, CollectorState
from schemas.topics import DEAD_LETTERS, TOPICS
from services.client import workload
from services.plane.stack_settings import BROKER, METADATA, SERVICES, STREAMING
from services.runtime.probe import Point

KEY_DELETION = "key_deletion"
LOSABLE = ("snapshots", KEY_DELETION, "directory_deletion")
"""Services that may start on nothing while the others go on: metadata is rebuilt, and the block store is its own."""
REPEATED_TOPICS = tuple(topic.name for topic in TOPICS if topic is not DEAD_LETTERS)
LONGEST_DELAY_SECONDS = 0.6
DAY_SECONDS = 86_400


class FaultKind(Enum):
    """What goes wrong."""

    KILL = "kill"
    """SIGKILL, now."""
    CRASH_AT = "crash_at"
    """SIGKILL, and started again so that it dies once more at a named point."""
    PAUSE = "pause"
    """Stands still for a while: what it should read and answer comes late."""
    CLOCK = "clock"
    """SIGKILL, and started again with a clock that is ahead or behind."""
    DISK = "disk"
    """No file of the process may grow any more: its disk is full."""
    LOSS = "loss"
    """SIGKILL, and its databases are gone when it is started again."""
    REPEAT = "repeat"
    """Messages that are in the log are appended to it again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, struck when the workload has come to an operation, and a moment later."""

    operation: int
    delay_seconds: float
    kind: FaultKind
    target: str
    """A process, or the topic whose messages are repeated."""
    point: Point | None = None
    passes: int = 0
    """At which pass of the point; of a cluster of brokers, which one."""
    seconds: float = 0.0
    """How long a pause is or a broker is away, or how far a clock jumps."""
    messages: int = 0
    back: int = 0
    """Repeated messages: how many, and how many before the end the first of them lies."""
    is_to_the_end: bool = False
    """Whether all behind the first is repeated, as a sender does that has crashed; else as a stray would."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What an operator has the collector do for a bucket, before an operation."""

    operation: int
    volume: str
    bucket: str
    state: CollectorState


@dataclass(frozen=True, slots=True)
class Limit:
    """What an operator lets go of a bucket within an hour, from before an operation until he looks before a settle."""

    operation: int
    last_operation: int
    """The settle before which he sees whether the breaker has tripped, resets it, and takes the limits away."""
    volume: str
    bucket: str
    limits: BreakerLimits


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run."""

    seed: int
    operations: list[tuple[int, workload.Operation]]
    faults: list[Fault]
    holds: list[Hold]
    """Each ends before the next settle: what is seen then is what is seen without it."""
    limits: list[Limit]
    """Likewise."""


POINTS_OF_SERVICES = tuple(
    (service, point)
    for service in SERVICES
    for point in Point
    if (service == METADATA or point is not Point.INSIDE_CHECKPOINT)
    and (service == KEY_DELETION or point is not Point.BETWEEN_SCM_AND_PURGE)
)
"""Every named point of every service that passes it; so many seeds in a row strike each of them."""
_MOST_PASSES = {
    Point.BEFORE_WRITE: 8,
    Point.AFTER_WRITE: 8,
    Point.MID_PUBLISH: 30,
    Point.AFTER_PUBLISH: 8,
    Point.INSIDE_CHECKPOINT: 2,
    Point.BETWEEN_SCM_AND_PURGE: 3,
}
_FAULT_WEIGHTS = {
    FaultKind.KILL: 30,
    FaultKind.CRASH_AT: 30,
    FaultKind.PAUSE: 10,
    FaultKind.CLOCK: 8,
    FaultKind.DISK: 4,
    FaultKind.LOSS: 8,
    FaultKind.REPEAT: 30,
}
_BROKER_SHARE, _STREAMING_SHARE = 0.12, 0.12
"""Of all schedules: these two are slow to start again."""
_LIMITS_SHARE = 0.3
"""Of all times between two settles: an operator who looks for a trip settles once more."""


def draw_schedule(seed: int) -> Schedule:
    """The run of a seed."""
    random = Random(seed)
    lines = list(_lines(random, seed))
    operations = [(number, workload.parse_line(json.dumps(line), number)) for number, line in enumerate(lines)]
    faults = sorted(_faults(random, seed, len(lines)), key=lambda fault: fault.operation)
    holds = sorted(_holds(Random(f"holds {seed}"), operations), key=lambda hold: hold.operation)
    limits = list(_limits(Random(f"limits {seed}"), operations))
    return Schedule(seed, operations, faults, holds, limits)


def _limits(random: Random, operations: list[tuple[int, workload.Operation]]) -> Iterator[Limit]:
    """Limits that everyday work exceeds, now and then: again a source of their own."""
    buckets = [one for _, one in operations if isinstance(one, workload.CreateBucket)]
    begin = max(number for number, one in operations if isinstance(one, workload.CreateBucket)) + 1
    for end in (number for number, one in operations if isinstance(one, workload.Settle)):
        place, first = random.choice(buckets), random.randint(begin, end)
        limits = BreakerLimits(random.choice((1, 5, 20)), random.choice((0, 4_000)), random.randint(0, 2))
        if random.random() < _LIMITS_SHARE:
            yield Limit(first, end, place.volume, place.bucket, limits)
        begin = end + 2


def _holds(random: Random, operations: list[tuple[int, workload.Operation]]) -> Iterator[Hold]:
    """Pauses and shadows of either bucket: a source of their own, so that they change no fault of a seed."""
    buckets = [one for _, one in operations if isinstance(one, workload.CreateBucket)]
    begin = max(number for number, one in operations if isinstance(one, workload.CreateBucket)) + 1
    for end in (number for number, one in operations if isinstance(one, workload.Settle)):
        for place in random.choices(buckets, k=random.randint(0, 2)):
            first, last = sorted((random.randint(begin, end), random.randint(begin, end)))
            state = random.choice((CollectorState.PAUSED, CollectorState.SHADOW))
            yield Hold(first, place.volume, place.bucket, state)
            yield Hold(last, place.volume, place.bucket, CollectorState.RUNNING)
        begin = end + 2  # behind what is observed then


def _faults(random: Random, seed: int, operations: int) -> Iterator[Fault]:
    def moment(last_share: float = 1.0) -> tuple[int, float]:
        last = max(2, int((operations - 2) * last_share))
        return random.randint(2, last), random.uniform(0, LONGEST_DELAY_SECONDS)

    service, point = POINTS_OF_SERVICES[seed % len(POINTS_OF_SERVICES)]
    yield Fault(*moment(0.3), FaultKind.CRASH_AT, service, point, random.randint(1, _MOST_PASSES[point]))
    if random.random() < _BROKER_SHARE:
        yield Fault(*moment(), FaultKind.KILL, BROKER, passes=random.randrange(6), seconds=random.uniform(0, 3))
    if random.random() < _STREAMING_SHARE:
        yield Fault(*moment(), FaultKind.KILL, STREAMING)
    for kind in random.choices(list(_FAULT_WEIGHTS), list(_FAULT_WEIGHTS.values()), k=random.randint(2, 5)):
        yield _fault(random, kind, moment())


def _fault(random: Random, kind: FaultKind, moment: tuple[int, float]) -> Fault:
    target = random.choice(SERVICES)
    match kind:
        case FaultKind.CRASH_AT:
            target, point = random.choice(POINTS_OF_SERVICES)
            return Fault(*moment, kind, target, point, random.randint(1, _MOST_PASSES[point]))
        case FaultKind.PAUSE:
            target = random.choice((*SERVICES, STREAMING, BROKER))
            return Fault(*moment, kind, target, seconds=random.uniform(0.2, 1.5))
        case FaultKind.CLOCK:
            return Fault(*moment, kind, target, seconds=random.choice((-DAY_SECONDS, -90, 90, DAY_SECONDS)))
        case FaultKind.LOSS:
            return Fault(*moment, kind, random.choice(LOSABLE))
        case FaultKind.REPEAT:
            back = random.randint(1, 200)
            messages = random.randint(1, 20)
            topic, is_to_the_end = random.choice(REPEATED_TOPICS), random.random() < 0.5
            return Fault(*moment, kind, topic, messages=messages, back=back, is_to_the_end=is_to_the_end)
        case _:
            return Fault(*moment, kind, target)


_NAMES = ("a", "b", "c", "d")
_KNOWN_PATH_SHARE = 0.6
"""Of all operations: on a path that was put before, which may still be there."""
_OPERATION_WEIGHTS = {
    "put_key": 50,
    "delete_key": 12,
    "rename_key": 7,
    "rename_dir": 5,
    "mkdir": 3,
    "delete_dir": 7,
    "create_snapshot": 7,
    "delete_snapshot": 5,
    "rollback": 1,
}


def _path(random: Random) -> str:
    return "/".join(random.choice(_NAMES) for _ in range(random.randint(1, 4)))


def _lines(random: Random, seed: int) -> Iterator[dict[str, Any]]:
    """Puts, overwrites, deletes, renames, trees and snapshots, in a tree and a flat bucket of two shards."""
    places = [{"volume": f"chaos-{seed}-{letter}", "bucket": "bucket"} for letter in "ab"]
    layouts = random.sample(["FSO", "OBS"], 2)
    for place, layout in zip(places, layouts, strict=True):
        yield {"op": "create_volume", "volume": place["volume"]}
        yield {"op": "create_bucket", **place, "layout": layout}
    paths: list[str] = []
    snapshots: dict[str, list[str]] = {place["volume"]: [] for place in places}
    for number in range(random.randint(40, 120)):
        place = random.choice(places)
        yield _line(random, place, number, snapshots[place["volume"]], paths)
        if random.random() < 0.008:
            yield {"op": "settle"}
            yield {"op": "observe", "label": f"after {number}"}
    for place in places:
        for snapshot in random.sample(snapshots[place["volume"]], len(snapshots[place["volume"]]) // 2):
            yield {"op": "delete_snapshot", **place, "snapshot": snapshot}
    yield {"op": "settle"}
    yield {"op": "observe", "label": "end"}


def _line(random: Random, place: dict[str, str], number: int, snapshots: list[str], paths: list[str]) -> dict[str, Any]:
    kind = random.choices(list(_OPERATION_WEIGHTS), list(_OPERATION_WEIGHTS.values()))[0]
    path = _path(random)
    if paths and random.random() < _KNOWN_PATH_SHARE:
        path = random.choice(paths)
        if kind in ("rename_dir", "delete_dir"):
            path = path.rpartition("/")[0] or path
    if kind == "put_key":
        paths.append(path)
    if kind == "create_snapshot":
        snapshots.append(f"snap{number}")
    fields: dict[str, dict[str, Any]] = {
        "put_key": {"key": path, "size": random.choice((0, 5, 4_000, 70_000)), "tag": f"t{number}"},
        "delete_key": {"key": path},
        "rename_key": {"from": path, "to": _path(random)},
        "rename_dir": {"from": path, "to": _path(random)},
        "mkdir": {"dir": path},
        "delete_dir": {"dir": path},
        "create_snapshot": {"snapshot": f"snap{number}"},
        "delete_snapshot": {"snapshot": random.choice([*snapshots, "none"])},
        "rollback": {"snapshot": random.choice([*snapshots[-2:], "none"])},
    }
    return {"op": kind, **place, **fields[kind]}
