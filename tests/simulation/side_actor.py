"""The head of the clients of a run who do one kind of thing: how often they do something."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.simulation.actions import Actor


@dataclass(slots=True)
class SideActor(ABC):
    """Clients of one shard. Their random numbers are their own: without them a run is what it was."""

    actor: Actor
    random: Random
    rate: float
    """How often they do something, for each action of the other clients."""

    def may_act(self) -> None:
        """Do nothing, or one thing."""
        if self.random.random() < self.rate:
            self.act()

    @abstractmethod
    def act(self) -> None:
        """Do one thing."""

    def bucket_name(self) -> str:
        """Return the name of one of the run's buckets."""
        return self.random.choice(("bucket-a", "bucket-a", "bucket-b"))

    def chosen(self, weights: Mapping[str, int]) -> str:
        """Return a name by its weight."""
        return self.random.choices(list(weights), list(weights.values()))[0]

    @property
    def volume(self) -> str:
        """The volume of the run's buckets."""
        return self.actor.volume
