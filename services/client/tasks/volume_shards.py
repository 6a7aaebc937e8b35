"""Find the shard of a volume. It is fixed when the volume is created, so each volume is looked up once."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from services.client.errors import PlaneError, UnreachableError
from services.client.plane import Plane
from services.domain.volume_placement import least_loaded


class VolumeShards:
    """The shards of the volumes of one plane."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._shards: dict[str, int] = {}

    def shard_of(self, volume: str) -> int:
        """Return the shard of a volume; raise PlaneError VOLUME_NOT_FOUND when no shard has it."""
        shard = self._shards.get(volume)
        if shard is None:
            known = self._plane.shards
            shard = self._find(volume, range(known))
            if shard is None:  # it may be in a shard that was added since
                shard = self._find(volume, range(known, self._plane.learn_shards()))
            if shard is None:
                raise PlaneError("VOLUME_NOT_FOUND", f"there is no volume {volume}")
            self._shards[volume] = shard
        return shard

    def shard_for_new(self, volume: str, wanted: int | None) -> int:
        """Return the shard to create a volume in: ``wanted`` if given, else the one with the least load.

        From now on the name belongs to this shard: later calls return it, whoever makes them.

        Raises:
            PlaneError: INVALID_REQUEST, the plane has no such shard, or the name belongs to another one;
                VOLUME_ALREADY_EXISTS, a shard has a volume of this name, and clients do not tell shards apart.
        """
        shards = self._plane.learn_shards()
        if wanted is not None and not 0 <= wanted < shards:
            raise PlaneError("INVALID_REQUEST", f"shard {wanted} is not one of the {shards} of this plane")
        if shards > 1:
            found = self._find(volume, range(shards))
            if found is not None:
                raise PlaneError("VOLUME_ALREADY_EXISTS", f"volume {volume} exists in shard {found}")
        chosen = self._least_loaded(volume, shards) if wanted is None else wanted
        shard = self._plane.place_volume(volume, chosen)
        if wanted not in (None, shard):
            raise PlaneError(
                "INVALID_REQUEST",
                f"the name {volume} has belonged to shard {shard} since a volume was first created with it: create it "
                f"there, or choose another name",
            )
        if shard >= shards:
            raise PlaneError("INVALID_REQUEST", f"the name {volume} belongs to shard {shard}, which is not there")
        return shard

    def _least_loaded(self, volume: str, shards: int) -> int:
        """Return the shard with the least load; among equal ones the name decides, so new planes are filled evenly."""
        by_name = crc32(volume.encode()) % shards
        if shards == 1:
            return by_name
        try:
            return least_loaded([self._plane.load(shard) for shard in range(shards)], by_name)
        except UnreachableError:  # a metadata of an older program does not say what it keeps
            return by_name

    def _find(self, volume: str, shards: Iterable[int]) -> int | None:
        for shard in shards:
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
