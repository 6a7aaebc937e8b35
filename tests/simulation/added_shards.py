"""Shards that are added while a run is under way: what holds for all shards holds in them, and new volumes go there.

Where a volume goes is what the product's clients say, each by the load that it sees. All of them must say the same.
"""

from __future__ import annotations

from random import Random

from schemas import records
from services.client.tasks.volume_shards import VolumeShards
from services.metadata.reads.collection_queries import collection_status
from services.plane.in_memory.client import InMemoryClient
from services.plane.upkeep.growth import suspensions
from tests.simulation.disturbances import Disturbances
from tests.simulation.errors import AnswerError
from tests.simulation.instances import Instances
from tests.simulation.run_state import RunState

_MOST_NAMES = 4
"""Volumes that are made until one lands in the new shard."""


class AddedShards:
    """Adds shards, each at some action of the run."""

    def __init__(self, state: RunState, disturbances: Disturbances, instances: Instances) -> None:
        self.state = state
        self._disturbances = disturbances
        self._instances = instances
        self._random = Random(f"adding shards {state.seed}")
        self._moments = [self._random.randrange(state.actions) for _ in range(state.mix.added_shards)]
        self._clients = [VolumeShards(InMemoryClient(state.plane)) for _ in self._moments]
        """Those that are there from the beginning."""
        self.added = 0

    def may_act(self, action: int) -> None:
        """Add as many shards as are due."""
        for _ in range(self._moments.count(action)):
            self._add()

    def _add(self) -> None:
        state, plane = self.state, self.state.plane
        state.faults.may_die_starting = False  # as at the beginning of the run
        shard = plane.add_shard()
        state.faults.may_die_starting = True
        self._disturbances.set_switches()
        self._instances.add_shard(shard)
        volume = self._make_volumes(shard)
        state.add_shard(volume)
        for body in suspensions(collection_status(plane.tables("metadata", 0))[0]):
            state.shards[shard].actor.control(body)
        self.added += 1
        state.trace.append(f"shard {shard}, {volume}")

    def _make_volumes(self, shard: int) -> str:
        """Create volumes until one lands in the new shard; return its name."""
        for number in range(_MOST_NAMES):
            volume = f"added-{shard}-{number}"
            place = self._place(volume, None if number < _MOST_NAMES - 1 else shard)
            if place == shard:
                return volume
            self.state.shards[place].actor.submit(records.CreateVolume(volume))
        raise AnswerError(f"shard {shard}: a volume that was wanted there is elsewhere")

    def _place(self, volume: str, wanted: int | None) -> int:
        """Return where several clients say that a volume has to be created."""
        clients = [*self._clients, VolumeShards(InMemoryClient(self.state.plane))]
        self._random.shuffle(clients)
        places = {client.shard_for_new(volume, wanted) for client in clients}
        with self.state.oracles.asked("answers"):
            if len(places) > 1:
                raise AnswerError(f"{volume} is to be in each of the shards {sorted(places)}")
        return min(places)
