"""The metric with which each process reports the version of its program."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge

from schemas.feature_level import FEATURE_LEVEL

BUILD_INFO = "deepclean_build_info"


def report_build(registry: CollectorRegistry) -> None:
    """Report the version of the program, and the newest feature level that it knows."""
    build = Gauge(
        BUILD_INFO,
        "Always 1; the labels name the version of the program and the newest feature level that it knows.",
        ["version", "feature_level"],
        registry=registry,
    )
    build.labels(version("deepclean"), str(FEATURE_LEVEL)).set(1)
