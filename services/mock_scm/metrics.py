"""The metrics of the mock storage container manager."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry

from services.runtime.parts.collectors import counter, shard_gauge


class MockScmMetrics:
    """Counters and gauges of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count, gauge = partial(counter, registry), partial(shard_gauge, registry)
        self.groups = count(
            "deepclean_mock_scm_groups_total",
            "Block groups of deletions, by outcome.",
            outcome=["deleted", "absent", "failed", "mismatched"],
        )
        self.written_bytes = count("deepclean_mock_scm_written_bytes_total", "Bytes that were reported as written.")
        self.deleted_bytes = count("deepclean_mock_scm_deleted_bytes_total", "Bytes that were deleted.")
        self.inventory_bytes = gauge("deepclean_mock_scm_inventory_bytes", "Bytes of all blocks in the store.")
        self.waiting_deletions = gauge(
            "deepclean_mock_scm_waiting_deletions",
            "Deletions that wait for their blocks to be reported, or for their time.",
        )
