"""Runs metadata: ``python -m services.metadata --help``."""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from services.metadata.checkpoints.capture_drop import remove_unused_checkpoints
from services.metadata.checkpoints.kept_rows import kept_rows
from services.metadata.diffs.api import DiffJobsOfShards, diff_routes
from services.metadata.metrics import MetadataMetrics, SnapshotDiffMetrics
from services.metadata.reads.http_api import routes
from services.metadata.recovery.audit_copy import make_copy
from services.metadata.recovery.start import FOLLOWED, start
from services.metadata.service import MetadataService
from services.metadata.settings import MetadataSettings
from services.metadata.state.tables import CHECKPOINTED
from services.runtime.copies.audit_copies import audit_routes
from services.runtime.http.reads import Stores
from services.runtime.loop.service import Service
from services.runtime.process.hosted_shard import Defragmentation, ServiceParts
from services.runtime.process.process import run_process
from services.runtime.process.settings import ServiceSettings, read_limits
from services.storage.store import Store


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:
    """Return the parts of this service."""
    metrics = MetadataMetrics(registry)
    limits = read_limits(MetadataSettings, "metadata")
    diffs = DiffJobsOfShards(limits, SnapshotDiffMetrics(registry))

    served: list[Stores] = []

    def make_service(shard: int) -> MetadataService:
        for stores in served:  # the shard is added later
            metrics.watch(stores, [shard])
        return MetadataService()

    def watched_routes(stores: Stores) -> list[Route]:
        metrics.watch(stores, settings.shards)
        served.append(stores)
        return [*routes(stores, limits.undo_window_ms), *diff_routes(stores, diffs), *audit_routes(stores, make_copy)]

    def after_write(service: Service, store: Store, is_owner: bool) -> None:
        if isinstance(service, MetadataService):
            service.remove_unneeded(store)
            if is_owner:  # each freed version is counted by one process
                metrics.freed(service.freed.pop(), limits)

    return ServiceParts(
        make_service=make_service,
        routes=watched_routes,
        checkpointed=CHECKPOINTED,
        prepare=remove_unused_checkpoints,
        start=start,
        after_write=after_write,
        followed=FOLLOWED,
        defragmentation=Defragmentation(kept_rows, limits.defragment_rows_per_second, limits.rest_seconds),
    )


if __name__ == "__main__":
    sys.exit(run_process("metadata", build))
