"""Messages that read well and are not true, from whoever may send their kind. No judge may follow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.records import DeletedKind, DirectoryVerdict, JudgedDirectory, MetadataCommand, PurgeKeys, RowName
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, PURGE_DIRECTORIES, PURGE_KEYS, Topic
from services.domain.row_columns import NO_ROWS, DeletedEntry, by_columns, entries_by_columns
from services.domain.table_keys import object_txn
from services.metadata.reads.queries import shard_state
from services.metadata.state.tables import (
    BUCKET_TABLE,
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    SNAPSHOT_RENAMED_TABLE,
)
from services.storage.tables import TableDefinition
from tests.simulation.model import ShardModel
from tests.simulation.plane import SimulatedPlane
from tests.simulation.signing import UnauthorizedSender

_FORGED_TASK = 1 << 62
_AHEAD = 1 << 40
"""A chain version that no chain comes to."""


@dataclass(slots=True)
class Forger:
    """Orders to one shard that nobody who may has given: to free what is held, above all."""

    shard: int
    random: Random
    plane: SimulatedPlane
    unauthorized: UnauthorizedSender | None = None
    """Who sends the lies, where commands are signed."""
    tasks: set[int] = field(default_factory=set)
    """Numbers of forged claims."""
    orphans: int = 0
    """How often blocks were called orphaned."""
    places: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, partition and offset of every lie: whoever finds out may put it aside."""
    claimed: list[tuple[RowName, int]] = field(default_factory=list)
    """Rows of forged claims: some may have been free, and nobody waits for the answer."""

    def forge(self, model: ShardModel) -> None:
        """Send one untrue message."""
        forgeries: list[Callable[[], None]] = [self._purge, self._claim, self._entry]
        forgeries += [
            self._send_directory_verdicts,
            self._judge_directories,
            self._claim_others,
            self._expand,
            self._sweep,
        ]
        forgeries += [
            partial(forge, model) for forge in (self._roll_back_past, self._drop_target_now, self.call_orphaned)
        ]
        forgeries += [partial(forge, model) for forge in (self._finish_now, self._capture)]
        if self.unauthorized is not None:
            forgeries += [partial(self._order, self.unauthorized, model)] * 4
        self.random.choice(forgeries)()

    def _rows(self) -> list[tuple[RowName, int]]:
        """Real rows of versions, dead or live, and how many snapshots their bucket had at the death."""
        metadata = self.plane.tables("metadata", self.shard)
        found = []
        for key, row in metadata.table(DELETED_TABLE).scan():
            bucket_id = int(key.split(b"/")[2])
            name = RowName(DeletedKind.KEY, bucket_id, row.key.object_id, row.key.birth, row.death)
            found.append((name, row.snapshots_before_death))
        buckets = [row for _, row in metadata.table(BUCKET_TABLE).scan()]
        for table in (KEY_TABLE, FILE_TABLE):
            for _, live in metadata.table(table).scan() if buckets else ():
                bucket = self.random.choice(buckets)
                death = live.birth + self.random.randint(1, 9)
                found.append((RowName(DeletedKind.KEY, bucket.object_id, live.object_id, live.birth, death), 0))
        return found

    def _ids(self, table: TableDefinition[Any]) -> list[int]:
        """Object ids of all rows of a table of buckets or directories."""
        return [row.object_id for _, row in self.plane.tables("metadata", self.shard).table(table).scan()]

    def _some_rows(self) -> list[tuple[RowName, int]]:
        rows = self._rows()
        return self.random.sample(rows, min(len(rows), 3))

    def _append(self, topic: Topic, record: Any) -> None:
        if self.unauthorized is not None and topic is METADATA_COMMANDS:
            self._append_value(topic, self.unauthorized.signed(topic, record))
        else:
            self._append_value(topic, codec(topic.record).encode_message(record))

    def _append_value(self, topic: Topic, value: bytes) -> None:
        offset = self.plane.log.append(topic.name, self.shard, value)
        self.places.add((topic.name, self.shard, offset))

    def _order(self, unauthorized: UnauthorizedSender, model: ShardModel) -> None:
        """Somebody orders what he may not."""
        self._append_value(*unauthorized.order(model))

    def _purge(self) -> None:
        """The first judge says that nobody holds them: under their own numbers, or under a death that fits the lie."""
        rows = self._some_rows()
        if self.random.random() < 0.5:
            names = [replace(name, death=name.birth + 1) for name, _ in rows]
            before = tuple(self.random.choice((0, count)) for _, count in rows)
        else:
            names = [name for name, _ in rows]
            before = tuple(self.random.choice((count, 0, count + 1)) for _, count in rows)
        self._append(PURGE_KEYS, PurgeKeys(self._version(), _columns(names), before))

    def _version(self) -> int:
        """The chain version of a lie: of the empty chain, of one that the chain may come to yet, or of none."""
        chain_version = shard_state(self.plane.tables("metadata", self.shard)).chain_version
        return self.random.choice((0, 0, chain_version + self.random.randint(0, 2), _AHEAD))

    def judge_ahead_of_the_chain(self) -> None:
        """The first judge says of keys and directories that nobody holds them, by a chain that there never is."""
        if rows := self._rows():
            names = _columns([name for name, _ in rows])
            self._append(PURGE_KEYS, PurgeKeys(_AHEAD, names, tuple(count for _, count in rows)))
        if found := self._others(DeletedKind.DIRECTORY):
            self._append(PURGE_DIRECTORIES, DirectoryVerdict(_AHEAD, _judged(found)))

    def forge_early_deaths(self) -> None:
        """Both judges say of all rows that they died right after their births."""
        names = [replace(name, death=name.birth + 1) for name, _ in self._rows()]
        self._append(PURGE_KEYS, PurgeKeys(0, _columns(names), (0,) * len(names)))
        task = _FORGED_TASK + len(self.tasks)
        self.tasks.add(task)
        self._command(records.ClaimRows(task, 0, by_columns(names)), "key_deletion")

    def _claim(self) -> None:
        """The second judge says so."""
        task = _FORGED_TASK + len(self.tasks)
        self.tasks.add(task)
        rows = self._some_rows()
        self.claimed += rows
        claim = records.ClaimRows(task, 0, by_columns(name for name, _ in rows))
        self._append(METADATA_COMMANDS, MetadataCommand(self.shard, "", 0, claim, "key_deletion", wants_reply=False))

    def _others(self, kind: DeletedKind) -> list[tuple[RowName, int]]:
        """Real rows of deleted directories or of renames, and how many snapshots their bucket had then."""
        tables = self.plane.tables("metadata", self.shard)
        found = []
        if kind is DeletedKind.DIRECTORY:
            for key, row in tables.table(DELETED_DIRECTORY_TABLE).scan():
                object_id, bucket_id = row.directory.object_id, int(key.split(b"/")[2])
                name = RowName(kind, bucket_id, object_id, object_txn(object_id), row.death)
                found.append((name, row.snapshots_before_death))
        else:
            for key, rename in tables.table(SNAPSHOT_RENAMED_TABLE).scan():
                name = RowName(kind, int(key.split(b"/")[2]), rename.object_id, rename.birth, rename.death)
                found.append((name, rename.snapshots_before_death))
        return self.random.sample(found, min(len(found), 3))

    def _send_directory_verdicts(self) -> None:
        """The judge of directories says that nobody holds them, or that they died later."""
        names = [name for name, _ in self._others(DeletedKind.DIRECTORY)]
        if self.random.random() < 0.2:
            names = [replace(name, death=name.death + 1) for name in names]
        self._command(records.RemoveDirectories(0, tuple(names)), "directory_deletion")

    def _judge_directories(self) -> None:
        """The first judge says that nobody holds them."""
        judged = _judged(self._others(DeletedKind.DIRECTORY))
        self._append(PURGE_DIRECTORIES, DirectoryVerdict(self._version(), judged))

    def _claim_others(self) -> None:
        """The second judge says so of renames, and of directories, which nobody claims."""
        kind = self.random.choice((DeletedKind.RENAME_ENTRY, DeletedKind.RENAME_ENTRY, DeletedKind.DIRECTORY))
        task = _FORGED_TASK + len(self.tasks)
        self.tasks.add(task)
        found = self._others(kind)
        names = by_columns(name for name, _ in found)
        if names and self.random.random() < 0.5:
            self._command(records.ClaimRows(task, 0, names), "key_deletion")
        elif names:
            self._append(PURGE_KEYS, PurgeKeys(self._version(), names[0], tuple(count for _, count in found)))

    def _roll_back_past(self, model: ShardModel) -> None:
        """snapshots wants back what was before a snapshot that is still there."""
        older = [
            (one, view) for one in model.live_buckets() for view in list(one.snapshots.values())[:-1] if one.bucket_id
        ]
        if older and not model.is_rolling_back:
            incarnation, view = self.random.choice(older)
            rollback_id = f"forged-{self.random.randrange(1 << 40)}"
            page = records.RollbackPage(rollback_id, incarnation.bucket_id, view.snapshot_id, 1, 1_000)
            self._command(page, "snapshots")

    def _drop_target(self, model: ShardModel) -> None:
        """snapshots wants to drop what a rollback goes to."""
        targets = [one.rollback[1].snapshot_id for one in model.live_buckets() if one.rollback is not None]
        if targets:
            self._command(records.DropSnapshot(self.random.choice(targets)), "snapshots")

    def _drop_target_now(self, model: ShardModel) -> None:
        """The same, unless the end of that rollback is in the log already: behind it the drop would be carried out."""
        if self._is_all_applied():
            self._drop_target(model)

    def _is_all_applied(self) -> bool:
        """Whether what the tables say is what a command meets that is sent now."""
        position = self.plane.position("metadata", self.shard, METADATA_COMMANDS.name)
        return position == self.plane.log.end_offset(METADATA_COMMANDS.name, self.shard)

    def _finish_now(self, _: ShardModel) -> None:
        """key_deletion says of rows that nobody has claimed that their blocks are deleted."""
        if not self._is_all_applied():
            return
        kind = self.random.choice((DeletedKind.DIRECTORY, DeletedKind.RENAME_ENTRY))
        names = by_columns(name for name, _ in (*self._some_rows(), *self._others(kind)))
        self._command(records.FinishRows(_FORGED_TASK, names), "key_deletion")

    def _expand(self) -> None:
        """directory_deletion wants to expand what was not deleted, or at another time, or as if by pages of nothing."""
        names = [name for name, _ in self._others(DeletedKind.DIRECTORY)]
        live = self._ids(DIRECTORY_TABLE)
        if live and names and self.random.random() < 0.5:
            names = [replace(names[0], object_id=self.random.choice(live))]
        for name in names:
            death = name.death + self.random.choice((0, 0, 1))
            limits = self.random.choice((-1, 0, 1, 1_000)), self.random.choice((-1, 0, 1_000))
            self._command(records.ExpandDirectory(name.bucket_id, name.object_id, death, *limits), "directory_deletion")

    def _sweep(self) -> None:
        """key_deletion asks for a page of a sweep that nobody has begun, from anywhere."""
        choose = self.random.choice
        body = records.SweepPage(
            sweep_id=_FORGED_TASK,
            page=1,
            bucket_id=choose((0, *self._ids(BUCKET_TABLE), -1)),
            after_death=choose((0, 0, 5, 50, -1)),
            until_death=choose((0, 0, 5, 50, -1)),
            after_birth=choose((0, 0, 5, 50, -1)),
            until_birth=choose((0, 0, 5, 50, -1)),
            start_table=choose((0, 0, 1, 2, 3, 4, 9, -1)),
            start_key=choose((b"", b"/1/1/", b"\xff" * 20)),
            max_rows=choose((-1, 0, 1, 1_000)),
            max_bytes=choose((-1, 0, 1_000)),
        )
        self._command(body, "key_deletion")

    def _capture(self, model: ShardModel) -> None:
        """snapshots wants a snapshot that there is already, perhaps of another bucket, or of one that there is not."""
        places = [(one.volume, one.name) for one in model.live_buckets()] + [("volume-none", "bucket-none")]
        known = list(model.snapshot_places)
        if known:
            place = self.random.choice(places)
            self._command(records.CaptureSnapshot(*place, self.random.choice(known)), "snapshots")

    def call_orphaned(self, model: ShardModel) -> None:
        """An audit says of blocks that somebody refers to that nobody does."""
        held = sorted(number for number in model.held if number in model.runs)
        buckets = [one.bucket_id for one in model.live_buckets() if one.bucket_id]
        if held and buckets:
            run = model.runs[self.random.choice(held)]
            orphans = records.RequeueOrphans(self.random.choice(buckets), model.txn, (run,), 1_000)
            self.orphans += 1
            command = MetadataCommand(self.shard, "forger", self.orphans, orphans, "audit")
            self._append(METADATA_COMMANDS, command)

    def _command(self, body: Any, sender: str) -> None:
        self._append(METADATA_COMMANDS, MetadataCommand(self.shard, "", 0, body, sender, wants_reply=False))

    def confess(self) -> None:
        """Say honestly of what was claimed by a lie that it is to be freed: what is not free stays.

        By the chain as metadata has it: to a judge who has not come so far a snapshot may hold what is claimed already,
        and only the hourly sweep, for which no settle waits, asks for claimed rows again.
        """
        if self.claimed:
            names, before = zip(*self.claimed, strict=True)
            chain_version = shard_state(self.plane.tables("metadata", self.shard)).chain_version
            self._append(PURGE_KEYS, PurgeKeys(chain_version, _columns(names), before))
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


def _judged(found: Sequence[tuple[RowName, int]]) -> tuple[JudgedDirectory, ...]:
    """Directories as reclaimable ones, each with how many snapshots its bucket had at its death."""
    return tuple(JudgedDirectory(n.bucket_id, n.object_id, n.birth, n.death, count, True) for n, count in found)


def _columns(names: Sequence[RowName]) -> records.RowNames:
    """Rows of keys by columns."""
    found = by_columns(names)
    return found[0] if found else NO_ROWS
