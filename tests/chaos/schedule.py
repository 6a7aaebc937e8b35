"""What one chaos run does, all of it drawn from a seed: a workload, and the faults that strike while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from schemas.records import BreakerLimits, CollectionState
from schemas.topics import DEAD_LETTERS, TOPICS
from services.log.shard_group import SESSION_SECONDS
from services.plane.stack.process_names import BROKER, METADATA, SERVICES, STREAMING
from services.runtime.loop.probe import Point
from services.workloads import workload
from tests.chaos.chaos_workload import DrawnWorkload, Standstill, draw_workload

KEY_DELETION = "key_deletion"
LOSABLE = ("snapshots", KEY_DELETION, "directory_deletion")
"""Services that may start on nothing while the others go on: metadata is rebuilt, and the block store is its own."""
REPEATED_TOPICS = tuple(topic.name for topic in TOPICS if topic is not DEAD_LETTERS)
TWINNED = (METADATA, KEY_DELETION, "directory_deletion")
"""Services of which two may run; snapshots stops at its next start when another one has begun since."""
LONGEST_DELAY_SECONDS = 0.6
DAY_SECONDS = 86_400


class FaultKind(Enum):
    """What goes wrong."""

    KILL = "kill"
    """SIGKILL, now."""
    CRASH_AT = "crash_at"
    """SIGKILL, and started again so that it dies once more at a named point."""
    PAUSE = "pause"
    """Stands still for a while, shorter or longer than the time-outs of Kafka's clients."""
    CUT = "cut"
    """Has no way to the broker for a while."""
    CLOCK = "clock"
    """SIGKILL, and started again with a clock that is ahead or behind."""
    DISK = "disk"
    """No file of the process may grow any more: its disk is full."""
    LOSS = "loss"
    """SIGKILL, and its databases are gone when it is started again."""
    TWIN = "twin"
    """A second process of the service runs beside it for a while, on a directory of its own: it begins from nothing."""
    REPEAT = "repeat"
    """Messages that are in the log are appended to it again."""
    WORKER = "worker"
    """A worker of Spark is killed with its executors, and started again."""
    TRIM = "trim"
    """An operator backs up all hosts, and trims the log."""


class CutKind(Enum):
    """How the way between a process and the broker is broken."""

    REFUSED = "refused"
    """Connections end, and none is made."""
    STALLED = "stalled"
    """Nothing passes either way, and goes on afterwards."""
    DEAF = "deaf"
    """What the process sends arrives; no answer comes back, and in the end the connections are gone."""


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
    """At which pass of the point; of a cluster of brokers or of Spark's workers, which one."""
    seconds: float = 0.0
    """How long a pause or a cut is, a broker is away or a twin runs, or how far a clock jumps."""
    cut: CutKind | None = None
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
    state: CollectionState
    is_needed: bool = False
    """The workload relies on it: it is carried out also where nothing else goes wrong."""


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
    and (service == KEY_DELETION or point is not Point.BETWEEN_SCM_AND_FINISH)
)
"""Every named point of every service that passes it; so many seeds in a row arm each of them."""
KILLED_IN_TURN = ((BROKER, "directory_deletion"), (STREAMING,), (METADATA,))
"""So many seeds in a row kill each of these at least once: what others rely on most, and what would seldom be drawn."""
_SELDOM = ("directory_deletion",)
"""Services that send little: most of their starts pass a point of publishing a few times only."""
_SELDOM_PASSES = 3
_MOST_PASSES = {
    Point.BEFORE_WRITE: 8,
    Point.AFTER_WRITE: 8,
    Point.MID_PUBLISH: 30,
    Point.AFTER_PUBLISH: 8,
    Point.INSIDE_CHECKPOINT: 2,
    Point.BETWEEN_SCM_AND_FINISH: 3,
}
_FAULT_WEIGHTS = {
    FaultKind.KILL: 30,
    FaultKind.CRASH_AT: 30,
    FaultKind.PAUSE: 10,
    FaultKind.CUT: 14,
    FaultKind.CLOCK: 8,
    FaultKind.DISK: 4,
    FaultKind.LOSS: 8,
    FaultKind.TWIN: 6,
    FaultKind.REPEAT: 30,
}
_LONG_SHARE = 0.12
"""Of pauses and cuts: longer than a producer tries (15 s), a broker is silent (3 s), a service backs off (5 s)."""
_LONG_SECONDS = (16.0, 40.0)
_WORKER_SHARE = 0.5
_LOSS_SHARE = 0.5
_ANY = 6
"""Chooses evenly among one, two or three brokers or workers."""
_LIMITS_SHARE = 0.3
"""Of all times between two settles: an operator who looks for a trip settles once more."""


