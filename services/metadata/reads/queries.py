"""Reads the namespace: volumes, buckets, keys and directories, active or in a snapshot checkpoint.

Every function uses a reader of committed rows, so that reads run beside the writer. Listings contain only rows that can
be reached from the bucket's root: a row below a deleted directory is not in the namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

from schemas.answers import BucketSpace, ListedEntry, ListedVersion, ShardBacklog
from schemas.error_codes import ErrorCode
from schemas.records import (
    AccountRow,
    BlockRun,
    BreakerCause,
    BucketLayout,
    BucketRow,
    CollectionState,
    DirectoryRow,
    KeyRow,
    ShardState,
    SnapshotCountRow,
    SnapshotListRow,
    VolumeRow,
)
from services.domain.collection import WHOLE_SHARD, may_claim, stricter
from services.domain.refusals import CommandError, SnapshotExpiredError
from services.domain.space_matrix import SpaceCell, total
from services.domain.table_keys import (
    bucket_id_key,
    bucket_id_of_cell,
    bucket_id_prefix,
    bucket_key,
    flat_key,
    snapshot_id_key,
    snapshot_list_key,
    tree_key,
    user_key,
    volume_key,
)
from services.metadata.namespace.key_parts import parts_of, runs_of
from services.metadata.namespace.key_versions import versions_of
from services.metadata.state.bucket_links import bucket_at
from services.metadata.state.collection_states import own_state, read_collection_rows
from services.metadata.state.owned_volumes import FIRST_LEVEL
from services.metadata.state.space import MAX_UNEXPANDED_COUNT, cell_of, unexpanded_count
from services.metadata.state.tables import (
    ACCOUNT_TABLE,
    BUCKET_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_TABLE,
    SHADOW_TABLE,
    SNAPSHOT_COUNT_TABLE,
    SNAPSHOT_LIST_TABLE,
    SPACE_TABLE,
    TRANSACTION_INFO_KEY,
    TRANSACTION_INFO_TABLE,
    USER_TABLE,
    VOLUME_TABLE,
)
from services.runtime.http.reads import ReadError
from services.storage.store import Reader, Store, prefix_end
from services.storage.tables import TableReader, TablesReader

_CELL_PLACE = re.compile(r"([0-9]{1,19}):([0-9]{1,19})", re.ASCII)
_FIRST_PAGE_ROWS, _LARGEST_PAGE_ROWS = 8, 1_024
_BEYOND_UTF8 = b"\xff"
"""Behind a prefix of text: a key after all keys that begin with it."""


def shard_state(tables: TablesReader) -> ShardState:
    """Return the shard's counters."""
    state = tables.table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    return state or ShardState(0, 0, 0, 0, 0, "")


def applied_txn(tables: TablesReader) -> int:
    """Return the txn of the last command: the tables contain its changes."""
    return shard_state(tables).txn


def list_volumes(tables: TablesReader, after: str = "", limit: int = 1_000) -> list[VolumeRow]:
    """Return a page of volumes by name."""
    start = volume_key(after) + b"\0" if after else b"/"
    return [row for _, row in islice(tables.table(VOLUME_TABLE).scan(start, b"0"), limit)]


def list_volumes_of(tables: TablesReader, user: str, after: str = "", limit: int = 1_000) -> list[VolumeRow]:
    """Return a page of the volumes that a user owns, by name. Raise CommandError (FEATURE_NOT_ENABLED)."""
    if shard_state(tables).feature_level < FIRST_LEVEL:
        raise CommandError(
            ErrorCode.FEATURE_NOT_ENABLED,
            "volumes by user are for shards whose upgrade is finished (deepclean upgrade finish)",
        )
    prefix = user_key(user, "")
    start = user_key(user, after) + b"\0" if after else prefix
    owned = (row for _, row in tables.table(USER_TABLE).scan(start, prefix_end(prefix)) if row.user == user)
    rows = (tables.table(VOLUME_TABLE).get(volume_key(one.volume)) for one in owned)
    return list(islice((row for row in rows if row is not None), limit))


