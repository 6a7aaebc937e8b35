"""Runs metadata: ``python -m services.metadata --help``."""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from services.metadata.after_write import remove_unneeded
from services.metadata.checkpoints import remove_unused_checkpoints
from services.metadata.diff_api import DiffJobsOfShards, diff_routes
from services.metadata.http_api import routes
from services.metadata.metrics import MetadataMetrics, SnapshotDiffMetrics
from services.metadata.service import MetadataService
from services.metadata.settings import MetadataSettings
from services.metadata.tables import CHECKPOINTED
from services.runtime.hosted_shard import ServiceParts
from services.runtime.process import run_process
from services.runtime.reads import Stores
from services.runtime.settings import ServiceSettings, read_limits


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:
    """The parts of this service."""
    metrics = MetadataMetrics(registry)
    diffs = DiffJobsOfShards(read_limits(MetadataSettings, "metadata"), SnapshotDiffMetrics(registry))

    def watched_routes(stores: Stores) -> list[Route]:
        metrics.watch(stores, settings.shards)
        return [*routes(stores), *diff_routes(stores, diffs)]

    return ServiceParts(
        make_service=lambda _: MetadataService(),
        routes=watched_routes,
        checkpointed=CHECKPOINTED,
        prepare=remove_unused_checkpoints,
        after_write=remove_unneeded,
    )


if __name__ == "__main__":
    sys.exit(run_process("metadata", build))
