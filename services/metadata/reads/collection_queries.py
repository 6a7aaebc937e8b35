"""Reads the collection states, and how much waits because of them."""

from __future__ import annotations

from schemas.answers import CollectionStatus, ShadowHour
from schemas.records import BucketIdentity, CollectionRow, CollectionState
from services.domain.collection import WHOLE_SHARD, stricter
from services.domain.durations import HOUR_MS
from services.domain.space_matrix import NOBODY, total
from services.domain.table_keys import bucket_id_key, bucket_id_prefix, bucket_key, cell_key, hour_of_shadow_key
from services.metadata.reads.queries import account_of, get_bucket, shard_state
from services.metadata.state.collection_states import NEVER_SET, own_state, read_collection_rows
from services.metadata.state.space import MAX_UNEXPANDED_COUNT, cell_of, unexpanded_count
from services.metadata.state.tables import (
    ACCOUNT_TABLE,
    BUCKET_ID_TABLE,
    BUCKET_TABLE,
    CLAIM_HOUR_TABLE,
    SHADOW_TABLE,
    SPACE_TABLE,
)
from services.storage.store import prefix_end
from services.storage.tables import TablesReader


def collection_status(
    tables: TablesReader,
    volume: str = "",
    bucket: str = "",
    start_after: int | None = None,
    limit: int = 1_000,
    *,
    shard: int = 0,
) -> list[CollectionStatus]:
    """Return the shard's line, then a page of buckets by id, after the id ``start_after``.

    With a name these are the live bucket and the deleted buckets of that name with waiting or claimed versions; without
    a name all buckets that are suspended or have limits. Ids of later epochs are negative.

    Raises:
        CommandError: there is no bucket of this name, and no deleted one with anything left.
    """
    rows = read_collection_rows(tables)
    lines = [_of_shard(tables, rows.get(WHOLE_SHARD, NEVER_SET), shard)]
    identities = {bucket_id: tables.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id)) for bucket_id in sorted(rows)}
    if bucket:
        shown = [one for one, found in identities.items() if found and (found.volume, found.bucket) == (volume, bucket)]
        left = _left_behind(tables, volume, bucket)
        identities |= left
        shown += [bucket_id for bucket_id in left if bucket_id not in shown]
        row = tables.table(BUCKET_TABLE).get(bucket_key(volume, bucket))
        if row is not None or not shown:
            bucket_id = get_bucket(tables, volume, bucket).object_id
            identities[bucket_id] = tables.table(BUCKET_ID_TABLE).get(bucket_id_key(bucket_id))
            shown = sorted({bucket_id, *shown})
    else:
        shown = [one for one in identities if one and _is_worth_a_line(rows[one])]
    behind = [one for one in sorted(shown) if start_after is None or one > start_after]
    for bucket_id in behind[:limit]:
        identity = identities[bucket_id]
        if identity is not None:
            lines.append(_of_bucket(tables, identity, rows.get(bucket_id, NEVER_SET), lines[0]))
    return lines


def _left_behind(tables: TablesReader, volume: str, bucket: str) -> dict[int, BucketIdentity]:
    """Return the deleted buckets of a name with waiting or claimed versions. Commands can name them by their ids."""
    found = {}
    for _, identity in tables.table(BUCKET_ID_TABLE).scan():
        if identity.is_deleted and (identity.volume, identity.bucket) == (volume, bucket):
            pending = cell_of(tables.table(SPACE_TABLE).get(cell_key(identity.bucket_id, *NOBODY)))
            claimed = account_of(tables, identity.bucket_id).claimed_versions
            if (pending.versions, claimed) != (0, 0) or unexpanded_count(tables, identity.bucket_id, 0, 0, 1):
                found[identity.bucket_id] = identity
    return found


def _is_worth_a_line(row: CollectionRow) -> bool:
    return row.limits is not None or own_state(row) is not CollectionState.RUNNING


def _of_shard(tables: TablesReader, row: CollectionRow, shard: int) -> CollectionStatus:
    # Of each bucket the one cell that no snapshot holds: a matrix of thousands of snapshots has too many to read all.
    identities = (identity for _, identity in tables.table(BUCKET_ID_TABLE).scan())
    pending = total(cell_of(tables.table(SPACE_TABLE).get(cell_key(one.bucket_id, *NOBODY))) for one in identities)
    accounts = [account for _, account in tables.table(ACCOUNT_TABLE).scan()]
    counters = shard_state(tables)
    stopped_because = counters.claims_stopped
    state = own_state(row, stopped_because)
    return CollectionStatus(
        volume="",
        bucket="",
        is_deleted=False,
        bucket_id=WHOLE_SHARD,
        state=state,
        effective_state=state,
        reason=stopped_because or row.reason,
        changed_by=row.changed_by,
        changed_ms=row.changed_ms,
        pending_bytes=pending.bytes,
        pending_versions=pending.versions,
        claimed_bytes=sum(account.claimed_bytes for account in accounts),
        claimed_versions=sum(account.claimed_versions for account in accounts),
        unexpanded_directories=-1,
        limits=row.limits,
        stopped_ms=counters.claims_stopped_ms,
        shard=shard,
    )


def _of_bucket(
    tables: TablesReader, identity: BucketIdentity, row: CollectionRow, everything: CollectionStatus
) -> CollectionStatus:
    bucket_id = identity.bucket_id
    pending = cell_of(tables.table(SPACE_TABLE).get(cell_key(bucket_id, *NOBODY)))
    account = account_of(tables, bucket_id)
    return CollectionStatus(
        volume=identity.volume,
        bucket=identity.bucket,
        is_deleted=identity.is_deleted,
        bucket_id=bucket_id,
        state=own_state(row),
        effective_state=stricter(everything.state, own_state(row)),
        reason=row.reason,
        changed_by=row.changed_by,
        changed_ms=row.changed_ms,
        pending_bytes=pending.bytes,
        pending_versions=pending.versions,
        claimed_bytes=account.claimed_bytes,
        claimed_versions=account.claimed_versions,
        unexpanded_directories=unexpanded_count(tables, bucket_id, 0, 0, MAX_UNEXPANDED_COUNT),
        limits=row.limits,
        trip=row.trip,
        hour=tables.table(CLAIM_HOUR_TABLE).get(bucket_id_key(bucket_id)),
        stopped_ms=everything.stopped_ms,
        shard=everything.shard,
        shadow=_shadow(tables, bucket_id),
    )


def _shadow(tables: TablesReader, bucket_id: int) -> tuple[ShadowHour, ...]:
    prefix = bucket_id_prefix(bucket_id)
    return tuple(
        ShadowHour(
            hour_of_shadow_key(key) * HOUR_MS, row.versions, row.bytes, row.oldest_deletion_ms, row.newest_deletion_ms
        )
        for key, row in tables.table(SHADOW_TABLE).scan(prefix, prefix_end(prefix))
    )
