"""Explains a path by reading everything: the model that the quick way is compared with.

Every live snapshot's checkpoint is looked into, and all garbage rows of the bucket are gone through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from schemas.records import BucketLayout, BucketRow, DeletedDirectoryRow, DeletedKeyRow, DirectoryRow, KeyRow
from schemas.space_answers import ExplainedDirectory, ExplainedVersion, PathExplanation, VersionStage
from services.domain.names import InvalidNameError, check_key_path
from services.domain.reclaimability import Txn
from services.domain.space_matrix import NOBODY, holders
from services.domain.table_keys import (
    flat_key,
    garbage_end,
    garbage_from,
    identity_of_garbage_key,
    object_txn,
    tree_key,
)
from services.metadata.reads.queries import live_snapshots, shard_state
from services.metadata.state.space import unexpanded_count
from services.metadata.state.tables import (
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    RECLAIM_TABLE,
)
from services.runtime.http.reads import ReadError
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

MAX_SCANNED_ROWS = 5_000_000
MAX_VERSIONS = 10_000
"""Of one path: more wait only while a key that is overwritten all the time is not cleaned up after."""
Checkpoint = Callable[[str], TablesReader]
"""Opens the checkpoint of a snapshot; raises KeyError when it is gone."""
Version = tuple[int, Txn]
"""An object's id and the birth of one of its versions."""
_LIVE: Txn = 0
"""Stands where a death would."""


def explained_version(row: KeyRow, death: Txn, stage: VersionStage, live: list[Txn]) -> ExplainedVersion:
    """A version with its holders; ``stage`` HELD becomes PENDING when there are none."""
    first, last = holders(row.birth, death or live[-1] + 1, live) if live else NOBODY
    if stage is VersionStage.HELD and not first:
        stage = VersionStage.PENDING
    return ExplainedVersion(
        object_id=row.object_id,
        name=row.name,
        tag=row.tag,
        size_bytes=row.size_bytes,
        birth=row.birth,
        modification_time_ms=row.modification_time_ms,
        death=death,
        stage=stage,
        first_holder=first,
        last_holder=last,
        replicated_bytes=row.size_bytes,  # every bucket here keeps one copy
    )


@dataclass(slots=True)
class _Shown:
    """A version that snapshots show under the path, and the oldest and the newest that do."""

    row: KeyRow
    first: Txn
    last: Txn


