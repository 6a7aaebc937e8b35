"""What a copy of a shard of metadata says of buckets, space and snapshots, as columns: small enough for the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from schemas.records import AccountRow, ShardState
from schemas.stored_rows import row_codec
from services.domain.space_matrix import NOBODY, Holders, SpaceCell, cell_counts, total
from services.domain.space_shares import Share, shares_of_rows
from services.domain.table_keys import bucket_id_key
from streaming.audit.shard import AuditedBucket, Opener, buckets_of, decoded
from streaming.rocksdb.checkpoint_rows import WHOLE
from streaming.tables.columns import BUCKETS, SNAPSHOT_SPACE, SPACE

Rows = Iterator[dict[str, Any]]
_FAMILIES = ("bucketIdTable", "bucketTable", "snapshotListTable", "spaceTable", "accountTable", "transactionInfoTable")
_SHARE_SIZES = [one.name.removesuffix("_bytes") for one in fields(Share) if one.name.endswith("_bytes")]


@dataclass(frozen=True, slots=True)
class CopiedShard:
    """The buckets, snapshots and figures of a shard as of one txn."""

    shard: int
    directory: str
    txn: int
    log_time_ms: int
    buckets: Mapping[int, AuditedBucket]
    accounts: Mapping[int, AccountRow]

    def rows(self, table: str) -> Rows:
        """Yield the rows of one of the tables below, without the columns that say as of when they are."""
        return _ROWS[table](self)

    def _of_buckets(self) -> Rows:
        for bucket in self.buckets.values():
            cells, account = cells_of(bucket), self.accounts.get(bucket.bucket_id, AccountRow(0, 0, 0, 0))
            used, nothing = bucket.used, SpaceCell(0, 0, 0, 0, 0)
            pending = cells.get(NOBODY, nothing)
            held = total(cell for holders, cell in cells.items() if holders != NOBODY)
            yield {
                **_identity(self.shard, bucket),
                "layout": "FILE_SYSTEM_OPTIMIZED" if bucket.is_tree else "OBJECT_STORE",
                "is_deleted": bucket.is_deleted,
                **_sizes("live", used.bytes, used.redundancy_bytes),
                **_sizes("held", held.bytes, held.redundancy_bytes),
                **_sizes("pending", pending.bytes, pending.redundancy_bytes),
                **_sizes("claimed", account.claimed_bytes, account.claimed_redundancy_bytes),
                **_sizes("freed", account.freed_bytes, account.freed_redundancy_bytes),
                "freed_versions": account.freed_versions,
            }

    def _of_cells(self) -> Rows:
        for bucket in self.buckets.values():
            identity = _identity(self.shard, bucket)
            for (first, last), cell in cells_of(bucket).items():
                yield {
                    **identity,
                    "first_holder": first,
                    "last_holder": last,
                    "size_bytes": cell.bytes,
                    "replicated_bytes": cell.replicated_bytes,
                    "versions": cell.versions,
                    **{name: getattr(cell, name) for name in ("key_rows", "directory_rows", "rename_rows")},
                }

    def _of_snapshots(self) -> Rows:
        for bucket in self.buckets.values():
            shares = shares_of_rows(cells_of(bucket), bucket.snapshots)
            for snapshot, (share, replicated) in zip(bucket.snapshots, shares, strict=True):
                yield {
                    **_identity(self.shard, bucket),
                    "snapshot_id": snapshot.snapshot_id,
                    "create_txn": snapshot.txn,
                    "exclusive_versions": share.exclusive_versions,
                    **{f"{name}_bytes": getattr(share, f"{name}_bytes") for name in _SHARE_SIZES},
                    **{f"{name}_replicated_bytes": getattr(replicated, f"{name}_bytes") for name in _SHARE_SIZES},
                }


_ROWS = {
    BUCKETS.name: CopiedShard._of_buckets,
    SPACE.name: CopiedShard._of_cells,
    SNAPSHOT_SPACE.name: CopiedShard._of_snapshots,
}


def read_shard(shard: int, directory: str, opener: Opener) -> CopiedShard:
    """Read a copy of a shard's metadata, except its keys and garbage rows."""
    with opener(directory, _FAMILIES) as rows:
        state: ShardState | None = next(decoded(rows, "transactionInfoTable", ShardState, WHOLE), None)
        buckets = buckets_of(rows)
        decode, by_key = row_codec(AccountRow).decode, {bucket_id_key(one): one for one in buckets}
        accounts = {by_key[key]: decode(value) for key, value in rows.scan("accountTable", b"/", b"0") if key in by_key}
    return CopiedShard(
        *(shard, directory, state.txn if state else 0, state.log_time_ms if state else 0), buckets, accounts
    )


def cells_of(bucket: AuditedBucket) -> dict[Holders, SpaceCell]:
    """Return the space matrix of a bucket."""
    holders_of = attrgetter("first_holder", "last_holder")
    return {holders_of(cell): SpaceCell(*cell_counts(cell)) for cell in bucket.cells}


def _identity(shard: int, bucket: AuditedBucket) -> dict[str, Any]:
    return {"shard": shard, "bucket_id": bucket.bucket_id, "volume": bucket.volume, "bucket": bucket.bucket}


def _sizes(name: str, size_bytes: int, redundancy_bytes: int) -> dict[str, int]:
    return {f"{name}_bytes": size_bytes, f"{name}_replicated_bytes": size_bytes + redundancy_bytes}
