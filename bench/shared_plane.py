"""The whole plane, started once and measured by several rows: broker, services and Spark as in production.

Each row works in buckets of its own. One plane runs at a time: the rows about held versions want one that has seen
nothing else, and asking for it stops the one before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from bench.bulk import VOLUME, BulkProducer, CommandMaker, flat_deletes, flat_puts
from bench.conditions import Conditions
from bench.process_figures import session_cpu_seconds
from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, MetadataCommand, Settle
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import read_plane_file
from services.plane.stack.stack import Stack

WARM = "warm"
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 0.5
"""Between two looks at how much is freed. Each is a request that the plane answers on the cores that are measured: with
twenty a second all along, watching took a tenth of a core."""
PAUSE_SHARE = 0.1
"""A pause is so much of the time that what is left will take, so the end is seen as it comes."""
STALLED_SECONDS = 120.0
ANSWER_SECONDS = 900.0
"""A snapshot may be asked for behind millions of commands; a process that ends is noticed at once."""
_MOST_WARM_KEYS = 100_000

DeletesOf = Callable[[str, int], Iterable[NamespaceCommand]]
"""The commands that delete so many keys of a bucket: one by one, or many at once."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Many deletes sent at once, and all of them freed."""

    keys: int
    seconds: float
    cpu_seconds: Mapping[str, float]
    """By process, with what it has started."""


@dataclass(frozen=True, slots=True)
class HeldVersions:
    """Size of the bucket whose snapshots hold millions of versions."""

    bucket: str
    versions: int
    snapshots: int
    keys: int
    alone_versions: int
    seconds: float
    """How long that took, until the plane had done all it could."""


class SharedPlane:
    """A running plane with one volume and a client; closed by the run."""

    def __init__(self, conditions: Conditions, *, is_for_held: bool) -> None:
        self._conditions = conditions
        self.is_for_held = is_for_held
        conditions.say("starting the plane")
        self.stack = Stack(conditions.scratch("plane")).start()
        self.client = self.stack.client(answer_seconds=ANSWER_SECONDS)
        self.producer = BulkProducer(self.stack.address.bootstrap_servers)
        self.maker = CommandMaker()
        self._buckets = 0
        self._is_warm = False
        self.held: HeldVersions | None = None
        """What snapshots hold, once it is made."""
        self.send([CreateVolume(VOLUME)])

    def close(self) -> None:
        """Stop everything."""
        self.producer.close()
        self.client.close()
        self.stack.stop()

    def make_bucket(self, kind: str, layout: BucketLayout = BucketLayout.OBJECT_STORE) -> str:
        """A new bucket; says its name."""
        self._buckets += 1
        name = f"{kind}-{self._buckets}"
        self.send([CreateBucket(VOLUME, name, layout)])
        return name

    def bucket_id(self, bucket: str) -> int:
        """The id of a bucket, once everything before is applied."""
        self.settle(bucket)
        return self.client.metadata(0).bucket(VOLUME, bucket).object_id

    def send(self, commands: Iterable[NamespaceCommand]) -> None:
        """Send commands, and wait until the broker has them."""
        self.producer.send_commands(self.maker, commands)

    def snapshot(self, bucket: str, name: str) -> None:
        """Take a snapshot, behind all that was sent."""
        reply = self.client.request(0, CreateSnapshot(VOLUME, bucket, name))
        if reply.error:
            raise StackError(f"No snapshot could be taken ({reply.error}: {reply.message}): see what holds it up.")

    def settle(self, name: str) -> None:
        """Let the plane do all it can."""
        self._conditions.say(f"{name}: settling")
        self.client.request(0, Settle(str(uuid4())))

    def warm(self) -> None:
        """Delete some keys that do not count, once: until the JVM has compiled its hot code Spark takes longer."""
        if not self._is_warm:
            self._is_warm = True
            count = min(_MOST_WARM_KEYS, self._conditions.count(8_000))
            bucket = self.make_bucket(WARM)
            self.send(flat_puts(bucket, count))
            self.settle(WARM)
            self.burst(WARM, bucket, count)

    def burst(self, name: str, bucket: str, count: int, more: int = 0, deletes_of: DeletesOf = flat_deletes) -> Burst:
        """Delete the first keys of a bucket at once, and wait until so many are freed; ``more`` are deleted, and held.

        The commands are encoded before the clock starts.
        """
        deletes = list(self.maker.encoded(deletes_of(bucket, more + count)))
        before, cpu_before = self.deleted_blocks(), self.cpu_seconds()
        sending = threading.Thread(
            target=self.producer.send, args=(METADATA_COMMANDS.name, MetadataCommand, deletes), daemon=True
        )
        started = time.perf_counter()
        sending.start()
        try:
            self.await_deleted(before + count, name)
        finally:
            sending.join()
        seconds = time.perf_counter() - started
        used = {process: after - cpu_before.get(process, 0.0) for process, after in self.cpu_seconds().items()}
        self.settle(name)
        freed = self.deleted_blocks() - before
        if freed != count:
            raise StackError(f"{freed:,} blocks were freed, not {count:,}: this is a defect, report it.")
        return Burst(count, seconds, used)

    def deleted_blocks(self) -> int:
        """How many blocks the store has deleted so far."""
        return self.client.scm(0).totals().deleted_blocks

    def await_deleted(self, wanted: int, name: str, on_poll: Callable[[int], None] = lambda _: None) -> None:
        """Wait until the store has deleted so many blocks; raises StackError when it stands still."""
        pause, last, moved = threading.Event(), -1, time.monotonic()
        deleted = first = self.deleted_blocks()
        started = moved
        while deleted < wanted:
            self.stack.require_running()
            on_poll(deleted)
            if deleted != last:
                last, moved = deleted, time.monotonic()
                self._conditions.say(f"{name}: {wanted - deleted:,} left to free")
            elif time.monotonic() - moved > STALLED_SECONDS:
                raise StackError(f"Nothing was freed for {STALLED_SECONDS:g} seconds: read {self.stack.home / 'logs'}.")
            pause.wait(pause_seconds(deleted - first, time.monotonic() - started, wanted - deleted))
            deleted = self.deleted_blocks()

    def process_ids(self) -> dict[str, int]:
        """Its processes by name; each leads a session."""
        plane = read_plane_file(self.stack.home)
        processes = plane.processes if plane is not None else {}
        return {name: process.identity.pid for name, process in processes.items()}

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time of each process so far."""
        return {name: session_cpu_seconds(pid) for name, pid in self.process_ids().items()}


def pause_seconds(done: int, seconds: float, left: int) -> float:
    """How long to look away from something that has done so much in so many seconds, and has so much left."""
    left_seconds = left * seconds / done if done else 0.0
    return min(max(PAUSE_SHARE * left_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


def timed_ms(ask: Callable[[], object]) -> float:
    """Milliseconds until something asked of a plane is answered."""
    started = time.perf_counter()
    ask()
    return (time.perf_counter() - started) * 1_000


def shared_plane(conditions: Conditions, *, is_for_held: bool = False) -> SharedPlane:
    """The plane that runs now, or a new one when none runs or it is for other rows."""
    plane = conditions.plane
    if not isinstance(plane, SharedPlane) or (plane.is_for_held != is_for_held and not conditions.is_one_plane):
        conditions.close()
        plane = conditions.plane = SharedPlane(conditions, is_for_held=is_for_held)
    return plane
