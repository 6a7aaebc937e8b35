"""What goes wrong in a run, drawn from its seed: which kinds at all, how often, and where exactly.

Each run has its own mix, so that rare combinations of faults do not drown in all of them at once. A service sees the
log through ``FaultyLog``: in any order of topics, in batches of any size, late, repeated, or with a message missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from schemas.topics import (
    METADATA_PROGRESS,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SCM_COMMANDS,
    SCM_REPLIES,
    SNAPSHOT_CHAIN,
    SPACE,
    SWEEP_RESULTS,
)
from services.domain.errors import PositionError, RetryableError
from services.log.memory import MemoryLog, messages_from
from services.log.port import Headers, LogAround, LogRecord, Sink
from services.runtime.loop.probe import Point

Address = tuple[str, int]
Sent = tuple[str, int, bytes, bytes, Headers]
"""Topic, partition, value and key."""
Place = tuple[str, int, str]
"""A service, a shard, and a topic that it reads."""
CHAIN_READERS = ("streaming", "key_deletion", "directory_deletion")
HELD_TOPICS: Mapping[str, tuple[str, ...]] = {
    "snapshots": (METADATA_PROGRESS.name, SNAPSHOT_CHAIN.name, SPACE.name),
    "streaming": (SNAPSHOT_CHAIN.name,),
    "key_deletion": (
        PURGE_KEYS.name,
        SWEEP_RESULTS.name,
        SNAPSHOT_CHAIN.name,
        SCM_REPLIES.name,
        METADATA_PROGRESS.name,
    ),
    "directory_deletion": (PURGE_DIRECTORIES.name, SNAPSHOT_CHAIN.name, METADATA_PROGRESS.name),
    "mock_scm": (SCM_COMMANDS.name,),
}
"""Topics that one reader may be late with while it goes on reading its others."""


class UnforeseenError(Exception):
    """Something that nobody has thought of fails the whole unit of work."""


class SimulatedCrash(BaseException):
    """The process died here."""


class SimulatedPause(BaseException):
    """The process is stopped here, with all that it has, until somebody lets it go on."""


@dataclass(frozen=True, slots=True)
class FaultMix:
    """How likely each kind of fault is at one step of one run; 0 means that this run is without it."""

    crash: float = 0.0
    stay_down: float = 0.0
    """Share of crashes and pauses after which a service stays away for long."""
    restore: float = 0.0
    """A start from an older copy of the database, or from an older position on the one that is there."""
    pause: float = 0.0
    hold: float = 0.0
    """One topic comes late for one reader."""
    held_topics: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: HELD_TOPICS)
    repeat: float = 0.0
    """Per message: appended twice."""
    unacknowledged: float = 0.0
    """Per flush: nobody says what has arrived, and some of it has not."""
    garbage: float = 0.0
    forgeries: float = 0.0
    """Well-formed orders to free what is held: nobody may follow them."""
    has_lost_answer: bool = False
    """One answer never reaches its reader."""
    hole: str = ""
    """The one reader that never sees one marker of the chain; or everyone, for one that cannot be read."""
    scm_fail_share: float = 0.0
    scm_delay_ms: int = 0
    scm_answers_twice: bool = False
    scm_outage: float = 0.0
    clock_skew_ms: int = 0
    """How far the clocks of services may be before or behind that of the broker."""
    clock_back: float = 0.0
    """Per step: all clocks are set back, by up to an hour."""
    start_crash: float = 0.0
    """Per look at the log while a service starts: it dies there."""
    unit_failure: float = 0.0
    """Per unit of work of several messages: its end fails, and they are taken one by one."""
    takeover: float = 0.0
    """Per move: a service gets another owner, while the former one is gone, stands still or goes on. 0: each shard of
    a service is one process, and publishes without a fence."""
    added_shards: int = 0
    """Shards that are added while the plane runs."""
    is_secured: bool = False
    """Commands are signed; lies are signed by others, or by nobody, and strangers order what they may not."""


def draw_mix(random: Random) -> FaultMix:
    """The faults of one run: about half of the kinds, each at its own rate; sometimes none at all."""
    if random.random() < 0.05:
        return FaultMix()

    def rate(highest: float, share_of_runs: float = 0.5) -> float:
        return random.uniform(0, highest) if random.random() < share_of_runs else 0.0

    return FaultMix(
        crash=rate(0.25),
        stay_down=rate(0.5),
        restore=rate(0.03, 0.4),
        pause=rate(0.05),
        hold=rate(0.10),
        repeat=rate(0.10),
        unacknowledged=rate(0.10),
        garbage=rate(0.03, 0.3),
        forgeries=rate(0.03, 0.2),
        has_lost_answer=random.random() < 0.1,
        hole=random.choice((*CHAIN_READERS, "everyone")) if random.random() < 0.06 else "",
        scm_fail_share=rate(0.6, 0.3),
        scm_delay_ms=random.choice((1, 500, 30_000)) if random.random() < 0.3 else 0,
        scm_answers_twice=random.random() < 0.2,
        scm_outage=rate(0.02, 0.2),
        unit_failure=rate(0.10, 0.4),
        clock_skew_ms=random.choice((0, 0, 0, 1_000, 600_000)),
        clock_back=rate(0.01, 0.15),
        start_crash=rate(0.15, 0.3),
    )


@dataclass(slots=True)
class Faults:
    """The state of all faults of one run."""

    random: Random
    mix: FaultMix
    are_on: bool = True
    may_die_starting: bool = False
    """Not before all services have started once."""
    countdowns: dict[Address, int] = field(default_factory=dict)
    """Points of the loop until a service crashes."""
    pauses: set[Address] = field(default_factory=set)
    """Services that are stopped there rather than crash."""
    is_former: bool = False
    """Whether a former owner takes the present step: what is to befall the owner does not befall it."""
    held: dict[Place, int] = field(default_factory=dict)
    """Offset from which on a reader does not see a topic."""
    holes: set[tuple[str, int, str, bytes]] = field(default_factory=set)
    """Messages that one reader never sees, however often they are sent."""
    seen: dict[Place, int] = field(default_factory=dict)
    """Offset up to which a reader was ever handed a topic, whatever copy of its database it has gone back to since."""
    crashes: int = 0
    sinks: dict[Address, list[FaultySink]] = field(default_factory=dict)
    """By service what it publishes with."""
    late: deque[tuple[Address, Sent]] = field(default_factory=deque)
    """What processes had sent off before they died or gave it up, and what has not arrived yet."""

    def heal(self) -> None:
        """Nothing goes wrong any more; holes stay."""
        self.are_on = False
        self.countdowns.clear()
        self.pauses.clear()
        self.held.clear()

    def resume(self) -> None:
        """Go on where it was healed."""
        self.are_on = True

    def died(self, address: Address) -> None:
        """A process is gone."""
        for sink in self.sinks.pop(address, ()):
            self.gave_up(address, sink.left())

    def gave_up(self, address: Address, left: Sequence[Sent]) -> None:
        """Nobody waits for what was sent off: it is lost, or arrives later."""
        if self.random.random() < 0.5:
            self.late += [(address, message) for message in left]

    def arrives_late(self, log: MemoryLog) -> Address | None:
        """Now and then one of these messages is there; says whose."""
        if not self.late or (self.are_on and self.random.random() >= 0.05):
            return None
        address, message = self.late.popleft()
        log.append(*message)
        return address

    def at(self, address: Address, point: Point) -> None:
        """A point of a service's loop is passed: the probe."""
        left = self.countdowns.get(address)
        if left is None or self.is_former:
            return
        is_unfit = (
            address in self.pauses and point is Point.AFTER_WRITE
        )  # who goes on does not do what comes next there
        if left or is_unfit:
            self.countdowns[address] = max(left - 1, 0)
            return
        del self.countdowns[address]
        if address in self.pauses:
            self.pauses.discard(address)
            raise SimulatedPause
        self.crashes += 1
        raise SimulatedCrash

    def looks_at_log(self) -> None:
        """A service that starts looks at the log."""
        is_possible = self.are_on and self.may_die_starting and self.mix.start_crash > 0
        if is_possible and self.random.random() < self.mix.start_crash:
            self.crashes += 1
            raise SimulatedCrash

    def skew_ms(self, address: Address) -> int:
        """How far the clock of a service is before the broker's: the same after each start."""
        most_ms = self.mix.clock_skew_ms
        return Random(f"{address}").randint(-most_ms, most_ms)

    def ends_unit(self, messages: int) -> None:
        """A unit of work is about to be written; of one message it does not fail, or that would be put aside."""
        if self.are_on and messages > 1 and self.mix.unit_failure and self.random.random() < self.mix.unit_failure:
            raise UnforeseenError(f"{messages} messages cannot be written together")

    def visible_until(self, place: Place, end: int) -> int:
        """Offset up to which a reader sees a topic."""
        return min(end, self.held.get(place, end))

    def is_repeated(self) -> bool:
        """Whether this message is appended twice."""
        return self.are_on and self.mix.repeat > 0 and self.random.random() < self.mix.repeat

    def is_unacknowledged(self) -> bool:
        """Whether the acknowledgement of this flush is lost."""
        return self.are_on and self.mix.unacknowledged > 0 and self.random.random() < self.mix.unacknowledged


