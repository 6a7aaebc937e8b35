"""The metrics of a datanode."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from services.runtime.parts.collectors import counter


class DatanodeMetrics:
    """Counters and gauges of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count = partial(counter, registry)
        self.written_bytes = count("deepclean_datanode_written_bytes_total", "Bytes of chunks that were written.")
        self.read_bytes = count("deepclean_datanode_read_bytes_total", "Bytes of blocks that were read over HTTP.")
        self.deleted_bytes = count("deepclean_datanode_deleted_bytes_total", "Bytes of blocks that were removed.")
        self.scrubbed_bytes = count("deepclean_datanode_scrubbed_bytes_total", "Bytes that the scrubber has read.")
        self.damaged_blocks = count(
            "deepclean_datanode_damaged_blocks_total", "Damaged blocks that the scrubber found."
        )
        self.repaired_blocks = count(
            "deepclean_datanode_repaired_blocks_total", "Blocks that were copied or repaired from other datanodes."
        )
        self.heartbeats = count(
            "deepclean_datanode_heartbeats_total", "Heartbeats to mock_scm, by outcome.", outcome=["answered", "failed"]
        )
        self.containers = Gauge("deepclean_datanode_containers", "Containers of the datanode.", registry=registry)
        self.used_bytes = Gauge("deepclean_datanode_used_bytes", "Bytes of all blocks.", registry=registry)
        self.failed_disks = Gauge("deepclean_datanode_failed_disks", "Disks that have failed.", registry=registry)
