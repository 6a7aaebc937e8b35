"""The HTTP reads of snapshots: a bucket's snapshots in chain order, its retention, tags and consumers; dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from starlette.routing import Route

from schemas.answers import DeadLetterBytes, DeadLetterCount, RetentionPreview, SnapshotConsumer, SnapshotTag
from schemas.records import DeadLetterRow, RetentionPolicy, RetentionRow, SnapshotInfo
from services.domain.refusals import CommandError
from services.log.clock import Clock, SystemClock
from services.runtime.http.reads import DEFAULT_LIMIT, Asked, Flag, Limit, Number, ReadRoute, Stores
from services.snapshots.lifecycle.sizes import space_complete_until
from services.snapshots.reads import dead_letter_queries, queries, retention_queries
from services.snapshots.reads.dead_letter_queries import Wanted
from services.snapshots.state.rows import is_active
from services.storage.tables import Tables


def routes(stores: Stores, clock: Clock | None = None) -> list[Route]:
    """Return the routes of all reads of the shards that this process serves."""
    clock_or_system = clock or SystemClock()

    def preview(
        asked: Asked,
        volume: str,
        bucket: str,
        now_ms: Number | None = None,
        num_retained_min: Number | None = None,
        num_retained_max: Number | None = None,
        time_retained_ms: Number | None = None,
        expire_limit: Number | None = None,
        consumer_expiration_ms: Number | None = None,
    ) -> RetentionPreview:
        """What retention would drop now, by the bucket's policy with the values that are given here in its place."""
        other = {
            "num_retained_min": num_retained_min,
            "num_retained_max": num_retained_max,
            "time_retained_ms": time_retained_ms,
            "expire_limit": expire_limit,
            "consumer_expiration_ms": consumer_expiration_ms,
        }
        given = {name: value for name, value in other.items() if value is not None}
        at_ms = clock_or_system.now_ms() if now_ms is None else now_ms
        with asked.rows() as tables:
            policy = _policy_with(given, tables, volume, bucket) if given else None
            return retention_queries.preview(tables, volume, bucket, at_ms, policy)

    return [
        ReadRoute("/snapshots", stores, snapshots, applied_txn=space_complete_until),
        ReadRoute("/snapshot", stores, snapshot, applied_txn=space_complete_until),
        ReadRoute("/retention", stores, retention),
        ReadRoute("/retention/preview", stores, preview, applied_txn=space_complete_until),
        ReadRoute("/tags", stores, tags),
        ReadRoute("/consumers", stores, consumers),
        ReadRoute("/dead-letters", stores, dead_letters),
        ReadRoute("/dead-letters/counts", stores, dead_letter_counts),
        ReadRoute("/dead-letter", stores, dead_letter),
    ]


def snapshots(
    asked: Asked,
    volume: str,
    bucket: str,
    start_after: Number = 0,
    with_deleted: Flag = False,
    limit: Limit = DEFAULT_LIMIT,
) -> list[SnapshotInfo]:
    """A page of a bucket's chain: the snapshots captured after the txn ``start_after``."""
    with asked.rows() as tables:
        chain = queries.snapshot_chain(tables, volume, bucket)
    shown = (row for row in chain if row.create_txn > start_after and (with_deleted or is_active(row)))
    return list(islice(shown, limit))


def snapshot(asked: Asked, volume: str, bucket: str, name: str) -> SnapshotInfo:
    """One snapshot of a bucket."""
    with asked.rows() as tables:
        return queries.snapshot_info(tables, volume, bucket, name)


def retention(asked: Asked, volume: str, bucket: str) -> RetentionRow:
    """The retention policy of a bucket."""
    with asked.rows() as tables:
        return retention_queries.retention_of(tables, volume, bucket)


def _policy_with(given: Mapping[str, Any], tables: Tables, volume: str, bucket: str) -> RetentionPolicy:
    """Return the bucket's policy, or the default one, with the values that a request replaces."""
    try:
        base = retention_queries.retention_of(tables, volume, bucket).policy
    except CommandError:
        base = RetentionPolicy()
    return replace(base, **given)


def tags(
    asked: Asked, volume: str, bucket: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT
) -> list[SnapshotTag]:
    """A page of a bucket's tags: those whose name is greater than ``start_after``."""
    with asked.rows() as tables:
        found = retention_queries.list_tags(tables, volume, bucket)
    return list(islice((tag for tag in found if tag.tag > start_after), limit))


def consumers(
    asked: Asked, volume: str, bucket: str, start_after: str = "", limit: Limit = DEFAULT_LIMIT
) -> list[SnapshotConsumer]:
    """A page of a bucket's consumers: those whose name is greater than ``start_after``."""
    with asked.rows() as tables:
        found = retention_queries.list_consumers(tables, volume, bucket)
    return list(islice((one for one in found if one.consumer > start_after), limit))


def dead_letters(
    asked: Asked,
    service: str = "",
    topic: str = "",
    error: str = "",
    since_ms: Number = 0,
    with_resolved: Flag = False,
    start_after: Number | None = None,
    limit: Limit = DEFAULT_LIMIT,
) -> list[DeadLetterRow]:
    """A page of dead letters, newest first, older than the one numbered ``start_after``."""
    with asked.rows() as tables:
        wanted = Wanted(service, topic, error, since_ms, with_resolved)
        return dead_letter_queries.list_letters(tables, wanted, start_after, limit)


def dead_letter_counts(
    asked: Asked,
    service: str = "",
    topic: str = "",
    error: str = "",
    since_ms: Number = 0,
    with_resolved: Flag = False,
) -> list[DeadLetterCount]:
    """The number of dead letters by service, topic and error."""
    with asked.rows() as tables:
        return dead_letter_queries.count_letters(tables, Wanted(service, topic, error, since_ms, with_resolved))


def dead_letter(asked: Asked, number: Number) -> DeadLetterBytes:
    """The message of one dead letter, in hexadecimal digits."""
    with asked.rows() as tables:
        return dead_letter_queries.letter_bytes(tables, number)
