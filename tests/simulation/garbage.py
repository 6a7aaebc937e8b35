"""Messages that nobody can read, and messages that read well and are not true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import DeletedKind, MetadataCommand, PurgeKeys, RowName
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, PURGE_KEYS, Topic
from services.domain.row_columns import NO_ROWS, DeletedEntry, by_columns, entries_by_columns
from services.metadata.tables import BUCKET_TABLE, DELETED_TABLE, FILE_TABLE, KEY_TABLE
from services.runtime.log import LogRecord
from tests.simulation.plane import SimulatedPlane

FIRST, BEYOND = b"", b"\xff" * 9
_FORGED_TASK = 1 << 62


@dataclass(frozen=True, slots=True)
class Garbage:
    """The bytes of one message."""

    value: bytes
    fingerprint: bytes | None
    is_unreadable: bool = True


def garbage_for(topic: Topic, examples: Sequence[LogRecord], random: Random) -> Garbage:
    """Something that is no message of this topic: noise, a real one cut, lengthened, or under another schema."""
    garbage = _garbage(topic, examples, random)
    try:
        codec(topic.record).decode_message(garbage.value, garbage.fingerprint)
    except DecodeError:
        return garbage
    if any(example.value == garbage.value for example in examples):
        return replace(garbage, is_unreadable=False)  # cutting what was lengthened gives a message again
    return Garbage(b"\xff" * 20, codec(topic.record).fingerprint)  # lengthening what was cut may read well and be wrong


def _garbage(topic: Topic, examples: Sequence[LogRecord], random: Random) -> Garbage:
    fingerprint = codec(topic.record).fingerprint
    if not examples or random.random() < 0.3:
        return Garbage(b"\xff" * random.randint(11, 30), fingerprint)
    example = random.choice(examples)
    what = random.randrange(3)
    if what == 0:
        return Garbage(example.value + b"\0", example.fingerprint)
    if what == 1:
        return Garbage(example.value[:-1] if len(example.value) > 1 else b"", example.fingerprint)
    return Garbage(example.value, random.randbytes(8))


@dataclass(slots=True)
class Liar:
    """Orders to free what is held, to one shard. No judge may follow them."""

    shard: int
    random: Random
    plane: SimulatedPlane
    tasks: set[int] = field(default_factory=set)
    """Numbers of forged claims."""
    places: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, partition and offset of every lie: whoever finds out may put it aside."""
    claimed: list[tuple[RowName, int]] = field(default_factory=list)
    """Rows of forged claims: some may have been free, and nobody waits for the answer."""

    def lie(self) -> None:
        """Send one untrue message."""
        self.random.choice((self._purge, self._claim, self._entry))()

    def _rows(self) -> list[tuple[RowName, int]]:
        """Real rows of versions, dead or live, and how many snapshots their bucket had at the death."""
        metadata = self.plane.tables("metadata", self.shard)
        found = []
        for key, row in metadata.table(DELETED_TABLE).scan(FIRST, BEYOND):
            bucket_id = int(key.split(b"/")[2])
            name = RowName(DeletedKind.KEY, bucket_id, row.key.object_id, row.key.birth, row.death)
            found.append((name, row.snapshots_before_death))
        buckets = [row for _, row in metadata.table(BUCKET_TABLE).scan(FIRST, BEYOND)]
        for table in (KEY_TABLE, FILE_TABLE):
            for _, live in metadata.table(table).scan(FIRST, BEYOND) if buckets else ():
                bucket = self.random.choice(buckets)
                death = live.birth + self.random.randint(1, 9)
                found.append((RowName(DeletedKind.KEY, bucket.object_id, live.object_id, live.birth, death), 0))
        return found

    def _some_rows(self) -> list[tuple[RowName, int]]:
        rows = self._rows()
        return self.random.sample(rows, min(len(rows), 3))

    def _append(self, topic: Topic, record: Any) -> None:
        encoder = codec(topic.record)
        offset = self.plane.log.append(topic.name, self.shard, encoder.encode(record), encoder.fingerprint)
        self.places.add((topic.name, self.shard, offset))

    def _purge(self) -> None:
        """The first judge says that nobody holds them: under their own numbers, or under a death that fits the lie."""
        rows = self._some_rows()
        if self.random.random() < 0.5:
            names = [replace(name, death=name.birth + 1) for name, _ in rows]
            before = tuple(self.random.choice((0, count)) for _, count in rows)
        else:
            names = [name for name, _ in rows]
            before = tuple(self.random.choice((count, 0, count + 1)) for _, count in rows)
        self._append(PURGE_KEYS, PurgeKeys(0, _columns(names), before))

    def _claim(self) -> None:
        """The second judge says so."""
        task = _FORGED_TASK + len(self.tasks)
        self.tasks.add(task)
        rows = self._some_rows()
        self.claimed += rows
        claim = records.ClaimRows(task, 0, by_columns(name for name, _ in rows))
        self._append(METADATA_COMMANDS, MetadataCommand(self.shard, "", 0, claim, "key_deletion", wants_reply=False))

    def confess(self) -> None:
        """Say honestly of what was claimed by a lie that it is to be freed: what is not free stays."""
        if self.claimed:
            names, before = zip(*self.claimed, strict=True)
            self._append(PURGE_KEYS, PurgeKeys(0, _columns(names), before))
            self.claimed.clear()

    def _entry(self) -> None:
        """Metadata itself says that something died that did not, or with numbers that nothing has."""
        for name, count in self._some_rows():
            entry = DeletedEntry(
                name.bucket_id, name.object_id, name.kind, name.birth, name.death, count, chain_version=0
            )
            strange = self.random.choice(
                (
                    entry,
                    replace(entry, birth=-name.birth),
                    replace(entry, death=0),
                    replace(entry, snapshots_before_death=1 << 40),
                    replace(entry, birth=name.death, death=name.birth),
                    replace(entry, bucket_id=-1, snapshots_before_death=1),
                )
            )
            self._append(DELETED_ENTRIES, entries_by_columns([strange]))


def _columns(names: Sequence[RowName]) -> records.RowNames:
    """Rows of keys by columns."""
    found = by_columns(names)
    return found[0] if found else NO_ROWS
