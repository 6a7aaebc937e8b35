"""What goes wrong between steps: crashes, absences, topics that come late, older copies, noise, lies, outages."""

from __future__ import annotations

from schemas.records import PositionRow
from schemas.stored_rows import row_codec
from schemas.topics import BY_NAME, CHANGELOGS, DEAD_LETTERS, SNAPSHOT_CHAIN, SNAPSHOTS_CHANGELOG, SNAPSHOTS_COMMANDS
from services.runtime.loop.positions import POSITIONS
from services.storage.memory import MemoryStore
from tests.simulation.faults import Address
from tests.simulation.garbage import garbage_for
from tests.simulation.run_state import RunState

HOUR_MS = 3_600_000


class Disturbances:
    """Lets things go wrong as often as the run's mix says."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.set_switches()

    def set_switches(self) -> None:
        """Have the block store misbehave."""
        mix = self.state.mix
        for switches in self.state.plane.switches:
            switches.fail_share = mix.scm_fail_share
            switches.delay_ms = mix.scm_delay_ms
            switches.answers_twice = mix.scm_answers_twice

    def something_goes_wrong(self) -> None:
        mix, random = self.state.mix, self.state.faults.random
        address = random.choice(self.state.plane.addresses)
        if mix.crash and random.random() < mix.crash:
            self.state.faults.countdowns[address] = random.choice((0, 0, 1, 1, 2, 3, 5, 10))
        if mix.pause and random.random() < mix.pause:
            self.state.goes_down(address)
        if mix.hold and random.random() < mix.hold:
            self._hold_or_release(address)
        if mix.restore and random.random() < mix.restore * 2:
            self.copy_or_restore(address)
        if mix.garbage and random.random() < mix.garbage:
            self._add_garbage(address[1])
        if mix.forgeries and random.random() < mix.forgeries:
            shard = self.state.shards[address[1]]
            shard.forger.forge(shard.model)
        if mix.clock_back and random.random() < mix.clock_back:
            back_ms = random.randint(1, HOUR_MS)
            self.state.set_back_ms += back_ms
            self.state.plane.clock.advance(-back_ms)
        if mix.scm_outage and random.random() < mix.scm_outage:
            switches = self.state.plane.switches[address[1]]
            switches.is_failing = not switches.is_failing

    def _hold_or_release(self, address: Address) -> None:
        name = self.state.faults.random.choice(list(self.state.mix.held_topics))
        place = (name, address[1], self.state.faults.random.choice(self.state.mix.held_topics[name]))
        if place in self.state.faults.held:
            del self.state.faults.held[place]
        else:
            self.state.faults.held[place] = self.state.plane.position(*place)

    def store_after_a_crash(self, address: Address) -> MemoryStore | None:
        """The database that was there; of a service with a changelog perhaps an older one, or none."""
        if address[0] == "streaming" and address in self.state.batch_ends:
            # Spark keeps nothing: the whole batch is judged again, by a chain that is newer, and published again.
            return self.state.batch_ends[address].clone()
        if address[0] not in CHANGELOGS or self.state.random.random() >= self.state.mix.restore:
            return None
        self.state.restores += 1
        return self.state.copies.pop(address, None) or self.state.nothing_or_backup(address)

    def copy_or_restore(self, address: Address) -> None:
        """Keep a copy of a database, or start from the copy that was kept; with a changelog, from nothing, too."""
        if address[0] != "metadata" and self.state.faults.random.random() < 0.3:
            self.rewind(address)
            return
        if address[0] == "metadata" and self.state.set_back_ms:
            return  # a clock that was set back within the last answers looks like a lost tail, and stops it
        if address[0] == "mock_scm" and self.state.mix.scm_outage:
            return  # what an outage did not delete would be deleted when it is read again: another past
        is_from_nothing = address[0] in CHANGELOGS and self.state.faults.random.random() < 0.2
        copy = self.state.nothing_or_backup(address) if is_from_nothing else self.state.copies.pop(address, None)
        if copy is None:
            self.state.copies[address] = self.state.plane.processes[address].store.clone()
            return
        if address in self.state.down or not self.state.is_published.get(address, False):
            return
        shard = self.state.shards[address[1]]
        if address[0] == "metadata":
            shard.replayed_until = max(shard.replayed_until, self.state.metadata_position(shard))
        if address in self.state.batch_ends:  # where Spark begins if it dies before its next batch has ended
            self.state.batch_ends[address] = copy.clone()
        self.state.restores += 1
        self.state.start(address, store=copy)

    def rewind(self, address: Address) -> None:
        """Have a service read the end of one input again, on the database that it has."""
        if address in self.state.down:
            return
        name, shard = address
        process = self.state.plane.processes[address]
        # A client's commands are known again for an hour only, and a client that is forgotten may ask anew.
        topics = [topic.name for topic in process.service.inputs if topic is not SNAPSHOTS_COMMANDS]
        topic = self.state.faults.random.choice(topics)
        next_offset = self.state.plane.position(name, shard, topic) - self.state.faults.random.randint(1, 12)
        next_offset = max(self.state.plane.log.first_offset(topic, shard), next_offset)
        topic_id = self.state.plane.log.topic_ids([topic])[topic]
        row = row_codec(PositionRow).encode(PositionRow(topic, topic_id, next_offset))
        process.store.write({POSITIONS.name: {topic.encode(): row}})
        if address in self.state.batch_ends:  # where Spark begins if it dies before its next batch has ended
            self.state.batch_ends[address] = process.store.clone()
        self.state.restores += 1
        self.state.start(address)

    def _add_garbage(self, shard: int) -> None:
        random = self.state.faults.random
        # A changelog is its service's alone: what cannot be read there is no dead letter, and nobody else may write it.
        names = [
            name for name in BY_NAME if name not in (SNAPSHOT_CHAIN.name, SNAPSHOTS_CHANGELOG.name, DEAD_LETTERS.name)
        ]
        topic = random.choice([name for name in names if BY_NAME[name].consumers != ("clients",)])
        examples = self.state.plane.log.records(topic, shard)
        garbage = garbage_for(BY_NAME[topic], examples, random)
        offset = self.state.plane.log.append(topic, shard, garbage.value)
        if garbage.is_unreadable:
            self.state.injected.add((topic, shard, offset))

    def resume(self) -> None:
        """Go on with the faults after a quiet time."""
        self.state.faults.resume()
        for switches in self.state.plane.switches:
            switches.fail_share = self.state.mix.scm_fail_share
            switches.delay_ms = self.state.mix.scm_delay_ms

    def heal(self) -> None:
        """Mend everything but holes."""
        self.state.faults.heal()
        for switches in self.state.plane.switches:
            switches.fail_share = 0.0
            switches.is_failing = False
            switches.delay_ms = 0
        self.state.frozen.clear()  # who is stopped is ended, and started again
        for address in list(self.state.down):
            del self.state.down[address]
            self.state.start(address)
