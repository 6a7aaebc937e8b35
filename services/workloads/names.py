"""The names that a workload uses, which may be too short for Ozone's rule, and those on the plane."""

from __future__ import annotations

from collections.abc import Iterable

MIN_NAME_LENGTH = 3
Place = tuple[str, str]
"""Volume and bucket."""


def physical_name(kind: str, name: str) -> str:
    """Return a name that the plane accepts: workloads may use names that are too short for Ozone's rule."""
    return name if len(name) >= MIN_NAME_LENGTH else f"{kind}-{name}"


def logical_name(kind: str, name: str) -> str:
    """Return the workload's name for a name on the plane; the reverse of ``physical_name``."""
    short = name.removeprefix(f"{kind}-")
    return short if len(short) < MIN_NAME_LENGTH else name


def physical_names(volume: str, bucket: str) -> tuple[str, str]:
    """Return the names of a bucket of a workload on the plane."""
    return physical_name("volume", volume), physical_name("bucket", bucket)


def snapshot_name(name: str) -> str:
    """Return the name of a snapshot of a workload on the plane."""
    return physical_name("snap", name)


def logical_snapshots(names: Iterable[str]) -> list[str]:
    """Return the workload's names of snapshots; the reverse of ``snapshot_name``."""
    return [logical_name("snap", name) for name in names]
