"""What the processes of the plane are called, and the environment in which each of them is started."""

from __future__ import annotations

from pathlib import Path

BROKER = "broker"
STREAMING = "streaming"
SERVICES = ("metadata", "snapshots", "key_deletion", "directory_deletion", "mock_scm")
HTTP_PROCESSES = (*SERVICES, STREAMING)
"""All that serve /metrics; with a base port they follow the broker's in this order."""


def child_environment(
    name: str, *, bootstrap_servers: str, shards: int, data_directory: Path, port: int
) -> dict[str, str]:
    """Settings of one process, as it reads them from its environment."""
    del name
    return {
        "DEEPCLEAN_BOOTSTRAP_SERVERS": bootstrap_servers,
        "DEEPCLEAN_SHARDS": str(shards),
        "DEEPCLEAN_DATA_DIRECTORY": str(data_directory),
        "DEEPCLEAN_HTTP_PORT": str(port),
    }


def rename_setting(*, is_allowed: bool) -> dict[str, str]:
    """Whether snapshots may be renamed."""
    return {"DEEPCLEAN_SNAPSHOT_RENAME_ALLOWED": "true" if is_allowed else "false"}
