"""Two instances of each service: one owns the shard, the other one takes it over while the first may go on.

Metadata's other instance follows the shard as a standby. The other services have none: who takes over has nothing, or
the database of the time when it was the owner. A former owner that was stopped, or that nobody has told, goes on until
the log refuses what it publishes; then it becomes the standby.

Models and clients know nothing of this. What is looked for here is who publishes: the owner alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from schemas.topics import METADATA_COMMANDS
from services.domain.errors import (
    ChainBrokenError,
    FencedError,
    InvariantError,
    OutdatedError,
    PositionError,
    RetryableError,
)
from services.metadata.recovery.digest import digest_shard
from services.plane.in_memory.plane import Process
from services.runtime.loop.runner import owner_name
from services.runtime.process.standby import Standby
from services.storage.memory import MemoryStore
from tests.simulation.errors import DefectError
from tests.simulation.faults import Address, SimulatedCrash
from tests.simulation.plane import standby_address
from tests.simulation.run_state import RunState
from tests.simulation.trims import is_before

_MOST_STEPS_AT_THE_END, _MOST_STARTS_AT_THE_END = 60, 20


@dataclass(slots=True)
class _Former:
    """An owner that has been replaced, and does not know it."""

    process: Process
    is_running: bool
    """Whether it goes on, now or later."""
    published_until: int
    """Position in metadata's log up to which it is known to have published all."""
    wakes_at: int = 0
    """The step from which on it goes on."""


@dataclass(slots=True)
class _Other:
    """The instance of metadata that is not the owner, with its database."""

    store: MemoryStore
    returns_at: int = 0
    """The step from which on it follows the shard."""
    standby: Standby | None = None
    """None while it is away."""


