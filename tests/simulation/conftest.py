"""Simulated services warn all the time; nobody reads that in a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.run_seeds import silence


@pytest.fixture(autouse=True, scope="package")
def _silence() -> Iterator[None]:
    before = structlog.get_config()
    silence()
    yield
    structlog.configure(**before)
