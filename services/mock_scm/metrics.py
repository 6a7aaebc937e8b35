"""The metrics of the mock storage container manager."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge


class GroupOutcome(StrEnum):
    """The outcome of one block group of a deletion."""

    DELETED = "deleted"
    ABSENT = "absent"
    FAILED = "failed"
    MISMATCHED = "mismatched"


class MockScmMetrics:
    """Counters and gauges of one process; gauges are per shard. A label's values are a closed set, never an id."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.groups = Counter(
            "deepclean_mock_scm_groups_total", "Block groups of deletions, by outcome.", ["outcome"], registry=registry
        )
        self.written_bytes = Counter(
            "deepclean_mock_scm_written_bytes_total", "Bytes that were reported as written.", registry=registry
        )
        self.deleted_bytes = Counter(
            "deepclean_mock_scm_deleted_bytes_total", "Bytes that were deleted.", registry=registry
        )
        self.inventory_bytes = Gauge(
            "deepclean_mock_scm_inventory_bytes", "Bytes of all blocks in the store.", ["shard"], registry=registry
        )
        self.waiting_deletions = Gauge(
            "deepclean_mock_scm_waiting_deletions",
            "Deletions that wait for their blocks to be reported, or for their time.",
            ["shard"],
            registry=registry,
        )
        for outcome in GroupOutcome:
            self.groups.labels(outcome.value)
