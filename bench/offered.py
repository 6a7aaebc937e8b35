"""Commands offered at a steady rate, whatever the plane does: an open loop, so that a slow answer delays no question.

The time of each command is the one at which it was due by the schedule, not the one at which it was sent: what waits
because the sender was late counts as waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType

from bench.bulk import BulkProducer
from schemas.records import MetadataCommand
from schemas.topics import METADATA_COMMANDS

TICK_SECONDS = 0.005
"""Between two looks at what is due: what a producer waits for more anyway (``linger.ms``)."""


class Offered:
    """A thread that sends encoded commands to one shard, so many a second, once entered."""

    def __init__(self, producer: BulkProducer, bodies: Iterable[bytes], per_second: float, shard: int = 0) -> None:
        self._producer = producer
        self._bodies = iter(bodies)
        self._per_second = per_second
        self._shard = shard
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failures: list[BaseException] = []
        self.started_at = 0.0
        """Seconds since the epoch: the log's records have a clock of this kind."""
        self.count = 0
        """How many were sent so far."""
        self.latest_seconds = 0.0
        """How late the sender itself was at most."""

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
        """When a command was due, in seconds since the epoch."""
        return self.started_at + number / self._per_second

    @property
    def is_done(self) -> bool:
        """Whether all are sent."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()

    def finish(self) -> None:
        """Wait until all are sent and acknowledged; raises what the sender met."""
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
                    self._producer.enqueue(METADATA_COMMANDS.name, MetadataCommand, bodies, self._shard)
                    self.count += len(bodies)
            self._producer.flush()
        except BaseException as error:  # raised by whoever waits
            self._failures.append(error)


@contextmanager
def writing(bootstrap_servers: str, bodies: Iterable[bytes], per_second: float, shard: int = 0) -> Iterator[Offered]:
    """A writer beside what is measured, with a producer of its own; it stops when the block ends."""
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
    """The value that such a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
