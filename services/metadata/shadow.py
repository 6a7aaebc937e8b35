"""The shadow: what would have been claimed is counted by the hour, and stays where it is.

A version is counted once, by the first claim that all three judges let pass; a mark in its row says so, since sweeps
bring it again and again. Of each bucket the last two weeks are kept.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.codec import codec
from schemas.records import CollectorState, DeletedKeyRow, ShadowHourRow
from services.domain.durations import HOUR_MS
from services.domain.table_keys import bucket_id_prefix, shadow_key
from services.metadata.tables import DELETED_TABLE, SHADOW_TABLE
from services.metadata.transaction import Transaction

KEPT_HOURS = 14 * 24
_DELETED_KEY_ROW = codec(DeletedKeyRow)


def is_in_shadow(transaction: Transaction, bucket_id: int) -> bool:
    """Whether claims of a bucket are made to be counted alone."""
    stopped_because = transaction.counters.claims_stopped
    state = transaction.collectors.state_of(transaction.work, bucket_id, stopped_because)
    return state is CollectorState.SHADOW


def count_version(transaction: Transaction, bucket_id: int, key: bytes, encoded: bytes) -> None:
    """A version of a bucket in the shadow would have been claimed."""
    row = _DELETED_KEY_ROW.decode(encoded)
    if row.is_shadowed:
        return
    transaction.work.table(DELETED_TABLE).put(key, replace(row, is_shadowed=True))
    table, hour = transaction.work.table(SHADOW_TABLE), transaction.log_time_ms // HOUR_MS
    before = table.get(shadow_key(bucket_id, hour))
    if before is None:
        _forget_old(transaction, bucket_id, hour)
        before = ShadowHourRow(0, 0, row.deletion_time_ms, row.deletion_time_ms)
    after = ShadowHourRow(
        before.versions + 1,
        before.bytes + row.key.size_bytes,
        min(before.oldest_deletion_ms, row.deletion_time_ms),
        max(before.newest_deletion_ms, row.deletion_time_ms),
    )
    table.put(shadow_key(bucket_id, hour), after)


def _forget_old(transaction: Transaction, bucket_id: int, hour: int) -> None:
    table = transaction.work.table(SHADOW_TABLE)
    for key, _ in list(table.scan(bucket_id_prefix(bucket_id), shadow_key(bucket_id, max(0, hour - KEPT_HOURS + 1)))):
        table.delete(key)
