"""Volumes: the names above buckets. All of a volume is in one shard, for ever."""

from __future__ import annotations

from collections.abc import Iterator

from deepclean.bucket import NO_QUOTA, Bucket
from deepclean.calls import Calls
from schemas.records import BucketRow, CreateVolume, DeleteVolume, SetOwner, SetQuota, VolumeRow
from services.client.errors import AlreadyExistsError, NotFoundError, PlaneError
from services.client.wire.paging import all_rows


class Volume:
    """A volume by its name, whether it exists or not. It has no state: each method asks the plane."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self.name = name
        """Name of the volume."""

    def create(self, *, owner: str = "", shard: int | None = None, exist_ok: bool = False) -> Volume:
        """Create the volume in the shard with the least load, or in ``shard``, and return it.

        With ``exist_ok`` a volume that exists is left as it is.

        Raises:
            AlreadyExistsError: the volume exists.
            InvalidRequestError: the name breaks a rule, or belongs to another shard.
        """
        try:
            chosen = self._calls.volumes.shard_for_new(self.name, shard)
            self._calls.execute_in(chosen, CreateVolume(self.name, owner))
        except AlreadyExistsError:
            if not exist_ok:
                raise
        return self

    def delete(self) -> None:
        """Delete the volume. Its name keeps belonging to its shard.

        Raises:
            NotFoundError: there is no such volume.
            NotEmptyError: it has buckets, or belongs to a tenant.
        """
        self._calls.execute(self.name, DeleteVolume(self.name))

    def exists(self) -> bool:
        """Return whether the volume exists."""
        try:
            self.info()
        except NotFoundError:
            return False
        return True

    def info(self) -> VolumeRow:
        """Return the row of the volume: its owner, quotas and creation time.

        Raises:
            NotFoundError: there is no such volume.
        """
        reads = self._calls.metadata(self.name)
        before = self.name[:-1]  # sorts before the name; few names lie between the two
        for row in all_rows(
            lambda after, limit: reads.volumes(start_after=after, limit=limit),
            lambda row: row.volume,
            start_after=before,
        ):
            if row.volume == self.name:
                return row
            if row.volume > self.name:
                break
        raise PlaneError("VOLUME_NOT_FOUND", f"there is no volume {self.name}")

    def bucket(self, name: str) -> Bucket:
        """Return a bucket of the volume by its name, whether it exists or not."""
        return Bucket(self._calls, self.name, name)

    def buckets(self) -> Iterator[BucketRow]:
        """Yield the rows of the volume's buckets and links by name; pages are fetched while the caller iterates.

        Raises:
            NotFoundError: there is no such volume.
        """
        reads = self._calls.metadata(self.name)
        yield from all_rows(
            lambda after, limit: reads.buckets(self.name, start_after=after, limit=limit), lambda row: row.bucket
        )

    def set_quota(self, *, quota_bytes: int = NO_QUOTA, quota_buckets: int = NO_QUOTA) -> None:
        """Set the limits of the volume: of the sum of its buckets' quotas in bytes, and of its number of buckets.

        -1 means no limit. A limit that you do not give is set to -1, too.

        Raises:
            QuotaError: more is used already, or a bucket has no quota of bytes.
        """
        self._calls.execute(self.name, SetQuota(self.name, "", quota_bytes, quota_buckets))

    def set_owner(self, user: str) -> None:
        """Give the volume another owner."""
        self._calls.execute(self.name, SetOwner(self.name, "", user))

    def __repr__(self) -> str:
        return f"Volume({self.name!r})"
