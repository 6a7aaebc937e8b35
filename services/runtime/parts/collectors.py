"""Make the counters and gauges of a service. The values of a label are a closed set, never an id."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from prometheus_client import CollectorRegistry, Counter, Gauge


def counter(registry: CollectorRegistry, name: str, text: str, **label: Iterable[str]) -> Counter:
    """Return a counter with at most one label. Each value is created, so that it reads 0 before it was reached."""
    made = Counter(name, text, list(label), registry=registry)
    for value in chain(*label.values()):
        made.labels(value)
    return made


def shard_gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    """Return a gauge that each shard sets, with further labels."""
    return Gauge(name, text, ["shard", *labels], registry=registry)
