"""Runs directory_deletion: ``python -m services.directory_deletion --help``."""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry

from services.directory_deletion.metrics import DirectoryDeletionMetrics
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.runtime.process.hosted_shard import ServiceParts
from services.runtime.process.process import run_process
from services.runtime.process.settings import ServiceSettings, read_limits


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:  # noqa: ARG001 it needs none
    """Return the parts of this service."""
    limits, metrics = read_limits(DirectoryDeletionSettings, "directory_deletion"), DirectoryDeletionMetrics(registry)
    return ServiceParts(make_service=lambda _: DirectoryDeletionService(limits, metrics))


if __name__ == "__main__":
    sys.exit(run_process("directory_deletion", build))
