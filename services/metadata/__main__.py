"""Runs metadata: ``python -m services.metadata --help``."""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry

from services.metadata.changed_rows import trim
from services.metadata.checkpoints import remove_unused_checkpoints
from services.metadata.http_api import routes
from services.metadata.service import MetadataService
from services.metadata.tables import CHECKPOINTED
from services.runtime.hosted_shard import ServiceParts
from services.runtime.process import run_process
from services.runtime.service import Service
from services.runtime.settings import ServiceSettings
from services.storage.store import Store


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:  # noqa: ARG001 it needs neither
    """The parts of this service."""
    return ServiceParts(
        make_service=lambda _: MetadataService(),
        routes=routes,
        checkpointed=CHECKPOINTED,
        prepare=remove_unused_checkpoints,
        after_write=_remove_dropped_checkpoints,
    )


def _remove_dropped_checkpoints(service: Service, store: Store) -> None:
    if isinstance(service, MetadataService):
        for name in service.take_dropped_checkpoints():
            store.remove_checkpoint(name)
        trim(store, service.unneeded_changes)


if __name__ == "__main__":
    sys.exit(run_process("metadata", build))
