"""Find the shard of a volume. It is fixed when the volume is created, so each volume is looked up once."""

from __future__ import annotations

from zlib import crc32

from services.client.errors import PlaneError
from services.client.plane import Plane


class VolumeShards:
    """The shards of the volumes of one plane."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._shards: dict[str, int] = {}

    def shard_of(self, volume: str) -> int:
        """Return the shard of a volume; raise PlaneError VOLUME_NOT_FOUND when no shard has it."""
        shard = self._shards.get(volume)
        if shard is None:
            shard = 0 if self._plane.shards == 1 else self._find(volume)
            if shard is None:
                raise PlaneError("VOLUME_NOT_FOUND", f"there is no volume {volume}")
            self._shards[volume] = shard
        return shard

    def shard_for_new(self, volume: str, wanted: int | None) -> int:
        """Return the shard to create a volume in: ``wanted`` if given, else one computed from the name.

        Raises:
            PlaneError: INVALID_REQUEST, the plane has no such shard; VOLUME_ALREADY_EXISTS, a shard has a volume of
                this name, and clients do not tell shards apart.
        """
        if wanted is not None and not 0 <= wanted < self._plane.shards:
            raise PlaneError("INVALID_REQUEST", f"shard {wanted} is not one of the {self._plane.shards} of this plane")
        shard = crc32(volume.encode()) % self._plane.shards if wanted is None else wanted
        if self._plane.shards > 1:
            found = self._find(volume)
            if found is not None:
                raise PlaneError("VOLUME_ALREADY_EXISTS", f"volume {volume} exists in shard {found}")
        return shard

    def _find(self, volume: str) -> int | None:
        for shard in range(self._plane.shards):
            try:
                self._plane.metadata(shard).bucket(volume, "")
            except PlaneError as error:
                if error.code == "VOLUME_NOT_FOUND":
                    continue
                # No bucket has an empty name, so BUCKET_NOT_FOUND means that the volume is in this shard.
                if error.code != "BUCKET_NOT_FOUND":
                    raise
            return shard
        return None
