"""Backups and trims: an operator copies the databases of a shard, and trims its log by the product's own rule.

Whatever was trimmed, every process goes on, starts again, and goes back to any copy that is still a backup.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from schemas import records
from schemas.codec import codec
from schemas.records import SnapshotChainRecord
from schemas.topics import CHANGELOGS, SNAPSHOT_CHAIN, TOPICS
from services.log.memory import messages_of
from services.metadata.checkpoints.unfinished import first_offset_of_txn, oldest_unfinished_txn
from services.plane.upkeep.shard_databases import positions_of
from services.plane.upkeep.trimming import Place, newest_start, plan_trims
from services.runtime.copies.manifests import Backup, InputPosition, ServiceCopy
from services.runtime.loop.positions import POSITIONS
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.simulation.faults import Address
from tests.simulation.plane import SimulatedPlane
from tests.simulation.run_state import RunState, ShardRun


class Trims:
    """Backs up and trims as often as a run says."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._chances = Random(f"trims of {state.seed}")
        self.share = self._chances.choice((0.0, 0.0, 0.05, 0.2))
        if state.mix.hole:  # a record of the whole chain would mend it
            self.share = 0.0

    def may_act(self, shard: ShardRun) -> None:
        """Now and then do something, if every process of the shard would answer."""
        number = shard.model.shard
        is_whole = not any(address[1] == number for address in self.state.down)
        if self._chances.random() >= self.share or not is_whole:
            return
        what = self._chances.choice(("back up", "back up", "full chain", "trim", "trim"))
        if what == "back up":
            self.back_up(number)
        elif what == "full chain":
            shard.actor.control(records.PublishFullChain("the log is to be trimmed"))
        else:
            self.trim(number)
        self.state.trace.append(what)

    def back_up(self, shard: int) -> None:
        """Copies of one moment; it takes the place of the backup before.

        As in the product, of a service with a changelog only when all of it is published, if others may take over.
        """
        published = (not self.state.plane.processes[name, shard].runner.waiting() for name in CHANGELOGS)
        if self.state.mix.takeover and not all(published):
            return
        for address in self.state.plane.addresses:
            if address[1] == shard and address[0] != "streaming":
                self.state.backups[address] = self.state.plane.processes[address].store.clone()

    def trim(self, shard: int) -> None:
        """Give up what nobody needs, and copies that would have to read it."""
        log = self.state.plane.log
        firsts = {(topic.name, one): log.first_offset(topic.name, one) for topic in TOPICS for one in range(shard + 1)}
        backup = Backup("newest", 0, shard + 1, tuple(self._copies(shard)))
        positions = self._positions(shard)
        for trim in plan_trims(shard + 1, firsts, positions, [backup], self._newest_full_chain):
            if trim.topic == SNAPSHOT_CHAIN.name and positions.get(("streaming", trim.topic, shard), 0) < trim.until:
                continue  # the real job would begin there; the one that is simulated goes on from where it was
            if trim.messages and trim.shard == shard:
                log.trim(trim.topic, shard, trim.until)
                self.state.trimmed += trim.messages
        for address, copy in list(self.state.copies.items()):
            if address[1] == shard and is_before(self.state.plane, address, copy):
                del self.state.copies[address]

    def _copies(self, shard: int) -> list[ServiceCopy]:
        copies = []
        for (name, of_shard), store in self.state.backups.items():
            if of_shard != shard:
                continue
            positions = tuple(InputPosition(topic, "", offset) for topic, offset in read_to(store, name).items())
            txn = oldest_unfinished_txn(store) if name == "metadata" else None
            offset = None if txn is None else first_offset_of_txn(store, txn)
            copies.append(ServiceCopy(name, shard, positions, 1, unfinished_txn=txn, unfinished_offset=offset))
        return copies

    def _positions(self, shard: int) -> dict[Place, int]:
        """As far as each reader has read; Spark, as far as it would begin again."""
        positions: dict[Place, int] = {}
        for address in self.state.plane.addresses:
            name, of_shard = address
            if of_shard != shard:
                continue
            process = self.state.plane.processes[address]
            stored = self.state.batch_ends.get(address, process.store) if name == "streaming" else process.store
            # The real job does not look for what it has read last; the one that is simulated does, as a service.
            kept = 1 if name == "streaming" else 0
            positions |= {
                (name, topic, shard): max(0, offset - kept) for topic, offset in read_to(stored, name).items()
            }
            if name in CHANGELOGS:
                positions[name, CHANGELOGS[name].name, shard] = process.runner.changelog_offset() or 0
        return positions

    def _newest_full_chain(self, shard: int, until: int) -> int | None:
        first = self.state.plane.log.first_offset(SNAPSHOT_CHAIN.name, shard)
        markers = messages_of(self.state.plane.log.entries(SNAPSHOT_CHAIN.name, shard)[first:until])
        decode = codec(SnapshotChainRecord).decode_message
        return newest_start((one.offset, decode(one.value)) for one in markers)


def is_before(plane: SimulatedPlane, address: Address, copy: MemoryStore) -> bool:
    """Whether a copy would have to read what is gone: it is no backup any more."""
    name, shard = address
    positions, log = read_to(copy, name), plane.log
    topics = [*plane.processes[address].service.inputs, *filter(None, [CHANGELOGS.get(name)])]
    return any(positions.get(topic.name, 0) < log.first_offset(topic.name, shard) for topic in topics)


def read_to(store: MemoryStore, name: str) -> Mapping[str, int]:
    """By topic how far a service has read by its database, and from where it would look for what that lacks."""
    if name == "streaming":
        rows = TablesReader(store).table(POSITIONS).scan()
        return {topic.decode(): row.next_offset for topic, row in rows}
    return {topic: row.next_offset for topic, row in positions_of(store, name).items()}
