"""The names of the plane's processes."""

from __future__ import annotations

BROKER = "broker"
STREAMING = "streaming"
METADATA = "metadata"
SERVICES = (METADATA, "snapshots", "key_deletion", "directory_deletion", "mock_scm")
DATANODE = "datanode"
PAGE = "page"
PAGE_PORT = 80
"""With a base port, the page's port is this far behind the broker's, or behind that of the last datanode if these are
more. A page for which it is taken has a free one."""
HTTP_PROCESSES = (*SERVICES, STREAMING)
"""The processes that serve /metrics. With a base port, their ports follow the broker's port in this order."""
