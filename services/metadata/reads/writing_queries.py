"""Lists what clients are writing: the open keys of a bucket, its uploads, and the parts of an upload."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from schemas.answers import ListedOpenKey
from schemas.records import BucketLayout, BucketRow, OpenKeyRow, PartRow, UploadRow
from services.domain.table_keys import MAX_PART_NUMBER, part_key, upload_key
from services.metadata.namespace.uploads import find_upload
from services.metadata.namespace.writing import is_version
from services.metadata.state.tables import (
    FILE_TABLE,
    KEY_TABLE,
    OPEN_FILE_TABLE,
    OPEN_KEY_TABLE,
    PART_TABLE,
    UPLOAD_TABLE,
    namespace_key,
    namespace_prefix,
)
from services.storage.store import prefix_end
from services.storage.tables import TableReader, TablesReader

_Row = TypeVar("_Row", OpenKeyRow, UploadRow)


def list_open_keys(
    tables: TablesReader, bucket: BucketRow, start_after: str = "", limit: int = 1_000
) -> list[ListedOpenKey]:
    """Return a page of open keys in the order of their rows, after ``<name>/<session>``, in a tree
    ``<objectID of the directory>/<name>/<session>``."""
    is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
    table = tables.table(OPEN_FILE_TABLE if is_tree else OPEN_KEY_TABLE)
    rows = _rows_of_bucket(table, bucket, namespace_prefix(bucket), start_after)
    return [ListedOpenKey(row, is_taken_away=_is_taken_away(tables, bucket, row)) for row in islice(rows, limit)]


def _rows_of_bucket(table: TableReader[_Row], bucket: BucketRow, prefix: bytes, start_after: str) -> Iterator[_Row]:
    """Yield the rows of a bucket. Rows of a deleted bucket of its name lie between them."""
    start = prefix + start_after.encode() + b"\0" if start_after else prefix
    for _, row in table.scan(start, prefix_end(prefix)):
        if row.bucket_id == bucket.object_id:
            yield row


def _is_taken_away(tables: TablesReader, bucket: BucketRow, row: OpenKeyRow) -> bool:
    """Return whether the version that an open key adds to is not the live one at its place any more."""
    if row.synced is None:
        return False
    is_tree = bucket.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
    live = tables.table(FILE_TABLE if is_tree else KEY_TABLE).get(namespace_key(bucket, row.parent_id, row.name))
    return live is None or not is_version(tables, (bucket.volume_id, bucket.object_id), live, row.synced)


def list_uploads(tables: TablesReader, bucket: BucketRow, start_after: str = "", limit: int = 1_000) -> list[UploadRow]:
    """Return a page of uploads by key, after ``<key>/<upload id>``."""
    prefix = upload_key(bucket.volume, bucket.bucket, "", "")[:-1]
    return list(islice(_rows_of_bucket(tables.table(UPLOAD_TABLE), bucket, prefix, start_after), limit))


def list_parts(
    tables: TablesReader, bucket: BucketRow, key: str, upload_id: str, start_after: int = 0, limit: int = 1_000
) -> list[PartRow]:
    """Return a page of the present parts of an upload by number.

    Raises:
        CommandError: NO_SUCH_MULTIPART_UPLOAD_ERROR.
    """
    find_upload(tables, bucket, key, upload_id)
    start, end = (part_key(upload_id, min(one, MAX_PART_NUMBER) + 1) for one in (start_after, MAX_PART_NUMBER))
    return [part for _, part in islice(tables.table(PART_TABLE).scan(start, end), limit)]