def list_buckets(tables: TablesReader, volume: str, after: str = "", limit: int = 1_000) -> list[BucketRow]:
    """Return a page of a volume's buckets by name."""
    prefix = bucket_key(volume, "")
    start = bucket_key(volume, after) + b"\0" if after else prefix
    return [row for _, row in islice(tables.table(BUCKET_TABLE).scan(start, prefix_end(prefix)), limit)]


def get_bucket(tables: TablesReader, volume: str, bucket: str) -> BucketRow:
    """Return a bucket by its name or that of a link to it. Raise CommandError (VOLUME_NOT_FOUND, BUCKET_NOT_FOUND)."""
    row = bucket_at(tables, volume, bucket)
    if row is not None:
        return row
    if tables.table(VOLUME_TABLE).get(volume_key(volume)) is None:
        raise CommandError(ErrorCode.VOLUME_NOT_FOUND, f"there is no volume {volume}")
    raise CommandError(ErrorCode.BUCKET_NOT_FOUND, f"there is no bucket {volume}/{bucket}")


def missing_snapshot(tables: TablesReader, snapshot_id: str) -> CommandError:
    """Return the error for a read of a snapshot without a checkpoint: it was dropped, or is unknown."""
    captured = tables.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
    if captured is None:
        return CommandError(ErrorCode.FILE_NOT_FOUND, f"there is no snapshot with the id {snapshot_id}")
    start = snapshot_list_key(captured.bucket_id, captured.ordinal + 1)
    later = tables.table(SNAPSHOT_LIST_TABLE).scan(start, prefix_end(bucket_id_prefix(captured.bucket_id)))
    return SnapshotExpiredError(
        f"the snapshot with the id {snapshot_id}", next((row.snapshot_id for _, row in later), "")
    )


def open_snapshot(store: Store, snapshot_id: str) -> Reader:
    """Open the checkpoint of a snapshot; the caller closes it.

    Raises:
        CommandError: as in ``missing_snapshot``.
    """
    try:
        return store.open_checkpoint(snapshot_id)
    except (KeyError, ValueError):  # there is no such checkpoint, or the name is invalid
        raise missing_snapshot(TablesReader(store), snapshot_id) from None


def live_snapshots(tables: TablesReader, bucket_id: int) -> list[SnapshotListRow]:
    """Return a bucket's live snapshots, oldest first."""
    prefix = bucket_id_prefix(bucket_id)
    return [row for _, row in tables.table(SNAPSHOT_LIST_TABLE).scan(prefix, prefix_end(prefix))]


def snapshot_count(tables: TablesReader, bucket_id: int) -> SnapshotCountRow:
    """Return the number of snapshots that a bucket ever had, and the txn of the newest."""
    return tables.table(SNAPSHOT_COUNT_TABLE).get(bucket_id_key(bucket_id)) or SnapshotCountRow(0, 0)


def account_of(tables: TablesReader, bucket_id: int) -> AccountRow:
    """Return the claimed and freed bytes and versions of a bucket."""
    return tables.table(ACCOUNT_TABLE).get(bucket_id_key(bucket_id)) or AccountRow(0, 0, 0, 0)


def list_entries(
    tables: TablesReader, bucket: BucketRow, prefix: str = "", after: str = "", limit: int = 1_000
) -> list[ListedEntry]:
    """Return a page of keys and directories whose path begins with a prefix, after a path, in the order of ``walk``."""
    return list(islice(walk(tables, bucket, prefix, after), limit))


def walk(tables: TablesReader, bucket: BucketRow, prefix: str = "", after: str = "") -> Iterator[ListedEntry]:
    """Yield all keys and directories of a bucket that can be reached from the root."""
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        yield from _walk_tree(tables, bucket, prefix, after)
        return
    start = flat_key(bucket.volume, bucket.bucket, prefix)
    if after:
        start = max(start, flat_key(bucket.volume, bucket.bucket, after) + b"\0")
    all_keys = flat_key(bucket.volume, bucket.bucket, prefix)
    end = all_keys + _BEYOND_UTF8 if prefix else prefix_end(all_keys)
    for _, row in tables.table(KEY_TABLE).scan(start, end):
        yield _entry(row.name, row)


