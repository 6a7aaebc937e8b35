"""Looks always at what clean flags say: each one, as it is sent, is held against a recount by sets.

A flag names a snapshot and a chain version. It says that no row of the snapshot's store is reclaimable by the list of
snapshots of that version, and that no directory in it is unexpanded. What can be demanded, and when:

- Rows come into a store only from directories of it that are expanded late, and a row that was free stays free. So what
  was true when the last sweep looked is true at any later moment by the list *of that version*, whatever was dropped
  since. The recount therefore looks at metadata's rows as they are, and at the snapshots as they were.
- Metadata that was started from an older copy has rows that had gone already. Flags wait until it has caught up.
- A directory that nobody holds may wait for a child that is held: its own row is not counted (``GarbageRanges.swept``).
- What a snapshot's row shows to users was sent as a flag, and answers for the row's last reset or a later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.topics import METADATA_COMMANDS, SNAPSHOT_CHAIN, SNAPSHOTS_COMMANDS, Topic
from services.domain.table_keys import identity_of_garbage_key
from services.metadata.state.space import unexpanded_count
from services.metadata.state.tables import DELETED_TABLE, SNAPSHOT_RENAMED_TABLE
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE
from tests.simulation.errors import FlagError
from tests.simulation.model import CapturedView, ShardModel
from tests.simulation.plane import SimulatedPlane

_Lists = dict[int, tuple[str, ...]]
"""By bucket id the ids of its live snapshots, oldest first."""


@dataclass(slots=True)
class FlagWatch:
    """The flags of one shard."""

    plane: SimulatedPlane
    model: ShardModel
    lists: dict[int, _Lists] = field(default_factory=lambda: {0: {}})
    """By chain version."""
    sent: set[tuple[str, int]] = field(default_factory=set)
    """Snapshot and chain version of every flag."""
    _version: int = 0
    _waiting: list[records.SetDeepClean] = field(default_factory=list)
    """Flags that are not held against anything yet."""
    _read_to: dict[str, int] = field(default_factory=dict)

    def look(self, name: str) -> None:
        """Hold what a service has done in its step against the model."""
        if name == "metadata":
            self._follow_chain()
        elif name == "key_deletion":
            self._hear_flags()
        elif name == "snapshots":
            self._check_rows()
        if self._waiting and self._has_caught_up():
            flags, self._waiting = self._waiting, []
            for flag in flags:
                self._check(flag)

    def _news(self, topic: Topic) -> Iterator[object]:
        log = self.plane.log.records(topic.name, self.model.shard)
        start = self._read_to.get(topic.name, 0)
        self._read_to[topic.name] = len(log)
        for record in log[start:]:
            if self.model.is_unauthorized(topic.name, record.offset):
                continue
            try:
                yield codec(topic.record).decode_message(record.value)
            except DecodeError:  # put there by hand, or found by others
                continue

    def _follow_chain(self) -> None:
        for marker in self._news(SNAPSHOT_CHAIN):
            assert isinstance(marker, records.SnapshotChainRecord)
            if marker.version <= self._version:
                continue
            lists, body = dict(self.lists[self._version]), marker.body
            if isinstance(body, records.ChainCapture):
                lists[body.bucket_id] = (*lists.get(body.bucket_id, ()), body.snapshot_id)
            elif isinstance(body, records.ChainDrop):
                left = (one for one in lists[body.bucket_id] if one != body.snapshot_id)
                lists[body.bucket_id] = tuple(left)
            else:
                lists = {
                    bucket.bucket_id: tuple(one.snapshot_id for one in bucket.snapshots if one.is_live)
                    for bucket in body.buckets
                }
            self._version = marker.version
            self.lists[marker.version] = lists

    def _hear_flags(self) -> None:
        for command in self._news(SNAPSHOTS_COMMANDS):
            assert isinstance(command, records.SnapshotCommand)
            if isinstance(command.body, records.SetDeepClean):
                self.sent.add((command.body.snapshot_id, command.body.chain_version))
                self._waiting.append(command.body)

    def _has_caught_up(self) -> bool:
        position = self.plane.position("metadata", self.model.shard, METADATA_COMMANDS.name)
        return position == self.model.position

    def _check_rows(self) -> None:
        rows = self.plane.tables("snapshots", self.model.shard).table(SNAPSHOT_INFO_TABLE).scan()
        for _, row in rows:
            is_flagged = row.has_deep_cleaned_keys or row.has_deep_cleaned_directories
            versions = (version for snapshot_id, version in self.sent if snapshot_id == row.snapshot_id)
            if is_flagged and max(versions, default=-1) < row.chain_version_of_reset:
                raise FlagError(f"shard {self.model.shard}: shown as clean since a reset that no flag knows: {row}")

    def _check(self, flag: records.SetDeepClean) -> None:
        lists = self.lists.get(flag.chain_version, {})
        found = [(bucket_id, ids) for bucket_id, ids in lists.items() if flag.snapshot_id in ids]
        if not found:
            raise FlagError(f"shard {self.model.shard}: a flag of a snapshot that was not live then: {flag}")
        ((bucket_id, ids),) = found
        views = [self.model.captured[snapshot_id] for snapshot_id in ids]
        place = ids.index(flag.snapshot_id)
        garbage_range = (bucket_id, views[place - 1].txn if place else 0, views[place].txn)
        for what in (
            *self._free_versions(garbage_range, views),
            *self._free_renames(garbage_range, flag.snapshot_id, views),
        ):
            raise FlagError(f"shard {self.model.shard}: flagged as clean with {what} left in its store: {flag}")
        metadata = self.plane.tables("metadata", self.model.shard)
        if unexpanded_count(metadata, *garbage_range, limit=1):
            raise FlagError(f"shard {self.model.shard}: flagged as clean with a directory unexpanded: {flag}")

    def _free_versions(self, garbage_range: tuple[int, int, int], views: list[CapturedView]) -> Iterator[str]:
        held = {number for view in views for number in view.numbers}
        metadata = self.plane.tables("metadata", self.model.shard)
        for key, row in metadata.table(DELETED_TABLE).scan():
            blocks = row.key.blocks if _is_in(garbage_range, key) else None
            piece = self.model.pieces.find(blocks) if blocks else None
            if piece is not None and piece.number not in held:
                yield f"a free version, {row.key.object_id} born at {row.key.birth}, dead since {row.death},"

    def _free_renames(
        self, garbage_range: tuple[int, int, int], snapshot_id: str, views: list[CapturedView]
    ) -> Iterator[str]:
        incarnation, _ = self.model.snapshot_places[snapshot_id]
        things = dict(incarnation.renames)
        metadata = self.plane.tables("metadata", self.model.shard)
        for key, row in metadata.table(SNAPSHOT_RENAMED_TABLE).scan():
            if not _is_in(garbage_range, key):
                continue
            _, txn, _ = identity_of_garbage_key(key)
            thing = things.get(txn)
            if thing is not None and not any(view.txn < txn and thing in view.things for view in views):
                yield f"a free rename entry of txn {txn}, {row},"


def _is_in(garbage_range: tuple[int, int, int], key: bytes) -> bool:
    bucket_id, death, _ = identity_of_garbage_key(key)
    return bucket_id == garbage_range[0] and garbage_range[1] < death <= garbage_range[2]