@dataclass(slots=True)
class _Search:
    """What is found under one path."""

    tables: TablesReader
    bucket: BucketRow
    path: str
    live: list[Txn]
    versions: dict[Version, ExplainedVersion] = field(default_factory=dict)
    directories: dict[tuple[int, Txn], ExplainedDirectory] = field(default_factory=dict)
    shown: dict[Version, _Shown] = field(default_factory=dict)
    """What snapshots show under the path; its death, if it has one, is yet to be found."""
    shown_directories: dict[int, DirectoryRow] = field(default_factory=dict)
    parents: dict[int, Txn] = field(default_factory=dict)
    """Directories that have or had the path of the parent, and when they died."""
    below: dict[Version, int] = field(default_factory=dict)
    """Sizes of what is below the path, where it is that of a directory."""
    scanned_rows: int = 0
    is_cut_short: bool = False

    @property
    def is_tree(self) -> bool:
        return self.bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] if self.is_tree else self.path

    def add(self, row: KeyRow, death: Txn, stage: VersionStage) -> None:
        self.versions[row.object_id, row.birth] = explained_version(row, death, stage, self.live)

    def add_directory(self, row: DirectoryRow, death: Txn, *, is_expanded: bool) -> None:
        birth = object_txn(row.object_id)
        first, last = holders(birth, death or self.live[-1] + 1, self.live) if self.live else NOBODY
        found = ExplainedDirectory(row.object_id, birth, death, is_expanded, first, last)
        self.directories[row.object_id, death] = found

    # ---- in the namespace and in deleted directories

    def look_into_snapshot(self, checkpoint: TablesReader, txn: Txn) -> None:
        """What a snapshot shows under the path; snapshots come oldest first."""
        found = _find(checkpoint, self.bucket, self.path)
        if isinstance(found, KeyRow):
            self.shown.setdefault((found.object_id, found.birth), _Shown(found, txn, txn)).last = txn
        elif found is not None:
            self.shown_directories[found.object_id] = found
            self.look_below(checkpoint, found.object_id)

    def look_into_flat(self) -> None:
        """The live version in a flat bucket."""
        row = self.tables.table(KEY_TABLE).get(flat_key(self.bucket.volume, self.bucket.bucket, self.path))
        if row is not None:
            self.add(row, _LIVE, VersionStage.LIVE)

    def look_into_tree(self) -> None:
        """Follow the path through directories that are there and such that are deleted; of each what is in it now.

        What is still in fileTable below a deleted directory has died with it, and waits for its expansion.
        """
        *above, name = self.path.split("/")
        deleted = self._deleted_directories({*above, name})
        parents = {self.bucket.object_id: _LIVE}
        for part in above:
            below: dict[int, Txn] = {}
            for parent_id, death in parents.items():
                child = self.tables.table(DIRECTORY_TABLE).get(self._key(parent_id, part))
                if child is not None:
                    below[child.object_id] = death
                for row in deleted.get((parent_id, part), ()):
                    below[row.directory.object_id] = row.death
            parents = below
        self.parents = parents
        for parent_id, death in parents.items():
            file = self.tables.table(FILE_TABLE).get(self._key(parent_id, name))
            if file is not None:
                self.add(file, death, VersionStage.UNEXPANDED if death else VersionStage.LIVE)
            directory = self.tables.table(DIRECTORY_TABLE).get(self._key(parent_id, name))
            if directory is not None:
                self.add_directory(directory, death, is_expanded=False)
                if not death:
                    self.look_below(self.tables, directory.object_id)
            for row in deleted.get((parent_id, name), ()):
                self.add_directory(row.directory, row.death, is_expanded=row.is_expanded)

    def _key(self, parent_id: int, name: str) -> bytes:
        return tree_key(self.bucket.volume_id, self.bucket.object_id, parent_id, name)

    def _garbage(self) -> tuple[bytes, bytes]:
        ids = (self.bucket.volume_id, self.bucket.object_id)
        return garbage_from(*ids, 0), garbage_end(*ids)

    def _deleted_directories(self, names: set[str]) -> dict[tuple[int, str], list[DeletedDirectoryRow]]:
        """Deleted directories of these names, by parent and name."""
        found: dict[tuple[int, str], list[DeletedDirectoryRow]] = {}
        wanted = [name.encode() for name in names]
        table = self.tables.table(DELETED_DIRECTORY_TABLE)
        for key in self._candidates(DELETED_DIRECTORY_TABLE.name, wanted, frozenset()):
            row = table.get(key)
            if row is not None and row.directory.name in names:
                found.setdefault((row.directory.parent_id, row.directory.name), []).append(row)
        return found

    def look_below(self, view: TablesReader, directory_id: int) -> None:
        """Every version below a directory, as one view shows it."""
        waiting = [directory_id]
        while waiting:
            start = self._key(waiting.pop(), "")
            end = prefix_end(start)
            children: Iterator[tuple[bytes, DirectoryRow | KeyRow]] = chain(
                view.table(DIRECTORY_TABLE).scan(start, end), view.table(FILE_TABLE).scan(start, end)
            )
            for _, child in children:
                self.scanned_rows += 1
                if self.scanned_rows > MAX_SCANNED_ROWS:
                    self.is_cut_short = True
                    return
                if isinstance(child, DirectoryRow):
                    waiting.append(child.object_id)
                else:
                    self.below[child.object_id, child.birth] = child.size_bytes

    # ---- in the garbage tables

    def look_into_garbage(self) -> None:
        """Versions that died under the path, and those that a snapshot shows under it, wherever they died."""
        deleted, claimed = self.tables.table(DELETED_TABLE), self.tables.table(RECLAIM_TABLE)
        objects = frozenset(object_id for object_id, _ in self.shown)
        for key in self._candidates(DELETED_TABLE.name, [self.name.encode()], objects):
            self._add_deleted(deleted.get(key), VersionStage.HELD)
        for key in self._candidates(RECLAIM_TABLE.name, [self.name.encode()], frozenset()):
            claim = claimed.get(key)
            self._add_deleted(claim.version if claim else None, VersionStage.CLAIMED)

    def _add_deleted(self, row: DeletedKeyRow | None, stage: VersionStage) -> None:
        if row is None or not self._is_wanted(row):
            return
        if len(self.versions) >= MAX_VERSIONS:
            self.is_cut_short = True
            return
        self.add(row.key, row.death, stage)

    def _is_wanted(self, row: DeletedKeyRow) -> bool:
        if (row.key.object_id, row.key.birth) in self.shown:
            return True
        return row.key.name == self.name and (not self.is_tree or row.key.parent_id in self.parents)

    def _candidates(self, table: str, names: list[bytes], objects: frozenset[int]) -> Iterator[bytes]:
        """Keys of garbage rows that may hold one of these names, or that are of one of these objects."""
        suffixes = {b"%016x" % (object_id & 0xFFFF_FFFF_FFFF_FFFF) for object_id in objects}
        for key, raw in self.tables.reader.scan(table, *self._garbage()):
            self.scanned_rows += 1
            if self.scanned_rows > MAX_SCANNED_ROWS:
                self.is_cut_short = True
                return
            if key[-16:] in suffixes or any(name in raw for name in names):
                yield key

    def settle_shown(self) -> None:
        """What snapshots show, and no row of a death was found for, lives on under another path.

        But for what has no bytes: dead or not, it has no row. Who shows it under the path is all that is known of it.
        """
        for version, shown in self.shown.items():
            if version in self.versions:
                continue
            self.add(shown.row, _LIVE, VersionStage.LIVE)
            if shown.row.blocks is None:
                found = self.versions[version]
                self.versions[version] = replace(
                    found, stage=VersionStage.HELD, first_holder=shown.first, last_holder=shown.last
                )
        known = {object_id for object_id, _ in self.directories}
        for object_id, directory in self.shown_directories.items():
            if object_id not in known:
                self.add_directory(directory, self._death_of(object_id), is_expanded=False)

    def _death_of(self, directory_id: int) -> Txn:
        keys = self._candidates(DELETED_DIRECTORY_TABLE.name, [], frozenset({directory_id}))
        return max((identity_of_garbage_key(key)[1] for key in keys), default=_LIVE)


