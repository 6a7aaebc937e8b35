"""Counts by how much blocks grow after a snapshot has seen them.

The space matrix counts whole blocks, and a snapshot references the bytes that it shows. What two snapshots share is
computed from both, so the difference is kept with the snapshot.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import BlockRun
from services.domain.reclaimability import Txn
from services.domain.replication import redundancy_of
from services.metadata.state.transaction import Transaction


def run_has_grown(transaction: Transaction, bucket_id: int, before: BlockRun, after: BlockRun, birth: Txn) -> None:
    """Add bytes to every live snapshot that shows a run of a live version: all that were captured since its birth."""
    added_bytes = after.size_bytes - before.size_bytes
    redundancy = redundancy_of(after) - redundancy_of(before)
    grown = [
        replace(
            snapshot,
            grown_bytes=snapshot.grown_bytes + added_bytes,
            grown_redundancy_bytes=snapshot.grown_redundancy_bytes + redundancy,
        )
        for snapshot in transaction.snapshots.of(transaction.work, bucket_id).live_from(birth)
    ]
    transaction.snapshots.update(transaction.work, bucket_id, grown)
