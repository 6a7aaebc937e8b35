"""Offers commands at a steady rate, whatever the plane does: an open loop, so that a slow reply delays no command.

The time of a command is the time at which it was due by the schedule, not the time at which it was sent: delay in the
sender counts as latency.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType

from bench.bulk import BulkProducer
from schemas.topics import METADATA_COMMANDS

TICK_SECONDS = 0.005
"""Interval at which due commands are sent, no longer than the producer's own wait (``linger.ms``)."""


class Offered:
    """A thread that sends encoded commands to one shard at a fixed rate, from the entry into the context."""

    def __init__(self, producer: BulkProducer, bodies: Iterable[bytes], per_second: float, shard: int = 0) -> None:
        self._producer = producer
        self._bodies = iter(bodies)
        self._per_second = per_second
        self._shard = shard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failures: list[BaseException] = []
        self.started_at = 0.0
        """Seconds since the epoch, like the timestamps of the log's records."""
        self.count = 0
        """The number of commands sent so far."""
        self.latest_seconds = 0.0
        """The longest delay of the sender itself."""

    def __enter__(self) -> Offered:
        self.started_at = time.time()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stop.set()
        self.finish()

    def due_at(self, number: int) -> float:
        """Return when a command was due, in seconds since the epoch."""
        return self.started_at + number / self._per_second

    @property
    def is_done(self) -> bool:
        """Return whether all commands are sent."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop sending."""
        self._stop.set()

    def finish(self) -> None:
        """Wait until all commands are sent and acknowledged; raise the sender's error if there was one."""
        self._thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        try:
            started, is_more = time.perf_counter(), True
            while is_more and not self._stop.wait(TICK_SECONDS):
                elapsed = time.perf_counter() - started
                wanted = int(elapsed * self._per_second) + 1 - self.count
                if wanted > 0 and (is_more := bool(bodies := list(islice(self._bodies, wanted)))):
                    self.latest_seconds = max(self.latest_seconds, elapsed - self.count / self._per_second)
                    self._producer.enqueue(METADATA_COMMANDS.name, bodies, self._shard)
                    self.count += len(bodies)
            self._producer.flush()
        except BaseException as error:  # ``finish`` raises it
            self._failures.append(error)


@contextmanager
def writing(bootstrap_servers: str, bodies: Iterable[bytes], per_second: float, shard: int = 0) -> Iterator[Offered]:
    """Run a writer with a separate producer beside a measurement; it stops when the block ends."""
    producer = BulkProducer(bootstrap_servers)
    try:
        with Offered(producer, bodies, per_second, shard) as offered:
            try:
                yield offered
            finally:
                offered.stop()
    finally:
        producer.close()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
