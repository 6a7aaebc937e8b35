"""Who limits the buckets and volumes of a run: quotas that nearly fit, that are below what is used, or none."""

from __future__ import annotations

from schemas import records
from services.workloads.workload import NO_LIMIT
from tests.simulation.model import Incarnation
from tests.simulation.side_actor import SideActor

_WEIGHTS = {"limit": 8, "lift": 3, "limit_volume": 2, "lift_volume": 3, "repair": 2, "nonsense": 1}
_ROOM_BYTES = (-1_000, -1, 0, 1, 1_024, 3_000, 3_000, 8_000, 8_000, 30_000)
_ROOM_NAMES = (-3, -1, 0, 1, 2, 3, 6, 6, 12)


class QuotaKeeper(SideActor):
    """The administrator of one shard's quotas."""

    __slots__ = ()

    def act(self) -> None:
        """Do one thing."""
        getattr(self, f"_{self.chosen(_WEIGHTS)}")(self.bucket_name())

    def _set(self, bucket: str, quota_bytes: int, quota_namespace: int) -> None:
        self.actor.submit(records.SetQuota(self.volume, bucket, quota_bytes, quota_namespace))

    def _one_of(self, bucket: str) -> Incarnation | None:
        return self.actor.model.current(self.volume, bucket)

    def _limit(self, bucket: str) -> None:
        """Leave a bucket about as much room as it needs, or less."""
        incarnation = self._one_of(bucket)
        if incarnation is None:
            self._set(bucket, 1_000, 10)
            return
        counted = self.actor.model.quotas.counted(incarnation)
        quotas = (
            max(1, counted.bytes + self.random.choice(_ROOM_BYTES)),
            max(1, counted.most_names + self.random.choice(_ROOM_NAMES)),
        )
        self._set(bucket, *self.random.choice((quotas, (quotas[0], NO_LIMIT), (NO_LIMIT, quotas[1]))))

    def _lift(self, bucket: str) -> None:
        self._set(bucket, NO_LIMIT, NO_LIMIT)

    def _limit_volume(self, _: str) -> None:
        """Give each bucket a quota of bytes, and the volume one of all of them, or of less."""
        total, count = 0, 0
        for incarnation in self.actor.model.live_buckets():
            of_it = self.actor.model.quotas.counted(incarnation).bytes + 8_000
            if self.random.random() < 0.9:
                self._set(incarnation.name, of_it, NO_LIMIT)
            total, count = total + of_it, count + 1
        quota_bytes = self.random.choice((NO_LIMIT, max(1, total + self.random.choice((0, 4_000, 4_000, -1)))))
        names = self.random.choice((NO_LIMIT, NO_LIMIT, max(1, count + self.random.choice((-1, 0, 1, 2)))))
        self._set("", quota_bytes, names)

    def _lift_volume(self, _: str) -> None:
        self._set("", NO_LIMIT, NO_LIMIT)

    def _repair(self, bucket: str) -> None:
        """Say what an audit has found, which is nothing, or nonsense; as of now or of another time."""
        incarnation = self._one_of(bucket)
        bucket_id = incarnation.made_id if incarnation is not None and self.random.random() < 0.95 else 1
        present = self.actor.model.txn
        audited_txn = self.random.choice((present, present, present, 0, present + 10_000))
        used_bytes = -(1 << 40) if self.random.random() < 0.1 else 0
        body = records.RepairQuota(bucket_id, audited_txn, used_bytes, 0, 0, 0, 0, 0, 0)
        self.actor.submit(body, sender="audit")

    def _nonsense(self, bucket: str) -> None:
        """A quota that is none, or of what is not there."""
        volume, name = self.random.choice(
            ((self.volume, bucket), (self.volume, "bucket-none"), ("volume-none", ""), ("volume-none", "b"))
        )
        self.actor.submit(records.SetQuota(volume, name, self.random.choice((0, 10, -2)), NO_LIMIT))
