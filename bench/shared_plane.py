"""The whole plane, started once and measured by several rows: broker, services and Spark as in production.

Each row uses separate buckets. One plane runs at a time: the rows about held versions need a plane without other work,
and requesting it stops the running plane.
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
from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, Settle
from schemas.topics import METADATA_COMMANDS
from services.client.plane import NamespaceCommand
from services.plane.machine.errors import StackError
from services.plane.stack.plane_file import read_plane_file
from services.plane.stack.stack import Stack

WARM = "warm"
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 0.5
"""Bounds of the pause between two polls of the number of freed blocks. The plane answers a poll on the measured cores:
twenty polls a second took a tenth of a core."""
PAUSE_SHARE = 0.1
"""A pause is this share of the estimated remaining time, so that the end is noticed in time."""
STALLED_SECONDS = 120.0
ANSWER_SECONDS = 900.0
"""A snapshot may wait behind millions of commands; a process that ends is noticed at once."""
_MOST_WARM_KEYS = 100_000

DeletesOf = Callable[[str, int], Iterable[NamespaceCommand]]
"""Returns the commands that delete a number of keys of a bucket: one key or many keys a command."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Times of many deletes that were sent at once and freed."""

    keys: int
    seconds: float
    cpu_seconds: Mapping[str, float]
    """Processor time by process, including its children."""


@dataclass(frozen=True, slots=True)
class HeldVersions:
    """Size of the bucket whose snapshots hold millions of versions."""

    bucket: str
    versions: int
    snapshots: int
    keys: int
    alone_versions: int
    seconds: float
    """Time to make the bucket, until the plane had no more work."""


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
        """The held versions; None before they are made."""
        self.send([CreateVolume(VOLUME)])

    def close(self) -> None:
        """Stop the plane and its client."""
        self.producer.close()
        self.client.close()
        self.stack.stop()

    def make_bucket(self, kind: str, layout: BucketLayout = BucketLayout.OBJECT_STORE) -> str:
        """Make a bucket and return its name."""
        self._buckets += 1
        name = f"{kind}-{self._buckets}"
        self.send([CreateBucket(VOLUME, name, layout)])
        return name

    def bucket_id(self, bucket: str) -> int:
        """Return the id of a bucket, after all commands sent before are applied."""
        self.settle(bucket)
        return self.client.metadata(0).bucket(VOLUME, bucket).object_id

    def send(self, commands: Iterable[NamespaceCommand]) -> None:
        """Send commands and wait until the broker has acknowledged them."""
        self.producer.send_commands(self.maker, commands)

    def snapshot(self, bucket: str, name: str) -> None:
        """Create a snapshot, after all commands sent before."""
        reply = self.client.request(0, CreateSnapshot(VOLUME, bucket, name))
        if reply.error:
            raise StackError(f"No snapshot could be taken ({reply.error}: {reply.message}): see what holds it up.")

    def settle(self, name: str) -> None:
        """Wait until the plane has no more work."""
        self._conditions.say(f"{name}: settling")
        self.client.request(0, Settle(str(uuid4())))

    def warm(self) -> None:
        """Delete some keys without measuring, once: Spark is slower until the JVM has compiled its hot code."""
        if not self._is_warm:
            self._is_warm = True
            count = min(_MOST_WARM_KEYS, self._conditions.count(8_000))
            bucket = self.make_bucket(WARM)
            self.send(flat_puts(bucket, count))
            self.settle(WARM)
            self.burst(WARM, bucket, count)

    def burst(self, name: str, bucket: str, count: int, more: int = 0, deletes_of: DeletesOf = flat_deletes) -> Burst:
        """Delete keys of a bucket and wait until ``count`` are freed; ``more`` further keys are deleted and held.

        The commands are encoded before the clock starts.
        """
        deletes = list(self.maker.encoded(deletes_of(bucket, more + count)))
        before, cpu_before = self.deleted_blocks(), self.cpu_seconds()
        sending = threading.Thread(target=self.producer.send, args=(METADATA_COMMANDS.name, deletes), daemon=True)
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
        """Return the number of blocks that the block store has deleted so far."""
        return self.client.scm(0).totals().deleted_blocks

    def await_deleted(self, wanted: int, name: str, on_poll: Callable[[int], None] = lambda _: None) -> None:
        """Wait until the block store has deleted ``wanted`` blocks.

        Raises:
            StackError: the block store makes no progress.
        """
        await_count(
            self.stack,
            self.deleted_blocks,
            wanted,
            lambda left: self._conditions.say(f"{name}: {left:,} left to free"),
            on_poll,
        )

    def process_ids(self) -> dict[str, int]:
        """Return the ids of the plane's processes by name; each process leads a session."""
        return process_ids(self.stack)

    def cpu_seconds(self) -> dict[str, float]:
        """Return the processor time of each process so far, in seconds."""
        return cpu_seconds(self.stack)


def process_ids(stack: Stack) -> dict[str, int]:
    """Return the ids of a plane's processes by name; each process leads a session."""
    plane = read_plane_file(stack.home)
    processes = plane.processes if plane is not None else {}
    return {name: process.identity.pid for name, process in processes.items()}


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Return the processor time of each process of a plane so far, in seconds."""
    return {name: session_cpu_seconds(pid) for name, pid in process_ids(stack).items()}


def await_count(
    stack: Stack,
    count_of: Callable[[], int],
    wanted: int,
    say_left: Callable[[int], None],
    on_poll: Callable[[int], None] = lambda _: None,
) -> None:
    """Wait until a count of a plane's work has reached ``wanted``; ``on_poll`` gets each count before that.

    Raises:
        StackError: a process ended, or the count does not grow.
    """
    pause, last, moved = threading.Event(), -1, time.monotonic()
    count = first = count_of()
    started = moved
    while count < wanted:
        stack.require_running()
        on_poll(count)
        if count != last:
            last, moved = count, time.monotonic()
            say_left(wanted - count)
        elif time.monotonic() - moved > STALLED_SECONDS:
            raise StackError(f"Nothing was done for {STALLED_SECONDS:g} seconds: read {stack.home / 'logs'}.")
        pause.wait(pause_seconds(count - first, time.monotonic() - started, wanted - count))
        count = count_of()


def pause_seconds(done: int, seconds: float, left: int) -> float:
    """Return the pause before the next poll of work that has done ``done`` in ``seconds`` and has ``left`` to do."""
    left_seconds = left * seconds / done if done else 0.0
    return min(max(PAUSE_SHARE * left_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


def timed_ms(ask: Callable[[], object]) -> float:
    """Return the milliseconds that a request to the plane takes."""
    started = time.perf_counter()
    ask()
    return (time.perf_counter() - started) * 1_000


def shared_plane(conditions: Conditions, *, is_for_held: bool = False) -> SharedPlane:
    """Return the running plane, or a new one if none runs or the running one is for other rows."""
    plane = conditions.plane
    if not isinstance(plane, SharedPlane) or (plane.is_for_held != is_for_held and not conditions.is_one_plane):
        conditions.close()
        plane = conditions.plane = SharedPlane(conditions, is_for_held=is_for_held)
    return plane
