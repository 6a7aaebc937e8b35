"""Settings of a datanode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatanodeSettings:
    """Who a datanode is, and how often it does what."""

    name: str = "datanode-0"
    """Name of the datanode. Start it with the same name each time."""
    scm_url: str = "http://127.0.0.1:9705"
    """Address of mock_scm."""
    disks: int = 1
    """Disks: the directories disk-0, disk-1, … below the datanode's own. Mount one file system on each."""
    heartbeat_ms: int = 1_000
    """Time between two reports to mock_scm."""
    deletion_interval_ms: int = 1_000
    """Time between two rounds in which acknowledged deletions are carried out."""
    max_deletions_per_round: int = 1_000
    """Transactions that one round carries out."""
    scrub_interval_ms: int = 3_600_000
    """Time between two runs of the scrubber, which compares all blocks with their checksums."""
    scrub_bytes_per_second: int = 50_000_000
    """Most bytes that the scrubber reads in a second."""