class FaultyLog(LogAround):
    """The log as one process sees it."""

    def __init__(self, log: MemoryLog, faults: Faults, address: Address) -> None:
        super().__init__(log)
        self._partitions = log
        self._faults = faults
        self._address = address

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> FaultySource:
        """Read one partition of some topics."""
        self._faults.looks_at_log()
        positions = {topic: next_offsets.get(topic, 0) for topic in topics}
        return FaultySource(self._partitions, self._faults, self._address, partition, positions)

    def open_sink(self, owner: str = "") -> Sink:
        """A sink of its own."""
        self._faults.looks_at_log()
        sink = FaultySink(self._partitions, self._faults, self._address)
        self._faults.sinks.setdefault(self._address, []).append(sink)
        return sink


class FaultySource:
    """Reads some of what there is, in an order that nobody can rely on across topics.

    Without faults the topics have turns: as with a broker, none waits for as long as another has messages.
    """

    def __init__(
        self, log: MemoryLog, faults: Faults, address: Address, partition: int, next_offsets: dict[str, int]
    ) -> None:
        self._log = log
        self._faults = faults
        self._address = address
        self._partition = partition
        self._next_offsets = next_offsets
        self._turns = list(next_offsets)

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """Next messages of some topics."""
        topics = list(self._turns)
        left = max_records
        if self._faults.are_on:
            self._faults.random.shuffle(topics)
            left = min(max_records, self._faults.random.choice((1, 2, 3, 5, 10, max_records)))
        polled: list[LogRecord] = []
        for place, topic in enumerate(topics, start=1):
            polled += self._poll_topic(topic, left - len(polled))
            if len(polled) >= left and not self._faults.are_on:
                self._turns = topics[place:] + topics[:place]
                break
        return polled

    def _poll_topic(self, topic: str, limit: int) -> list[LogRecord]:
        name, shard = self._address
        offset = self._next_offsets[topic]
        records = self._log.entries(topic, self._partition)
        if offset > len(records):
            raise PositionError(f"{topic}: position {offset} is beyond the end {len(records)}")
        if offset < (first := self._log.first_offset(topic, self._partition)):
            raise PositionError(f"{topic}: position {offset} is before the beginning {first}")
        end = self._faults.visible_until((name, shard, topic), len(records))
        taken, following = messages_from(records, offset, end, max(limit, 0))
        self._next_offsets[topic] = following
        place = (name, shard, topic)
        self._faults.seen[place] = max(self._faults.seen.get(place, 0), following)
        if not self._faults.holes:
            return taken
        return [record for record in taken if (name, shard, topic, record.value) not in self._faults.holes]

    def end(self, topic: str) -> int | None:
        """Where a topic ends, also if its end is not seen yet."""
        return self._log.end_offset(topic, self._partition)

    def positions(self) -> dict[str, int]:
        """Per topic the offset before which nothing is left."""
        return dict(self._next_offsets)

    def lag(self) -> dict[str, int]:
        """Per topic how many messages lie ahead."""
        return {
            topic: self._log.end_offset(topic, self._partition) - offset for topic, offset in self._next_offsets.items()
        }

    def close(self) -> None:
        """Nothing is held."""


