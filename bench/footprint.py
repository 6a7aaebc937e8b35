"""Measures the memory and the disk space of a plane with millions of held versions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.conditions import Conditions
from bench.figures import Figure, Target
from bench.held_versions import plane_with_held_versions
from bench.process_figures import session_peak_bytes
from services.plane.stack.process_names import SERVICES, STREAMING
from services.plane.upkeep.shard_databases import database_directory
from services.storage.rocks_backups import DATABASE

MEMORY, DISK = "memory", "disk"
MEGABYTE = 1_000_000
SERVICE_MEMORY = Target(300, is_upper=True)
SPARK_MEMORY = Target(2_000, is_upper=True)
PER_VERSION = Target(400, is_upper=True)


def measure_memory(conditions: Conditions) -> Sequence[Figure]:
    """The most memory that each process ever had resident, when 1,000 snapshots hold 10 million versions.

    The plane has processed every version since its start: put, overwritten, published and judged. Spark is driver and
    executor in one JVM, with the Python process that started it.
    """
    plane, held = plane_with_held_versions(conditions)
    details = {"versions": float(held.versions), "snapshots": float(held.snapshots), "made_in_seconds": held.seconds}
    ids = plane.process_ids()
    return [
        Figure(
            f"{MEMORY}/{name}",
            session_peak_bytes(ids[name]) / MEGABYTE,
            "MB",
            SPARK_MEMORY if name == STREAMING else SERVICE_MEMORY,
            None,
            details,
        )
        for name in (*SERVICES, STREAMING)
    ]


def measure_disk(conditions: Conditions) -> Sequence[Figure]:
    """Bytes on disk for each held version in all services' databases, and what a checkpoint costs beside them.

    All files of the databases are counted, including write-ahead logs and live keys (one to a hundred held versions). A
    checkpoint shares its files with the database until compaction has rewritten them. Its cost is the size of the files
    that only checkpoints have, divided by the number of snapshots, after a tenth of the keys was overwritten between
    every two snapshots.
    """
    plane, held = plane_with_held_versions(conditions)
    databases, checkpoints, apart = dict[str, int](), 0, set[int]()
    for service in SERVICES:
        directory = database_directory(plane.stack.home, service, 0)
        own = dict(files_of(directory / DATABASE))
        databases[service] = sum(own.values())
        only = {inode: size for inode, size in files_of(directory / "checkpoints") if inode not in own}
        checkpoints += sum(only.values())
        apart |= only.keys()
    versions, snapshots = max(1, held.versions), max(1, held.snapshots)
    details = {f"{service}_bytes": size / versions for service, size in databases.items()}
    beside = {"snapshots": float(snapshots), "files": float(len(apart)), "all_megabytes": checkpoints / MEGABYTE}
    return [
        Figure(f"{DISK}/held-version", sum(databases.values()) / versions, "bytes", PER_VERSION, None, details),
        Figure(f"{DISK}/checkpoint", checkpoints / snapshots, "bytes", None, None, beside),
    ]


def files_of(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield inode and size of every file below a directory, without files that compaction removes meanwhile."""
    for parent, _, names in os.walk(directory):
        for name in names:
            try:
                status = os.stat(os.path.join(parent, name))  # noqa: PTH116, PTH118  a hundred thousand files
            except FileNotFoundError:
                continue
            yield status.st_ino, status.st_size
