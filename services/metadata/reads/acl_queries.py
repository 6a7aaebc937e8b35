"""Reads access lists."""

from __future__ import annotations

from schemas.error_codes import ErrorCode
from schemas.records import AclObject
from services.domain.acls import Acls
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_key, volume_key
from services.metadata.reads.queries import get_bucket, stat
from services.metadata.state.acl_rows import AclRows
from services.metadata.state.tables import BUCKET_TABLE, VOLUME_TABLE
from services.storage.tables import TablesReader


def acls_of(tables: TablesReader, kind: AclObject, volume: str, bucket: str = "", path: str = "") -> Acls:
    """Return the access list of an object. Raise CommandError if the object is missing."""
    rows = AclRows()
    if kind is AclObject.VOLUME:
        volume_row = tables.table(VOLUME_TABLE).get(volume_key(volume))
        if volume_row is None:
            raise CommandError(ErrorCode.VOLUME_NOT_FOUND, f"there is no volume {volume}")
        return rows.of(tables, volume_row.object_id, volume_row.object_id)
    if kind is AclObject.BUCKET:
        named = tables.table(BUCKET_TABLE).get(bucket_key(volume, bucket)) or get_bucket(tables, volume, bucket)
        return rows.of(tables, named.object_id, named.object_id)
    real = get_bucket(tables, volume, bucket)
    if kind is AclObject.PREFIX:
        return rows.of_prefix(tables, real, path)
    return rows.of(tables, real.object_id, stat(tables, real, path).object_id)