def draw_schedule(seed: int, *, is_shared: bool = False) -> Schedule:
    """The run of a seed; ``is_shared``: on two hosts that share the shards, where more can go wrong."""
    random = Random(seed)
    drawn = draw_workload(random, seed)
    faults = list(_faults(random, seed, len(drawn.operations)))
    if is_shared:
        faults += _faults_of_hosts(Random(f"hosts {seed}"), len(drawn.operations))
    faults.sort(key=lambda fault: fault.operation)
    holds = sorted(_holds(Random(f"holds {seed}"), drawn), key=lambda hold: hold.operation)
    limits = list(_limits(Random(f"limits {seed}"), drawn.operations))
    return Schedule(seed, drawn.operations, faults, holds, limits)


def draw_interruptions(seed: int, operations: int) -> list[Fault]:
    """What strikes those that answer clients, while so many operations go on."""
    random, answering = Random(seed), (METADATA, "snapshots")
    kinds = (FaultKind.KILL, FaultKind.KILL, FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT)
    moments = sorted(random.randrange(1, operations) for _ in kinds)
    faults = []
    for number, kind in zip(moments, random.sample(kinds, len(kinds)), strict=True):
        cut = random.choice(list(CutKind)) if kind is FaultKind.CUT else None
        delay = random.uniform(0, LONGEST_DELAY_SECONDS)
        faults.append(Fault(number, delay, kind, random.choice(answering), seconds=random.uniform(0.5, 4.0), cut=cut))
    return faults


def _first_free(operations: list[tuple[int, workload.Operation]]) -> int:
    """The first operation behind those that make what all others need."""
    makes = (workload.CreateVolume, workload.CreateBucket)
    return next(number for number, one in operations if not isinstance(one, makes))


def _limits(random: Random, operations: list[tuple[int, workload.Operation]]) -> Iterator[Limit]:
    """Limits that everyday work exceeds, now and then: again a source of their own."""
    begin = _first_free(operations)
    buckets = [one for _, one in operations[:begin] if isinstance(one, workload.CreateBucket)]
    for end in (number for number, one in operations if isinstance(one, workload.Settle)):
        place, first = random.choice(buckets), random.randint(begin, end)
        limits = BreakerLimits(random.choice((1, 5, 20)), random.choice((0, 4_000)), random.randint(0, 2))
        if random.random() < _LIMITS_SHARE:
            yield Limit(first, end, place.volume, place.bucket, limits)
        begin = end + 2


def _holds(random: Random, drawn: DrawnWorkload) -> Iterator[Hold]:
    """The standstills of the workload, and pauses and shadows of either bucket that end within none of them.

    From a source of their own, so that they change no fault of a seed.
    """
    for still in drawn.standstills:
        yield Hold(still.first, still.volume, still.bucket, CollectionState.PAUSED, is_needed=True)
        yield Hold(still.last, still.volume, still.bucket, CollectionState.RUNNING, is_needed=True)
    begin = _first_free(drawn.operations)
    buckets = [one for _, one in drawn.operations[:begin] if isinstance(one, workload.CreateBucket)]
    for end in (number for number, one in drawn.operations if isinstance(one, workload.Settle)):
        for place in random.choices(buckets, k=random.randint(0, 2)):
            first, last = sorted((random.randint(begin, end), random.randint(begin, end)))
            state = random.choice((CollectionState.PAUSED, CollectionState.SHADOW))
            if not any(_disturbs(one, place.volume, first, last) for one in drawn.standstills):
                yield Hold(first, place.volume, place.bucket, state)
                yield Hold(last, place.volume, place.bucket, CollectionState.RUNNING)
        begin = end + 2  # behind what is observed then