@dataclass(frozen=True, slots=True)
class _Level:
    """A directory in the walk."""

    rows: Iterator[DirectoryRow | KeyRow]
    base: str
    """Its path with a trailing slash; empty for the root."""
    after: tuple[bytes, ...]
    """The names below this directory of the path after which the listing resumes; empty if all names come after it."""


def _walk_tree(tables: TablesReader, bucket: BucketRow, prefix: str, after: str) -> Iterator[ListedEntry]:
    """Walk depth first, names in the order of their bytes, a directory before its contents.

    Rows before the start or outside of the prefix are not read, so the cost of a page does not depend on its place.
    """
    after_names = tuple([name.encode() for name in after.split("/")]) if after else ()
    stack = [_level(tables, bucket, bucket.object_id, "", prefix, after_names)]
    while stack:
        level = stack[-1]
        row = next(level.rows, None)
        if row is None:
            stack.pop()
            continue
        path = level.base + row.name
        is_ancestor = bool(level.after) and row.name.encode() == level.after[0]
        if isinstance(row, DirectoryRow):
            below = level.after[1:] if is_ancestor else ()
            stack.append(_level(tables, bucket, row.object_id, f"{path}/", prefix, below))
        if path.startswith(prefix) and not is_ancestor:
            yield _entry(path, row)


def _level(
    tables: TablesReader, bucket: BucketRow, directory_id: int, base: str, prefix: str, after: tuple[bytes, ...]
) -> _Level:
    """Return the part of a directory whose rows can have the prefix, from the first wanted name on."""
    all_names = tree_key(bucket.volume_id, bucket.object_id, directory_id, "")
    name, slash, _ = prefix[len(base) :].partition("/")
    start = all_names + name.encode()
    end = start + (b"\0" if slash else _BEYOND_UTF8) if name or slash else prefix_end(all_names)
    return _Level(_children(tables, max(start, all_names + after[0]) if after else start, end), base, after)


def _children(tables: TablesReader, start: bytes, end: bytes) -> Iterator[DirectoryRow | KeyRow]:
    """Return files and directories of one directory, merged by name."""
    directories: Iterator[tuple[bytes, DirectoryRow | KeyRow]] = _in_pages(tables.table(DIRECTORY_TABLE), start, end)
    files = _in_pages(tables.table(FILE_TABLE), start, end)
    return (row for _, row in merge(directories, files, key=itemgetter(0)))


def _in_pages(table: TableReader[Any], start: bytes, end: bytes) -> Iterator[tuple[bytes, Any]]:
    """Yield the rows of a range, read in pages. A walk is inside several directories at once, and an open database
    iterator in each of them would keep a block of each file in memory."""
    count = _FIRST_PAGE_ROWS
    while True:
        page = list(islice(table.scan(start, end), count))
        yield from page
        if len(page) < count:
            return
        start, count = page[-1][0] + b"\0", min(2 * count, _LARGEST_PAGE_ROWS)


def _entry(path: str, row: KeyRow | DirectoryRow) -> ListedEntry:
    size_bytes, tag = (row.size_bytes, row.tag) if isinstance(row, KeyRow) else (0, "")
    return ListedEntry(path, isinstance(row, DirectoryRow), size_bytes, tag, row.object_id, row.modification_time_ms)


def stat(tables: TablesReader, bucket: BucketRow, path: str) -> KeyRow | DirectoryRow:
    """Return the row of a key or directory. Raise CommandError (KEY_NOT_FOUND)."""
    found: KeyRow | DirectoryRow | None
    if bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED:
        *names, last = path.split("/")
        parent_id = bucket.object_id
        for name in names:
            directory = tables.table(DIRECTORY_TABLE).get(tree_key(bucket.volume_id, bucket.object_id, parent_id, name))
            if directory is None:
                raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no file or directory {path}")
            parent_id = directory.object_id
        key = tree_key(bucket.volume_id, bucket.object_id, parent_id, last)
        found = tables.table(DIRECTORY_TABLE).get(key) or tables.table(FILE_TABLE).get(key)
    else:
        found = tables.table(KEY_TABLE).get(flat_key(bucket.volume, bucket.bucket, path))
    if found is None:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"there is no key {path}")
    return found


