"""What an audit is told of a shard, and what it reads first: its buckets, live snapshots and figures, as of one txn.

Everything comes out of copies that stand still: metadata's database as a whole, the checkpoints of its live snapshots,
and the block store's inventory, once from before metadata's copy was made and once from after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

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
from services.domain.table_keys import bucket_id_key, bucket_key

FILES, FLAT_KEYS, DIRECTORIES = "fileTable", "keyTable", "directoryTable"
DELETED, CLAIMED, DELETED_DIRECTORIES = "deletedTable", "reclaimTable", "deletedDirectoryTable"
INVENTORY = "inventoryTable"
NAMESPACE_FAMILIES = (FILES, FLAT_KEYS, DIRECTORIES)
_SURVEYED = ("bucketIdTable", "bucketTable", "snapshotListTable", "spaceTable", "accountTable", "transactionInfoTable")
_BY_PATH = (b"/", b"0")
_WHOLE = (b"", b"\xff")
Row = tuple[bytes, bytes]
Range = tuple[bytes, bytes]


class Rows(Protocol):
    """Rows of one copy."""

    def scan(self, family: str, start: bytes, end: bytes) -> Iterator[Row]:
        """Every row with start <= key < end, in the order of the keys' bytes."""
        ...

    def boundaries(self, family: str, start: bytes, end: bytes, parts: int) -> set[bytes]:
        """Keys that cut a range into about so many parts."""
        ...


Opener = Callable[[str, Sequence[str]], AbstractContextManager[Rows]]
"""Opens some families of the copy in a place."""


@dataclass(frozen=True, slots=True)
class AuditedCopies:
    """Where the copies of one shard are, in the order in which they were made."""

    shard: int
    inventory_before: str
    namespace: str
    """metadata's database as a whole."""
    snapshots: dict[str, str]
    """The checkpoint of each snapshot that was live in it, by id."""
    inventory_after: str
    bucket: str = ""
    """``volume/bucket`` when only one is audited; all of the shard otherwise."""


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
    """A rollback is under way: rows are between two states, and nothing is said of where they have to be."""
    used_bytes: int
    claimed_bytes: int
    claimed_versions: int
    snapshot_ids: tuple[str, ...]
    snapshot_txns: tuple[int, ...]
    referenced_bytes: tuple[int, ...]
    """Of each snapshot, as metadata keeps it."""
    cells: tuple[SpaceCellValue, ...]

    @property
    def name(self) -> str:
        """``volume/bucket``."""
        return f"{self.volume}/{self.bucket}"

    @property
    def keys_family(self) -> str:
        """Where its keys are."""
        return FILES if self.is_tree else FLAT_KEYS

    @property
    def rows_of_tree(self) -> Range:
        """Its rows in the tables that go by ids: those of a tree, and the garbage of every bucket."""
        prefix = b"/%d/%d/" % (self.volume_id, self.bucket_id)
        return prefix, prefix[:-1] + b"0"

    @property
    def keys(self) -> Range:
        """Its live keys. The names of a flat bucket that was deleted may be those of another one by now."""
        if self.is_tree:
            return self.rows_of_tree
        if self.is_deleted:
            return b"", b""
        prefix = f"/{self.volume}/{self.bucket}/".encode()
        return prefix, prefix[:-1] + b"0"


@dataclass(frozen=True, slots=True)
class AuditedShard:
    """All that an audit knows of a shard before it looks at any version or block."""

    copies: AuditedCopies
    txn: int
    """What metadata had applied."""
    chain_version: int
    mark_before: int
    """Last local id that had been reported to the block store when its first copy was made."""
    inventory_bytes: int
    inventory_blocks: int
    """The block store's own sums, in the second copy."""
    buckets: dict[int, AuditedBucket] = field(default_factory=dict)

    def places(self, bucket: AuditedBucket) -> tuple[str, ...]:
        """The copies of a bucket's states, in their order."""
        return (self.copies.namespace, *(self.copies.snapshots[one] for one in bucket.snapshot_ids))


def survey(copies: AuditedCopies, opener: Opener) -> AuditedShard:
    """Read what the copies say of the shard as a whole.

    Raises:
        InvariantError: the copies do not belong together, or there is no such bucket.
    """
    before = _scm_state(copies.inventory_before, opener)
    after = _scm_state(copies.inventory_after, opener)
    with opener(copies.namespace, _SURVEYED) as rows:
        state = next(_decoded(rows, "transactionInfoTable", ShardState, *_WHOLE), None)
        shard = AuditedShard(
            copies=copies,
            txn=state.txn if state else 0,
            chain_version=state.chain_version if state else 0,
            mark_before=before.mark_local_id,
            inventory_bytes=after.inventory_bytes,
            inventory_blocks=after.inventory_blocks,
            buckets=_buckets(rows, copies.bucket),
        )
    _check(shard, after)
    return shard


