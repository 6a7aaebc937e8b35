"""The input of an audit, and the survey of a shard: its buckets, live snapshots and figures, as of one txn.

An audit reads immutable copies only: metadata's whole database, the snapshot checkpoints of its live snapshots, and two
inventories of the block store, one made before metadata's copy and one after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from schemas.audit_report import UsedFigures
from schemas.records import (
    AccountRow,
    BucketIdentity,
    BucketLayout,
    BucketRow,
    ScmState,
    ShardState,
    SnapshotListRow,
    SpaceCellValue,
)
from schemas.stored_rows import row_codec
from services.domain.errors import InvariantError
from services.domain.table_keys import bucket_id_key, bucket_id_of_cell, bucket_key, flat_key, local_id_txn
from streaming.rocksdb.checkpoint_rows import WHOLE, Range
from streaming.rocksdb.side_by_side import Rows

FILES, FLAT_KEYS, DIRECTORIES = "fileTable", "keyTable", "directoryTable"
DELETED, CLAIMED, DELETED_DIRECTORIES = "deletedTable", "reclaimTable", "deletedDirectoryTable"
KEY_PARTS, KEY_VERSIONS = "keyPartTable", "keyVersionTable"
UPLOADS, UPLOADED = "multipartInfoTable", "multipartPartsTable"
INVENTORY = "inventoryTable"
_SURVEYED = ("bucketIdTable", "bucketTable", "snapshotListTable", "spaceTable", "accountTable", "transactionInfoTable")
_BY_PATH = (b"/", b"0")
_STATE = (b"now", b"now\0")


Opener = Callable[[str, Sequence[str]], AbstractContextManager[Rows]]
"""Opens some column families of the copy in a directory."""


@dataclass(frozen=True, slots=True)
class AuditedCopies:
    """The directories of the copies of one shard, in the order in which they were made."""

    shard: int
    inventory_before: str
    namespace: str
    """The copy of metadata's whole database."""
    snapshots: dict[str, str]
    """The snapshot checkpoint of each live snapshot of that copy, by snapshot id."""
    inventory_after: str
    bucket: str = ""
    """``volume/bucket`` to audit only one bucket; empty for the whole shard."""


@dataclass(frozen=True, slots=True)
class AuditedBucket:
    """A bucket and its states: the active namespace, then its live snapshots, oldest first."""

    volume: str
    bucket: str
    volume_id: int
    bucket_id: int
    is_tree: bool
    is_deleted: bool
    is_rolling_back: bool
    """A rollback is in progress: rows move between two states, so the audit does not check their places."""
    used: UsedFigures
    claimed_bytes: int
    claimed_versions: int
    claimed_redundancy_bytes: int
    snapshots: tuple[SnapshotListRow, ...]
    """Metadata's row of each live snapshot, with its figures."""
    cells: tuple[SpaceCellValue, ...]
    snapshot_txns: tuple[int, ...] = field(init=False)
    """The txn of each live snapshot; looked at for each version."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshot_txns", tuple(one.txn for one in self.snapshots))

    @property
    def name(self) -> str:
        """Return ``volume/bucket``."""
        return f"{self.volume}/{self.bucket}"

    @property
    def keys_family(self) -> str:
        """Return the column family of the bucket's keys."""
        return FILES if self.is_tree else FLAT_KEYS

    @property
    def rows_of_tree(self) -> Range:
        """Return the range of its rows in tables keyed by ids: the tables of a tree, and all garbage tables."""
        prefix = b"/%d/%d/" % (self.volume_id, self.bucket_id)
        return prefix, prefix[:-1] + b"0"

    @property
    def keys(self) -> Range:
        """Return the range of its live keys; empty for a deleted flat bucket: another bucket may have its name."""
        if self.is_tree:
            return self.rows_of_tree
        if self.is_deleted:
            return b"", b""
        prefix = flat_key(self.volume, self.bucket, "")
        return prefix, prefix[:-1] + b"0"


@dataclass(frozen=True, slots=True)
class AuditedShard:
    """The survey of a shard: everything that an audit reads before it reads versions and blocks."""

    copies: AuditedCopies
    open: Opener
    txn: int
    """The last txn that metadata's copy has applied."""
    chain_version: int
    mark_before: int
    """The last local id that was reported to the block store before its first copy was made."""
    reported_local_id: int
    """The mark of the last late report that metadata's copy has sent; 0 when there is none."""
    inventory_bytes: int
    inventory_blocks: int
    """The block store's own sum of blocks, like that of bytes, in the second copy."""
    buckets: dict[int, AuditedBucket]

    def places(self, bucket: AuditedBucket) -> tuple[str, ...]:
        """Return the copies of a bucket's states, in the order of the states."""
        return (self.copies.namespace, *(self.copies.snapshots[one.snapshot_id] for one in bucket.snapshots))


