"""A registry as it is shown: without the gauges of shards that other processes own.

A service sets the gauges of a shard while it runs the shard, and keeps them: they would stay at their last values when
the shard has moved, and count twice in every sum. Counters and histograms stay, since they only ever rise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import RestrictedRegistry

OF_STANDBYS = "deepclean_standby_lag_messages"
"""The one gauge of shards that this process does not own."""


@dataclass(frozen=True, slots=True)
class OwnedGauges:
    """Has the method of a registry that its exposition calls."""

    registry: CollectorRegistry | RestrictedRegistry
    owned: Callable[[], Collection[int]]
    """Returns the shards that this process owns."""

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, gauges with the samples of owned shards alone."""
        owned = {str(shard) for shard in self.owned()}
        for family in self.registry.collect():
            if family.type != "gauge" or family.name == OF_STANDBYS:
                yield family
                continue
            shown = Metric(family.name, family.documentation, family.type, family.unit)
            shown.samples = [one for one in family.samples if one.labels.get("shard", "") in ("", *owned)]
            yield shown
