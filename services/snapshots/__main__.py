"""Runs snapshots: ``python -m services.snapshots --help``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from services.runtime.loop.service import Service
from services.runtime.process.hosted_shard import ServiceParts
from services.runtime.process.process import run_process
from services.runtime.process.settings import ServiceSettings, read_limits
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.reads.http_api import routes
from services.snapshots.service import SnapshotsService
from services.snapshots.settings import SnapshotsSettings


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:  # noqa: ARG001 it needs none
    """Return the parts of this service."""
    limits, metrics = read_limits(SnapshotsSettings, "snapshots"), SnapshotsMetrics(registry)
    return ServiceParts(
        make_service=lambda _: SnapshotsService(limits, metrics), routes=routes, why_unready=_why_unready
    )


def _why_unready(service: Service) -> Sequence[str]:
    corruption = service.chain_corruption if isinstance(service, SnapshotsService) else ""
    return [corruption] if corruption else ()


if __name__ == "__main__":
    sys.exit(run_process("snapshots", build))
