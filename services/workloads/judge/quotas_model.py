"""Quotas in the brute-force model: of volumes, and of buckets, whose use the model looks up in full copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.records import Replication
from services.workloads.judge.model_bucket import Bucket, OperationRefusedError
from services.workloads.workload import BLOCK_BYTES, NO_LIMIT, SetQuota

Place = tuple[str, str]


@dataclass(slots=True)
class VolumeQuota:
    """The quotas of a volume: bytes are those of its buckets together, names are its buckets."""

    quota_bytes: int = NO_LIMIT
    quota_namespace: int = NO_LIMIT


@dataclass(slots=True)
class VolumeQuotas:
    """The quotas of all volumes."""

    volumes: dict[str, VolumeQuota] = field(default_factory=dict)

    def check_new_bucket(self, volume: str, names: int, *, is_link: bool) -> None:
        """Refuse a bucket or link for which a volume with so many names has no room."""
        quota = self.volumes[volume]
        if quota.quota_bytes != NO_LIMIT and not is_link:
            raise OperationRefusedError("QUOTA_ERROR", f"{volume} has a quota of bytes, and a new bucket has none")
        if NO_LIMIT != quota.quota_namespace <= names:
            raise OperationRefusedError("QUOTA_EXCEEDED", f"{volume} has {names} buckets")

    def set_of_volume(self, command: SetQuota, buckets: Iterable[Bucket], names: int) -> None:
        """Set the quotas of a volume that has these buckets, and so many names with its links."""
        _check_limits(command)
        if command.quota_bytes != NO_LIMIT:
            _check_sum(command.volume, [one.quota_bytes for one in buckets], command.quota_bytes)
        if NO_LIMIT != command.quota_namespace < names:
            raise OperationRefusedError("QUOTA_EXCEEDED", f"{command.volume} has {names} buckets")
        self.volumes[command.volume] = VolumeQuota(command.quota_bytes, command.quota_namespace)

    def set_of_bucket(
        self, command: SetQuota, volume: str, bucket: Bucket, others: Iterable[Bucket], used: tuple[int, int]
    ) -> None:
        """Set the quotas of a bucket of a volume that has these other ones. So much is used."""
        _check_limits(command)
        for quota, of_it in zip((command.quota_bytes, command.quota_namespace), used, strict=True):
            if NO_LIMIT != quota < of_it:
                raise OperationRefusedError("QUOTA_ERROR", f"{of_it} are used, more than {quota}")
        most = self.volumes[volume].quota_bytes
        if most != NO_LIMIT:
            _check_sum(volume, [*(one.quota_bytes for one in others), command.quota_bytes], most)
        bucket.quota_bytes, bucket.quota_namespace = command.quota_bytes, command.quota_namespace


def _check_limits(command: SetQuota) -> None:
    if 0 in (command.quota_bytes, command.quota_namespace):
        raise OperationRefusedError("QUOTA_ERROR", "a quota is at least 1")


def _check_sum(volume: str, quotas: list[int], most: int) -> None:
    if NO_LIMIT in quotas:
        raise OperationRefusedError("QUOTA_ERROR", f"a bucket of {volume} has no quota of bytes")
    if sum(quotas) > most:
        raise OperationRefusedError("QUOTA_EXCEEDED", f"the buckets of {volume} may have {most} bytes in all")


DISKS = {
    Replication.RATIS_ONE: 1,
    Replication.RATIS_THREE: 3,
    Replication.EC_RS_3_2_1024K: 1 + 2,
    Replication.EC_RS_6_3_1024K: 1 + 3,
    Replication.EC_RS_10_4_1024K: 1 + 4,
    Replication.EC_XOR_2_1_1024K: 1 + 1,
}
"""Number of disks that have the length of a block of a workload: it is shorter than a cell of an erasure code, so it is
on one disk of data, and each parity is as long.
"""


def whole_blocks(size_bytes: int) -> int:
    """Return the bytes of the blocks that so many bytes need."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