def _check(shard: AuditedShard, after: ScmState) -> None:
    if _txn_of(shard.mark_before) > shard.txn:
        raise InvariantError(
            f"shard {shard.copies.shard}: metadata has applied txn {shard.txn}, but the block store knows blocks of "
            f"txn {_txn_of(shard.mark_before)}: metadata is behind; audit again when it is ready (deepclean status)."
        )
    if after.mark_local_id < shard.mark_before:
        raise InvariantError(
            f"shard {shard.copies.shard}: the block store went back between its two copies: audit again when it is "
            f"ready (deepclean status)."
        )
    missing = [
        one for bucket in shard.buckets.values() for one in bucket.snapshot_ids if one not in shard.copies.snapshots
    ]
    if missing:
        raise InvariantError(
            f"shard {shard.copies.shard}: snapshot {missing[0]} is live and its checkpoint was not copied: audit "
            f"again; if it happens again, the checkpoint is missing, and metadata has to be rebuilt from its log."
        )
    if shard.copies.bucket and not shard.buckets:
        raise InvariantError(
            f"shard {shard.copies.shard} has no bucket {shard.copies.bucket}: name one as volume/bucket."
        )


def _txn_of(local_id: int) -> int:
    """The txn that wrote a block, as the layout of block ids says: bits 16 to 52."""
    return local_id >> 16 & (1 << 37) - 1


def _scm_state(place: str, opener: Opener) -> ScmState:
    with opener(place, ("scmStateTable",)) as rows:
        for key, value in rows.scan("scmStateTable", *_WHOLE):
            if key == b"now":
                return row_codec(ScmState).decode(value)
    return ScmState(0, 0, 0, 0, 0, 0, 0)


def _decoded(rows: Rows, family: str, record: type[Any], start: bytes, end: bytes) -> Iterator[Any]:
    decode = row_codec(record).decode
    return (decode(value) for _, value in rows.scan(family, start, end))


def _buckets(rows: Rows, wanted: str) -> dict[int, AuditedBucket]:
    used = {bucket_key(row.volume, row.bucket): row for row in _decoded(rows, "bucketTable", BucketRow, *_BY_PATH)}
    live: dict[int, list[SnapshotListRow]] = {}
    for captured in _decoded(rows, "snapshotListTable", SnapshotListRow, *_BY_PATH):
        if captured.is_live:
            live.setdefault(captured.bucket_id, []).append(captured)
    cells: dict[int, list[SpaceCellValue]] = {}
    cell_of = row_codec(SpaceCellValue).decode
    for key, value in rows.scan("spaceTable", *_BY_PATH):
        cells.setdefault(int(key.split(b"/")[1]), []).append(cell_of(value))
    accounts = {key: row_codec(AccountRow).decode(value) for key, value in rows.scan("accountTable", *_BY_PATH)}
    found = {}
    for identity in _decoded(rows, "bucketIdTable", BucketIdentity, *_BY_PATH):
        if wanted and (f"{identity.volume}/{identity.bucket}" != wanted or identity.is_deleted):
            continue
        row = None if identity.is_deleted else used.get(bucket_key(identity.volume, identity.bucket))
        account = accounts.get(bucket_id_key(identity.bucket_id), AccountRow(0, 0, 0, 0))
        snapshots = sorted(live.get(identity.bucket_id, ()), key=lambda one: one.txn)
        found[identity.bucket_id] = AuditedBucket(
            volume=identity.volume,
            bucket=identity.bucket,
            volume_id=identity.volume_id,
            bucket_id=identity.bucket_id,
            is_tree=identity.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED,
            is_deleted=identity.is_deleted,
            is_rolling_back=row is not None and bool(row.rollback_snapshot_id),
            used_bytes=row.used_bytes if row else 0,
            claimed_bytes=account.claimed_bytes,
            claimed_versions=account.claimed_versions,
            snapshot_ids=tuple(one.snapshot_id for one in snapshots),
            snapshot_txns=tuple(one.txn for one in snapshots),
            referenced_bytes=tuple(one.referenced_bytes for one in snapshots),
            cells=tuple(cells.get(identity.bucket_id, ())),
        )
    return found
