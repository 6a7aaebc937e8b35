"""The library of deepclean: connect to a plane, change what it keeps, read what it shows, now and in snapshots.

    import deepclean

    with deepclean.connect() as plane:
        bucket = plane.volume("photos").create().bucket("holidays").create()
        bucket.put("2026/beach", size_bytes=2_000_000)
        snapshot = bucket.create_snapshot("september")
        bucket.delete_key("2026/beach")
        print([entry.path for entry in snapshot.list()])

``docs/library.md`` is its guide and reference. ``deepclean.errors`` has all exceptions.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from pathlib import Path

from deepclean.asynchronous import AsyncConnection
from deepclean.bucket import Bucket, Plan
from deepclean.bulk_errors import BulkWriteError, KeyFailure
from deepclean.calls import BUSY_SECONDS
from deepclean.connection import Connection
from deepclean.errors import (
    AlreadyExistsError,
    AnswerExpiredError,
    BusyError,
    CannotUndeleteError,
    ConflictError,
    DeepcleanError,
    InvalidRequestError,
    LimitError,
    MissingBytesError,
    NotAllowedError,
    NotDeliveredError,
    NotEmptyError,
    NotFoundError,
    NotSupportedError,
    PlaneError,
    PlaneFailureError,
    PlaneTimeoutError,
    ProtectedError,
    QuotaError,
    SnapshotExpiredError,
    UnreachableError,
)
from deepclean.snapshot import Snapshot
from deepclean.threads import THREADS
from deepclean.volume import Volume
from deepclean.writer import BulkWriter
from schemas.credentials import KafkaCredentials
from schemas.records import BucketLayout, BucketVersioning, CollectionState, Replication, RetentionPolicy
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.client.plane import Plane
from services.client.tasks.diffs import diff
from services.client.tasks.links import bucket_of_link
from services.client.tasks.volume_shards import VolumeShards
from services.log.signing import Signer

__all__ = [
    "AlreadyExistsError",
    "AnswerExpiredError",
    "AsyncConnection",
    "Bucket",
    "BucketLayout",
    "BucketVersioning",
    "BulkWriteError",
    "BulkWriter",
    "BusyError",
    "CannotUndeleteError",
    "CollectionState",
    "ConflictError",
    "Connection",
    "DeepcleanError",
    "InvalidRequestError",
    "KafkaCredentials",
    "KafkaPlane",
    "KeyFailure",
    "LimitError",
    "MissingBytesError",
    "NotAllowedError",
    "NotDeliveredError",
    "NotEmptyError",
    "NotFoundError",
    "NotSupportedError",
    "Plan",
    "Plane",
    "PlaneAddress",
    "PlaneError",
    "PlaneFailureError",
    "PlaneTimeoutError",
    "ProtectedError",
    "QuotaError",
    "Replication",
    "RetentionPolicy",
    "Signer",
    "Snapshot",
    "SnapshotExpiredError",
    "UnreachableError",
    "Volume",
    "VolumeShards",
    "bucket_of_link",
    "connect",
    "connect_async",
    "diff",
]

__version__ = version("deepclean")


def connect(
    address: PlaneAddress | None = None, *, home: Path | None = None, busy_seconds: float = BUSY_SECONDS
) -> Connection:
    """Return a new client of a running plane: of the one at an address, or of the one that ``deepclean up`` started.

    ``home`` is where that plane keeps everything; by default DEEPCLEAN_HOME, or ``.deepclean`` of this checkout.
    ``busy_seconds``: for how long a command is repeated if the bucket is busy; 0: never.

    Raises:
        DeepcleanError: no plane runs on the home, or its secrets cannot be read.
    """
    if address is not None:
        return Connection(KafkaPlane(address), busy_seconds=busy_seconds)
    from services.plane.stack.stack import running_client  # noqa: PLC0415  a plane elsewhere needs none of it

    return Connection(running_client(home), busy_seconds=busy_seconds)


def connect_async(
    address: PlaneAddress | None = None,
    *,
    home: Path | None = None,
    busy_seconds: float = BUSY_SECONDS,
    threads: int = THREADS,
) -> AsyncConnection:
    """Return a client with awaitable methods. Use it in an ``async with`` block, which connects it.

    ``address``, ``home`` and ``busy_seconds`` are those of ``connect``.

    ``threads``: calls that run at a time; further ones wait.
    """
    return AsyncConnection(partial(connect, address, home=home, busy_seconds=busy_seconds), threads)
