"""Buckets that are links: every command and read of a link is one of the bucket to which it leads."""

from __future__ import annotations

from schemas.error_codes import ErrorCode
from schemas.records import BucketRow
from services.domain.refusals import CommandError
from services.domain.table_keys import bucket_key
from services.metadata.state.tables import BUCKET_TABLE
from services.storage.tables import Tables

MAX_LINKS = 32
"""Most links from a name to its bucket."""


def bucket_at(tables: Tables, volume: str, bucket: str) -> BucketRow | None:
    """Return the bucket of a name, or that to which the name leads; None if there is none.

    Raises:
        CommandError: DETECTED_LOOP_IN_BUCKET_LINKS.
    """
    row = tables.table(BUCKET_TABLE).get(bucket_key(volume, bucket))
    return row if row is None or not row.source_bucket else _followed(tables, row)


def _followed(tables: Tables, link: BucketRow) -> BucketRow | None:
    row: BucketRow | None = link
    for _ in range(MAX_LINKS + 1):
        if row is None or not row.source_bucket:
            return row
        row = tables.table(BUCKET_TABLE).get(bucket_key(row.source_volume, row.source_bucket))
    raise CommandError(
        ErrorCode.DETECTED_LOOP_IN_BUCKET_LINKS,
        f"{link.volume}/{link.bucket} leads through more than {MAX_LINKS} links, or round in a circle",
    )
