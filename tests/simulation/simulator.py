"""One run: a seed makes a plane, clients and faults; then all is healed, settled and counted.

A model follows metadata's log. After every step of a service it is asked whether anything was given away that is
held; when the plane says that it is settled, everything is held against it. The same seed gives the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import BlockRun, PositionRow, SnapshotReply
from schemas.topics import (
    BY_NAME,
    CHANGELOGS,
    DEAD_LETTERS,
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    METADATA_PROGRESS,
    METADATA_REPLIES,
    PURGE_DIRECTORIES,
    PURGE_KEYS,
    SCM_COMMANDS,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_CHANGELOG,
    SNAPSHOTS_COMMANDS,
    SNAPSHOTS_REPLIES,
    SWEEP_RESULTS,
)
from services.domain.row_columns import BlockGroup, ColumnsError, block_groups, deleted_entries, row_names
from services.domain.table_keys import local_id_txn
from services.metadata.rollback import is_finished
from services.metadata.tables import ROLLBACK_TABLE
from services.mock_scm.inventory import scm_state
from services.mock_scm.tables import INVENTORY_TABLE, inventory_key
from services.runtime.errors import ChainBrokenError, InvariantError, RetryableError
from services.runtime.log import LogRecord
from services.runtime.loop import RUNTIME_TABLES
from services.runtime.positions import POSITIONS
from services.snapshots import queries, retention_queries
from services.snapshots.tables import SNAPSHOT_INFO_TABLE
from services.storage.memory import MemoryStore
from tests.simulation.actions import Actor
from tests.simulation.checks import BEYOND, FIRST, QuietCheck, check_accounts
from tests.simulation.errors import AnswerError, DefectError, LivenessError, SafetyError, SimulationError
from tests.simulation.faults import Address, FaultMix, Faults, SimulatedCrash, draw_mix
from tests.simulation.garbage import Liar, garbage_for
from tests.simulation.holds import Holds, some_policy
from tests.simulation.model import Incarnation, ShardModel
from tests.simulation.plane import Limits, SimulatedPlane, draw_limits
from tests.simulation.space_checks import SpaceCheck
from tests.simulation.undeletes import deleted_rows, metadata_replies

MAX_QUIET_ROUNDS = 1_500
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
LIMITS = records.BreakerLimits(share_percent=1, floor_bytes=6_000, floor_versions=2)
"""So low that the breaker trips; one percent of what a run has is less than the floors."""
REPLAYED_TOPICS = frozenset(
    topic.name for topic in (METADATA_REPLIES, METADATA_PROGRESS, DELETED_ENTRIES, SNAPSHOT_CHAIN)
)
"""What metadata sends again when it starts from an older copy; figures are coalesced by batch."""

_ASKED_BY: Mapping[type[Any], str] = {
    records.RowsClaimed: "key_deletion",
    records.RowsFinished: "key_deletion",
    records.SweepPageSent: "key_deletion",
    records.DirectoryExpanded: "directory_deletion",
    records.DirectoriesPurged: "directory_deletion",
}

_FOLLOWERS = ("snapshots", "key_deletion", "directory_deletion")
"""Who is told of the collector."""


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
    deleted_groups: int


@dataclass(slots=True)
class _Shard:
    """What the simulator keeps of one shard."""

    model: ShardModel
    actor: Actor
    liar: Liar
    read_to: dict[str, int] = field(default_factory=dict)
    replies: dict[tuple[str, int], SnapshotReply] = field(default_factory=dict)
    dead_letters: set[tuple[str, str, int]] = field(default_factory=set)
    replayed_until: int = 0
    """Position up to which a restored metadata repeats itself."""
    sent_before: set[tuple[str, Any]] = field(default_factory=set)
    scm_deletions: int = 0
    claimed: set[int] = field(default_factory=set)
    """First local ids of all blocks that an answer to a claim has named."""
    hidden_version: int = 0
    """Chain version of the marker that one reader never sees."""
    lost_answers: int = 0
    hours: dict[int, list[int]] = field(default_factory=dict)
    """By bucket id the log time at which its present hour of claims began, and the bytes and versions of it."""
    let_go: dict[int, int] = field(default_factory=dict)
    """By bucket id the txn of the reset which has let go what had died by then."""
    trips: dict[int, int] = field(default_factory=dict)
    """By bucket id the txn at which the breaker has tripped."""


class Simulation:
    """One run."""

    def __init__(self, seed: int, *, mix: FaultMix | None = None, limits: Limits | None = None) -> None:
        self.seed = seed
        random = Random(seed)
        self.random = Random(random.random())
        self.asking = Random(seed)
        """Chooses questions: a source of its own, so that asking changes no run."""
        self.operating = Random(seed)
        """Chooses what an operator does, in some of the runs: the others are played as without him."""
        self.operations = self.operating.choice((0.0, 0.0, 0.05, 0.2))
        self.has_breaker = self.operating.random() < 0.5
        """Whether the operator sets limits; then he pauses everything or nothing: whether a bucket that was deleted
        can still be paused by its name depends on when the breaker tripped."""
        self.loses_change = self.operating.choice(("", "", *_FOLLOWERS))
        """Who never hears of some changes of the collector, as if the log had lost them."""
        self.mix = draw_mix(random) if mix is None else mix
        self.actions = random.randint(15, 110)
        self.most_moves = random.choice((1, 3, 6, 12, 25))
        shard_count = random.choice((1, 1, 2))
        self.faults = Faults(Random(random.random()), self.mix)
        self.plane = SimulatedPlane(shard_count, limits or draw_limits(random), self.faults)
        self.shards = [self._new_shard(shard, random) for shard in range(shard_count)]
        self.down: dict[Address, int] = {}
        """Services that are away, and until which step."""
        self.copies: dict[Address, MemoryStore] = {}
        self.is_published: dict[Address, bool] = {}
        self.injected: set[tuple[str, int, int]] = set()
        """Topic, partition and offset of every message that nobody can read."""
        self.steps = self.restores = self.deleted_groups = 0
        self.settles = self.expired = self.rollbacks = self.pauses = self.tripped = self.lost_changes = 0
        self.trace: list[str] = []
        for switches in self.plane.switches:
            switches.fail_share = self.mix.scm_fail_share
            switches.delay_ms = self.mix.scm_delay_ms
            switches.answers_twice = self.mix.scm_answers_twice

    def _new_shard(self, shard: int, random: Random) -> _Shard:
        model = ShardModel(shard)

        def last_page_of(rollback_id: str) -> int:
            rows = self.plane.tables("metadata", shard).table(ROLLBACK_TABLE).scan(b"/", b"0")
            ends = (row.page for key, row in rows if key.endswith(f"/{rollback_id}".encode()) and is_finished(row))
            return next(ends, 0)

        model.last_page_of = last_page_of

        def list_snapshots(bucket: str) -> list[str]:
            tables = self.plane.tables("snapshots", shard)
            return [row.name for row in queries.list_snapshots(tables, actor.volume, bucket)]

        def answers_to(client_id: str, number: int) -> list[records.MetadataReply]:
            return [
                reply
                for reply in metadata_replies(self.plane, shard)
                if (reply.client_id, reply.number) == (client_id, number)
            ]

        model.answers_to = answers_to
        actor = Actor(shard, Random(random.random()), self.plane.log, model, list_snapshots)
        actor.list_deleted = lambda: deleted_rows(self.plane, shard)
        return _Shard(model, actor, Liar(shard, Random(random.random()), self.plane))

    # ---- the run

    def run(self) -> RunReport:
        """Play everything; raises a SimulationError, with the seed in its notes, when a promise is broken."""
        try:
            quiet_at = self.random.randrange(self.actions) if self.random.random() < 0.2 else -1
            for number in range(self.actions):
                shard = self.random.choice(self.shards)
                self.trace.append(shard.actor.act())
                if self.operating.random() < self.operations:
                    self._operate(shard)
                for _ in range(self.random.randrange(self.most_moves + 1)):
                    self.move()
                if number == quiet_at and not self.mix.hole:
                    self.be_quiet()
                    self.resume()
            if self.mix.hole:
                self.run_out()
            else:
                self.be_quiet()
        except SimulationError as error:
            error.add_note(f"seed {self.seed}: python -m tests.simulation.run_seeds --seed {self.seed}")
            raise
        messages = sum(len(partition) for partition in self.plane.log.partitions.values())
        return RunReport(
            self.seed,
            self.mix,
            self.actions,
            self.steps,
            self.faults.crashes,
            self.restores,
            messages,
            self.deleted_groups,
        )

    def _operate(self, shard: _Shard) -> None:
        """Pause or resume the collector, of a bucket or of everything; mostly with effect."""
        if self.has_breaker and self.operating.random() < 0.5:
            is_set = self.operating.random() < 0.6
            shard.actor.submit(records.SetBreaker("", "", LIMITS if is_set else None))
            shard.actor.submit(records.ResetBreaker("", "", "all of it was meant"))
            self.trace.append("limits" if is_set else "no limits")
            return
        buckets = [] if self.has_breaker else [(shard.actor.volume, f"bucket-{one}") for one in "aab"]
        volume, bucket = self.operating.choice([("", ""), *buckets])
        is_pause = self.operating.random() < 0.5
        held_back = self.operating.choice((records.CollectorState.PAUSED, records.CollectorState.SHADOW))
        state = held_back if is_pause else records.CollectorState.RUNNING
        shard.actor.submit(records.SetCollector(volume, bucket, state, "an operator's whim"))
        self.trace.append(f"{state.lower()} {bucket or 'everything'}")
        self.pauses += is_pause

    def move(self) -> None:
        """Something may go wrong; then one service takes a step."""
        self.steps += 1
        is_long = self.random.random() < 0.01
        self.plane.clock.advance(self.random.randint(10, 70) * MINUTE_MS if is_long else self.random.randint(1, 900))
        self._something_goes_wrong()
        if (late := self.faults.arrives_late(self.plane.log)) is not None:
            self.watch(late)
        for address, until in list(self.down.items()):
            if until <= self.steps:
                del self.down[address]
                self._start(address, store=self._store_after_a_crash(address))
        address = self.random.choice(self.plane.addresses)
        if address not in self.down:
            self.step(address)

    def step(self, address: Address) -> int:
        """Let one service take a step, and look at what it has done."""
        self.is_published[address] = False
        count = 0
        try:
            runner = self.plane.processes[address].runner
            count = runner.step()
            self.is_published[address] = not runner.waiting()
        except SimulatedCrash:
            self._goes_down(address)
        except RetryableError:
            count = 1
        except ChainBrokenError as error:
            if self.mix.hole not in (address[0], "everyone"):
                raise DefectError(f"{address}: {error}") from error
            self._goes_down(address)
        except InvariantError as error:
            raise DefectError(f"{address} stopped: {error}") from error
        self.watch(address)
        return count

    def _start(self, address: Address, store: MemoryStore | None = None) -> None:
        """Start a service, on its database or on another one."""
        try:
            self.plane.start(*address, store=store)
        except InvariantError as error:
            raise DefectError(f"{address} does not start: {error}") from error

    def _goes_down(self, address: Address) -> None:
        self.faults.died(address)
        stays = self.random.randint(20, 300) if self.random.random() < self.mix.stay_down else self.random.randint(1, 5)
        self.down[address] = self.steps + stays

    # ---- faults

    def _something_goes_wrong(self) -> None:
        mix, random = self.mix, self.faults.random
        address = random.choice(self.plane.addresses)
        if mix.crash and random.random() < mix.crash:
            self.faults.countdowns[address] = random.choice((0, 0, 1, 1, 2, 3, 5, 10))
        if mix.pause and random.random() < mix.pause:
            self._goes_down(address)
        if mix.hold and random.random() < mix.hold:
            self._hold_or_release(address)
        if mix.restore and random.random() < mix.restore * 2:
            self._copy_or_restore(address)
        if mix.garbage and random.random() < mix.garbage:
            self._add_garbage(address[1])
        if mix.lies and random.random() < mix.lies:
            self.shards[address[1]].liar.lie()
        if mix.scm_outage and random.random() < mix.scm_outage:
            switches = self.plane.switches[address[1]]
            switches.is_failing = not switches.is_failing

    def _hold_or_release(self, address: Address) -> None:
        name = self.faults.random.choice(list(self.mix.held_topics))
        place = (name, address[1], self.faults.random.choice(self.mix.held_topics[name]))
        if place in self.faults.held:
            del self.faults.held[place]
        else:
            self.faults.held[place] = self.plane.position(*place)

    def _store_after_a_crash(self, address: Address) -> MemoryStore | None:
        """The database that was there; of a service with a changelog perhaps an older one, or none."""
        if address[0] not in CHANGELOGS or self.random.random() >= self.mix.restore:
            return None
        self.restores += 1
        return self.copies.pop(address, None) or MemoryStore()

    def _copy_or_restore(self, address: Address) -> None:
        """Keep a copy of a database, or start from the copy that was kept; with a changelog, from nothing, too."""
        if address[0] != "metadata" and self.faults.random.random() < 0.3:
            self._rewind(address)
            return
        if address[0] == "mock_scm" and self.mix.scm_outage:
            return  # what an outage did not delete would be deleted when it is read again: another past
        is_anew = address[0] in CHANGELOGS and self.faults.random.random() < 0.2
        copy = MemoryStore() if is_anew else self.copies.pop(address, None)
        if copy is None:
            self.copies[address] = self.plane.processes[address].store.clone()
            return
        if address in self.down or not self.is_published.get(address, False):
            return
        shard = self.shards[address[1]]
        if address[0] == "metadata":
            shard.replayed_until = max(shard.replayed_until, self._metadata_position(shard))
        self.restores += 1
        self._start(address, store=copy)

    def _rewind(self, address: Address) -> None:
        """Have a service read the end of one input again, on the database that it has."""
        if address in self.down:
            return
        name, shard = address
        process = self.plane.processes[address]
        # A client's commands are known again for an hour only, and a client that is forgotten may ask anew.
        topics = [topic.name for topic in process.service.inputs if topic is not SNAPSHOTS_COMMANDS]
        topic = self.faults.random.choice(topics)
        next_offset = max(0, self.plane.position(name, shard, topic) - self.faults.random.randint(1, 12))
        topic_id = self.plane.log.topic_ids([topic])[topic]
        row = codec(PositionRow).encode(PositionRow(topic, topic_id, next_offset))
        process.store.write({POSITIONS.name: {topic.encode(): row}})
        self.restores += 1
        self._start(address)

    def _add_garbage(self, shard: int) -> None:
        random = self.faults.random
        # A changelog is its service's alone: what cannot be read there is no dead letter, and nobody else may write it.
        names = [
            name for name in BY_NAME if name not in (SNAPSHOT_CHAIN.name, SNAPSHOTS_CHANGELOG.name, DEAD_LETTERS.name)
        ]
        topic = random.choice([name for name in names if BY_NAME[name].consumers != ("clients",)])
        examples = self.plane.log.records(topic, shard)
        garbage = garbage_for(BY_NAME[topic], examples, random)
        offset = self.plane.log.append(topic, shard, garbage.value, garbage.fingerprint)
        if garbage.is_unreadable:
            self.injected.add((topic, shard, offset))

    def _hide_marker(self, shard: _Shard) -> None:
        """The reader that has the hole never sees the newest marker, however often it is sent."""
        markers = self.plane.log.records(SNAPSHOT_CHAIN.name, shard.model.shard)
        marker = markers[-1]
        is_repeated = any(earlier.value == marker.value for earlier in markers[:-1])
        if shard.hidden_version or is_repeated or self.faults.random.random() < 0.7:
            return
        record = codec(SNAPSHOT_CHAIN.record).decode_message(marker.value, marker.fingerprint)
        shard.hidden_version = record.version
        if self.mix.hole == "everyone":
            shard.hidden_version += 1
            offset = self.plane.log.append(SNAPSHOT_CHAIN.name, shard.model.shard, b"\xff" * 20, marker.fingerprint)
            self.injected.add((SNAPSHOT_CHAIN.name, shard.model.shard, offset))
            return
        self.faults.holes.add((self.mix.hole, shard.model.shard, SNAPSHOT_CHAIN.name, marker.value))

    def _lose_answer(self, shard: _Shard, offset: int, body: Any) -> None:
        """One answer of metadata never reaches who asked: he has to ask again."""
        asked_by = _ASKED_BY.get(type(body))
        if asked_by is None or shard.lost_answers or not self.faults.are_on or self.faults.random.random() < 0.8:
            return
        shard.lost_answers += self._hide(shard, asked_by, offset)

    def _lose_change(self, shard: _Shard, offset: int, body: Any) -> None:
        """One service never hears of a change of the collector: metadata has to tell all of it again."""
        if not isinstance(body, records.CollectorChanged) or body.is_whole or self.operating.random() < 0.5:
            return
        self.lost_changes += self._hide(shard, self.loses_change, offset)

    def _hide(self, shard: _Shard, reader: str, offset: int) -> bool:
        """Hide what metadata told at an offset from a reader, unless he was handed it, or the same, before."""
        place = (reader, shard.model.shard, METADATA_PROGRESS.name)
        told = self.plane.log.records(METADATA_PROGRESS.name, shard.model.shard)
        value = told[offset].value
        if any(one.value == value for one in told[: self.faults.seen.get(place, 0)]):
            return False
        self.faults.holes.add((*place, value))
        return True

    def resume(self) -> None:
        """Go on with the faults after a quiet time."""
        self.faults.resume()
        for switches in self.plane.switches:
            switches.fail_share = self.mix.scm_fail_share
            switches.delay_ms = self.mix.scm_delay_ms

    # ---- watching

    def _metadata_position(self, shard: _Shard) -> int:
        return self.plane.position("metadata", shard.model.shard, METADATA_COMMANDS.name)

    def _new_records(self, shard: _Shard, topic: Any, looked_for: str = "") -> list[tuple[int, Any]]:
        """Messages of a topic since the last look that can be read."""
        records = self.plane.log.records(topic.name, shard.model.shard)
        place = looked_for + topic.name
        start = shard.read_to.get(place, 0)
        if start == len(records):
            return []
        shard.read_to[place] = len(records)
        found = []
        for record in records[start:]:
            if (topic.name, record.partition, record.offset) in self.injected:
                continue
            try:
                found.append((record.offset, codec(topic.record).decode_message(record.value, record.fingerprint)))
            except DecodeError as error:
                raise DefectError(f"{topic.name} at {record.offset}: {error}") from error
        return found

    def watch(self, address: Address) -> None:
        """Hold what a service has done in its step against the model."""
        name, shard = address[0], self.shards[address[1]]
        if name == "metadata":
            self._watch_metadata(shard)
        elif name == "snapshots":
            for _, reply in self._new_records(shard, SNAPSHOTS_REPLIES):
                self._take_reply(shard, reply)
        elif name == "key_deletion":
            self._watch_key_deletion(shard)
        elif name == "mock_scm":
            self._watch_inventory(shard)
        self._watch_dead_letters(shard)
        if self.mix.hole:
            self._watch_hole(shard)

    def _watch_metadata(self, shard: _Shard) -> None:
        position = self._metadata_position(shard)
        self._watch_repeats(shard, position)
        shard.model.follow(self.plane.log.records(METADATA_COMMANDS.name, shard.model.shard), position)
        for _, reply in self._new_records(shard, METADATA_REPLIES):
            shard.model.check_reply(reply)
        for offset, progress in self._new_records(shard, METADATA_PROGRESS):
            self._watch_progress(shard, progress.body)
            self._watch_pauses(shard, progress)
            if self.loses_change:
                self._lose_change(shard, offset, progress.body)
            if self.mix.has_lost_answer:
                self._lose_answer(shard, offset, progress.body)
        if shard.model.is_rolling_back:
            return
        if self.random.random() < 0.1 and position == shard.model.position:
            check_accounts(self.plane, shard.model)
        if self.asking.random() < 0.05 and position == shard.model.position:
            SpaceCheck(self.plane, shard.model, self.asking, is_quiet=False).run()

    def _watch_key_deletion(self, shard: _Shard) -> None:
        for _, command in self._new_records(shard, SCM_COMMANDS):
            if isinstance(command.body, records.DeleteBlocks):
                self._watch_deletion(shard, command.body)
        for _, command in self._new_records(shard, METADATA_COMMANDS):
            if isinstance(command.body, records.FinishRows):
                self._watch_finish(shard, command.body)

    def _watch_repeats(self, shard: _Shard, position: int) -> None:
        """What a restored metadata sends while it catches up was sent before, byte for byte or entry for entry."""
        for topic in REPLAYED_TOPICS:
            records = self.plane.log.records(topic, shard.model.shard)
            for record in records[shard.read_to.get(f"repeats/{topic}", 0) :]:
                # What is sent at the end of a batch is cut into messages by the batches.
                if topic == METADATA_PROGRESS.name and _is_told_again(record):
                    continue
                news = _entries(record) if topic == DELETED_ENTRIES.name else [record.value]
                place = (topic, record.partition, record.offset)
                is_own = place not in self.injected and place not in shard.liar.places
                is_new = not shard.sent_before.issuperset((topic, one) for one in news)
                if position <= shard.replayed_until and is_own and is_new:
                    raise DefectError(f"metadata, started from an older copy, says something new on {topic}: {record}")
                shard.sent_before.update((topic, one) for one in news)
            shard.read_to[f"repeats/{topic}"] = len(records)

    def _take_reply(self, shard: _Shard, reply: SnapshotReply) -> None:
        if reply.error == "OLD_REQUEST":
            return
        before = shard.replies.setdefault((reply.client_id, reply.number), reply)
        if replace(before, rounds=0) != replace(reply, rounds=0):
            raise AnswerError(f"shard {shard.model.shard}: first {before}, then {reply}")

    def _watch_progress(self, shard: _Shard, body: Any) -> None:
        if isinstance(body, records.RowsClaimed):
            groups = block_groups(body.groups)
            for group in groups:
                shard.model.check_given_away(group.blocks, f"claim {body.task}")
            if body.refused and not self.mix.lies:
                raise DefectError(f"shard {shard.model.shard}: a claim was refused: {body.refused}")
        elif isinstance(body, records.DirectoriesPurged) and not self.mix.lies:
            held = [row for row in body.rows if row.outcome == records.PurgeOutcome.HELD]
            if held:
                raise DefectError(f"shard {shard.model.shard}: a purge was refused: {held}")

    def _watch_pauses(self, shard: _Shard, progress: records.MetadataProgress) -> None:
        """While a bucket is paused nothing of it goes, and nothing else is held back."""
        body, model = progress.body, shard.model
        if isinstance(body, records.DirectoriesPurged):
            gone = {row.bucket_id for row in body.rows if row.outcome == records.PurgeOutcome.PURGED}
            held_back = {row.bucket_id for row in body.rows if row.outcome == records.PurgeOutcome.HELD_BACK}
        elif isinstance(body, records.RowsClaimed):
            groups = block_groups(body.groups)
            news = [group for group in groups if group.blocks.first_local_id not in shard.claimed]
            gone = {group.bucket_id for group in news}
            self._watch_hours(shard, progress.txn, news)
            gone |= {row.bucket_id for row in row_names(body.removed)}
            held_back = {row.bucket_id for row in row_names(body.held_back)}
            shard.claimed.update(group.blocks.first_local_id for group in groups)
        else:
            return
        if any(model.was_paused(progress.txn, bucket_id) for bucket_id in gone):
            raise SafetyError(f"shard {model.shard}: freed while it is paused: {progress}")
        for bucket_id in held_back:
            if not model.was_paused(progress.txn, bucket_id):
                self._watch_trip(shard, progress, bucket_id)

    def _watch_hours(self, shard: _Shard, txn: int, news: list[BlockGroup]) -> None:
        """Within an hour no more of a bucket goes than its limits say."""
        moment = shard.model.breaker_at.get(txn)
        if moment is None:
            return
        for group in news:
            tripped_txn = shard.trips.get(group.bucket_id)
            if tripped_txn is not None:
                reset = moment.reset_after(tripped_txn)
                if reset is None:
                    raise SafetyError(f"shard {shard.model.shard}: claimed though the breaker has tripped: {group}")
                del shard.trips[group.bucket_id]
                shard.hours.pop(group.bucket_id, None)
                shard.let_go.pop(group.bucket_id, None)
                reset_txn, reset_ms = reset
                if reset_ms >= 0:
                    shard.hours[group.bucket_id] = [reset_ms, 0, 0]
                    shard.let_go[group.bucket_id] = reset_txn
            if not moment.is_limited:
                continue
            hour = shard.hours.get(group.bucket_id)
            if hour is None or moment.log_time_ms - hour[0] >= HOUR_MS:
                hour = shard.hours[group.bucket_id] = [moment.log_time_ms, 0, 0]
            if group.death <= shard.let_go.get(group.bucket_id, 0):
                continue
            hour[1] += group.blocks.size_bytes
            hour[2] += 1
            if hour[1] > LIMITS.floor_bytes or hour[2] > LIMITS.floor_versions:
                raise SafetyError(f"shard {shard.model.shard}: more goes within an hour than may: {hour}, {group}")

    def _watch_trip(self, shard: _Shard, progress: records.MetadataProgress, bucket_id: int) -> None:
        moment = shard.model.breaker_at.get(progress.txn)
        if moment is None:
            raise DefectError(f"shard {shard.model.shard}: held back for no reason: {progress}")
        tripped_txn = shard.trips.get(bucket_id)
        if tripped_txn is None or moment.reset_after(tripped_txn) is not None:
            if not moment.is_limited:
                raise DefectError(f"shard {shard.model.shard}: the breaker has tripped without limits: {progress}")
            shard.trips[bucket_id] = progress.txn
            self.tripped += 1

    def _watch_deletion(self, shard: _Shard, deletion: records.DeleteBlocks) -> None:
        for group in block_groups(deletion.groups):
            self.deleted_groups += 1
            shard.model.check_given_away(group.blocks, f"deletion {deletion.task}")
            if group.blocks.first_local_id not in shard.claimed:
                raise SafetyError(f"shard {shard.model.shard}: SCM was told of a row that was not claimed: {group}")

    def _watch_finish(self, shard: _Shard, finish: records.FinishRows) -> None:
        """Metadata forgets a row only when SCM has said that its blocks are gone."""
        inventory = self.plane.tables("mock_scm", shard.model.shard).table(INVENTORY_TABLE)
        for row in row_names(finish.rows):
            run = shard.model.runs[shard.model.put_numbers[row.birth]]
            if inventory.get(inventory_key(run.container_id, run.first_local_id)) is not None and not self.restores:
                raise SafetyError(f"shard {shard.model.shard}: finished before SCM has confirmed: {row}")

    def _watch_inventory(self, shard: _Shard) -> None:
        """Whenever SCM has deleted something, look whether it still has all that is held."""
        tables = self.plane.tables("mock_scm", shard.model.shard)
        state = scm_state(tables)
        if state.deleted_blocks == shard.scm_deletions:
            return
        shard.scm_deletions = state.deleted_blocks
        inventory = tables.table(INVENTORY_TABLE)
        for number in shard.model.held:
            run: BlockRun | None = shard.model.runs.get(number)
            if run is None or local_id_txn(run.first_local_id) > local_id_txn(state.mark_local_id):
                continue
            if inventory.get(inventory_key(run.container_id, run.first_local_id)) is None:
                version = shard.model.names.versions[number]
                raise SafetyError(f"shard {shard.model.shard}: SCM has lost the blocks of a held version: {version}")

    def _watch_dead_letters(self, shard: _Shard) -> None:
        for _, letter in self._new_records(shard, DEAD_LETTERS):
            place = (letter.topic, letter.partition, letter.offset)
            is_expected = (
                place in self.injected
                or place in shard.liar.places
                or (letter.topic == METADATA_COMMANDS.name and letter.offset in shard.model.unreadable)
            )
            if not is_expected:
                raise DefectError(f"{letter.service} has put aside a message of its own plane: {letter}")
            shard.dead_letters.add((letter.service, letter.topic, letter.offset))

    def _watch_hole(self, shard: _Shard) -> None:
        """Nobody judges with a view that has a hole."""
        if self._new_records(shard, SNAPSHOT_CHAIN):
            self._hide_marker(shard)
        if not shard.hidden_version:
            return
        judged: list[tuple[str, Any]] = []
        for topic in (PURGE_KEYS, PURGE_DIRECTORIES, SWEEP_RESULTS):
            judged += [("streaming", message) for _, message in self._new_records(shard, topic)]
        for _, command in self._new_records(shard, METADATA_COMMANDS, "hole"):
            if isinstance(command.body, records.ClaimRows):
                judged.append(("key_deletion", command.body))
            elif isinstance(command.body, records.PurgeDirectories):
                judged.append(("directory_deletion", command.body))
        for name, message in judged:
            if self.mix.hole in (name, "everyone") and message.chain_version >= shard.hidden_version:
                raise DefectError(f"{name} judged without marker {shard.hidden_version}: {message}")

    # ---- the end

    def heal(self) -> None:
        """Mend everything but holes."""
        self.faults.heal()
        for switches in self.plane.switches:
            switches.fail_share = 0.0
            switches.is_failing = False
            switches.delay_ms = 0
        for address in list(self.down):
            del self.down[address]
            self._start(address)

    def be_quiet(self) -> None:
        """Heal, settle, and hold everything against the model."""
        self.heal()
        # A healthy SCM deletes what a sick one fails: read again by a sick one, that would be another past.
        self.copies = {address: copy for address, copy in self.copies.items() if address[0] != "mock_scm"}
        if self.operations and self.operating.random() < 0.5:
            self._settle()  # what is paused is not waited for
        for shard in self.shards:
            self._let_go(shard)
            shard.liar.confess()
            shard.actor.unset_policies()
        self._settle_and_check()
        if self.random.random() < 0.3:
            self._expire_when_quiet()
            self._settle_and_check()

    def _let_go(self, shard: _Shard) -> None:
        """Resume whatever is paused, and whatever may be by commands that are still on their way."""
        if not self.operations:
            return
        names = {("", "")}
        if not self.has_breaker:
            names |= {(shard.actor.volume, f"bucket-{one}") for one in "ab"}
        for volume, bucket in sorted(names):
            shard.actor.submit(records.SetCollector(volume, bucket, records.CollectorState.RUNNING, "all is well"))
        shard.actor.submit(records.SetBreaker("", "", None))
        shard.actor.submit(records.ResetBreaker("", "", "all is well"))

    def _settle_and_check(self) -> None:
        self._settle()
        for shard in self.shards:
            if shard.model.is_paused:
                raise DefectError(f"shard {shard.model.shard}: resumed, and paused nevertheless")
            self._check_answers(shard)
            check_accounts(self.plane, shard.model)
            QuietCheck(self.plane, shard.model, self._snapshot_names(shard)).run()
            SpaceCheck(self.plane, shard.model, self.asking, is_quiet=True).run()

    def _settle(self) -> None:
        """Wait until the plane says that it has nothing to do."""
        self.settles += 1
        settles = []
        for shard in self.shards:
            request = shard.actor.request(records.Settle(f"settle-{self.settles}"))
            settles.append((shard, request.client_id, request.number))
        self._run_until_answered(settles)
        for shard, client_id, number in settles:
            if shard.replies[client_id, number].error:
                raise AnswerError(f"settling failed: {shard.replies[client_id, number]}")

    def _run_until_answered(self, asked: list[tuple[_Shard, str, int]]) -> None:
        for _ in range(MAX_QUIET_ROUNDS):
            self.steps += 1
            messages = sum(self.step(address) for address in self.plane.addresses)
            if all((client_id, number) in shard.replies for shard, client_id, number in asked):
                return
            round_ms = 20_000 if self.mix.has_lost_answer else 1_000
            self.plane.clock.advance(round_ms if messages else MINUTE_MS)
        raise LivenessError(f"not answered after {MAX_QUIET_ROUNDS} rounds: {self._open_work()}")

    def _expire_when_quiet(self) -> None:
        """With nothing on its way, what expires is what the rules say, and what a preview has said."""
        for shard in self.shards:
            for incarnation in shard.model.live_buckets():
                for prepare in (shard.actor.take_some, shard.actor.hold_some):
                    asked = prepare(incarnation.name)
                    self._run_until_answered([(shard, one.client_id, one.number) for one in asked])
                self._expire_bucket(shard, incarnation)

    def _expire_bucket(self, shard: _Shard, incarnation: Incarnation) -> None:
        tables = self.plane.tables("snapshots", shard.model.shard)
        infos = {row.snapshot_id: row for _, row in tables.table(SNAPSHOT_INFO_TABLE).scan(FIRST, BEYOND)}
        policy = some_policy(self.random)
        made_ms = [infos[snapshot_id].creation_time_ms for snapshot_id in incarnation.snapshots]
        now_ms = self.random.choice(made_ms or [0]) + policy.time_retained_ms + self.random.choice((0, 1, 2))
        holds = Holds.after(shard.model, shard.actor.requests, shard.replies)
        expected = holds.expected_expiry(incarnation, infos, policy, now_ms)
        place = (incarnation.volume, incarnation.name)
        shown = retention_queries.preview(tables, *place, now_ms, policy)
        request = shard.actor.request(records.ExpireSnapshots(*place, policy, now_ms))
        self._run_until_answered([(shard, request.client_id, request.number)])
        reply = shard.replies[request.client_id, request.number]
        done = reply.expired.snapshot_ids if reply.expired else ()
        if not done == expected == tuple(one.snapshot_id for one in shown.expired):
            raise AnswerError(f"shard {shard.model.shard}: expected {expected}, shown {shown}, done {reply}")
        self.expired += len(done)

    def _open_work(self) -> dict[str, Counter[str]]:
        """What every service still has in its tables."""
        left: dict[str, Counter[str]] = {}
        runtime = {table.name for table in RUNTIME_TABLES}
        for name, shard in self.plane.addresses:
            process = self.plane.processes[name, shard]
            counts = Counter(
                {
                    table.name: sum(1 for _ in process.store.scan(table.name, b"", b"\xff" * 9))
                    for table in process.service.tables
                    if table.name not in runtime
                }
            )
            left[f"{name}/{shard}"] = +counts
        return left

    def run_out(self) -> None:
        """The end of a run with a hole: nobody waits for it to become quiet, only for harm."""
        self.heal()
        for _ in range(60):
            self.steps += 1
            for address in self.plane.addresses:
                if address in self.down:
                    del self.down[address]
                    self._start(address)
                self.step(address)
            self.plane.clock.advance(MINUTE_MS)

    def _check_answers(self, shard: _Shard) -> None:
        """Every request has its answer, and every unreadable message was put aside by each of its readers."""
        for request in shard.actor.requests:
            if (request.client_id, request.number) not in shard.replies:
                raise LivenessError(f"shard {shard.model.shard}: no answer to {request}")
        Holds.after(shard.model, shard.actor.requests, shard.replies)
        for topic, partition, offset in self.injected:
            if partition != shard.model.shard:
                continue
            value = self.plane.log.records(topic, partition)[offset].value
            for reader in BY_NAME[topic].consumers:
                if (reader, partition, topic, value) in self.faults.holes:
                    continue
                if reader != "clients" and (reader, topic, offset) not in shard.dead_letters:
                    raise DefectError(f"{reader} has not put aside {topic} at {offset}")

    def _snapshot_names(self, shard: _Shard) -> dict[str, tuple[str, str, str]]:
        """Volume, bucket and name by id of what clients made and did not delete, by the answers that they got.

        Where a bucket had a policy, nobody was told what expired by itself: metadata's list tells it.
        """
        names: dict[str, tuple[str, str, str]] = {}
        retaining: set[tuple[str, str]] = set()
        for request in shard.actor.requests:
            reply = shard.replies[request.client_id, request.number]
            body = request.body
            if reply.error:
                continue
            if isinstance(body, records.CreateSnapshot):
                names[reply.snapshot_id] = (body.volume, body.bucket, body.snapshot)
            elif isinstance(body, records.SetRetention):
                retaining.add((body.volume, body.bucket))
            elif isinstance(body, records.RenameSnapshot):
                names[reply.snapshot_id] = (body.volume, body.bucket, body.target)
            else:
                self.rollbacks += isinstance(body, records.RollBackBucket)
                for snapshot_id in _gone_with(body, reply, shard.model, names):
                    names.pop(snapshot_id, None)
        live = {snapshot_id for incarnation in shard.model.live_buckets() for snapshot_id in incarnation.snapshots}
        return {
            snapshot_id: place
            for snapshot_id, place in names.items()
            if snapshot_id in live or place[:2] not in retaining
        }


def _gone_with(body: Any, reply: SnapshotReply, model: ShardModel, made: Iterable[str]) -> list[str]:
    """Ids of the snapshots that went with a request."""
    if isinstance(body, records.DeleteSnapshot):
        return [reply.snapshot_id]
    if isinstance(body, records.ExpireSnapshots) and reply.expired is not None:
        return list(reply.expired.snapshot_ids)
    if isinstance(body, records.RollBackBucket):
        incarnation, txn = model.snapshot_places[reply.snapshot_id]
        places = {snapshot_id: model.snapshot_places[snapshot_id] for snapshot_id in made}
        return [one for one, place in places.items() if place[0] is incarnation and place[1] > txn]
    return []


def _is_told_again(record: LogRecord) -> bool:
    """Whether a message tells all that the collector does: each start sends one, whatever was sent before."""
    try:
        body = codec(records.MetadataProgress).decode_message(record.value, record.fingerprint).body
    except DecodeError:
        return False
    return isinstance(body, records.CollectorChanged) and body.is_whole


def _entries(record: LogRecord) -> list[Any]:
    """What a message about deleted entries says, whatever else is in it; its bytes when it says nothing."""
    try:
        message = codec(records.DeletedEntries).decode_message(record.value, record.fingerprint)
        return [*deleted_entries(message), message.barrier]
    except (DecodeError, ColumnsError):
        return [record.value]


def simulate(seed: int, *, mix: FaultMix | None = None) -> RunReport:
    """Play one run."""
    return Simulation(seed, mix=mix).run()
