"""A client of a run that changes how the blocks of buckets are kept from then on."""

from __future__ import annotations

from schemas import records
from schemas.records import Replication
from tests.simulation.side_actor import SideActor


class ReplicationSetter(SideActor):
    """This client of one shard."""

    __slots__ = ()

    def act(self) -> None:
        """Set the replication of a bucket."""
        bucket, replication = self.bucket_name(), self.random.choice(list(Replication))
        self.actor.submit(records.SetBucketReplication(self.volume, bucket, replication))
