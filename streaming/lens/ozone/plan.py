"""Reads what a job has to know before it reads keys: buckets, chains, transactions, directories and renames.

The plan and the index are written to a scratch directory, from which the workers read them.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from services.domain.errors import InvariantError
from services.lens.ozone import tables
from services.lens.ozone.chain import UNKNOWN, ChainSnapshot, SeenTransactions, in_order, index_of, snapshot_of
from services.lens.ozone.directories import DirectoryEntry
from services.lens.ozone.holders import Places
from services.lens.ozone.layout import CURRENT, OzoneDirectories, OzoneLocationError, unreadable
from services.lens.ozone.messages import BucketInfo, DirectoryInfo, KeyInfo, SnapshotInfo, VolumeInfo
from services.lens.ozone.tables import BucketKeys, end_of
from streaming.lens.ozone.index import IndexWriter
from streaming.lens.ozone.stores import opened
from streaming.rocksdb.checkpoint_rows import WHOLE, ReadOnlyRows

PLAN_FILE, INDEX_DIRECTORY = "plan.pickle", "index"
HEAD_TABLES = (
    tables.VOLUME,
    tables.BUCKET,
    tables.SNAPSHOT_INFO,
    tables.TRANSACTION_INFO,
    tables.DIRECTORY,
    tables.DELETED_DIRECTORY,
    tables.RENAMED,
)
_SNAPSHOT_TABLES = (tables.TRANSACTION_INFO, tables.DELETED_DIRECTORY, tables.RENAMED, tables.DELETED)


@dataclass(slots=True)
class Store:
    """A database of a bucket's chain: of a snapshot, or the active one."""

    directory: str | None
    """None if a snapshot's directory is missing."""
    place: int
    """Its place among the references; ``NO_PLACE`` for a snapshot that is deleted and not purged."""
    snapshot: ChainSnapshot | None = None
    seen_transaction: int = UNKNOWN
    garbage_rows: int = 0
    """About how many rows ``deletedTable`` has."""


NO_PLACE = -1


@dataclass
class BucketPlan:
    """A bucket, and the stores that can hold its keys: in the order of the chain, the active one last."""

    keys: BucketKeys
    stores: list[Store]
    figures: dict[str, int]
    """What the bucket's row says."""
    notes: list[str] = field(default_factory=list)
    chain_problems: list[str] = field(default_factory=list)
    has_renames: bool = False
    layout: int = 0
    """Ozone's number of it; 0 for a bucket from before there were layouts."""

    @property
    def active_number(self) -> int:
        """Return the number of the active store."""
        return len(self.stores) - 1

    @property
    def is_every_store_there(self) -> bool:
        """Return whether no database of a snapshot is missing."""
        return all(store.directory is not None for store in self.stores)

    @cached_property
    def held_places(self) -> list[int]:
        """The number of the store at each place."""
        return [number for number, store in enumerate(self.stores[:-1]) if store.place != NO_PLACE]

    def directory_of(self, number: int) -> str:
        """Return the directory of a store that is there.

        Raises:
            InvariantError: it is missing; searches and ranges are made of stores that are there.
        """
        directory = self.stores[number].directory
        if directory is None:
            raise InvariantError(f"store {number} of {self.keys.name} has no directory: report it with the database")
        return directory

    def last_place_before(self, number: int) -> int:
        """Return the place of the last snapshot before a store; -1 if there is none."""
        return bisect_left(self.held_places, number) - 1

    @cached_property
    def places(self) -> Places:
        """The bucket's snapshots as the search of holders sees them."""
        held = [self.stores[number] for number in self.held_places]
        snapshots = [store.snapshot for store in held if store.snapshot is not None]
        transactions = SeenTransactions(
            [store.seen_transaction for store in held],
            [snapshot.create_transaction for snapshot in snapshots],
            [snapshot.last_transaction for snapshot in snapshots],
        )
        return Places(transactions, [store.place for store in held if store.directory is not None], len(held))


