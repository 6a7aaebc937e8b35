"""The commands on replication: of a bucket, and of the buckets that are created from now on."""

from __future__ import annotations

from dataclasses import replace

from schemas.records import Committed, Replication, SetBucketReplication, SetDefaultReplication
from services.domain.table_keys import bucket_key
from services.metadata.namespace.buckets import find_bucket
from services.metadata.state.tables import BUCKET_TABLE
from services.metadata.state.transaction import Transaction


def set_bucket_replication(transaction: Transaction, command: SetBucketReplication) -> Committed:
    """Set how blocks of a bucket are kept that are allocated from now on. Older ones stay as they are."""
    bucket = find_bucket(transaction.work, command.volume, command.bucket)
    changed = replace(bucket, replication=command.replication, update_id=transaction.txn)
    transaction.work.table(BUCKET_TABLE).put(bucket_key(bucket.volume, bucket.bucket), changed)
    _note(transaction, command.replication)
    return Committed(bucket.object_id)


def set_default_replication(transaction: Transaction, command: SetDefaultReplication) -> Committed:
    """Set the replication of the shard's new buckets."""
    transaction.counters.default_replication = command.replication
    _note(transaction, command.replication)
    return Committed(0)


def _note(transaction: Transaction, replication: Replication) -> None:
    """Have deletions look for redundancy from now on, before any block has some."""
    if replication is not Replication.RATIS_ONE:
        transaction.counters.has_redundancy = True