def stat_version(tables: TablesReader, bucket: BucketRow, path: str, version: int) -> KeyRow:
    """Return one version of a key, current or noncurrent. Raise CommandError (KEY_NOT_FOUND)."""
    found = [row for row in _versions(tables, bucket, path) if row.birth == version]
    if not found:
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"{path} has no version {version}")
    return found[0]


def list_versions(
    tables: TablesReader, bucket: BucketRow, path: str, start_after: int = 0, limit: int = 1_000
) -> list[ListedVersion]:
    """Return a page of a key's versions after a version, oldest first. The current one is the last of all."""
    rows = _versions(tables, bucket, path)
    return [
        ListedVersion(row.birth, row is rows[-1], row.size_bytes, row.tag, row.modification_time_ms)
        for row in islice((row for row in rows if row.birth > start_after), limit)
    ]


def _versions(tables: TablesReader, bucket: BucketRow, path: str) -> list[KeyRow]:
    """Return all versions of a key, oldest first, at most ``MAX_VERSION_ROWS`` and one."""
    key = stat(tables, bucket, path)
    if not isinstance(key, KeyRow):
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"{path} is a directory")
    noncurrent = versions_of(tables, (bucket.volume_id, bucket.object_id), key)
    return [*(replace(row, object_id=key.object_id) for row in noncurrent), key]