@dataclass
class Plan:
    """All buckets that the job reads."""

    active: str
    buckets: list[BucketPlan]
    other_buckets: list[str]
    """Buckets that exist and are not read."""
    notes: list[str]

    def save(self, scratch: Path) -> None:
        """Write the plan for the workers."""
        (scratch / PLAN_FILE).write_bytes(pickle.dumps(self))

    @staticmethod
    def load(scratch: Path) -> Plan:
        """Read a plan that was written by this job."""
        plan: Plan = pickle.loads((scratch / PLAN_FILE).read_bytes())  # noqa: S301 - written by the same job
        return plan


def make_plan(directories: OzoneDirectories, only_bucket: str, scratch: Path) -> Plan:
    """Read the heads of all databases, and write the plan and the index.

    Raises:
        OzoneLocationError: a database cannot be read, or the bucket does not exist.
    """
    with opened(directories.active, HEAD_TABLES, scratch) as active:
        plan = read_chains(active, directories, only_bucket)
        index = IndexWriter(scratch / INDEX_DIRECTORY)
        for bucket in plan.buckets:
            _read_stores(bucket, active, index, scratch)
        index.close()
    plan.save(scratch)
    return plan


def read_chains(active: ReadOnlyRows, directories: OzoneDirectories, only_bucket: str) -> Plan:
    """Read the buckets and the chains of their snapshots, and nothing of the snapshots' databases.

    Raises:
        OzoneLocationError: the bucket does not exist.
    """
    buckets = _buckets(active)
    chosen = {name: bucket for name, bucket in buckets.items() if only_bucket in ("", name)}
    if only_bucket and not chosen:
        raise OzoneLocationError(f"{directories.active} has no bucket {only_bucket}: it has {_some(buckets)}.")
    chains = _chains(active)
    for name, bucket in chosen.items():
        _add_chain(bucket, chains.get(name, []), directories)
    plan = Plan(str(directories.active), list(chosen.values()), sorted(buckets.keys() - chosen.keys()), [])
    _note_unknown_tables(plan, active)
    lost = sorted(chains.keys() - buckets.keys())
    if lost:
        plan.notes.append(f"snapshotInfoTable has snapshots of buckets that do not exist: {_some(lost)}.")
    return plan


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "") if found else "none"


def _rows(store: ReadOnlyRows, family: str) -> Iterator[tuple[bytes, bytes]]:
    return store.scan(family, *WHOLE)


def _buckets(active: ReadOnlyRows) -> dict[str, BucketPlan]:
    """Return the buckets that hold keys by ``volume/bucket``: a link holds none."""
    volumes = {}
    for _, value in _rows(active, tables.VOLUME):
        volume = VolumeInfo.FromString(value)
        volumes[volume.name] = volume.object_id
    found = {}
    for _, value in _rows(active, tables.BUCKET):
        row = BucketInfo.FromString(value)
        if row.source_volume and row.source_bucket:
            continue
        keys = BucketKeys(
            row.volume,
            row.bucket,
            volumes.get(row.volume, 0),
            row.object_id,
            row.layout == tables.FILE_SYSTEM_OPTIMIZED,
        )
        figures = {
            ozone_name: getattr(row, name)
            for name, ozone_name in (
                ("used_bytes", "usedBytes"),
                ("used_namespace", "usedNamespace"),
                ("snapshot_used_bytes", "snapshotUsedBytes"),
                ("snapshot_used_namespace", "snapshotUsedNamespace"),
            )
            if row.HasField(name)
        }
        found[keys.name] = BucketPlan(keys, [], figures, layout=row.layout)
    return found


def _chains(active: ReadOnlyRows) -> dict[str, list[ChainSnapshot]]:
    found: dict[str, list[ChainSnapshot]] = {}
    for _, value in _rows(active, tables.SNAPSHOT_INFO):
        row = SnapshotInfo.FromString(value)
        found.setdefault(f"{row.volume.decode()}/{row.bucket.decode()}", []).append(snapshot_of(row))
    return found


