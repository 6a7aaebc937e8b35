"""The noncurrent versions of a key: those that were overwritten while its bucket kept versions.

A noncurrent version is a row of keyVersionTable, below the objectID of its key and by its birth, which is the version's
id. The row has an objectID of its own (``version_object_id``), under which are its further runs of blocks, and its
garbage row when it dies. A version lives from its birth until its death, whether it is current or not. So a snapshot
holds exactly the versions that it lists (docs/decisions/0044).

What holds at any time, but for the pages of a rollback: each noncurrent version belongs to a live key, whose directory
and name its row has; the current version is the one with the highest birth; and ``version_rows`` of its row is the
number of these rows.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.codec import codec
from schemas.error_codes import ErrorCode
from schemas.records import BucketRow, BucketVersioning, KeyPartRow, KeyRow
from services.domain.errors import InvariantError
from services.domain.reclaimability import Txn
from services.domain.refusals import CommandError
from services.domain.table_keys import MAX_VERSION_ROWS, key_parts_prefix, key_version_key, version_object_id
from services.metadata.namespace.key_parts import Ids, further_runs, parts_of, pop_parts, put_parts
from services.metadata.state.tables import KEY_VERSION_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop.service import Work
from services.storage.store import prefix_end
from services.storage.tables import TablesReader

_KEY_ROW = codec(KeyRow)


UNVERSIONED, _ENABLED = BucketVersioning.UNVERSIONED, BucketVersioning.ENABLED  # reading an enum's member takes longer


def keeps_versions(bucket: BucketRow) -> bool:
    """Return whether a version that is written now will be kept when it is overwritten."""
    return bucket.versioning is _ENABLED


def is_kept(bucket: BucketRow, replaced: KeyRow) -> bool:
    """Return whether a live version that is overwritten becomes noncurrent. Otherwise it dies.

    While versioning is suspended, an overwrite ends no version that was written while it was enabled.
    """
    return keeps_versions(bucket) or (bucket.versioning is BucketVersioning.SUSPENDED and replaced.is_versioned)


def has_versions(row: bytes) -> bool:
    """Return whether the key of an encoded row has noncurrent versions: the last byte of ``KeyRow.version_rows``."""
    return row[-2] != 0


def further_rows(work: Work, ids: Ids, row: bytes) -> int:
    """Return how many rows the death of an encoded key adds to deletedTable besides the first of its version: those of
    further runs of blocks, and of noncurrent versions.
    """
    return further_runs(work, ids, row) + (_KEY_ROW.decode(row).version_rows if has_versions(row) else 0)


def versions_of(tables: Work | TablesReader, ids: Ids, key: KeyRow) -> list[KeyRow]:
    """Return the noncurrent versions of a live key, oldest first."""
    if not key.version_rows:
        return []
    prefix = key_parts_prefix(*ids, key.object_id)
    return [row for _, row in tables.table(KEY_VERSION_TABLE).scan(prefix, prefix_end(prefix))]


def keep_version(transaction: Transaction, ids: Ids, key: KeyRow) -> int:
    """Make a live version, which the caller replaces, a noncurrent one. Return ``version_rows`` for what replaces it.

    Raises:
        CommandError: INVALID_REQUEST, the key has too many versions.
    """
    check_version_rows(key, len(parts_of(transaction.work, ids, key)))
    return key.version_rows + become_noncurrent(transaction, ids, key)


def become_noncurrent(transaction: Transaction, ids: Ids, key: KeyRow) -> int:
    """Move a live version, whose place the caller writes, to keyVersionTable. Return the number of its rows."""
    parts = pop_parts(transaction.work, ids, key)
    put_version(transaction.work, ids, key.object_id, replace(key, object_id=version_object_id(key.birth)), parts)
    transaction.figures.put(ids[1], 0, -1)
    return 1 + len(parts)


def check_version_rows(key: KeyRow, parts: int) -> int:
    """Return ``version_rows`` with one more noncurrent version of so many further runs.

    Raises:
        CommandError: INVALID_REQUEST, the key has too many versions.
    """
    rows = key.version_rows + 1 + parts
    if rows > MAX_VERSION_ROWS:
        raise CommandError(
            ErrorCode.INVALID_REQUEST,
            f"{key.name} would have {rows} rows of noncurrent versions, at most {MAX_VERSION_ROWS} fit: delete old "
            f"versions (deepclean key delete --version)",
        )
    return rows


def put_version(work: Work, ids: Ids, object_id: int, version: KeyRow, parts: list[KeyPartRow]) -> None:
    """Write a noncurrent version, with its further runs, below the objectID of its key."""
    put_parts(work, ids, version.object_id, parts)
    row_key = key_version_key(*ids, object_id, version.birth)
    work.table(KEY_VERSION_TABLE).put(row_key, replace(version, version_rows=0))


def rows_of_version(work: Work, ids: Ids, version: KeyRow) -> int:
    """Return how many rows a noncurrent version has: its own, and its further runs."""
    return 1 + len(parts_of(work, ids, version))


def take_version(work: Work, ids: Ids, object_id: int, birth: Txn) -> KeyRow | None:
    """Remove the row of a noncurrent version, and return it, or None without one. Its further runs stay."""
    table, row_key = work.table(KEY_VERSION_TABLE), key_version_key(*ids, object_id, birth)
    row = table.get(row_key)
    if row is not None:
        table.delete(row_key)
    return row


def take_all_versions(work: Work, ids: Ids, key: KeyRow) -> list[KeyRow]:
    """Remove the rows of all noncurrent versions of a key, and return them. Their further runs stay."""
    versions = versions_of(work, ids, key)
    for version in versions:
        work.table(KEY_VERSION_TABLE).delete(key_version_key(*ids, key.object_id, version.birth))
    return versions


def rename_versions(work: Work, ids: Ids, moved: KeyRow) -> None:
    """Give the noncurrent versions of a renamed key its new place."""
    for version in versions_of(work, ids, moved):
        row_key = key_version_key(*ids, moved.object_id, version.birth)
        work.table(KEY_VERSION_TABLE).put(row_key, replace(version, parent_id=moved.parent_id, name=moved.name))


def as_current(work: Work, ids: Ids, version: KeyRow, key: KeyRow, txn: Txn) -> KeyRow:
    """Return the row of a noncurrent version, which was removed, as the current one of its key, and move its runs.

    ``key`` is the current version so far; its ``version_rows`` count the version.
    """
    parts = pop_parts(work, ids, version)
    put_parts(work, ids, key.object_id, parts)
    rows = key.version_rows - 1 - len(parts)
    if rows < 0:
        raise InvariantError(f"the key {key.object_id} counts too few rows of versions; report it with the log")
    return replace(
        version,
        object_id=key.object_id,
        parent_id=key.parent_id,
        name=key.name,
        update_id=txn,
        rename_txn=key.rename_txn,
        creation_time_ms=key.creation_time_ms,
        version_rows=rows,
    )
