"""How fast deleted keys are freed by the whole plane."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from schemas.records import BucketLayout, CreateSnapshot, MetadataCommand, Settle
from schemas.topics import METADATA_COMMANDS
from services.client.kafka_plane import KafkaPlane
from services.plane.bench.bulk import VOLUME, BulkProducer, CommandMaker, flat_deletes, flat_puts, made_places
from services.plane.bench.ceilings import slowest
from services.plane.bench.conditions import Conditions
from services.plane.bench.figures import Ceiling, Figure, Target
from services.plane.errors import StackError
from services.plane.plane_file import read_plane_file
from services.plane.stack import Stack

NAME = "deletions"
KEYS_PER_SECOND = 8_000
LIVE_SNAPSHOTS = 20
HELD_SHARE = 10
"""One key in so many more is held by snapshots in the variant that has some."""
FLOOR = Target(8_000)
WARM, FREE, HELD = "warm", "free", "held"
POLL_SECONDS = 0.05
STALLED_SECONDS = 120.0
_CPU_FIELDS = slice(11, 13)
_SESSION_FIELD = 3
"""Where /proc/<pid>/stat has these, counted from 0 behind the program's name."""


def measure_deletions(conditions: Conditions) -> Sequence[Figure]:
    """Deletions a second from command to freed, with the whole plane running, without and with 20 live snapshots.

    Keys are put and the plane settles; then the deletes of all are sent, encoded before, and the clock runs from the
    first one until the store says that it has deleted the last block. With snapshots every tenth key more is held by
    them and must stay: after the clock has stopped the plane settles once more, and exactly the others are gone.
    A first round is not counted: until the JVM has compiled its hot code, Spark takes several times as long.
    """
    ceiling = slowest(conditions)
    conditions.say(f"{NAME}: starting the plane")
    with Stack(conditions.scratch("plane")) as stack, stack.client() as plane:
        run = _Run(conditions, stack, plane, conditions.count(KEYS_PER_SECOND))
        try:
            run.measure(WARM, 0, ceiling)
            return [run.measure(FREE, 0, ceiling), run.measure(HELD, LIVE_SNAPSHOTS, ceiling)]
        finally:
            run.producer.close()


class _Run:
    """Both variants over one plane, one after the other."""

    def __init__(self, conditions: Conditions, stack: Stack, plane: KafkaPlane, count: int) -> None:
        self._conditions = conditions
        self._stack = stack
        self._plane = plane
        self._count = count
        self._maker = CommandMaker()
        self.producer = BulkProducer(stack.address.bootstrap_servers)
        places = dict.fromkeys((WARM, FREE, HELD), BucketLayout.OBJECT_STORE)
        self.producer.send_commands(self._maker, made_places(places))

    def measure(self, bucket: str, snapshots: int, ceiling: Ceiling) -> Figure:
        """Put, settle, delete, wait until the store has deleted what nobody holds."""
        name = f"{NAME}/{snapshots}-snapshots" if snapshots else NAME
        self._say(name, f"putting {self._count:,} keys")
        held = self._prepare(bucket, snapshots)
        self._settle(name)
        deletes = list(self._maker.encoded(flat_deletes(bucket, held + self._count)))
        before, cpu_before = self._deleted_blocks(), self._cpu_seconds()
        sending = threading.Thread(target=self.producer.send, args=(METADATA_COMMANDS.name, MetadataCommand, deletes))
        started = time.perf_counter()
        sending.start()
        try:
            self._await_deleted(before + self._count, name)
        finally:
            sending.join()
        seconds = time.perf_counter() - started
        details = {
            f"{process}_cpu_seconds": used - cpu_before[process] for process, used in self._cpu_seconds().items()
        }
        self._settle(name)
        freed = self._deleted_blocks() - before
        if freed != self._count:
            raise StackError(f"{freed:,} blocks were freed, not {self._count:,}: this is a defect, report it.")
        details = {"keys": self._count, "live_snapshots": snapshots, "held_keys": held, "seconds": seconds, **details}
        return Figure(name, self._count / seconds, "deletions/s", FLOOR, ceiling, details)

    def _prepare(self, bucket: str, snapshots: int) -> int:
        """Put the keys, behind some that are put one after the other with the snapshots; says how many are held."""
        each = max(1, self._count // HELD_SHARE // snapshots) if snapshots else 0
        for number in range(snapshots):
            self.producer.send_commands(self._maker, flat_puts(bucket, each, number * each))
            reply = self._plane.request(0, CreateSnapshot(VOLUME, bucket, f"snapshot-{number:02}"))
            if reply.error:
                raise StackError(f"No snapshot could be taken ({reply.error}: {reply.message}): see what holds it up.")
        self.producer.send_commands(self._maker, flat_puts(bucket, self._count, each * snapshots))
        return each * snapshots

    def _settle(self, name: str) -> None:
        self._say(name, "settling")
        self._plane.request(0, Settle(str(uuid4())))

    def _deleted_blocks(self) -> int:
        return self._plane.scm(0).totals().deleted_blocks

    def _await_deleted(self, wanted: int, name: str) -> None:
        pause, last, moved = threading.Event(), -1, time.monotonic()
        while (deleted := self._deleted_blocks()) < wanted:
            self._stack.require_running()
            if deleted != last:
                last, moved = deleted, time.monotonic()
                self._say(name, f"{wanted - deleted:,} left to free")
            elif time.monotonic() - moved > STALLED_SECONDS:
                raise StackError(
                    f"Nothing was freed for {STALLED_SECONDS:g} seconds: read {self._stack.home / 'logs'}."
                )
            pause.wait(POLL_SECONDS)

    def _cpu_seconds(self) -> dict[str, float]:
        plane = read_plane_file(self._stack.home)
        processes = plane.processes if plane is not None else {}
        return {name: session_cpu_seconds(process.identity.pid) for name, process in processes.items()}

    def _say(self, name: str, what: str) -> None:
        self._conditions.say(f"{name}: {what}")


def session_cpu_seconds(session: int) -> float:
    """Processor time of a process that leads a session, with all others in it; 0 where the system does not tell."""
    ticks = sum(
        int(part) for fields in _stats() if int(fields[_SESSION_FIELD]) == session for part in fields[_CPU_FIELDS]
    )
    return ticks / os.sysconf("SC_CLK_TCK")


def _stats() -> Iterator[list[str]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended meanwhile
            continue
        yield text[text.rindex(")") + 2 :].split()
