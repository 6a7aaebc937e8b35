"""Explains a path: every version and directory at this path now, in a live snapshot, or at its death, with its holders.

The holders of a version follow from its birth and death alone, whatever paths it had. The versions of a path are found
by name, in these places:

1. in the active namespace: one look-up for each part of the path;
2. in deletedNameTable, which indexes by name the deleted directories, through which a path is followed, and every
   deleted version that a snapshot held;
3. in live snapshots (``shown_versions``). Only snapshots that show an object not found yet are opened;
4. in deletedTable and reclaimTable, for versions that no snapshot held, which deletedNameTable leaves out. The newest
   rows of deletedTable are read until all versions without a holder in the space matrix are found.

So the cost grows with the versions of the path, the snapshots (one point look-up each) and the versions that wait to be
freed, but not with the versions that snapshots hold. For a directory it also grows with the objects below it, in the
namespace and in each live snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, TypeVar

from schemas.codec import codec
from schemas.records import (
    BucketLayout,
    BucketRow,
    BucketVersioning,
    ClaimedRow,
    DeletedDirectoryRow,
    DeletedKeyRow,
    DirectoryRow,
    KeyRow,
    KeyStart,
    SnapshotListRow,
)
from schemas.space_answers import ExplainedDirectory, ExplainedVersion, PathExplanation, VersionStage
from services.domain.names import InvalidNameError, check_key_path
from services.domain.reclaimability import Txn
from services.domain.space_matrix import NOBODY, Holders, holders
from services.domain.table_keys import (
    cell_key,
    flat_key,
    garbage_end,
    garbage_from,
    garbage_key,
    identity_of_garbage_key,
    key_version_key,
    object_txn,
    tree_key,
    version_object_id,
)
from services.metadata.namespace.key_versions import versions_of
from services.metadata.reads.queries import account_of, live_snapshots, shard_state, snapshot_count
from services.metadata.reads.shown_versions import Checkpoint, ShownVersions, Stretch, find, opened
from services.metadata.reads.whole_versions import replicated_bytes_of_live, replicated_bytes_of_whole, size_of_whole
from services.metadata.state.deleted_names import Dead, died_of, died_under
from services.metadata.state.space import cell_of, unexpanded_count
from services.metadata.state.tables import (
    DELETED_DIRECTORY_TABLE,
    DELETED_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    RECLAIM_TABLE,
    SPACE_TABLE,
)
from services.runtime.http.reads import ReadError
from services.storage.store import prefix_end
from services.storage.tables import TableDefinition, TablesReader

MAX_SCANNED_ROWS = 5_000_000
MAX_VERSIONS = 10_000
"""Maximum versions of one path. There are more only for a key that is overwritten faster than versions are freed."""
V = TypeVar("V")
Version = tuple[int, Txn]
"""An object's id and the birth of one of its versions."""
_KEY_START = codec(KeyStart)
_DELETED_KEY = codec(DeletedKeyRow)
_CLAIMED = codec(ClaimedRow)
_NEWEST_TXNS = 4_096
"""Txns that the first search for versions without a holder goes back; each further search covers four times as many."""
_LIVE: Txn = 0
"""Stands for the missing death of a live version."""


def _holders(birth: Txn, death: Txn, live: Sequence[Txn]) -> Holders:
    """Return the first and last live snapshot that holds a version; death 0 if it is live."""
    return holders(birth, death or live[-1] + 1, live) if live else NOBODY


def explained_version(
    row: KeyRow, death: Txn, stage: VersionStage, live: list[Txn], version_of: int = 0, replicated_bytes: int = 0
) -> ExplainedVersion:
    """Return a version with its holders. The stage HELD becomes PENDING when there are none.

    ``version_of`` is the objectID of the key of which it is a noncurrent version, if it is one;
    ``replicated_bytes`` are those that its blocks take on disks.
    """
    first, last = _holders(row.birth, death, live)
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
        version_of=version_of,
        replicated_bytes=replicated_bytes,
    )


def _version_in(row: DeletedKeyRow) -> Version:
    """Return of which key a garbage row is a version, and which one."""
    return row.version_of or row.key.object_id, row.key.birth


@dataclass(slots=True)
class _Shown:
    """A version that snapshots show at the path, and the oldest and the newest of them."""

    row: KeyRow
    first: Txn
    last: Txn


