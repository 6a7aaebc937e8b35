"""The library of deepclean: connect to a plane, send it commands, read what it shows.

    import deepclean
    from schemas.records import CreateVolume

    with deepclean.connect() as plane:
        reply = plane.answer(0, plane.submit(0, CreateVolume("photos")))

Commands are records of ``schemas.records``. ``docs/clients.md`` goes through all that a client can do.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from schemas.credentials import KafkaCredentials
from services.client.errors import (
    AnswerExpiredError,
    NotDeliveredError,
    PlaneError,
    PlaneTimeoutError,
    UnreachableError,
)
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.client.plane import Plane
from services.client.tasks.diffs import diff
from services.client.tasks.links import bucket_of_link
from services.client.tasks.volume_shards import VolumeShards
from services.domain.errors import DeepcleanError
from services.log.signing import Signer

__all__ = [
    "AnswerExpiredError",
    "DeepcleanError",
    "KafkaCredentials",
    "KafkaPlane",
    "NotDeliveredError",
    "Plane",
    "PlaneAddress",
    "PlaneError",
    "PlaneTimeoutError",
    "Signer",
    "UnreachableError",
    "VolumeShards",
    "bucket_of_link",
    "connect",
    "diff",
]

__version__ = version("deepclean")


def connect(address: PlaneAddress | None = None, *, home: Path | None = None) -> KafkaPlane:
    """A new client of a running plane: of the one at an address, or of the one that ``deepclean up`` started.

    ``home`` is where that plane keeps everything; by default DEEPCLEAN_HOME, or ``.deepclean`` of this checkout.

    Raises:
        DeepcleanError: no plane runs on the home, or its secrets cannot be read.
    """
    if address is not None:
        return KafkaPlane(address)
    from services.plane.stack.stack import running_client  # noqa: PLC0415  a plane elsewhere needs none of it

    return running_client(home)