def survey(copies: AuditedCopies, opener: Opener) -> AuditedShard:
    """Read the buckets, snapshots and figures of the shard from the copies.

    Raises:
        InvariantError: the copies do not belong together, or the audited bucket does not exist.
    """
    before = _scm_state(copies.inventory_before, opener)
    after = _scm_state(copies.inventory_after, opener)
    with opener(copies.namespace, _SURVEYED) as rows:
        state = next(decoded(rows, "transactionInfoTable", ShardState, WHOLE), None)
        shard = AuditedShard(
            copies=copies,
            open=opener,
            txn=state.txn if state else 0,
            chain_version=state.chain_version if state else 0,
            mark_before=before.mark_local_id,
            reported_local_id=state.reported_local_id if state else 0,
            inventory_bytes=after.inventory_bytes,
            inventory_blocks=after.inventory_blocks,
            buckets=buckets_of(rows, copies.bucket),
        )
    _check(shard, after)
    return shard


def _check(shard: AuditedShard, after: ScmState) -> None:
    if local_id_txn(shard.mark_before) > shard.txn:
        raise InvariantError(
            f"shard {shard.copies.shard}: metadata has applied txn {shard.txn}, but the block store knows blocks of "
            f"txn {local_id_txn(shard.mark_before)}: metadata is behind; audit again when it is ready (deepclean "
            f"status)."
        )
    if after.mark_local_id < shard.mark_before:
        raise InvariantError(
            f"shard {shard.copies.shard}: the block store went back between its two copies: audit again when it is "
            f"ready (deepclean status)."
        )
    live = [one.snapshot_id for bucket in shard.buckets.values() for one in bucket.snapshots]
    missing = [one for one in live if one not in shard.copies.snapshots]
    if missing:
        raise InvariantError(
            f"shard {shard.copies.shard}: snapshot {missing[0]} is live and its checkpoint was not copied: audit "
            f"again; if it happens again, the checkpoint is missing, and metadata has to be rebuilt from its log."
        )
    if shard.copies.bucket and not shard.buckets:
        raise InvariantError(
            f"shard {shard.copies.shard} has no bucket {shard.copies.bucket}: name one as volume/bucket."
        )


def _used(row: BucketRow) -> UsedFigures:
    return UsedFigures(
        *(row.used_bytes, row.used_namespace, row.snapshot_used_bytes, row.snapshot_used_namespace),
        *(row.upload_bytes, row.spare_bytes, row.block_rows),
        *(row.used_redundancy_bytes, row.snapshot_used_redundancy_bytes),
        *(row.upload_redundancy_bytes, row.spare_redundancy_bytes),
    )


def _scm_state(place: str, opener: Opener) -> ScmState:
    with opener(place, ("scmStateTable",)) as rows:
        found: ScmState | None = next(decoded(rows, "scmStateTable", ScmState, _STATE), None)
    return found or ScmState(0, 0, 0, 0, 0, 0, 0)


def decoded(rows: Rows, family: str, record: type[Any], part: Range = _BY_PATH) -> Iterator[Any]:
    """Yield the rows of a table; by default those whose keys begin with a slash."""
    decode = row_codec(record).decode
    return (decode(value) for _, value in rows.scan(family, *part))


def buckets_of(rows: Rows, wanted: str = "") -> dict[int, AuditedBucket]:
    """Return the buckets of a copy of metadata by their ids, deleted ones too; or the one of a name, not deleted."""
    used = {bucket_key(row.volume, row.bucket): row for row in decoded(rows, "bucketTable", BucketRow)}
    live: defaultdict[int, list[SnapshotListRow]] = defaultdict(list)
    for captured in decoded(rows, "snapshotListTable", SnapshotListRow):
        if captured.is_live:
            live[captured.bucket_id].append(captured)
    cells: defaultdict[int, list[SpaceCellValue]] = defaultdict(list)
    cell_of = row_codec(SpaceCellValue).decode
    for key, value in rows.scan("spaceTable", *_BY_PATH):
        cells[bucket_id_of_cell(key)].append(cell_of(value))
    accounts = {key: row_codec(AccountRow).decode(value) for key, value in rows.scan("accountTable", *_BY_PATH)}
    found = {}
    for identity in decoded(rows, "bucketIdTable", BucketIdentity):
        if wanted and (f"{identity.volume}/{identity.bucket}" != wanted or identity.is_deleted):
            continue
        row = None if identity.is_deleted else used.get(bucket_key(identity.volume, identity.bucket))
        account = accounts.get(bucket_id_key(identity.bucket_id), AccountRow(0, 0, 0, 0))
        snapshots = sorted(live[identity.bucket_id], key=lambda one: one.txn)
        found[identity.bucket_id] = AuditedBucket(
            volume=identity.volume,
            bucket=identity.bucket,
            volume_id=identity.volume_id,
            bucket_id=identity.bucket_id,
            is_tree=identity.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED,
            is_deleted=identity.is_deleted,
            is_rolling_back=row is not None and bool(row.rollback_snapshot_id),
            used=_used(row) if row else UsedFigures(),
            claimed_bytes=account.claimed_bytes,
            claimed_versions=account.claimed_versions,
            claimed_redundancy_bytes=account.claimed_redundancy_bytes,
            snapshots=tuple(snapshots),
            cells=tuple(cells[identity.bucket_id]),
        )
    return found
