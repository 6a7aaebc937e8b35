"""Runs one service as a process with only the broker beside it, and reads its metrics."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.conditions import Conditions
from bench.process_figures import cpu_seconds
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_plane_topics
from services.plane.machine.errors import StackError
from services.plane.machine.ports import HOST, free_ports
from services.plane.machine.processes import ChildProcess
from services.plane.stack.settings import PlaneSettings, child_command, child_environment

POLL_SECONDS = 0.1
ANSWER_SECONDS = 10.0
STALLED_SECONDS = 60.0
APPLIED = "deepclean_messages_applied_total"


@dataclass(frozen=True, slots=True)
class Sample:
    """The progress of a process at one moment."""

    at_seconds: float
    count: float
    cpu_seconds: float


@contextmanager
def bench_broker(conditions: Conditions, name: str, shards: int = 1) -> Iterator[EmbeddedBroker]:
    """Start a broker with the plane's topics, all empty."""
    conditions.say(f"{name}: starting a broker")
    with EmbeddedBroker(conditions.scratch("broker"), java=conditions.java()) as broker:
        create_plane_topics(broker.bootstrap_servers, shards)
        yield broker


class ServiceAlone:
    """A running service of the plane with a broker."""

    def __init__(
        self,
        name: str,
        home: Path,
        broker: EmbeddedBroker,
        conditions: Conditions,
        shards: int = 1,
        only_shard: int | None = None,
    ) -> None:
        """Start the service; with ``only_shard``, it runs this shard only."""
        plane = PlaneSettings(home, broker.bootstrap_servers, shards, conditions.java())
        self.name = name
        self.url = f"http://{HOST}:{free_ports(1)[0]}"
        port = int(self.url.rpartition(":")[2])
        only = {} if only_shard is None else {"DEEPCLEAN_SHARDS": str(only_shard)}
        self._child = ChildProcess(
            name,
            child_command(name, plane, port),
            {**os.environ, **child_environment(name, plane, port), **only},
            home / "logs" / f"{name}.log",
            f"{self.url}/readyz",
        )
        self._http = httpx.Client(timeout=ANSWER_SECONDS, trust_env=False)

    def __enter__(self) -> ServiceAlone:
        self._child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._child.stop()

    def await_ready(self) -> None:
        """Wait until it has caught up with its inputs."""
        self._child.await_ready()

    def require_running(self) -> None:
        """Raise StackError if the process has ended."""
        self._child.require_running()

    def cpu_seconds(self) -> float:
        """Return the processor time that the process has taken so far. Raise OSError if there is no /proc."""
        assert self._child.identity is not None  # noqa: S101  it is started on entry
        return cpu_seconds(self._child.identity.pid)

    def applied(self, topic: str, shard: int = 0) -> Sample | None:
        """Return how many messages of a topic the service has applied; None while it starts."""
        self.require_running()
        asked = time.perf_counter()
        try:  # this metric alone: a whole page takes milliseconds of the processor that is measured
            page = self._http.get(f"{self.url}/metrics", params={"name[]": APPLIED}).text
        except httpx.HTTPError:
            return None
        count = parse_metrics(page).get(f'{APPLIED}{{service="{self.name}",shard="{shard}",topic="{topic}"}}')
        return None if count is None else Sample((asked + time.perf_counter()) / 2, count, self.cpu_seconds())

    def watch(self, topic: str, until: int, on_sample: Callable[[float], None], shard: int = 0) -> list[Sample]:
        """Return samples taken until ``until`` messages of a topic are applied.

        A small load may all be applied before the service answers. Then the last unanswered request is the first
        sample: without it no time would have passed.

        Raises:
            StackError: the service makes no progress.
        """
        pause, samples = threading.Event(), list[Sample]()
        moved, unanswered_at = time.monotonic(), time.perf_counter()
        while not samples or samples[-1].count < until:
            asked_at = time.perf_counter()
            sample = self.applied(topic, shard)
            if sample is None:
                unanswered_at = asked_at
            else:
                if not samples and sample.count >= until:
                    samples.append(Sample(unanswered_at, 0.0, 0.0))
                if not samples or sample.count > samples[-1].count:
                    moved = time.monotonic()
                samples.append(sample)
                on_sample(sample.count)
            if time.monotonic() - moved > STALLED_SECONDS:
                raise StackError(f"{self.name} has not gone on for {STALLED_SECONDS:g} seconds: {self._child.log_file}")
            pause.wait(POLL_SECONDS)
        return samples


def parse_metrics(text: str) -> dict[str, float]:
    """Return the samples of a page of metrics."""
    lines = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def reached(samples: list[Sample], count: float) -> Sample:
    """Return the moment at which a count was reached, interpolated between two samples."""
    before = samples[0]
    for sample in samples:
        if sample.count >= count:
            grown = sample.count - before.count
            share = (count - before.count) / grown if grown > 0 and count > before.count else 0.0
            return Sample(
                before.at_seconds + share * (sample.at_seconds - before.at_seconds),
                count,
                before.cpu_seconds + share * (sample.cpu_seconds - before.cpu_seconds),
            )
        before = sample
    raise ValueError(f"{count} was never reached")