def key_blocks(tables: TablesReader, bucket: BucketRow, path: str) -> list[BlockRun]:
    """Return all runs of blocks of a key, as far as it has bytes. Raise CommandError (KEY_NOT_FOUND).

    After a rollback a block may have more bytes, behind the end of the version: those of a sync that was undone.
    """
    found = stat(tables, bucket, path)
    if not isinstance(found, KeyRow):
        raise CommandError(ErrorCode.KEY_NOT_FOUND, f"{path} is a directory")
    runs, left = list[BlockRun](), found.size_bytes
    for run in runs_of(found, parts_of(tables, (bucket.volume_id, bucket.object_id), found)):
        size_bytes = min(run.size_bytes, left)
        left -= size_bytes
        if size_bytes:
            runs.append(replace(run, block_count=-(-size_bytes // run.block_size_bytes), size_bytes=size_bytes))
    return runs


def bucket_space(tables: TablesReader, bucket: BucketRow, start_after: str = "", limit: int = 1_000) -> BucketSpace:
    """Return a bucket's live, held, pending, claimed and freed bytes, and a page of cells after ``<first>:<last>``.

    Cost: all cells of the bucket's matrix are read, for every page.

    Raises:
        ReadError: INVALID_REQUEST, ``start_after`` is malformed.
    """
    state = shard_state(tables)
    prefix = bucket_id_prefix(bucket.object_id)
    cells = [value for _, value in tables.table(SPACE_TABLE).scan(prefix, prefix_end(prefix))]
    after = _holders_of(start_after)
    account = account_of(tables, bucket.object_id)
    pending = cell_of(next((cell for cell in cells if not cell.first_holder), None))
    held = total(cell_of(cell) for cell in cells if cell.first_holder)
    return BucketSpace(
        txn=state.txn,
        chain_version=state.chain_version,
        live_bytes=bucket.used_bytes,
        live_namespace=bucket.used_namespace,
        deleted_bytes=bucket.snapshot_used_bytes,
        deleted_namespace=bucket.snapshot_used_namespace,
        held_bytes=held.bytes,
        held_versions=held.versions,
        pending_bytes=pending.bytes,
        pending_versions=pending.versions,
        claimed_bytes=account.claimed_bytes,
        claimed_versions=account.claimed_versions,
        freed_bytes=account.freed_bytes,
        freed_versions=account.freed_versions,
        unexpanded_directories=unexpanded_count(tables, bucket.object_id, 0, 0, MAX_UNEXPANDED_COUNT),
        cells=tuple(islice((cell for cell in cells if (cell.first_holder, cell.last_holder) > after), limit)),
        live_snapshots=len(live_snapshots(tables, bucket.object_id)),
        claims_stopped=state.claims_stopped,
        live_replicated_bytes=bucket.used_bytes + bucket.used_redundancy_bytes,
        deleted_replicated_bytes=bucket.snapshot_used_bytes + bucket.snapshot_used_redundancy_bytes,
        held_replicated_bytes=held.replicated_bytes,
        pending_replicated_bytes=pending.replicated_bytes,
        claimed_replicated_bytes=account.claimed_bytes + account.claimed_redundancy_bytes,
        freed_replicated_bytes=account.freed_bytes + account.freed_redundancy_bytes,
    )


def _holders_of(start_after: str) -> tuple[int, int]:
    """Return the cell after which a page begins; without one, a place before all cells."""
    if not start_after:
        return (-1, -1)
    place = _CELL_PLACE.fullmatch(start_after)
    if place is None:
        shown = start_after[:100]
        raise ReadError("INVALID_REQUEST", f"start_after is {shown!r}; write start_after=<first holder>:<last holder>")
    return int(place[1]), int(place[2])


def shard_backlog(tables: TablesReader) -> ShardBacklog:
    """Return sums over all buckets and cells. It reads every cell: do not call it every second."""
    suspended_bytes = suspended_versions = cells = 0
    held, pending = list[SpaceCell](), list[SpaceCell]()
    state = shard_state(tables)
    rows = read_collection_rows(tables)
    own = {one: own_state(row) for one, row in rows.items()}
    causes = [row.trip.cause for row in rows.values() if row.trip]
    if state.claims_stopped:
        own[WHOLE_SHARD] = CollectionState.STOPPED
    everything = own.get(WHOLE_SHARD, CollectionState.RUNNING)
    for key, cell in tables.table(SPACE_TABLE).scan():
        cells += 1
        if cell.first_holder:
            held.append(cell_of(cell))
        else:
            pending.append(cell_of(cell))
            if not may_claim(stricter(everything, own.get(bucket_id_of_cell(key), CollectionState.RUNNING))):
                suspended_bytes += cell.bytes
                suspended_versions += cell.versions
    shadow = [hour for _, hour in tables.table(SHADOW_TABLE).scan()]
    accounts = [account for _, account in tables.table(ACCOUNT_TABLE).scan()]
    buckets = [bucket for _, bucket in tables.table(BUCKET_TABLE).scan()]
    all_held, all_pending = total(held), total(pending)
    live_bytes = sum(bucket.used_bytes for bucket in buckets)
    claimed_bytes = sum(account.claimed_bytes for account in accounts)
    freed_bytes = sum(account.freed_bytes for account in accounts)
    return ShardBacklog(
        txn=state.txn,
        held_bytes=all_held.bytes,
        held_versions=all_held.versions,
        pending_bytes=all_pending.bytes,
        pending_versions=all_pending.versions,
        claimed_bytes=claimed_bytes,
        claimed_versions=sum(account.claimed_versions for account in accounts),
        freed_bytes=freed_bytes,
        freed_versions=sum(account.freed_versions for account in accounts),
        refused_rows=state.refused_rows,
        chain_version=state.chain_version,
        live_bytes=live_bytes,
        cells=cells,
        suspended_bytes=suspended_bytes,
        suspended_versions=suspended_versions,
        shadow_bytes=sum(hour.bytes for hour in shadow),
        shadow_versions=sum(hour.versions for hour in shadow),
        collection_states={one: list(own.values()).count(one) for one in CollectionState},
        trips={cause: causes.count(cause) for cause in BreakerCause},
        live_replicated_bytes=live_bytes + sum(bucket.used_redundancy_bytes for bucket in buckets),
        held_replicated_bytes=all_held.replicated_bytes,
        pending_replicated_bytes=all_pending.replicated_bytes,
        claimed_replicated_bytes=claimed_bytes + sum(account.claimed_redundancy_bytes for account in accounts),
        freed_replicated_bytes=freed_bytes + sum(account.freed_redundancy_bytes for account in accounts),
    )