def _disturbs(still: Standstill, volume: str, first: int, last: int) -> bool:
    """Whether an operator's hold would end a standstill, or be ended by it."""
    return still.volume == volume and first <= still.last and still.first <= last


def _faults(random: Random, seed: int, operations: int) -> Iterator[Fault]:
    service, point = POINTS_OF_SERVICES[seed % len(POINTS_OF_SERVICES)]
    early = _moment(random, int((operations - 2) * 0.3) + 2)
    yield Fault(*early, FaultKind.CRASH_AT, service, point, _passes(random, service, point))
    for name in KILLED_IN_TURN[seed % len(KILLED_IN_TURN)]:
        moment = _moment(random, operations)
        yield Fault(*moment, FaultKind.KILL, name, passes=random.randrange(_ANY), seconds=random.uniform(0, 3))
    for kind in random.choices(list(_FAULT_WEIGHTS), list(_FAULT_WEIGHTS.values()), k=random.randint(2, 5)):
        yield _fault(random, kind, _moment(random, operations))


def _faults_of_hosts(random: Random, operations: int) -> Iterator[Fault]:
    """An owner that stands still until others have its shards, one that is killed, and a lost worker of Spark.

    The log is trimmed, and then a host may lose the databases of any service.
    """
    longer_than_a_session = random.uniform(1.2, 2.0) * SESSION_SECONDS
    yield Fault(*_moment(random, operations), FaultKind.PAUSE, random.choice(SERVICES), seconds=longer_than_a_session)
    yield Fault(*_moment(random, operations), FaultKind.KILL, random.choice(SERVICES))
    if random.random() < _WORKER_SHARE:
        yield Fault(*_moment(random, operations), FaultKind.WORKER, STREAMING, passes=random.randrange(_ANY))
    trim, loss = sorted(_moment(random, operations) for _ in range(2))
    yield Fault(*trim, FaultKind.TRIM, BROKER)
    if random.random() < _LOSS_SHARE:
        yield Fault(*loss, FaultKind.LOSS, random.choice(SERVICES))


def _moment(random: Random, operations: int) -> tuple[int, float]:
    """Return an operation, behind the first two and before the last two, and how long after it."""
    return random.randint(2, max(2, operations - 2)), random.uniform(0, LONGEST_DELAY_SECONDS)


def _fault(random: Random, kind: FaultKind, moment: tuple[int, float]) -> Fault:
    target, fields = random.choice(SERVICES), dict[str, Any]()
    match kind:
        case FaultKind.CRASH_AT:
            target, point = random.choice(POINTS_OF_SERVICES)
            fields = {"point": point, "passes": _passes(random, target, point)}
        case FaultKind.PAUSE:
            target = random.choice((*SERVICES, STREAMING, BROKER))
            fields = {"seconds": _some_seconds(random, 0.2, 1.5)}
        case FaultKind.CUT:
            target = random.choice((*SERVICES, STREAMING))
            fields = {"seconds": _some_seconds(random, 0.5, 6.0), "cut": random.choice(list(CutKind))}
        case FaultKind.CLOCK:
            fields = {"seconds": random.choice((-DAY_SECONDS, -90, 90, DAY_SECONDS))}
        case FaultKind.LOSS:
            target = random.choice(LOSABLE)
        case FaultKind.TWIN:
            target, fields = random.choice(TWINNED), {"seconds": random.uniform(2, 8)}
        case FaultKind.REPEAT:
            target = random.choice(REPEATED_TOPICS)
            fields = {"back": random.randint(1, 200), "messages": random.randint(1, 20)}
            fields["is_to_the_end"] = random.random() < 0.5
        case _:
            pass
    return Fault(*moment, kind, target, **fields)


def _passes(random: Random, service: str, point: Point) -> int:
    is_seldom = service in _SELDOM and point in (Point.MID_PUBLISH, Point.AFTER_PUBLISH)
    return random.randint(1, _SELDOM_PASSES if is_seldom else _MOST_PASSES[point])


def _some_seconds(random: Random, shortest: float, longest: float) -> float:
    """Mostly short; now and then longer than any time-out."""
    return random.uniform(*(_LONG_SECONDS if random.random() < _LONG_SHARE else (shortest, longest)))
