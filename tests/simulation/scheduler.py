"""Who takes the next step: something may go wrong, time goes on, and one service does what it has to do."""

from __future__ import annotations

from services.domain.errors import ChainBrokenError, InvariantError, RetryableError, StartAgainError
from tests.simulation.disturbances import Disturbances
from tests.simulation.errors import DefectError
from tests.simulation.faults import Address, SimulatedCrash, SimulatedPause
from tests.simulation.oracles import RunOver
from tests.simulation.run_state import RunState
from tests.simulation.watchers import Watchers

MINUTE_MS = 60_000


class Scheduler:
    """Lets services take their steps."""

    def __init__(self, state: RunState, disturbances: Disturbances, watchers: Watchers) -> None:
        self.state = state
        self._disturbances = disturbances
        self._watchers = watchers

    def move(self) -> None:
        """Something may go wrong; then one service takes a step."""
        self.state.steps += 1
        is_long = self.state.random.random() < 0.01
        self.state.plane.clock.advance(
            self.state.random.randint(10, 70) * MINUTE_MS if is_long else self.state.random.randint(1, 900)
        )
        self._disturbances.something_goes_wrong()
        if (late := self.state.faults.arrives_late(self.state.plane.log)) is not None:
            self._watchers.watch(late)
        for address, until in list(self.state.down.items()):
            if until <= self.state.steps:
                del self.state.down[address]
                if address in self.state.frozen:
                    self.state.frozen.discard(address)
                else:
                    self.state.start(address, store=self._disturbances.store_after_a_crash(address))
        address = self.state.random.choice(self.state.plane.addresses)
        if address not in self.state.down:
            self.step(address)

    def step(self, address: Address) -> int:
        """Let one service take a step, and look at what it has done."""
        self.state.is_published[address] = False
        count, is_over = 0, False
        try:
            runner = self.state.plane.processes[address].runner
            count = runner.step()
            self.state.is_published[address] = not runner.waiting()
            if address[0] == "streaming" and count and not runner.waiting() and self.state.mix.crash:
                self.state.batch_ends[address] = self.state.plane.processes[address].store.clone()
        except SimulatedCrash:
            self.state.goes_down(address)
        except SimulatedPause:
            self.state.freezes(address)
        except StartAgainError:
            count = 1
            self.state.start(address)
        except RetryableError:
            count = 1
        except ChainBrokenError as error:
            is_expected = self.state.mix.hole in (address[0], "everyone")
            if not is_expected:
                self.state.oracles.say("services", DefectError(f"{address}: {error}"))
                is_over = True
            self.state.goes_down(address)
        except InvariantError as error:
            self.state.oracles.say("services", DefectError(f"{address} stopped: {error}"))
            is_over = True
        self._watchers.watch(address)
        if is_over:  # a person would have to look at it
            raise RunOver
        return count
