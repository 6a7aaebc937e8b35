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
            "Deletions that wait until their blocks are reported or their delay is over.",
        )
        self.log_transactions = gauge(
            "deepclean_mock_scm_log_transactions",
            "Transactions of the deletedBlocks log that datanodes have yet to acknowledge, without parked ones.",
        )
        self.parked_transactions = gauge(
            "deepclean_mock_scm_parked_transactions",
            "Transactions that were tried too often: they wait for an operator (deepclean blocks retry).",
        )
        self.datanodes_alive = gauge("deepclean_mock_scm_datanodes_alive", "Datanodes whose heartbeats arrive.")
        self.under_replicated = gauge(
            "deepclean_mock_scm_under_replicated_containers",
            "Containers with fewer complete copies than their replication requires.",
        )
        self.lost_containers = gauge(
            "deepclean_mock_scm_lost_containers",
            "Containers with blocks of which no datanode that is alive has a complete copy.",
        )
        self.damaged_blocks = gauge(
            "deepclean_mock_scm_damaged_blocks", "Copies of blocks that the datanodes have found damaged."
        )
