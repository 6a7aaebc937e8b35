"""Shadow mode: versions that would have been claimed are counted by the hour, and their rows stay.

A version is counted once, at the first claim that all three judges pass. A mark in its row has the hour of the count,
since sweeps repeat the claim. When the version is claimed or undeleted later, it is subtracted from its hour. So the
total is the amount that waits, however often a bucket was in shadow mode. Counts are kept by the hour for the last two
weeks, and as one sum for the time before.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from schemas.records import CollectionState, DeletedKeyRow, ShadowHourRow
from services.domain.durations import HOUR_MS
from services.domain.table_keys import bucket_id_prefix, shadow_key
from services.metadata.state.tables import DELETED_TABLE, SHADOW_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.store import prefix_end

KEPT_HOURS = 14 * 24
BEFORE = 0
"""Stands for all hours before the kept ones."""


def is_in_shadow(transaction: Transaction, bucket_id: int) -> bool:
    """Return whether a bucket is in shadow mode."""
    stopped_because = transaction.counters.claims_stopped
    state = transaction.collection_states.state_of(transaction.work, bucket_id, stopped_because)
    return state is CollectionState.SHADOW


def count_version(transaction: Transaction, bucket_id: int, key: bytes, row: DeletedKeyRow) -> None:
    """Count a version that would have been claimed, unless it was counted before."""
    if row.shadow_hour:
        return
    table, hour = transaction.work.table(SHADOW_TABLE), max(BEFORE + 1, transaction.log_time_ms // HOUR_MS)
    transaction.work.table(DELETED_TABLE).put(key, replace(row, shadow_hour=hour))
    before = table.get(shadow_key(bucket_id, hour))
    if before is None:
        _sum_up_old(transaction, bucket_id, hour)
    counted = ShadowHourRow(1, row.key.size_bytes, row.deletion_time_ms, row.deletion_time_ms)
    table.put(shadow_key(bucket_id, hour), counted if before is None else _together(before, counted))


def has_counted(transaction: Transaction, bucket_id: int) -> bool:
    """Return whether a counted version of a bucket still waits."""
    prefix = bucket_id_prefix(bucket_id)
    return transaction.work.table(SHADOW_TABLE).has_any(prefix, prefix_end(prefix))


def discount_version(transaction: Transaction, bucket_id: int, row: DeletedKeyRow) -> None:
    """Subtract a version that waits no longer from its hour. The hour's span of deletion times stays."""
    if not row.shadow_hour:
        return
    table, key = transaction.work.table(SHADOW_TABLE), shadow_key(bucket_id, row.shadow_hour)
    hour = table.get(key)
    if hour is None:  # merged into the sum since
        key = shadow_key(bucket_id, BEFORE)
        hour = table.get(key)
    if hour is None or hour.versions <= 1:
        table.delete(key)
        return
    table.put(key, replace(hour, versions=hour.versions - 1, bytes=hour.bytes - row.key.size_bytes))


def _together(one: ShadowHourRow, other: ShadowHourRow) -> ShadowHourRow:
    return ShadowHourRow(
        one.versions + other.versions,
        one.bytes + other.bytes,
        min(one.oldest_deletion_ms, other.oldest_deletion_ms),
        max(one.newest_deletion_ms, other.newest_deletion_ms),
    )


def _sum_up_old(transaction: Transaction, bucket_id: int, hour: int) -> None:
    """Merge the hours before the last two weeks into one sum."""
    table = transaction.work.table(SHADOW_TABLE)
    first, end = shadow_key(bucket_id, BEFORE), shadow_key(bucket_id, max(BEFORE, hour - KEPT_HOURS + 1))
    old = list(table.scan(first, end))
    if all(key == first for key, _ in old):
        return
    for key, _ in old:
        table.delete(key)
    table.put(first, reduce(_together, (row for _, row in old)))
