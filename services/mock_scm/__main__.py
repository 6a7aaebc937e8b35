"""Runs mock_scm: ``python -m services.mock_scm --help``."""

from __future__ import annotations

import sys

from prometheus_client import CollectorRegistry

from services.mock_scm.http_api import routes
from services.mock_scm.metrics import MockScmMetrics
from services.mock_scm.service import MockScmService
from services.mock_scm.settings import MockScmSettings, MockScmSwitches
from services.runtime.process.hosted_shard import ServiceParts
from services.runtime.process.process import run_process
from services.runtime.process.settings import ServiceSettings, read_limits


def build(settings: ServiceSettings, registry: CollectorRegistry) -> ServiceParts:  # noqa: ARG001 it needs none
    """Return the parts of this service. All shards share the switches."""
    limits, switches = read_limits(MockScmSettings, "mock_scm"), MockScmSwitches()
    metrics = MockScmMetrics(registry)
    services: dict[int, MockScmService] = {}

    def make_service(shard: int) -> MockScmService:
        services[shard] = MockScmService(limits, switches, metrics)
        return services[shard]

    return ServiceParts(make_service=make_service, routes=lambda stores: routes(stores, switches, services))


if __name__ == "__main__":
    sys.exit(run_process("mock_scm", build))