def _add_chain(bucket: BucketPlan, snapshots: list[ChainSnapshot], directories: OzoneDirectories) -> None:
    chain, bucket.chain_problems = in_order(snapshots)
    place = 0
    for snapshot in chain:
        directory = directories.of_snapshot(snapshot.id)
        is_there = _is_database(directory)
        if not is_there:
            what = (
                "its garbage tables are not counted"
                if snapshot.is_deleted
                else "its referenced and exclusive bytes are too low, and those of its neighbours may be too high"
            )
            bucket.notes.append(
                f"Snapshot {snapshot.name}: {directory} is missing, so {what}; the bucket's live bytes are right. "
                f"A snapshot that was just created has none yet: copy the database again."
            )
        bucket.stores.append(
            Store(str(directory) if is_there else None, NO_PLACE if snapshot.is_deleted else place, snapshot)
        )
        place += not snapshot.is_deleted
    bucket.stores.append(Store(str(directories.active), place))
    for problem in bucket.chain_problems:
        bucket.notes.append(
            f"The chain of snapshots does not fit: {problem}. Ozone stops all garbage collection when it loads such a "
            f"chain; the figures here hold if the snapshots were created in the order shown."
        )


def _is_database(directory: Path) -> bool:
    try:
        return (directory / CURRENT).is_file()
    except PermissionError as error:
        raise unreadable(error) from None


def _read_stores(bucket: BucketPlan, active: ReadOnlyRows, index: IndexWriter, scratch: Path) -> None:
    if bucket.keys.is_file_system:
        prefix = bucket.keys.by_id
        for key, value in active.scan(tables.DIRECTORY, prefix, end_of(prefix)):
            parent, _, name = key[len(prefix) :].partition(b"/")
            row = DirectoryInfo.FromString(value)
            index.add_directory(bucket.keys.bucket_id, row.object_id, DirectoryEntry(name, int(parent)))
    # From the newest to the oldest: a deleted directory that two stores have, since its row is being moved from a
    # deleted snapshot to the next store, counts for the older one.
    _read_store(bucket, bucket.active_number, active, index)
    for number, store in reversed(list(enumerate(bucket.stores[:-1]))):
        if store.directory is not None:
            with opened(Path(store.directory), _SNAPSHOT_TABLES, scratch) as rows:
                store.seen_transaction = _seen(rows)
                store.garbage_rows = rows.estimated_rows(tables.DELETED)
                _read_store(bucket, number, rows, index)
    if not bucket.places.transactions.is_consistent:
        bucket.notes.append(
            "The transactions of the snapshots do not ascend along the chain, so that more keys are looked up."
        )


def _read_store(bucket: BucketPlan, number: int, rows: ReadOnlyRows, index: IndexWriter) -> None:
    keys = bucket.keys
    for key, old_key in rows.scan(tables.RENAMED, keys.by_name, end_of(keys.by_name)):
        index.add_rename(keys.bucket_id, int(key.rpartition(b"/")[2]), number, old_key)
        bucket.has_renames = True
    if keys.is_file_system:
        for _, value in rows.scan(tables.DELETED_DIRECTORY, keys.by_id, end_of(keys.by_id)):
            row = KeyInfo.FromString(value)
            entry = DirectoryEntry(row.name.rpartition(b"/")[2], row.parent_id, number)
            index.add_directory(keys.bucket_id, row.object_id, entry)


def _seen(rows: ReadOnlyRows) -> int:
    found = rows.get(tables.TRANSACTION_INFO, [tables.TRANSACTION_KEY])[0]
    return UNKNOWN if found is None else index_of(found)


def _note_unknown_tables(plan: Plan, active: ReadOnlyRows) -> None:
    unknown = active.all_families - tables.WITH_BLOCKS - tables.WITHOUT_BLOCKS
    if unknown:
        plan.notes.append(
            f"The database was opened by a newer Ozone: it has the tables {_some(unknown)}, which this program does "
            f"not know. What they hold, if they hold blocks, is not counted; all other figures are right."
        )
