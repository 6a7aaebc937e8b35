"""Carries the markers of the snapshot chain, as they come from the log, into the view that judges."""

from __future__ import annotations

from schemas.records import ChainDrop, ChainTake, FullChain, SnapshotChainRecord
from services.domain.chain_view import ChainView


def follow(view: ChainView, marker: SnapshotChainRecord) -> tuple[int, ...] | None:
    """Bring the view one step further; says which buckets changed, or None when the marker told nothing new.

    Raises:
        ChainGapError: a marker before this one is missing.
        ChainOrderError: the marker contradicts those before it.
    """
    version, predecessor = marker.version, marker.predecessor_version
    match marker.body:
        case ChainTake() as taken:
            is_new = view.take(version, predecessor, taken.bucket_id, taken.snapshot_id, taken.ordinal, taken.txn)
            return (taken.bucket_id,) if is_new else None
        case ChainDrop() as dropped:
            is_new = view.drop(version, predecessor, dropped.bucket_id, dropped.snapshot_id)
            return (dropped.bucket_id,) if is_new else None
        case FullChain() as chain:
            is_new = view.full(version, chain.buckets)
            return tuple(bucket.bucket_id for bucket in chain.buckets) if is_new else None
