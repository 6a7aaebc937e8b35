"""Everything that one run has: its plane, its shards with their models, its faults, and who is away."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import SnapshotReply
from schemas.topics import CHANGELOGS, METADATA_COMMANDS, SNAPSHOTS_COMMANDS
from services.domain.errors import InvariantError, OutdatedError
from services.metadata.checkpoints.rollback import is_finished
from services.metadata.state.tables import CHECKPOINTED, ROLLBACK_TABLE
from services.snapshots.reads import queries
from services.storage.memory import MemoryStore
from tests.simulation.actions import Actor
from tests.simulation.errors import DefectError
from tests.simulation.faults import Address, FaultMix, Faults, SimulatedCrash, draw_mix
from tests.simulation.flag_watch import FlagWatch
from tests.simulation.forger import Forger
from tests.simulation.linker import Linker
from tests.simulation.model import ShardModel
from tests.simulation.oracles import Oracles
from tests.simulation.people import People
from tests.simulation.plane import Limits, SimulatedPlane, draw_expiry, draw_limits, draw_units
from tests.simulation.quota_keeper import QuotaKeeper
from tests.simulation.replication_setter import ReplicationSetter
from tests.simulation.signing import ROOT, SECRETS, UnauthorizedSender
from tests.simulation.sweep_watch import SweepWatch
from tests.simulation.told import Told
from tests.simulation.undeletes import deleted_rows, expiry_answer, metadata_replies
from tests.simulation.version_keeper import VersionKeeper
from tests.simulation.writer import Writer

SHARE_WITH_INSTANCES = 0.25
SHARE_WITH_ADDED_SHARDS = 0.1
_FOLLOWERS = ("snapshots", "key_deletion", "directory_deletion")
"""Who is told of the collector."""


@dataclass(slots=True)
class ShardRun:
    """What a run keeps of one shard."""

    model: ShardModel
    actor: Actor
    writer: Writer
    keeper: VersionKeeper
    setter: ReplicationSetter
    quotas: QuotaKeeper
    linker: Linker
    people: People
    forger: Forger
    flags: FlagWatch
    sweeps: SweepWatch
    read_to: dict[str, int] = field(default_factory=dict)
    replies: dict[tuple[str, int], SnapshotReply] = field(default_factory=dict)
    dead_letters: set[tuple[str, str, int]] = field(default_factory=set)
    replayed_until: int = 0
    """Position up to which a restored metadata repeats itself."""
    sent_before: set[tuple[str, Any]] = field(default_factory=set)
    scm_deletions: int = 0
    scm_read_to: int = 0
    """Commands that the block store has ever taken in."""
    claimed_rows: dict[tuple[int, int, int], records.BlockRun] = field(default_factory=dict)
    """Blocks by objectID, birth and death of all rows that an answer to a claim has named."""
    claimed: set[int] = field(default_factory=set)
    """First local ids of all blocks that an answer to a claim has named."""
    hidden_version: int = 0
    """Chain version of the marker that one reader never sees."""
    lost_answers: int = 0
    chain_version: int = 0
    """Of the newest marker that can be read."""
    hours: dict[int, list[int]] = field(default_factory=dict)
    """By bucket id the log time at which its present hour of claims began, and the bytes and versions of it."""
    released: dict[int, int] = field(default_factory=dict)
    """By bucket id the txn of the reset which has let go what had died by then."""
    trips: dict[int, int] = field(default_factory=dict)
    """By bucket id the txn at which the breaker has tripped."""


class RunState:
    """One run, as far as it has come."""

    def __init__(self, seed: int, mix: FaultMix | None, limits: Limits | None, oracles: Oracles) -> None:
        self.seed = seed
        self.oracles = oracles
        random = Random(seed)
        self.random = Random(random.random())
        self.asking = Random(seed)
        """Chooses questions: a source of its own, so that asking changes no run."""
        self.operating = Random(seed)
        """Chooses what an operator does, in some of the runs: the others are played as without him."""
        self.closing = Random(f"closing {seed}")
        """Chooses whether everything that is open is closed in the end."""
        self.operations = self.operating.choice((0.0, 0.0, 0.05, 0.2))
        self.has_breaker = self.operating.random() < 0.5
        """Whether the operator sets limits; then he pauses everything or nothing: whether a bucket that was deleted
        can still be paused by its name depends on when the breaker tripped."""
        self.loses_change = self.operating.choice(("", "", *_FOLLOWERS))
        """Who never hears of some changes of the collector, as if the log had lost them."""
        self.waits = self.operating.random() < 0.4
        """Whether quiet times begin with one in which nobody settles."""
        self.instancing = Random(f"instances {seed}")
        """Chooses what befalls instances, in some of the runs: in the others each shard of a service is one process."""
        self.mix = self._drawn_mix(random) if mix is None else mix
        self.actions = random.randint(15, 110)
        self.most_moves = random.choice((1, 3, 6, 12, 25))
        shard_count = random.choice((1, 1, 2))
        self.faults = Faults(Random(random.random()), self.mix)
        self.limits = limits or draw_expiry(
            replace(draw_limits(random), units=draw_units(Random(seed))), Random(f"expiry {seed}")
        )
        self.plane = SimulatedPlane(shard_count, self.limits, self.faults, SECRETS if self.mix.is_secured else None)
        self.shards = [self._new_shard(shard, random) for shard in range(shard_count)]
        self.down: dict[Address, int] = {}
        """Services that are away, and until which step."""
        self.frozen: set[Address] = set()
        """Those among them that are only stopped, and go on where they were."""
        self.copies: dict[Address, MemoryStore] = {}
        self.backups: dict[Address, MemoryStore] = {}
        """What an operator goes back to where the log was trimmed."""
        self.batch_ends: dict[Address, MemoryStore] = {}
        """What Spark's checkpoint would say: the judge as it was when all that it had to say was acknowledged."""
        self.is_published: dict[Address, bool] = {}
        self.injected: set[tuple[str, int, int]] = set()
        """Topic, partition and offset of every message that nobody can read."""
        self.steps = self.restores = self.deleted_groups = 0
        self.settles = self.expired = self.rollbacks = self.pauses = self.tripped = self.lost_changes = 0
        self.trimmed = 0
        """Messages that are gone from the beginnings of topics."""
        self.faults.may_die_starting = True
        self.set_back_ms = 0
        """By how much the clock was set back in all."""
        self.trace: list[str] = []

    def _drawn_mix(self, random: Random) -> FaultMix:
        growing = Random(f"shards {self.seed}")
        added = growing.choice((1, 1, 2)) if growing.random() < SHARE_WITH_ADDED_SHARDS else 0
        is_secured = Random(f"signed {self.seed}").random() < 0.1
        mix = replace(draw_mix(random), is_secured=is_secured, added_shards=added)
        if self.instancing.random() >= SHARE_WITH_INSTANCES:
            return mix
        # A clock that was set back looks like a lost tail to a database that is behind: see ``copy_or_restore``.
        return replace(mix, takeover=self.instancing.choice((0.003, 0.01, 0.03)), clock_back=0.0)

    def add_shard(self, volume: str) -> None:
        """Have clients use a shard that the plane has been given, and a volume in it."""
        shard = len(self.shards)
        self.shards.append(self._new_shard(shard, Random(f"shard {shard} of {self.seed}"), volume))

    def _new_shard(self, shard: int, random: Random, volume: str = "") -> ShardRun:
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
        model.quotas.told = Told(self.plane, shard)
        model.expiry_answer = lambda txn: expiry_answer(self.plane, shard, txn)
        signer = ROOT if self.mix.is_secured else None
        writing = Random(f"writing {self.seed} {shard}")
        actor = Actor(shard, Random(random.random()), self.plane.log, model, list_snapshots, signer, volume)
        writer = Writer(actor, writing, writing.choice((0.0, 0.5, 1.0, 2.0, 4.0)))
        keeping = Random(f"versions {self.seed} {shard}")
        keeper = VersionKeeper(actor, keeping, keeping.choice((0.0, 0.1, 0.3, 0.7)))
        setting = Random(f"replication {self.seed} {shard}")
        setter = ReplicationSetter(actor, setting, setting.choice((0.0, 0.0, 0.05, 0.3)))
        limiting = Random(f"quotas {self.seed} {shard}")
        quotas = QuotaKeeper(actor, limiting, limiting.choice((0.0, 0.05, 0.2, 0.4)))
        linking = Random(f"links {self.seed} {shard}")
        linker = Linker(actor, linking, linking.choice((0.0, 0.0, 0.1, 0.4)))
        living = Random(f"people {self.seed} {shard}")
        people = People(actor, living, living.choice((0.0, 0.2, 0.5, 1.0)) if self.mix.is_secured else 0.0)
        actor.list_deleted = lambda: deleted_rows(self.plane, shard)
        forger = Forger(shard, Random(random.random()), self.plane)
        if self.mix.is_secured:
            forger.unauthorized = UnauthorizedSender(shard, forger.random, self.plane)
            model.is_secured = True
            signed = (METADATA_COMMANDS.name, SNAPSHOTS_COMMANDS.name)
            model.is_unauthorized = lambda topic, offset: topic in signed and (topic, shard, offset) in forger.places
        watches = FlagWatch(self.plane, model), SweepWatch(self.plane, shard)
        return ShardRun(model, actor, writer, keeper, setter, quotas, linker, people, forger, *watches)

    def metadata_position(self, shard: ShardRun) -> int:
        """How far metadata has come in its log."""
        return self.plane.position("metadata", shard.model.shard, METADATA_COMMANDS.name)

    def nothing_or_backup(self, address: Address) -> MemoryStore:
        """What a process starts from that has lost its database: the whole log, or a backup and what follows."""
        name, shard = address
        read = {topic.name for topic in self.plane.processes[address].service.inputs}
        if name in CHANGELOGS:
            read.add(CHANGELOGS[name].name)
        if any((topic, shard) in self.plane.log.trimmed for topic in read):
            return self.backups[address].clone()
        return MemoryStore(CHECKPOINTED if name == "metadata" else None)

    def start(self, address: Address, store: MemoryStore | None = None, *, is_backup: bool = False) -> None:
        """Start a service, on its database or on another one."""
        try:
            self.plane.start(*address, store=store)
        except SimulatedCrash:
            if store is not None:  # it lies there from now on, whether or not a start has ended on it
                self.plane.processes[address].store = store
            self.goes_down(address)
        except InvariantError as error:
            if not is_backup and self.needs_backup(address, error):
                self.start(address, self.backups[address].clone(), is_backup=True)
                return
            with self.oracles.asked("services", ends_run=True):
                raise DefectError(f"{address} does not start: {error}") from error

    def needs_backup(self, address: Address, error: InvariantError) -> bool:
        """Whether a start refuses what a former owner has left, since it needs messages that are trimmed."""
        changelog = CHANGELOGS.get(address[0])
        is_trimmed = changelog is not None and (changelog.name, address[1]) in self.plane.log.trimmed
        return is_trimmed and bool(self.mix.takeover) and isinstance(error, OutdatedError)

    def goes_down(self, address: Address) -> None:
        """A service dies, and stays away for some steps."""
        self.faults.died(address)
        stays = self.random.randint(20, 300) if self.random.random() < self.mix.stay_down else self.random.randint(1, 5)
        self.down[address] = self.steps + stays

    def freezes(self, address: Address) -> None:
        """A service is stopped for some steps, and goes on then if nobody has ended it."""
        self.frozen.add(address)
        self.down[address] = self.steps + self.instancing.choice((1, 5, 20, 100))

    def new_records(self, shard: ShardRun, topic: Any, looked_for: str = "") -> list[tuple[int, Any]]:
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
                found.append((record.offset, codec(topic.record).decode_message(record.value)))
            except DecodeError as error:
                with self.oracles.asked("dead_letters"):
                    raise DefectError(f"{topic.name} at {record.offset}: {error}") from error
        return found