class Instances:
    """The instances that are not the owners, and what befalls owners because there are others."""

    def __init__(self, state: RunState, step: Callable[[Address], int], watch: Callable[[Address], None]) -> None:
        """``step`` lets an owner take a step, ``watch`` looks at what an owner has done."""
        self.state = state
        self.takeovers = 0
        self._step = step
        self._watch = watch
        self._random = state.instancing
        self._formers: dict[Address, _Former] = {}
        self._others: dict[int, _Other] = {}
        self._left: dict[Address, MemoryStore] = {}
        """By service without a standby the database that the other instance has from its time as the owner."""
        self._was_quiet = False
        for shard in range(state.plane.shards):
            self.add_shard(shard)

    def add_shard(self, shard: int) -> None:
        """Have another instance of metadata for a shard, in the runs that have instances."""
        if self.state.mix.takeover:
            self._others[shard] = _Other(self.state.nothing_or_backup(("metadata", shard)))

    # ---- while faults are on

    def move(self) -> None:
        """Something may befall an owner, and all others take their steps, or not."""
        if not self.state.mix.takeover:
            return
        for address in self.state.plane.addresses:
            self._may_befall(address)
        for address in list(self._formers):
            if self.state.steps >= self._formers[address].wakes_at and self._random.random() < 0.4:
                self._step_former(address)
        for shard, other in self._others.items():
            if ("metadata", shard) not in self._formers:
                self._step_other(shard, other)

    def _may_befall(self, address: Address) -> None:
        name, faults, mix = address[0], self.state.faults, self.state.mix
        if name == "streaming":
            return
        share = 1.0 if name == "metadata" else 0.25
        if self._random.random() < mix.takeover * share:
            faults.countdowns[address] = self._random.choice((0, 1, 2, 3, 5, 10, 20))
            faults.pauses.add(address)
        if name == "metadata" and self._random.random() < mix.crash / 10:
            faults.countdowns[standby_address(address[1])] = self._random.choice((0, 1, 2, 5, 10))
        chance = 0.1 if address in self.state.down else mix.takeover
        if self._random.random() < chance * share and self._can_be_replaced(address):
            self._take_over(address)

    def _can_be_replaced(self, address: Address) -> bool:
        if address[0] == "mock_scm" and (self.state.mix.scm_outage or self._was_quiet):
            return False  # its successor would delete what it could not: another past
        return address not in self._formers

    def _take_over(self, address: Address) -> None:
        """Make the other instance the owner, whatever has become of the present one."""
        store, owners = self._store_of_successor(address), self.state.plane.owners
        former = self._present(address)
        stops = former.is_running and address not in self.state.frozen and self._random.random() < 0.3

        def go_on() -> None:
            """Take some steps, since the successor has looked at the log already and has not refused anybody yet."""
            for _ in range(self._random.choice((0, 0, 1, 3))):
                if address not in self.state.down:
                    self._step(address)

        def is_refused() -> None:
            """See what has become of the owner, and what of its last messages is in the log."""
            nonlocal former
            former = self._present(address)
            self._watch(address)

        owners.before_next, owners.after_last = None if stops else go_on, is_refused
        is_owner = self._start(address, store)
        owners.before_next = owners.after_last = None
        if is_owner:
            self.takeovers += 1
            former.is_running &= not stops
            self._is_replaced(address, former)
        elif address[0] == "metadata":
            self._others[address[1]] = _Other(store, self._later())

    def _present(self, address: Address) -> _Former:
        is_running = address not in self.state.down or address in self.state.frozen
        process = replace(self.state.plane.processes[address])  # what it is now
        position = self.state.plane.position(*address, METADATA_COMMANDS.name)
        return _Former(process, is_running, position if self.state.is_published.get(address, False) else 0)

    def _store_of_successor(self, address: Address) -> MemoryStore:
        if address[0] == "metadata":
            other = self._others[address[1]]
            if other.standby is not None:
                with suppress(SimulatedCrash):  # then it starts without having looked
                    other.standby.leave_out_published()
                other.standby = None
            return other.store
        return self._left.pop(address) if address in self._left else self.state.nothing_or_backup(address)

    def _start(self, address: Address, store: MemoryStore) -> bool:
        """Start the successor; say whether it has become the owner, which it may also have if it died then."""
        sinks, owner = self.state.plane.owners.sinks, owner_name(*address)
        before = sinks.get(owner)
        return self._started(address, store, lambda: sinks.get(owner) is not before)

    def _started(
        self, address: Address, store: MemoryStore, has_refused: Callable[[], bool], *, is_backup: bool = False
    ) -> bool:
        """Start the successor; ``has_refused`` says whether it, or a start before it, has refused the present owner."""
        state = self.state
        try:
            state.plane.start(*address, store=store)
        except SimulatedCrash:
            if not has_refused():
                return False
            state.plane.processes[address] = replace(state.plane.processes[address], store=store)
            state.frozen.discard(address)
            state.goes_down(address)
        except InvariantError as error:
            if not is_backup and isinstance(error, OutdatedError):
                return self._started(address, state.backups[address].clone(), has_refused, is_backup=True)
            with state.oracles.asked("services", ends_run=True):
                raise DefectError(f"{address} does not take over: {error}") from error
        else:
            state.down.pop(address, None)
            state.frozen.discard(address)
        return True

    def _is_replaced(self, address: Address, former: _Former) -> None:
        state = self.state
        if address[0] == "metadata":
            shard = state.shards[address[1]]
            shard.replayed_until = max(shard.replayed_until, former.published_until)
        state.is_published[address] = False
        state.faults.countdowns.pop(address, None)
        state.faults.pauses.discard(address)
        if former.is_running:
            former.wakes_at = state.steps + self._random.choice((0, 0, 5, 30))
            self._formers[address] = former
        else:
            self._has_ended(address, former.process.store)

    def _later(self) -> int:
        return self.state.steps + self._random.choice((0, 1, 5, 20, 60))

    # ---- former owners

    def _step_former(self, address: Address) -> None:
        """Let a former owner go on; when it hears that it is none any more, it ends."""
        state, former = self.state, self._formers[address]
        state.faults.is_former = True
        try:
            with self._publishes_nothing(f"a former owner of {address}"):
                former.process.runner.step()
        except (FencedError, SimulatedCrash):
            self._former_ends(address)
        except RetryableError:
            pass
        except InvariantError as error:
            is_trimmed = isinstance(error, PositionError) and self._is_trimmed_away(address, former.process.store)
            is_broken = isinstance(error, ChainBrokenError) and state.mix.hole in (address[0], "everyone")
            if not (is_trimmed or is_broken):
                state.oracles.say("services", DefectError(f"a former owner of {address} stopped: {error}"))
            self._former_ends(address)
        finally:
            state.faults.is_former = False

    def _former_ends(self, address: Address) -> None:
        self._has_ended(address, self._formers.pop(address).process.store)

    def _has_ended(self, address: Address, store: MemoryStore) -> None:
        """A former owner is no more; its host may have lost the database as well."""
        is_lost = self._random.random() < 0.2
        if address[0] == "metadata":
            store = self.state.nothing_or_backup(address) if is_lost else store
            self._others[address[1]] = _Other(store, self._later())
        elif not is_lost:
            self._left[address] = store

    # ---- standbys

    def _step_other(self, shard: int, other: _Other) -> None:
        if other.standby is None:
            if self.state.steps >= other.returns_at:
                self._follow(shard, other)
        elif self._random.random() < 0.5:
            self._step_standby(shard, other)

    def _follow(self, shard: int, other: _Other) -> None:
        try:
            other.standby = self.state.plane.open_standby(shard, other.store)
        except SimulatedCrash:
            other.returns_at = self._later()
        except OutdatedError:
            other.store = self.state.backups["metadata", shard].clone()

    def _step_standby(self, shard: int, other: _Other) -> int:
        assert other.standby is not None
        try:
            with self._publishes_nothing(f"a standby of shard {shard} of metadata"):
                applied = other.standby.step(0.0)
                if self._random.random() < 0.1:
                    other.standby.leave_out_published()
                return applied
        except SimulatedCrash:
            other.standby, other.returns_at = None, self._later()
        except RetryableError:
            pass
        except InvariantError as error:
            if not (isinstance(error, PositionError) and self._is_trimmed_away(("metadata", shard), other.store)):
                self.state.oracles.say("services", DefectError(f"a standby of shard {shard} stopped: {error}"))
            other.standby, other.returns_at = None, self._later()
        return 1

    def _is_trimmed_away(self, address: Address, store: MemoryStore) -> bool:
        return is_before(self.state.plane, address, store)

    @contextmanager
    def _publishes_nothing(self, who: str) -> Iterator[None]:
        messages = self._messages()
        try:
            yield
        finally:
            if (more := self._messages() - messages) > 0:
                self.state.oracles.say("owners", DefectError(f"{who} has published {more} messages"))

    def _messages(self) -> int:
        return sum(map(len, self.state.plane.log.messages.values()))

    # ---- at rest

    def be_quiet(self) -> None:
        """Let former owners find out that they are, or end them: from now on there are owners and standbys."""
        self._was_quiet = True
        for address in list(self._formers):
            for _ in range(_MOST_STEPS_AT_THE_END):
                if address in self._formers:
                    self._step_former(address)
            if address in self._formers:
                self._former_ends(address)

    def check(self) -> None:
        """At rest a standby that has read all has what the owner has."""
        for shard, other in self._others.items():
            address = ("metadata", shard)
            while self._step(address):
                pass
            self._catch_up(shard, other)
            with self.state.oracles.asked("standbys"):
                self._compare(shard, self.state.plane.processes[address].store, other.store)

    def _catch_up(self, shard: int, other: _Other) -> None:
        """Let a standby read all; one that the log does not reach back to begins again with a backup."""
        for _ in range(_MOST_STARTS_AT_THE_END):
            if other.standby is None:
                self._follow(shard, other)
            while other.standby is not None and self._step_standby(shard, other):
                pass
            if other.standby is not None:
                return
        raise DefectError(f"a standby of shard {shard} of metadata does not come to the end of its log")

    def _compare(self, shard: int, owner: MemoryStore, standby: MemoryStore) -> None:
        differences = digest_shard(standby).differences(digest_shard(owner))
        if differences:
            raise DefectError(f"shard {shard}: a standby of metadata differs from its owner in {differences}")