def explain_path(tables: TablesReader, bucket: BucketRow, path: str, checkpoint: Checkpoint) -> PathExplanation:
    """Every version and directory of a path; none when nothing is left, or there never was anything.

    Raises:
        ReadError: it is no path that a key may have.
    """
    try:
        check_key_path(path, is_tree=bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED)
    except InvalidNameError as error:
        raise ReadError(error.code, str(error)) from error
    rows = live_snapshots(tables, bucket.object_id)
    search = _Search(tables, bucket, path, [row.txn for row in rows])
    for row in rows:
        with _opened(checkpoint, row.snapshot_id) as reader:
            if reader is not None:
                search.look_into_snapshot(reader, row.txn)
    if search.is_tree:
        search.look_into_tree()
    else:
        search.look_into_flat()
    search.look_into_garbage()
    is_elsewhere = any(shown.row.blocks for version, shown in search.shown.items() if version not in search.versions)
    search.settle_shown()
    is_expanded = not unexpanded_count(tables, bucket.object_id, 0, 0, 1)
    state = shard_state(tables)
    return PathExplanation(
        txn=state.txn,
        chain_version=state.chain_version,
        versions=tuple(sorted(search.versions.values(), key=lambda version: (version.birth, version.object_id))),
        directories=tuple(sorted(search.directories.values(), key=lambda one: (one.birth, one.object_id))),
        below_bytes=sum(search.below.values()),
        below_replicated_bytes=sum(search.below.values()),
        below_versions=sum(1 for size_bytes in search.below.values() if size_bytes),
        scanned_rows=min(search.scanned_rows, MAX_SCANNED_ROWS),
        claims_stopped=state.claims_stopped,
        is_exact=not search.is_cut_short and (is_expanded or not is_elsewhere),
    )


@contextmanager
def _opened(checkpoint: Checkpoint, snapshot_id: str) -> Iterator[TablesReader | None]:
    """A checkpoint, let go of afterwards; None when its snapshot was dropped a moment ago."""
    try:
        tables = checkpoint(snapshot_id)
    except KeyError:
        yield None
        return
    try:
        yield tables
    finally:
        tables.reader.close()


def _find(tables: TablesReader, bucket: BucketRow, path: str) -> KeyRow | DirectoryRow | None:
    """What a view shows under a path."""
    if bucket.layout is not BucketLayout.FILE_SYSTEM_OPTIMIZED:
        return tables.table(KEY_TABLE).get(flat_key(bucket.volume, bucket.bucket, path))
    *above, name = path.split("/")
    parent_id = bucket.object_id
    for part in above:
        directory = tables.table(DIRECTORY_TABLE).get(tree_key(bucket.volume_id, bucket.object_id, parent_id, part))
        if directory is None:
            return None
        parent_id = directory.object_id
    key = tree_key(bucket.volume_id, bucket.object_id, parent_id, name)
    return tables.table(FILE_TABLE).get(key) or tables.table(DIRECTORY_TABLE).get(key)
