"""Find the bucket to which a link leads. A snapshot is of the bucket, never of the link."""

from __future__ import annotations

from services.client.errors import PlaneError
from services.client.plane import Plane

MISSING = ("VOLUME_NOT_FOUND", "BUCKET_NOT_FOUND")
"""Codes of the refusal to read a bucket that does not exist."""


def bucket_of_link(plane: Plane, shard: int, volume: str, bucket: str) -> tuple[str, str]:
    """Return the volume and the name of a bucket, or of that to which the name leads.

    The names of a missing bucket are returned as they are: whoever is asked about it refuses them by its own code.

    Raises:
        PlaneError: the links go round in a circle, or the plane does not let the client read.
    """
    try:
        row = plane.metadata(shard).bucket(volume, bucket)
    except PlaneError as error:
        if error.code in MISSING:
            return volume, bucket
        raise
    return row.volume, row.bucket