class FaultySink:
    """Publishes at least once, in the order of each topic: between topics nothing is certain before the flush."""

    def __init__(self, log: MemoryLog, faults: Faults, address: Address) -> None:
        self._log = log
        self._faults = faults
        self._address = address
        self._on_the_way: dict[str, deque[tuple[int, bytes, bytes, Headers]]] = {}
        self._sent: set[tuple[str, int]] = set()

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Send a message off; it, and others, may arrive now or later."""
        self._sent.add((topic, partition))
        if not self._faults.are_on:
            self._log.append(topic, partition, value, key, headers)
            return
        self._on_the_way.setdefault(topic, deque()).append((partition, value, key, headers))
        random = self._faults.random
        if random.random() < 0.5:
            some = random.choice(list(self._on_the_way))
            self._arrive(some, random.randint(0, len(self._on_the_way[some])))

    def _arrive(self, topic: str, count: int) -> None:
        waiting = self._on_the_way[topic]
        for _ in range(count):
            message = waiting.popleft()
            self._log.append(topic, *message)
            if self._faults.is_repeated():
                self._log.append(topic, *message)

    def start_flush(self) -> None:
        """Nothing begins before the flush."""

    def left(self) -> list[Sent]:
        """What is on its way."""
        return [(topic, *message) for topic, waiting in self._on_the_way.items() for message in waiting]

    def flush(self) -> None:
        """Say that all has arrived; or that nobody knows, and then some of it is lost, or arrives later."""
        is_known = not any(self._on_the_way.values()) or not self._faults.is_unacknowledged()
        for topic, waiting in self._on_the_way.items():
            self._arrive(topic, len(waiting) if is_known else self._faults.random.randint(0, len(waiting)))
        left = self.left()
        self._on_the_way.clear()
        if self._log.has_control_records:
            for place in sorted(self._sent):
                self._log.append_control_record(*place)
        self._sent.clear()
        if not is_known:
            self._faults.gave_up(self._address, left)
            raise RetryableError("the acknowledgement was lost")

    def close(self) -> None:
        """Nothing is held."""
