"""One run: a seed makes a plane, clients and faults; then all is healed, settled and counted.

A model follows metadata's log. After every step of a service it is asked whether anything was given away that is
held; when the plane says that it is settled, everything is held against it. The same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from tests.simulation.added_shards import AddedShards
from tests.simulation.answers import snapshot_names
from tests.simulation.disturbances import Disturbances
from tests.simulation.errors import SimulationError
from tests.simulation.faults import FaultMix
from tests.simulation.instances import Instances
from tests.simulation.operator import Operator
from tests.simulation.oracles import Oracles, RunOver
from tests.simulation.plane import Limits, SimulatedPlane
from tests.simulation.run_state import RunState, ShardRun
from tests.simulation.scheduler import Scheduler
from tests.simulation.settling import Settling
from tests.simulation.trims import Trims
from tests.simulation.watchers import Watchers


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one run did."""

    seed: int
    mix: FaultMix
    actions: int
    steps: int
    crashes: int
    restores: int
    messages: int
    trimmed: int
    """Of these, how many were trimmed."""
    deleted_groups: int
    takeovers: int
    """How often another instance became the owner."""
    refused: int
    """Messages of former owners that the log has refused."""
    added_shards: int


class Simulation:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        mix: FaultMix | None = None,
        limits: Limits | None = None,
        without: Collection[str] = (),
    ) -> None:
        """``without`` names oracles that are switched off."""
        self.state = RunState(seed, mix, limits, Oracles(without))
        self.operator = Operator(self.state)
        self.trims = Trims(self.state)
        self.disturbances = Disturbances(self.state)
        watchers = Watchers(self.state)
        self.scheduler = Scheduler(self.state, self.disturbances, watchers)
        self.instances = Instances(self.state, self.scheduler.step, watchers.watch)
        self.added_shards = AddedShards(self.state, self.disturbances, self.instances)
        self.settling = Settling(self.state, self.scheduler, self.disturbances, self.operator, self.instances)

    @property
    def plane(self) -> SimulatedPlane:
        """The services and their log."""
        return self.state.plane

    @property
    def shards(self) -> list[ShardRun]:
        """Model, clients and liar of each shard."""
        return self.state.shards

    def run(self, script: Callable[[Simulation], None] | None = None) -> RunReport:
        """Play everything, or a script in place of clients and faults, and then come to rest.

        Raises:
            SimulationError: a promise is broken; the seed is in its notes.
        """
        seed = self.state.seed
        try:
            with suppress(RunOver):
                if script is None:
                    self._play()
                else:
                    self.disturbances.heal()
                    script(self)
                    self.settling.be_quiet()
        except Exception as error:
            if self.state.oracles.unheard and not isinstance(error, SimulationError):
                return self.report()  # behind what was passed over the model may contradict itself
            error.add_note(f"seed {seed}: python -m tests.simulation.run_seeds --seed {seed}")
            raise
        return self.report()

    def _play(self) -> None:
        state = self.state
        quiet_at = state.random.randrange(state.actions) if state.random.random() < 0.2 else -1
        for number in range(state.actions):
            self.added_shards.may_act(number)
            shard = state.random.choice(state.shards)
            state.trace.append(shard.actor.act())
            shard.writer.may_act()
            shard.keeper.may_act()
            shard.setter.may_act()
            shard.quotas.may_act()
            shard.linker.may_act()
            shard.people.may_act()
            self.operator.may_act(shard)
            self.trims.may_act(shard)
            for _ in range(state.random.randrange(state.most_moves + 1)):
                self.move()
            if number == quiet_at and not state.mix.hole:
                self.settling.be_quiet()
                self.disturbances.resume()
        if state.mix.hole:
            self.settling.run_out()
        else:
            self.settling.be_quiet()

    def move(self) -> None:
        """Something may go wrong; then one service takes a step."""
        self.scheduler.move()
        self.instances.move()

    def settle_and_check(self) -> None:
        """Wait until the plane says that it has nothing to do, and hold everything against the model."""
        self.settling.settle_and_check()

    def snapshot_names(self, shard: ShardRun) -> dict[str, tuple[str, str, str]]:
        """Volume, bucket and name by id of what clients made and did not delete."""
        return snapshot_names(self.state, shard)

    def report(self) -> RunReport:
        """What the run has done so far."""
        state = self.state
        messages = sum(len(partition) for partition in state.plane.log.partitions.values())
        return RunReport(
            state.seed,
            state.mix,
            state.actions,
            state.steps,
            state.faults.crashes,
            state.restores,
            messages,
            state.trimmed,
            state.deleted_groups,
            self.instances.takeovers,
            state.plane.owners.refused,
            self.added_shards.added,
        )


def simulate(seed: int, *, mix: FaultMix | None = None, without: Collection[str] = ()) -> RunReport:
    """Play one run."""
    return Simulation(seed, mix=mix, without=without).run()
