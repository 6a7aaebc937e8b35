"""A client of a run that changes how the blocks of buckets are kept from then on."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from schemas import records
from schemas.records import Replication
from tests.simulation.actions import Actor


@dataclass(slots=True)
class ReplicationSetter:
    """This client of one shard. Its random numbers are its own: without it a run is what it was."""

    actor: Actor
    random: Random
    rate: float
    """How often it does something, for each action of the other clients."""

    def may_act(self) -> None:
        """Do nothing, or set the replication of a bucket."""
        if self.random.random() < self.rate:
            bucket = self.random.choice(("bucket-a", "bucket-a", "bucket-b"))
            replication = self.random.choice(list(Replication))
            self.actor.submit(records.SetBucketReplication(self.actor.volume, bucket, replication))
