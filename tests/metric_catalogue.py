"""Every metric that the processes of the plane serve, read from the collectors that their code makes.

A metrics module is found by its place, ``services/**/metrics.py`` or ``streaming/reclaiming/metrics.py``; a
class that takes a registry is made with a fresh one.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

ROOT = Path(__file__).parents[1]
MODULES = sorted((*ROOT.glob("services/**/metrics.py"), ROOT / "streaming" / "reclaiming" / "metrics.py"))
PROCESS_METRICS = frozenset({"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"})
"""What Prometheus and its client library add by themselves, as far as rules and dashboards use it."""
SCRAPE_LABELS = frozenset({"job", "instance", "process"})


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name as people write it, and what it looks like in a query."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]

    @property
    def series(self) -> frozenset[str]:
        """Names of its time series."""
        if self.kind == "histogram":
            return frozenset(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return frozenset({self.name})


def all_metrics() -> dict[str, Metric]:
    """By name."""
    found: dict[str, Metric] = {}
    for path in MODULES:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for _, made in inspect.getmembers(module, inspect.isclass):
            if made.__module__ == module.__name__ and made.__name__.endswith("Metrics"):
                found |= _metrics_of(made)
    return found


def _metrics_of(made: type) -> dict[str, Metric]:
    parameters = inspect.signature(made).parameters
    if "registry" not in parameters:
        return {}
    registry = CollectorRegistry()
    made(**{"registry": registry, **({"service": "any"} if "service" in parameters else {})})
    collectors = [one for one in registry._collector_to_names if isinstance(one, MetricWrapperBase)]
    return {metric.name: metric for metric in map(_metric, collectors)}


def _metric(collector: MetricWrapperBase) -> Metric:
    kind = collector._type
    name = collector._name + ("_total" if kind == "counter" else "")
    labels = (*collector._labelnames, *(("le",) if kind == "histogram" else ()))
    return Metric(name, str(kind), collector._documentation, labels)
