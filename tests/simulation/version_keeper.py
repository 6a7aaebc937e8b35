"""Clients of a run whose buckets keep versions: they switch that on and off, and delete versions; some is senseless."""

from __future__ import annotations

from schemas import records
from schemas.records import BucketVersioning
from tests.simulation.actions import BLOCK_BYTES
from tests.simulation.side_actor import SideActor

_WEIGHTS = {"switch": 1, "overwrite": 6, "delete_version": 5}


class VersionKeeper(SideActor):
    """These clients of one shard."""

    __slots__ = ()

    def act(self) -> None:
        """Do one thing."""
        getattr(self, f"_{self.chosen(_WEIGHTS)}")(self.bucket_name())

    def _switch(self, bucket: str) -> None:
        choice = self.random.random()
        versioning = BucketVersioning.ENABLED if choice < 0.75 else BucketVersioning.SUSPENDED
        if choice > 0.98:
            versioning = BucketVersioning.UNVERSIONED
        self.actor.submit(records.SetBucketVersioning(self.volume, bucket, versioning))

    def _existing(self, bucket: str) -> str:
        incarnation = self.actor.model.current(self.volume, bucket)
        paths = list(incarnation.bucket.view().keys) if incarnation else []
        return self.random.choice(paths) if paths and self.random.random() < 0.95 else self.random.choice("xya")

    def _overwrite(self, bucket: str) -> None:
        size_bytes = self.random.choice((0, 10, 1_500, 3_000))
        tag = f"kept-{self.random.randrange(1 << 20)}"
        path = self._existing(bucket)
        self.actor.submit(records.PutKey(self.volume, bucket, path, size_bytes, tag, BLOCK_BYTES))

    def _delete_version(self, bucket: str) -> None:
        model, path = self.actor.model, self._existing(bucket)
        incarnation = model.current(self.volume, bucket)
        live = incarnation.bucket.view().keys.get(path) if incarnation else None
        births = [self.random.randint(1, 400)]
        if incarnation is not None and live is not None:
            others = incarnation.noncurrent.get(model.thing_of(live), [])
            births = [model.version_births[number] for number in (live.number, *others)]
            if others and self.random.random() < 0.7:
                births = births[1:]
        version = self.random.choice(births) + (self.random.random() < 0.03)
        self.actor.submit(records.DeleteKeyVersion(self.volume, bucket, path, version))