@dataclass(slots=True)
class _Search:
    """Collects the versions and directories of one path."""

    tables: TablesReader
    bucket: BucketRow
    path: str
    live: list[Txn]
    versions: dict[Version, ExplainedVersion] = field(default_factory=dict)
    directories: dict[tuple[int, Txn], ExplainedDirectory] = field(default_factory=dict)
    shown: dict[Version, _Shown] = field(default_factory=dict)
    """Versions that snapshots show at the path. Their deaths, if any, are not found yet."""
    shown_directories: dict[int, DirectoryRow] = field(default_factory=dict)
    parents: dict[int, Txn] = field(default_factory=dict)
    """Directories that have or had the path of the parent, with their deaths; the id is 0 in a flat bucket."""
    dead: dict[int, Sequence[DeletedKeyRow]] = field(default_factory=dict)
    """Deleted versions of the path's last name that were held at their death, by directory."""
    below: dict[Version, tuple[int, int]] = field(default_factory=dict)
    """Sizes of the versions below the path, if it is a directory, and what their blocks take on disks."""
    scanned_rows: int = 0
    is_cut_short: bool = False

    @property
    def is_tree(self) -> bool:
        return self.bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] if self.is_tree else self.path

    def add(self, row: KeyRow, death: Txn, stage: VersionStage, version_of: int = 0, taken: int = -1) -> None:
        """Add a version. What it takes on disks is given for a deleted one: its further runs are rows of their own."""
        if taken < 0:
            taken = replicated_bytes_of_live(self.tables, (self.bucket.volume_id, self.bucket.object_id), row)
        self.versions[version_of or row.object_id, row.birth] = explained_version(
            row, death, stage, self.live, version_of, taken
        )

    def add_live(self, row: KeyRow, death: Txn, stage: VersionStage) -> None:
        """Add a row of the namespace, with the noncurrent versions of the key."""
        self.add(row, death, stage)
        for version in versions_of(self.tables, (self.bucket.volume_id, self.bucket.object_id), row):
            self.add(version, death, stage, row.object_id)

    def add_directory(self, row: DirectoryRow, death: Txn, *, is_expanded: bool) -> None:
        birth = object_txn(row.object_id)
        held_by = _holders(birth, death, self.live)
        self.directories[row.object_id, death] = ExplainedDirectory(row.object_id, birth, death, is_expanded, *held_by)

    # ---- search in the namespace and in deleted directories

    def look_into_snapshots(self, live: Sequence[SnapshotListRow], ever: int, checkpoint: Checkpoint) -> None:
        """Add the objects that live snapshots show at the path. ``ever`` is the number of snapshots ever captured."""
        shown = ShownVersions(self.tables, self.bucket, self.path, live, ever, self.died_under, checkpoint)
        for stretch in shown.stretches():
            if isinstance(stretch.found, KeyRow):
                self._add_shown(stretch.found, stretch)
                if self.bucket.versioning is not BucketVersioning.UNVERSIONED:
                    self._add_shown_versions(stretch, checkpoint)
                continue
            self.shown_directories.setdefault(stretch.found.object_id, stretch.found)
            for row in stretch.snapshots:
                with opened(checkpoint, row.snapshot_id) as tables:
                    if tables is not None:
                        self.look_below(tables, stretch.found.object_id)

    def _add_shown_versions(self, stretch: Stretch, checkpoint: Checkpoint) -> None:
        """Add the noncurrent versions that the oldest snapshot of a stretch lists: later ones list no others."""
        with opened(checkpoint, stretch.snapshots[0].snapshot_id) as tables:
            key = None if tables is None else find(tables, self.bucket, self.path).found
            if tables is None or not isinstance(key, KeyRow):
                return
            for version in versions_of(tables, (self.bucket.volume_id, self.bucket.object_id), key):
                self._add_shown(replace(version, object_id=key.object_id), stretch)

    def _add_shown(self, row: KeyRow, stretch: Stretch) -> None:
        first, last = stretch.snapshots[0].txn, stretch.snapshots[-1].txn
        shown = self.shown.setdefault((row.object_id, row.birth), _Shown(row, first, last))
        shown.first, shown.last = min(shown.first, first), max(shown.last, last)

    def died_under(self, parent_id: int) -> Sequence[DeletedKeyRow]:
        """Return deleted versions of the path's last name in a directory, by death, with all that a snapshot holds."""
        found = self.dead.get(parent_id)
        if found is None:
            dead = list(islice(died_under(self.tables, self.bucket.object_id, parent_id, self.name), MAX_VERSIONS + 1))
            self.is_cut_short |= len(dead) > MAX_VERSIONS
            rows = (self._garbage_row(DELETED_TABLE, one) for one in dead[-MAX_VERSIONS:])
            found = self.dead[parent_id] = [row for row in rows if row is not None]
        return found

    def _garbage_row(self, table: TableDefinition[V], dead: Dead) -> V | None:
        """Return a garbage row by death and objectID; None if it is in the other garbage table."""
        self.scanned_rows += 1
        return self.tables.table(table).get(
            garbage_key(self.bucket.volume_id, self.bucket.object_id, dead.death, dead.object_id)
        )

    def look_into_flat(self) -> None:
        """Add the live version in a flat bucket."""
        self.parents = {0: _LIVE}
        row = self.tables.table(KEY_TABLE).get(flat_key(self.bucket.volume, self.bucket.bucket, self.path))
        if row is not None:
            self.add_live(row, _LIVE, VersionStage.LIVE)

    def look_into_tree(self) -> None:
        """Follow the path through live and deleted directories, and add the objects in them.

        A file that is still in fileTable below a deleted directory has died with it, and waits for its expansion.
        """
        *above, name = self.path.split("/")
        parents = {self.bucket.object_id: _LIVE}
        for part in above:
            below: dict[int, Txn] = {}
            for parent_id, death in parents.items():
                child = self.tables.table(DIRECTORY_TABLE).get(self._key(parent_id, part))
                if child is not None:
                    below[child.object_id] = death
                for row in self._deleted_directories(parent_id, part):
                    below[row.directory.object_id] = row.death
            parents = below
        self.parents = parents
        for parent_id, death in parents.items():
            file = self.tables.table(FILE_TABLE).get(self._key(parent_id, name))
            if file is not None:
                self.add_live(file, death, VersionStage.UNEXPANDED if death else VersionStage.LIVE)
            directory = self.tables.table(DIRECTORY_TABLE).get(self._key(parent_id, name))
            if directory is not None:
                self.add_directory(directory, death, is_expanded=False)
                if not death:
                    self.look_below(self.tables, directory.object_id)
            for row in self._deleted_directories(parent_id, name):
                self.add_directory(row.directory, row.death, is_expanded=row.is_expanded)

    def _key(self, parent_id: int, name: str) -> bytes:
        return tree_key(self.bucket.volume_id, self.bucket.object_id, parent_id, name)

    def _deleted_directories(self, parent_id: int, name: str) -> Iterator[DeletedDirectoryRow]:
        """Yield the deleted directories of a name."""
        for dead in died_under(self.tables, self.bucket.object_id, parent_id, name):
            row = self._garbage_row(DELETED_DIRECTORY_TABLE, dead)
            if row is not None:
                yield row

    def look_below(self, view: TablesReader, directory_id: int) -> None:
        """Add every version below a directory in one view."""
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
                    ids = self.bucket.volume_id, self.bucket.object_id
                    taken = replicated_bytes_of_live(view, ids, child)
                    self.below[child.object_id, child.birth] = child.size_bytes, taken

    # ---- search in the garbage tables

    def look_into_garbage(self) -> None:
        """Add the versions that died at the path, and those that a snapshot shows there, wherever they died."""
        for parent_id in self.parents:
            for row in self.died_under(parent_id):
                self._add_deleted(row, VersionStage.HELD)
        for version, shown in self.shown.items():
            if version not in self.versions and shown.row.blocks is not None:
                self._add_deleted(self._death_of_version(version, shown.row.parent_id), VersionStage.HELD)
        self._look_into_unheld()
        self._look_into_claimed()

    def _death_of_version(self, version: Version, parent_id: int) -> DeletedKeyRow | None:
        """Return the garbage row of a version that a snapshot shows, by name, or by object if it was renamed."""
        ids = version[0], version_object_id(version[1])
        of_object = chain.from_iterable(died_of(self.tables, self.bucket.object_id, object_id) for object_id in ids)
        elsewhere = (self._garbage_row(DELETED_TABLE, dead) for dead in of_object)
        for row in chain(self.died_under(parent_id), elsewhere):
            if row is not None and _version_in(row) == version:
                return row
        return None

    def _look_into_unheld(self) -> None:
        """Add the versions that no snapshot holds. Most wait only briefly, so the newest rows come first."""
        nobody = self.tables.table(SPACE_TABLE).get(cell_key(self.bucket.object_id, *NOBODY))
        left = cell_of(nobody).key_rows
        ids = self.bucket.volume_id, self.bucket.object_id
        end, txns = shard_state(self.tables).txn + 1, _NEWEST_TXNS
        while left and end and not self.is_cut_short:
            start = max(0, end - txns)
            for key, raw in self._scanned(DELETED_TABLE, garbage_from(*ids, start), garbage_from(*ids, end)):
                _, death, _ = identity_of_garbage_key(key)
                birth = _KEY_START.decode_head(raw).birth
                if holders(birth, death, self.live) != NOBODY:
                    continue
                if self.name.encode() in raw:
                    self._add_deleted(_DELETED_KEY.decode(raw), VersionStage.HELD)
                left -= 1
                if not left:
                    return
            end, txns = start, 4 * txns

    def _look_into_claimed(self) -> None:
        left = account_of(self.tables, self.bucket.object_id).claimed_versions
        if not left:
            return
        ids = self.bucket.volume_id, self.bucket.object_id
        for _, raw in self._scanned(RECLAIM_TABLE, garbage_from(*ids, 0), garbage_end(*ids)):
            if self.name.encode() in raw:
                self._add_deleted(_CLAIMED.decode(raw).version, VersionStage.CLAIMED)
            left -= 1
            if not left:
                return

    def _scanned(self, table: TableDefinition[Any], start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield encoded rows of a garbage table, at most ``MAX_SCANNED_ROWS`` in one answer."""
        for row in self.tables.table(table).scan_encoded(start, end):
            self.scanned_rows += 1
            if self.scanned_rows > MAX_SCANNED_ROWS:
                self.is_cut_short = True
                return
            yield row

    def _add_deleted(self, row: DeletedKeyRow | None, stage: VersionStage) -> None:
        if row is None or row.part_of or not self._is_wanted(row):
            return
        if _version_in(row) in self.versions:
            return
        if len(self.versions) >= MAX_VERSIONS:
            self.is_cut_short = True
            return
        whole = replace(row.key, size_bytes=size_of_whole(self.tables, self.bucket, row))
        self.add(whole, row.death, stage, row.version_of, replicated_bytes_of_whole(self.tables, self.bucket, row))

    def _is_wanted(self, row: DeletedKeyRow) -> bool:
        if _version_in(row) in self.shown:
            return True
        return row.key.name == self.name and row.key.parent_id in self.parents

    def settle_shown(self) -> None:
        """Add the versions that snapshots show and that have no garbage row: they are live at another path.

        Versions without bytes never have a garbage row. Only the snapshots that show them at the path are known.
        """
        for version, shown in self.shown.items():
            if version in self.versions:
                continue
            noncurrent = self._noncurrent(version) if shown.row.blocks is not None else None
            self.add(noncurrent or shown.row, _LIVE, VersionStage.LIVE, version[0] if noncurrent else 0)
            if shown.row.blocks is None:
                found = self.versions[version]
                self.versions[version] = replace(
                    found, stage=VersionStage.HELD, first_holder=shown.first, last_holder=shown.last
                )
        known = {object_id for object_id, _ in self.directories}
        for object_id, directory in self.shown_directories.items():
            if object_id not in known:
                self.add_directory(directory, self._death_of(directory), is_expanded=False)

    def _noncurrent(self, version: Version) -> KeyRow | None:
        """Return the row of a live noncurrent version of a key, or None."""
        key = key_version_key(self.bucket.volume_id, self.bucket.object_id, *version)
        return self.tables.table(KEY_VERSION_TABLE).get(key)

    def _death_of(self, directory: DirectoryRow) -> Txn:
        """Return the death of a directory that a snapshot shows at the path and that was moved; 0 if it is live."""
        bucket_id = self.bucket.object_id
        under = died_under(self.tables, bucket_id, directory.parent_id, directory.name)
        for dead in chain(under, died_of(self.tables, bucket_id, directory.object_id)):
            if dead.object_id != directory.object_id:
                continue
            row = self._garbage_row(DELETED_DIRECTORY_TABLE, dead)
            if row is not None:
                return row.death
        return _LIVE


def explain_path(tables: TablesReader, bucket: BucketRow, path: str, checkpoint: Checkpoint) -> PathExplanation:
    """Return every version and directory of a path; none if nothing is left or ever existed.

    Raises:
        ReadError: the path is not valid for a key.
    """
    try:
        check_key_path(path, is_tree=bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED)
    except InvalidNameError as error:
        raise ReadError(error.code, str(error)) from error
    tables = tables.looking_up_once()  # the path is followed twice, for snapshots and for deleted versions
    live, count = live_snapshots(tables, bucket.object_id), snapshot_count(tables, bucket.object_id)
    search = _Search(tables, bucket, path, [row.txn for row in live])
    search.look_into_snapshots(live, count.snapshots_ever, checkpoint)
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
        below_bytes=sum(size_bytes for size_bytes, _ in search.below.values()),
        below_versions=sum(1 for size_bytes, _ in search.below.values() if size_bytes),
        scanned_rows=min(search.scanned_rows, MAX_SCANNED_ROWS),
        claims_stopped=state.claims_stopped,
        is_exact=not search.is_cut_short and (is_expanded or not is_elsewhere),
        below_replicated_bytes=sum(taken for _, taken in search.below.values()),
    )
