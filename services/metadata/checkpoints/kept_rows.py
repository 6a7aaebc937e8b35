"""Which rows a snapshot checkpoint has to keep.

A checkpoint is made with the rows of all buckets. Reads of a snapshot need those of its own bucket, and of the small
tables of volumes and buckets all. From feature level 2 on the digest covers no others, so they may be left out when
a checkpoint is rewritten.
"""

from __future__ import annotations

from services.domain.table_keys import bucket_id_key, flat_key, snapshot_id_key
from services.metadata.state.tables import (
    BUCKET_ID_TABLE,
    DIRECTORY_TABLE,
    FILE_TABLE,
    KEY_PART_TABLE,
    KEY_TABLE,
    KEY_VERSION_TABLE,
    SNAPSHOT_LIST_TABLE,
    TRANSACTION_INFO_KEY,
    TRANSACTION_INFO_TABLE,
)
from services.storage.defragmentation import Ranges
from services.storage.store import Store, prefix_end
from services.storage.tables import TablesReader

FIRST_LEVEL = 2
"""The feature level from which on a checkpoint keeps the rows of its own bucket only. Release 0.2.0 made digests of
all rows, so a shard that it may go back to keeps them."""


def kept_rows(store: Store, snapshot_id: str) -> Ranges | None:
    """Return which rows the checkpoint of a live snapshot has to keep; None for other checkpoints."""
    tables = TablesReader(store)
    row = tables.table(SNAPSHOT_LIST_TABLE).get(snapshot_id_key(snapshot_id))
    return rows_of_bucket(tables, row.bucket_id) if row is not None and row.is_live else None


def rows_of_bucket(tables: TablesReader, bucket_id: int) -> Ranges:
    """Return the ranges of a bucket's rows in the tables that are kept by bucket; no ranges below the feature level."""
    bucket = tables.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
    state = tables.table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    if bucket is None or state is None or state.feature_level < FIRST_LEVEL:
        return {}
    names, ids = flat_key(bucket.volume, bucket.bucket, ""), b"/%d/%d/" % (bucket.volume_id, bucket_id)
    by_ids = (FILE_TABLE, DIRECTORY_TABLE, KEY_PART_TABLE, KEY_VERSION_TABLE)
    prefixes = {KEY_TABLE.name: names} | {table.name: ids for table in by_ids}
    return {table: (prefix, prefix_end(prefix)) for table, prefix in prefixes.items()}
