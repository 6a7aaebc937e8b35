"""Runs key_deletion: ``python -m services.key_deletion --help``."""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry

from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.runtime.process.hosted_shard import ServiceParts
from services.runtime.process.process import run_process
from services.runtime.process.settings import ServiceSettings, read_limits


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:  # noqa: ARG001 it needs none
    """Return the parts of this service."""
    limits, metrics = read_limits(KeyDeletionSettings, "key_deletion"), KeyDeletionMetrics(registry)
    return ServiceParts(make_service=lambda _: KeyDeletionService(limits, metrics))


if __name__ == "__main__":
    sys.exit(run_process("key_deletion", build))
